"""The roofline and the bandwidth charts: where the results of a run stand against what the device can do.

Roofline: Williams, Waterman, Patterson, CACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from pytest_bandwidth.domain.outcome import Outcome
from pytest_bandwidth.domain.units import digits, format_bytes, format_percent
from pytest_bandwidth.domain.verdict import Status
from pytest_bandwidth.rendering.charts_theme import ENDINGS, Spec, base, ending_encoding
from pytest_bandwidth.rendering.document import RunDocument, one_line
from pytest_bandwidth.rendering.headline import tone_of

NAME_AT_MOST = 80
# With more results than this, named rows give way to a scatter over the bytes moved.
NAMED_ROWS_AT_MOST = 36


def roofline_spec(run: RunDocument) -> Spec | None:
    """GFLOP/s over FLOP/byte, log-log; None where no result computes anything. Roofs are drawn where known."""
    points = [
        {
            **_identity(run, index, outcome),
            "intensity": outcome.arithmetic_intensity,
            "gflops": outcome.flop / outcome.seconds / 1e9,
            "FLOP/byte": digits(outcome.arithmetic_intensity),
            "GFLOP/s": digits(outcome.flop / outcome.seconds / 1e9),
            "bandwidth": f"{digits(outcome.gbps)} GB/s",
        }
        for index, outcome in enumerate(run.outcomes)
        if outcome.flop > 0
        and outcome.seconds
        and outcome.arithmetic_intensity
        and outcome.gbps
        and outcome.seconds > 0
        and outcome.arithmetic_intensity > 0
    ]
    if not points:
        return None
    silent = len(run.outcomes) - len(points)
    left_out = f"; {silent} that compute nothing are not drawn" if silent else ""
    spec = base("Roofline", f"Roofline of {len(points)} measurements, log-log{left_out}", 300)
    low = min(p["intensity"] for p in points) / 2
    high = max(p["intensity"] for p in points) * 2
    spec["layer"] = [
        *_roofs(run, low, high),
        {
            "data": {"values": _gravest_last(points)},
            "mark": {"type": "point", "filled": True, "size": 55, "opacity": 0.85, "cursor": "pointer"},
            "encoding": {
                "x": _log("intensity", "arithmetic intensity, FLOP/byte", [low, high]),
                "y": _log("gflops", "achieved, GFLOP/s"),
                **ending_encoding({p["ending"] for p in points}),
                "tooltip": _tooltip("test", "status", "bandwidth", "FLOP/byte", "GFLOP/s"),
            },
        },
    ]
    return spec


def bandwidth_spec(run: RunDocument) -> Spec | None:
    """GB/s of every result against the device's peak and its own probe; None where nothing was timed."""
    points: list[dict[str, Any]] = [
        {
            **_identity(run, index, outcome),
            "gbps": outcome.gbps,
            "probe": outcome.probe_gbps,
            "bytes": outcome.bytes_moved,
            "bandwidth": f"{digits(outcome.gbps)} GB/s",
            "of peak": _share(outcome, "peak"),
            "of probe": "–" if outcome.relative is None else format_percent(outcome.relative, 1),
            "moved": format_bytes(outcome.bytes_moved),
        }
        for index, outcome in enumerate(run.outcomes)
        if outcome.gbps is not None and outcome.gbps > 0
    ]
    if not points:
        return None
    return _named(run, points) if len(points) <= NAMED_ROWS_AT_MOST else _scattered(run, points)


def _named(run: RunDocument, points: list[dict[str, Any]]) -> Spec:
    points.sort(key=lambda p: -p["gbps"])
    seen: dict[str, int] = {}
    for point in points:
        seen[point["test"]] = count = seen.get(point["test"], 0) + 1
        point["name"] = point["test"] if count == 1 else f"{point['test']} ({count})"
    spec = base(
        "Bandwidth against peak", f"GB/s of {len(points)} measurements, the largest first", 14 + 17 * len(points)
    )
    y = {
        "field": "name",
        "type": "nominal",
        "sort": [p["name"] for p in points],
        "axis": {"title": None, "grid": False, "labelColor": "$ink"},
    }
    tooltip = _tooltip("test", "status", "bandwidth", "of peak", "of probe", "moved")
    spec["data"] = {"values": points}
    spec["layer"] = [
        *_peak_rule(run, "x"),
        {
            "mark": {"type": "bar", "color": "$mark-soft", "height": {"band": 0.55}},
            "encoding": {"y": y, "x": _from_zero("gbps", "GB/s"), "tooltip": tooltip},
        },
        {
            "transform": [{"filter": "isValid(datum.probe)"}],
            "mark": {"type": "tick", "color": "$axis", "thickness": 2, "height": {"band": 0.9}},
            "encoding": {"y": y, "x": _from_zero("probe", "GB/s"), "tooltip": tooltip},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 55, "opacity": 1, "cursor": "pointer"},
            "encoding": {
                "y": y,
                "x": _from_zero("gbps", "GB/s"),
                **ending_encoding({p["ending"] for p in points}),
                "tooltip": tooltip,
            },
        },
    ]
    return spec


def _scattered(run: RunDocument, points: list[dict[str, Any]]) -> Spec:
    spec = base("Bandwidth against peak", f"GB/s of {len(points)} measurements over the bytes that each moves", 300)
    spec["layer"] = [
        *_peak_rule(run, "y"),
        {
            "data": {"values": _gravest_last(points)},
            "transform": [{"filter": "datum.bytes > 0"}],
            "mark": {"type": "point", "filled": True, "size": 40, "opacity": 0.75, "cursor": "pointer"},
            "encoding": {
                "x": _log("bytes", "bytes moved", label="s"),
                "y": _from_zero("gbps", "GB/s"),
                **ending_encoding({p["ending"] for p in points}),
                "tooltip": _tooltip("test", "status", "bandwidth", "of peak", "of probe", "moved"),
            },
        },
    ]
    return spec


