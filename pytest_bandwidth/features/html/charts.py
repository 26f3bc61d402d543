"""Draw a run's charts as Vega-Lite specs; render them as SVG or PNG through vl-convert (the extra ``report``).

The roofline shows the results that compute under the device's roofs (Williams, Waterman, Patterson: Roofline, CACM
52(4), 2009). The bandwidth chart compares every GB/s with the device's peak and the result's own probe.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any, Literal

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.units import digits
from pytest_bandwidth.reports.pages import (
    LIGHT,
    MISSING,
    TIP_OF_ROW,
    Spec,
    base,
    charts_available,
    ending_encoding,
    gravest_last,
    identity,
    layer,
    log_encoding,
    quantitative,
    resolved,
    test_name,
    unique,
)
from pytest_bandwidth.reports.text_safe import one_line
from pytest_bandwidth.storage.saved_run import RunDocument, read_document

# With more results than this, a scatter over the bytes moved replaces the named rows.
NAMED_ROWS_AT_MOST = 36
ROOFS_AT_MOST = 6
PNG_SCALE = 2.0

Points = list[dict[str, Any]]


def chart_specs(document: Mapping[str, Any]) -> dict[str, Spec]:
    """Return Vega-Lite specs by name, light colours, data inline; a chart that the run has no data for is left out."""
    return {name: resolved(spec, LIGHT) for name, spec in token_specs(read_document(document)).items()}


def render_chart(document: Mapping[str, Any], name: str | None, format: Literal["svg", "png"]) -> bytes:
    """Render one chart as a file's content; without a name the first.

    Raises UsageError for a chart that the run lacks, or without vl-convert.
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


def _dots(size: int, opacity: float = 1) -> Spec:
    return {"type": "point", "filled": True, "size": size, "opacity": opacity, "cursor": "pointer"}


def _by_ending(points: Points, **place: Spec) -> Spec:
    """Return the encoding of points: their place, their colour and shape, and the tooltip with their row."""
    return {**place, **ending_encoding({point["ending"] for point in points}), "tooltip": TIP_OF_ROW}


def _gbps(field: str, **scale: Any) -> Spec:
    return quantitative(field, scale or {"zero": True}, {"title": "GB/s", "tickCount": 5})


def _rows(field: str, names: Sequence[str], **axis: Any) -> Spec:
    return {"field": field, "type": "nominal", "sort": names, "axis": {"title": None, **axis, "labelColor": "$ink"}}


# ---- bandwidth -------------------------------------------------------------------------------------------------------


def bandwidth_spec(run: RunDocument) -> Spec | None:
    """Return one named row for each result, or a scatter where there are many; None where nothing was timed."""
    points = [
        {**identity(run, i, one), "gbps": one.gbps, "probe": one.probe_gbps, "bytes": one.bytes_moved}
        for i, one in enumerate(run.outcomes)
        if one.gbps is not None and one.gbps > 0
    ]
    if not points:
        return None
    if len(points) <= NAMED_ROWS_AT_MOST:
        return _named(run, points)
    points = [point for point in points if point["bytes"] > 0] or points
    words = _peak_words(run).removeprefix("; ")
    spec = base(_title(run), words, f"GB/s of {len(points)} measurements over the bytes each moves", 300)
    x = log_encoding("bytes", "bytes moved", [max(p["bytes"], 1) for p in points], "~s")
    marks = layer(_dots(40, 0.75), _by_ending(points, x=x, y=_gbps("gbps")), gravest_last(points))
    spec["layer"] = [*_peak_rule(run, "y"), marks]
    return spec


def _named(run: RunDocument, points: Points) -> Spec:
    peak = run.device.peak_gbps
    points.sort(key=lambda p: p["gbps"] / (peak or p["probe"] or p["gbps"]))
    names = unique([test_name(run.outcomes[point["row"]]) for point in points])
    points = [{**point, "name": name} for point, name in zip(points, names, strict=True)]
    order = f"furthest from {'the peak' if peak else 'its probe'} first"
    description = f"GB/s of {len(points)} measurements, {order}"
    legend = f"{order}; bar: achieved; tick: its probe{_peak_words(run)}"
    spec = base(_title(run), legend, description, 14 + 18 * len(points))
    y = _rows("name", names, grid=False)
    bar = {"type": "bar", "color": "$mark-soft", "height": {"band": 0.55}}
    tick = {"type": "tick", "color": "$axis", "thickness": 2, "height": {"band": 0.9}}
    with_probe = [{"filter": "isValid(datum.probe)"}]
    spec["data"] = {"values": points}
    spec["layer"] = [
        *_peak_rule(run, "x"),
        layer(bar, {"y": y, "x": _gbps("gbps"), "tooltip": TIP_OF_ROW}),
        layer(tick, {"y": y, "x": _gbps("probe"), "tooltip": TIP_OF_ROW}, transform=with_probe),
        layer(_dots(55), _by_ending(points, y=y, x=_gbps("gbps"))),
    ]
    return spec


