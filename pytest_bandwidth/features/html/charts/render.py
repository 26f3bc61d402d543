"""Render a run's charts as Vega-Lite specs, and as SVG or PNG through vl-convert (the extra ``report``)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.html.charts.bandwidth import bandwidth_spec
from pytest_bandwidth.features.html.charts.roofline import roofline_spec
from pytest_bandwidth.features.html.charts.series import pairs_spec, sweeps_spec
from pytest_bandwidth.reports.pages.chart_library import MISSING, charts_available
from pytest_bandwidth.reports.pages.theme import LIGHT, Spec, resolved
from pytest_bandwidth.storage.saved_run import RunDocument, read_document

CHARTS: Mapping[str, Callable[[RunDocument], Spec | None]] = {
    "roofline": roofline_spec,
    "bandwidth": bandwidth_spec,
    "pairs": pairs_spec,
    "sweeps": sweeps_spec,
}
PNG_SCALE = 2.0


def chart_specs(document: Mapping[str, Any]) -> dict[str, Spec]:
    """Return Vega-Lite specs by name, light colours, data inline; a chart that the run has no data for is left out."""
    return {name: resolved(spec, LIGHT) for name, spec in token_specs(read_document(document)).items()}


def render_chart(document: Mapping[str, Any], name: str | None, format: Literal["svg", "png"]) -> bytes:
    """Render one chart as a file's content; without a name the first.

    Raises UsageError for one that the run has not, or without vl-convert.
    """
    specs = chart_specs(document)
    if not specs:
        raise UsageError("found no figures to chart, expected a run that took times or counted FLOP")
    name = next(iter(specs)) if name is None else name
    if name not in specs:
        raise UsageError(f"--chart: found {name[:40]!r}, expected one that this run has data for: {', '.join(specs)}")
    if not charts_available():
        raise UsageError(MISSING)
    import vl_convert

    text = json.dumps(specs[name])
    if format == "svg":
        return vl_convert.vegalite_to_svg(text).encode()
    return bytes(vl_convert.vegalite_to_png(text, scale=PNG_SCALE))


def token_specs(run: RunDocument) -> dict[str, Spec]:
    """Return specs with colour tokens in place of colours, for a page that follows the reader's colour scheme."""
    specs = {name: make(run) for name, make in CHARTS.items()}
    return {name: spec for name, spec in specs.items() if spec is not None}
