"""Write the HTML summary: one self-contained file that needs no network and trusts nothing in the document.

How it keeps what is hostile from running: `html_page`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pytest_bandwidth.domain.text import short_commit
from pytest_bandwidth.features.html.charts import detail_specs, token_specs
from pytest_bandwidth.features.html.details import detail_of, samples_each
from pytest_bandwidth.features.html.table import Row, Table, table_of
from pytest_bandwidth.outcomes.run_findings import DEVICE_LOSS
from pytest_bandwidth.reports.columns import columns
from pytest_bandwidth.reports.pages.chart_library import MISSING, bundle_in_the_making, charts_available
from pytest_bandwidth.reports.pages.charts import DARK, LIGHT
from pytest_bandwidth.reports.pages.template import Templates
from pytest_bandwidth.reports.summary import RunSummary, summary_of_run
from pytest_bandwidth.reports.text_safe import clean, key_text, one_line, prose, scalar_text
from pytest_bandwidth.reports.wording import message_lines
from pytest_bandwidth.storage.saved_run import RunDevice, RunDocument, read_document

FAILURES_LISTED = 12
PAIRS_AT_MOST = 100
# Groups of a panel that hold lines of texts.
_TEXT_GROUPS = ("verdict", "measured", "work", "conditions")
_TEMPLATES = Templates("pytest_bandwidth.features.html")
# About what title, legend and axis add to a chart's height, in pixels.
CHART_FRAME = 110


def render_html(document: Mapping[str, Any]) -> str:
    """Return the page of a run document. Raises UsageError where the document is not one (see `read_document`)."""
    run = read_document(document)
    if not (charts_available() and run.outcomes):
        return _page(run, {}, lambda: "")
    # Making the chart library takes longer than making the page.
    with bundle_in_the_making() as library:
        return _page(run, token_specs(run), library)


def _page(run: RunDocument, specs: Mapping[str, Any], library: Callable[[], str]) -> str:
    table, summary, device = table_of(run), summary_of_run(run), run.device
    memory = f"{device.memory_gib:.0f} GiB" if device.memory_gib is not None else ""
    facts = [one_line(device.name, 120), memory, "" if device.timed_on == "nothing" else _peak_words(device)]
    if commit := run.environment.get("commit"):
        facts.append(f"commit {one_line(short_commit(scalar_text(commit)), 48)}")
    facts.append(one_line(scalar_text(run.environment.get("started_at") or ""), 48))
    facts.append(f"against {one_line(run.baseline_path, 120)}" if run.baseline_path else "no baseline")
    return _TEMPLATES.page(
        "report.html.j2",
        columns=table.columns,
        script="report.js",
        library=library,
        data=_page_data(run, table, specs),
        title=f"{summary.sentence} · {one_line(device.name, 60)}",
        summary=summary,
        subtitle=[fact for fact in facts if fact],
        findings=[(clean(note.code, 80), prose(note.text)) for note in run.findings],
        notable=(DEVICE_LOSS,),
        failures=_failures(run, summary, table),
        failures_listed=FAILURES_LISTED,
        table=table,
        rows=_TEMPLATES.render("rows.html.j2", table=table),
        chart_columns=_columns(specs),
        wide_charts=[name for name, spec in specs.items() if "facet" in spec],
        charts_missing=None if charts_available() else MISSING,
        environment=_environment(run),
    )


def _failures(run: RunDocument, summary: RunSummary, table: Table) -> list[tuple[Row, str, str]]:
    """Return failed results with the first line that their tests said, and the others.

    Where none failed there is nothing to list.
    """
    found = []
    for row in table.rows if summary.severity == "bad" else ():
        if row.severity == "bad":
            first, *others = message_lines(run.outcomes[row.index])
            # The status stands in front of it.
            said = prose(first.removeprefix(f"{row.status}: "))
            found.append((row, said, prose("\n".join(line.removeprefix("    ") for line in others))))
    return found


def _peak_words(device: RunDevice) -> str:
    if device.peak_gbps is None:
        return "peak unknown"
    source = one_line(device.peak_source, 120)
    return f"peak {device.peak_gbps:.0f} GB/s ({source})" if source else f"peak {device.peak_gbps:.0f} GB/s"


def _environment(run: RunDocument) -> list[tuple[str, list[tuple[str, str]]]]:
    device = run.device
    own = [("kind", clean(device.kind, 100)), ("name", clean(device.name, 400)), ("serial", clean(device.serial, 400))]
    own += [("memory", f"{device.memory_gib:.0f} GiB")] if device.memory_gib is not None else []
    own += [("peak", _peak_words(device).removeprefix("peak "))]
    groups = [
        ("Device", [*own, *_pairs(device.settings), *_pairs(device.facts)]),
        ("Run", [("run id", clean(run.run_id, 200)), *_pairs(run.environment)]),
        ("Settings", _pairs({name: value for name, value in run.settings.items() if value not in (None, False)})),
    ]
    return [
        (title, [(name.replace("_", " "), value) for name, value in pairs if value]) for title, pairs in groups if pairs
    ]


def _pairs(plain: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(key_text(name), scalar_text(value)) for name, value in list(plain.items())[:PAIRS_AT_MOST]]


def _columns(specs: Mapping[str, Any]) -> list[list[str]]:
    """Return two columns of about equal height; charts of many small ones take the whole width below."""
    columns: tuple[list[str], list[str]] = ([], [])
    heights = [0, 0]
    for name, spec in specs.items():
        if "facet" not in spec:
            shorter = 0 if heights[0] <= heights[1] else 1
            columns[shorter].append(name)
            heights[shorter] += spec["height"] + CHART_FRAME
    return [column for column in columns if column]


def _page_data(run: RunDocument, table: Table, specs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page's script reads; rows in the table's order."""
    each = samples_each(len(run.outcomes))
    texts, facts = _Numbers(), columns("details")
    position = {row.index: place for place, row in enumerate(table.rows)}
    return {
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


class _Numbers(dict[str, int]):
    """Number texts in the order in which they are first asked for; most have been."""

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        return number


def _packed(panel: dict[str, Any], texts: _Numbers) -> dict[str, Any]:
    for group in _TEXT_GROUPS:
        if group in panel:
            panel[group] = [texts[text] for line in panel[group] for text in line]
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