def _peak_rule(run: RunDocument, axis: str) -> Iterable[Spec]:
    if run.device.peak_gbps is not None:
        yield layer({"type": "rule", "color": "$axis"}, {axis: _gbps("gbps")}, [{"gbps": run.device.peak_gbps}])


def _title(run: RunDocument) -> str:
    return "Bandwidth" if run.device.peak_gbps is None else "Bandwidth against peak"


def _peak_words(run: RunDocument) -> str:
    return "" if run.device.peak_gbps is None else f"; line: peak, {digits(run.device.peak_gbps)} GB/s"


# ---- roofline --------------------------------------------------------------------------------------------------------


def roofline_spec(run: RunDocument) -> Spec | None:
    """Return GFLOP/s over FLOP/byte, log-log; None where no result computes anything. Roofs are drawn where known."""
    points = _roofline_points(run)
    if not points:
        return None
    intensities = [p["intensity"] for p in points]
    low, high = min(intensities) / 1.6, max(intensities) * 1.6
    rates = [o.probe_gbps for o in run.outcomes if o.probe_gbps is not None and o.probe_gbps > 0 and o.flop > 0]
    slope = median(rates) if rates else None
    roofs = _roofs(run, low, high, slope)
    x = log_encoding("intensity", "arithmetic intensity, FLOP/byte", [low, high], "~g")
    y = log_encoding("gflops", "achieved, GFLOP/s", [p["gflops"] for p in (*points, *roofs)], "~s")
    silent = len(run.outcomes) - len(points)
    left_out = f"; {silent} that compute nothing are left out" if silent else ""
    description = f"Roofline of {len(points)} measurements, log-log{left_out}"
    known = (("solid: peak", run.device.peak_gbps), ("dotted: the probes' median", slope))
    subtitle = "; ".join(f"{what}, {digits(gbps)} GB/s" for what, gbps in known if gbps is not None)
    spec = base("Roofline", subtitle, description, 300)
    marks = layer(_dots(55, 0.85), _by_ending(points, x=x, y=y), gravest_last(points))
    spec["layer"] = [*_roof_layers(roofs, x, y), marks]
    return spec


def _roofline_points(run: RunDocument) -> Points:
    """Return the points of results that compute."""
    points: Points = []
    for i, one in enumerate(run.outcomes):
        intensity, seconds, gbps = one.arithmetic_intensity, one.seconds, one.gbps
        if one.flop > 0 and intensity and seconds and gbps and min(intensity, seconds, gbps) > 0:
            points.append({**identity(run, i, one), "intensity": intensity, "gflops": one.flop / seconds / 1e9})
    return points


def _roofs(run: RunDocument, low: float, high: float, slope: float | None) -> Points:
    """Return corners of a roof for each precision whose compute peak is known, and of the probe's slope.

    Without a compute peak, only the memory's slope is drawn.
    """
    corners: Points = []
    peaks: dict[str, float] = {}
    if (peak := run.device.peak_gbps) is not None:
        # GFLOP/s by precision: the ridge point of each result times the peak that it was computed with.
        for one in run.outcomes:
            if one.flop > 0 and one.ridge_point is not None and one.ridge_point > 0 and len(peaks) < ROOFS_AT_MOST:
                peaks.setdefault(one_line(one.precision or "", 20), one.ridge_point * peak)
        for precision, gflops in peaks.items():
            name = f"{digits(gflops / 1000)} TFLOP/s {precision}".rstrip()
            ridge = min(max(gflops / peak, low), high)
            corners += [_corner(name, x, min(gflops, x * peak)) for x in sorted({low, ridge, high})]
        if not peaks:
            corners = [_corner("", x, x * peak) for x in (low, high)]
    if slope is not None:
        # The bandwidth that the probe reached, up to the highest roof.
        end = min(high, max(peaks.values()) / slope) if peaks else high
        corners += [_corner("probe", x, x * slope) for x in (low, end) if x >= low]
    return corners


def _corner(roof: str, intensity: float, gflops: float) -> dict[str, Any]:
    return {"roof": roof, "intensity": intensity, "gflops": gflops}


def _roof_layers(roofs: Points, x: Spec, y: Spec) -> Iterable[Spec]:
    if not roofs:
        return
    dashed = {"condition": {"test": "datum.roof === 'probe'", "value": [2, 3]}, "value": [1, 0]}
    detail, color = {"field": "roof", "type": "nominal"}, {"value": "$axis"}
    encoding = {"x": x, "y": y, "detail": detail, "color": color, "strokeDash": dashed}
    yield layer({"type": "line", "strokeWidth": 1.25}, encoding, roofs)
    names = {roof["roof"]: roof for roof in roofs if roof["roof"] not in ("", "probe")}  # the last corner of each
    mark = {"type": "text", "align": "right", "baseline": "bottom", "dy": -4}
    yield layer(mark, {"x": x, "y": y, "text": {"field": "roof"}}, list(names.values()))


CHARTS: Mapping[str, Callable[[RunDocument], Spec | None]] = {
    "roofline": roofline_spec,
    "bandwidth": bandwidth_spec,
}
