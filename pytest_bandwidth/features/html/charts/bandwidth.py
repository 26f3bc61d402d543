"""Chart the GB/s of every result against the device's peak and its own probe."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pytest_bandwidth.domain.units import digits
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.reports.pages.chart_parts import (
    TIP_OF_ROW,
    base,
    ending_encoding,
    gravest_last,
    identity,
    log_encoding,
    test_name,
    unique,
)
from pytest_bandwidth.reports.pages.theme import Spec
from pytest_bandwidth.storage.saved_run import RunDocument

# With more results than this, named rows give way to a scatter over the bytes moved.
NAMED_ROWS_AT_MOST = 36


def bandwidth_spec(run: RunDocument) -> Spec | None:
    """Return one named row for each result, or a scatter where there are many; None where nothing was timed."""
    points = [
        _point(run, index, outcome)
        for index, outcome in enumerate(run.outcomes)
        if outcome.gbps is not None and outcome.gbps > 0
    ]
    if not points:
        return None
    if len(points) <= NAMED_ROWS_AT_MOST:
        return _named(run, points)
    return _scattered(run, [point for point in points if point["bytes"] > 0] or points)


def _point(run: RunDocument, index: int, outcome: Outcome) -> dict[str, Any]:
    figures = {"gbps": outcome.gbps, "probe": outcome.probe_gbps, "bytes": outcome.bytes_moved}
    return {**identity(run, index, outcome), **figures}


def _named(run: RunDocument, points: list[dict[str, Any]]) -> Spec:
    points.sort(key=lambda p: -p["gbps"])
    names = unique([test_name(run.outcomes[point["row"]]) for point in points])
    points = [{**point, "name": name} for point, name in zip(points, names, strict=True)]
    legend = "bar: achieved; tick: its probe" + _peak_words(run)
    spec = base(
        "Bandwidth against peak",
        legend,
        f"GB/s of {len(points)} measurements, the largest first",
        14 + 18 * len(points),
    )
    y = {
        "field": "name",
        "type": "nominal",
        "sort": names,
        "axis": {"title": None, "grid": False, "labelColor": "$ink"},
    }
    spec["data"] = {"values": points}
    spec["layer"] = [
        *_peak_rule(run, "x"),
        {
            "mark": {"type": "bar", "color": "$mark-soft", "height": {"band": 0.55}},
            "encoding": {"y": y, "x": _from_zero("gbps"), "tooltip": TIP_OF_ROW},
        },
        {
            "transform": [{"filter": "isValid(datum.probe)"}],
            "mark": {"type": "tick", "color": "$axis", "thickness": 2, "height": {"band": 0.9}},
            "encoding": {"y": y, "x": _from_zero("probe"), "tooltip": TIP_OF_ROW},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 55, "opacity": 1, "cursor": "pointer"},
            "encoding": {
                "y": y,
                "x": _from_zero("gbps"),
                **ending_encoding({p["ending"] for p in points}),
                "tooltip": TIP_OF_ROW,
            },
        },
    ]
    return spec


def _scattered(run: RunDocument, points: list[dict[str, Any]]) -> Spec:
    words = _peak_words(run).removeprefix("; ")
    spec = base("Bandwidth against peak", words, f"GB/s of {len(points)} measurements over the bytes each moves", 300)
    spec["layer"] = [
        *_peak_rule(run, "y"),
        {
            "data": {"values": gravest_last(points)},
            "mark": {"type": "point", "filled": True, "size": 40, "opacity": 0.75, "cursor": "pointer"},
            "encoding": {
                "x": log_encoding("bytes", "bytes moved", [max(p["bytes"], 1) for p in points], "~s"),
                "y": _from_zero("gbps"),
                **ending_encoding({p["ending"] for p in points}),
                "tooltip": TIP_OF_ROW,
            },
        },
    ]
    return spec


def _peak_rule(run: RunDocument, axis: str) -> Iterable[Spec]:
    if run.device.peak_gbps is not None:
        yield {
            "data": {"values": [{"gbps": run.device.peak_gbps}]},
            "mark": {"type": "rule", "color": "$axis"},
            "encoding": {axis: _from_zero("gbps")},
        }


def _peak_words(run: RunDocument) -> str:
    return "" if run.device.peak_gbps is None else f"; line: peak, {digits(run.device.peak_gbps)} GB/s"


def _from_zero(field: str) -> Spec:
    return {"field": field, "type": "quantitative", "scale": {"zero": True}, "axis": {"title": "GB/s", "tickCount": 5}}
