"""Draw the roofline: where the results that compute stand under the device's roofs.

Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from pytest_bandwidth.domain.measured.roofline import attainable_flops
from pytest_bandwidth.domain.units import digits
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.reports.pages.chart_parts import (
    TIP_OF_ROW,
    base,
    ending_encoding,
    gravest_last,
    identity,
    log_encoding,
)
from pytest_bandwidth.reports.pages.theme import Spec
from pytest_bandwidth.reports.text_safe import one_line
from pytest_bandwidth.reports.values import mapping, number
from pytest_bandwidth.storage.saved_run import RunDocument

ROOFS_AT_MOST = 6
INTENSITY, RATE = "arithmetic intensity, FLOP/byte", "achieved, GFLOP/s"


def roofline_spec(run: RunDocument) -> Spec | None:
    """Return GFLOP/s over FLOP/byte, log-log; None where no result computes anything. Roofs are drawn where known."""
    points = [point for index, outcome in enumerate(run.outcomes) if (point := _point(run, index, outcome))]
    if not points:
        return None
    counted = [point for index, outcome in enumerate(run.outcomes) if (point := _counted(run, index, outcome))]
    intensities = [p["intensity"] for p in (*points, *counted)]
    low, high = min(intensities) / 1.6, max(intensities) * 1.6
    slope = _probe_gbps(run.outcomes)
    roofs = [*_peak_roofs(run, low, high), *_probe_roof(run, low, high, slope)]
    x = log_encoding("intensity", INTENSITY, [low, high], "~g")
    y = log_encoding("gflops", RATE, [p["gflops"] for p in (*points, *roofs)], "~s")
    silent = len(run.outcomes) - len(points)
    spec = base(
        "Roofline",
        _subtitle(run, slope),
        f"Roofline of {len(points)} measurements, log-log"
        + (f"; {silent} that compute nothing are left out" if silent else ""),
        300,
    )
    spec["layer"] = [
        *_roof_layers(roofs, x, y, high),
        {
            "data": {"values": gravest_last(points)},
            "mark": {"type": "point", "filled": True, "size": 55, "opacity": 0.85, "cursor": "pointer"},
            "encoding": {
                "x": x,
                "y": y,
                **ending_encoding({p["ending"] for p in points}),
                "tooltip": TIP_OF_ROW,
            },
        },
        *_counted_layer(counted, x, y),
    ]
    return spec


def _counted(run: RunDocument, index: int, outcome: Outcome) -> dict[str, Any] | None:
    """Return where a result stands by what DRAM really moved; None where that was not counted."""
    point = _point(run, index, outcome)
    dram = mapping(outcome.detail, "dram")
    moved = (number(dram, "bytes_read") or 0) + (number(dram, "bytes_written") or 0)
    if point is None or moved <= 0:
        return None
    intensity = outcome.flop / moved
    return {**point, "intensity": intensity}


def _counted_layer(points: list[dict[str, Any]], x: Spec, y: Spec) -> list[Spec]:
    """Draw the second point of each result whose traffic was counted: a ring."""
    if not points:
        return []
    mark = {"type": "point", "filled": False, "size": 80, "opacity": 0.85}
    return [
        {
            "data": {"values": points},
            "mark": mark,
            "encoding": {"x": x, "y": y, "color": {"value": "$axis"}, "tooltip": TIP_OF_ROW},
        }
    ]


def _point(run: RunDocument, index: int, outcome: Outcome) -> dict[str, Any] | None:
    intensity, seconds, gbps = outcome.arithmetic_intensity, outcome.seconds, outcome.gbps
    if outcome.flop <= 0 or not intensity or not seconds or not gbps or min(intensity, seconds, gbps) <= 0:
        return None
    return {**identity(run, index, outcome), "intensity": intensity, "gflops": outcome.flop / seconds / 1e9}


def _peak_roofs(run: RunDocument, low: float, high: float) -> list[dict[str, Any]]:
    """Return corners of one roof for each precision of known compute peak; without any, the memory's slope alone."""
    peak = run.device.peak_gbps
    if peak is None:
        return []
    corners = []
    for precision, gflops in _compute_peaks(run.outcomes, peak).items():
        name = f"{digits(gflops / 1000)} TFLOP/s {precision}".rstrip()
        ridge = min(max(gflops / peak, low), high)
        corners += [_corner(name, x, attainable_flops(x, gflops, peak)) for x in sorted({low, ridge, high})]
    return corners or [_corner("", x, x * peak) for x in (low, high)]


