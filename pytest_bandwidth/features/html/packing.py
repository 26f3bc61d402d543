"""Pack the data of the HTML summary's script: texts that repeat are written once and then named by their number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_bandwidth.features.html.charts.detail import detail_specs
from pytest_bandwidth.features.html.detail_charts import samples_each
from pytest_bandwidth.features.html.details import detail_of
from pytest_bandwidth.features.html.table import Table
from pytest_bandwidth.reports.columns import columns
from pytest_bandwidth.reports.pages.template import embedded
from pytest_bandwidth.reports.pages.theme import DARK, LIGHT
from pytest_bandwidth.storage.saved_run import RunDocument

_FACT_GROUPS = ("verdict", "measured", "work")


def page_data(run: RunDocument, table: Table, specs: Mapping[str, Any]) -> str:
    """Return the data as `embedded` in the page; rows in the table's order."""
    each = samples_each(len(run.outcomes))
    texts, facts = _Numbers(), columns("details")
    position = {row.index: place for place, row in enumerate(table.rows)}
    data = {
        "panels": [_packed(detail_of(run.outcomes[row.index], each, facts), texts) for row in table.rows],
        "texts": list(texts),
        "sort": {
            column.key: [_short(row.cells[i].sort, 9) for row in table.rows] for i, column in enumerate(table.columns)
        },
        "rowOf": [position[index] for index in range(len(run.outcomes))] if specs else [],
        "charts": {name: _light(spec) for name, spec in specs.items()},
        "detailCharts": detail_specs() if specs else {},
        "palettes": {"light": LIGHT, "dark": DARK},
    }
    return embedded(data)


class _Numbers(dict[str, int]):
    """Number texts in the order in which they are first asked for; most have been."""

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        return number


def _packed(panel: dict[str, Any], texts: _Numbers) -> dict[str, Any]:
    for group in _FACT_GROUPS:
        if group in panel:
            panel[group] = [texts[text] for fact in panel[group] for text in fact]
    if "conditions" in panel:
        panel["conditions"] = [texts[text] for line in panel["conditions"] for text in line]
    if "findings" in panel:
        panel["findings"] = [texts[text or code] for code, text in panel["findings"]]
    if "history" in panel:
        history = panel["history"]
        history["runs"] = [item for value, stamp in history["runs"] for item in (value, texts[stamp])]
    return panel


def _light(spec: Any) -> Any:
    """Return a spec whose figures have five digits: enough to draw."""
    if isinstance(spec, Mapping):
        return {name: _light(value) for name, value in spec.items()}
    return [_light(item) for item in spec] if isinstance(spec, list) else _short(spec)


def _short(value: Any, digits: int = 5) -> Any:
    """Return a float with so many digits: two that the table shows apart sort apart."""
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value