def _roofs(run: RunDocument, low: float, high: float) -> Iterable[Spec]:
    """Peak roofs by precision, and the slope that the probe reached: what memory really gives."""
    peak = run.device.peak_gbps
    lines: list[dict[str, Any]] = []
    if peak is not None:
        for precision, gflops in _compute_peaks(run.outcomes, peak).items():
            ridge = gflops / peak
            name = f"{digits(gflops / 1000)} TFLOP/s {precision}".rstrip()
            lines += [
                {"roof": name, "x": x, "y": min(gflops, x * peak)}
                for x in sorted({low, min(max(ridge, low), high), high})
            ]
        if not lines:
            lines = [{"roof": "", "x": x, "y": x * peak} for x in (low, high)]
    probes = [o.probe_gbps for o in run.outcomes if o.probe_gbps and o.flop > 0]
    if probes:
        slope = median(probes)
        lines += [{"roof": "probe", "x": x, "y": x * slope} for x in (low, high) if peak is None or x == low]
        if peak is not None:
            top = max((line["y"] for line in lines), default=slope * high)
            lines.append({"roof": "probe", "x": min(high, top / slope), "y": min(high, top / slope) * slope})
    if not lines:
        return
    yield {
        "data": {"values": lines},
        "mark": {"type": "line", "strokeWidth": 1.25},
        "encoding": {
            "x": _log("x", None, [low, high]),
            "y": _log("y", None),
            "detail": {"field": "roof", "type": "nominal"},
            "color": {"value": "$axis"},
            "strokeDash": {"condition": {"test": "datum.roof === 'probe'", "value": [2, 3]}, "value": [1, 0]},
        },
    }
    yield from _roof_labels(run, lines, low, high)


def _roof_labels(run: RunDocument, lines: list[dict[str, Any]], low: float, high: float) -> Iterable[Spec]:
    flat = [
        {"x": high, "y": line["y"], "text": line["roof"]}
        for line in lines
        if line["x"] == high and line["roof"] not in ("", "probe")
    ]
    slopes = []
    if run.device.peak_gbps is not None:
        slopes.append({"x": low, "y": low * run.device.peak_gbps, "text": f"{digits(run.device.peak_gbps)} GB/s peak"})
    for labels, align, baseline, shift in ((flat, "right", "bottom", -4), (slopes, "left", "bottom", -6)):
        if labels:
            yield {
                "data": {"values": labels},
                "mark": {
                    "type": "text",
                    "align": align,
                    "baseline": baseline,
                    "dy": shift,
                    "dx": 4 if align == "left" else -2,
                },
                "encoding": {"x": _log("x", None, [low, high]), "y": _log("y", None), "text": {"field": "text"}},
            }


def _compute_peaks(outcomes: Iterable[Outcome], peak_gbps: float) -> Mapping[str, float]:
    """GFLOP/s by precision: the ridge point of each result times the peak that it was computed with."""
    found: dict[str, float] = {}
    for outcome in outcomes:
        if outcome.flop > 0 and outcome.ridge_point is not None and outcome.ridge_point > 0:
            found.setdefault(one_line(outcome.precision or "", 20), outcome.ridge_point * peak_gbps)
    return dict(list(found.items())[:6])


def _peak_rule(run: RunDocument, axis: str) -> Iterable[Spec]:
    peak = run.device.peak_gbps
    if peak is None:
        return
    place = {axis: {"field": "peak", "type": "quantitative"}}
    values = {"values": [{"peak": peak, "text": f"peak {digits(peak)}"}]}
    yield {"data": values, "mark": {"type": "rule", "color": "$axis"}, "encoding": place}
    label = {"type": "text", "baseline": "bottom", "dy": -3}
    if axis == "x":
        yield {
            "data": values,
            "mark": {**label, "align": "right", "dx": 2},
            "encoding": {**place, "y": {"value": 0}, "text": {"field": "text"}},
        }
    else:
        yield {
            "data": values,
            "mark": {**label, "align": "left"},
            "encoding": {**place, "x": {"value": 2}, "text": {"field": "text"}},
        }


def _identity(run: RunDocument, index: int, outcome: Outcome) -> dict[str, Any]:
    status = Status[outcome.status]
    return {
        "row": index,
        "test": one_line(outcome.short_name, NAME_AT_MOST),
        "status": outcome.status,
        "ending": ENDINGS[tone_of(status, strict=run.strict)],
    }


def _gravest_last(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    order = list(ENDINGS.values())
    return sorted(points, key=lambda p: order.index(p["ending"]))


def _share(outcome: Outcome, of: str) -> str:
    known = outcome.utilization is not None and outcome.utilization_of == of
    return format_percent(outcome.utilization or 0.0, 1) if known else "–"


def _log(field: str, title: str | None, domain: list[float] | None = None, label: str | None = None) -> Spec:
    scale: Spec = {"type": "log"}
    if domain is not None:
        scale["domain"] = domain
    axis: Spec = {"title": title, "tickCount": 6} if title else {}
    if label:
        axis["format"] = label
    return {"field": field, "type": "quantitative", "scale": scale, **({"axis": axis} if axis else {"title": None})}


def _from_zero(field: str, title: str) -> Spec:
    return {"field": field, "type": "quantitative", "scale": {"zero": True}, "axis": {"title": title, "tickCount": 5}}


def _tooltip(*fields: str) -> list[Spec]:
    return [{"field": field, "type": "nominal"} for field in fields]