def _probe_roof(run: RunDocument, low: float, high: float, slope: float | None) -> list[dict[str, Any]]:
    """Draw what memory really gave: the probe's slope, up to the highest roof."""
    if slope is None:
        return []
    peaks = _compute_peaks(run.outcomes, run.device.peak_gbps) if run.device.peak_gbps else {}
    end = min(high, max(peaks.values()) / slope) if peaks else high
    return [_corner("probe", x, x * slope) for x in (low, end) if x >= low]


def _corner(roof: str, intensity: float, gflops: float) -> dict[str, Any]:
    return {"roof": roof, "intensity": intensity, "gflops": gflops}


def _roof_layers(roofs: list[dict[str, Any]], x: Spec, y: Spec, high: float) -> Iterable[Spec]:
    if not roofs:
        return
    yield {
        "data": {"values": roofs},
        "mark": {"type": "line", "strokeWidth": 1.25},
        "encoding": {
            "x": x,
            "y": y,
            "detail": {"field": "roof", "type": "nominal"},
            "color": {"value": "$axis"},
            "strokeDash": {"condition": {"test": "datum.roof === 'probe'", "value": [2, 3]}, "value": [1, 0]},
        },
    }
    for labels, align in zip(_roof_labels(roofs, high), ("left", "right"), strict=True):
        if labels:
            yield {
                "data": {"values": labels},
                "mark": {
                    "type": "text",
                    "align": align,
                    "baseline": "bottom",
                    "dy": -4,
                    "dx": 16 if align == "left" else 0,
                },
                "encoding": {"x": x, "y": y, "text": {"field": "roof"}},
            }


def _roof_labels(roofs: list[dict[str, Any]], high: float) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Place compute roofs' names: from the ridge on where there is room (few points are there), else at its end."""
    low = min(roof["intensity"] for roof in roofs)
    from_ridge: list[dict[str, Any]] = []
    at_end: list[dict[str, Any]] = []
    for name in dict.fromkeys(roof["roof"] for roof in roofs if roof["roof"] not in ("", "probe")):
        corners = [roof for roof in roofs if roof["roof"] == name]
        ridge = next(roof for roof in corners if roof["gflops"] == corners[-1]["gflops"])
        roomy = math.log(high / ridge["intensity"]) > 0.3 * math.log(high / low)
        (from_ridge if roomy else at_end).append(ridge if roomy else corners[-1])
    return from_ridge, at_end


def _compute_peaks(outcomes: Iterable[Outcome], peak_gbps: float) -> Mapping[str, float]:
    """Return GFLOP/s by precision: the ridge point of each result times the peak that it was computed with."""
    found: dict[str, float] = {}
    for outcome in outcomes:
        if outcome.flop > 0 and outcome.ridge_point is not None and outcome.ridge_point > 0:
            found.setdefault(one_line(outcome.precision or "", 20), outcome.ridge_point * peak_gbps)
    return dict(list(found.items())[:ROOFS_AT_MOST])


def _probe_gbps(outcomes: Iterable[Outcome]) -> float | None:
    rates = [o.probe_gbps for o in outcomes if o.probe_gbps is not None and o.probe_gbps > 0 and o.flop > 0]
    return median(rates) if rates else None


def _subtitle(run: RunDocument, slope: float | None) -> str:
    parts = []
    if run.device.peak_gbps is not None:
        parts.append(f"solid: peak, {digits(run.device.peak_gbps)} GB/s")
    if slope is not None:
        parts.append(f"dotted: the probes' median, {digits(slope)} GB/s")
    return "; ".join(parts)
