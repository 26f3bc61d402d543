"""Chart one test's figure over its runs, with the levels that change points part."""

from __future__ import annotations

from typing import Any

from pytest_bandwidth.domain.verdict import Status
from pytest_bandwidth.features.history.trend import Level, Measured, Trend
from pytest_bandwidth.features.history.trend_texts import FIGURE_WORDS, value_text
from pytest_bandwidth.reports.attention import severity_of
from pytest_bandwidth.reports.pages.chart_parts import (
    ENDINGS,
    WIDE_ONLY,
    base,
    ending_encoding,
    gravest_last,
    tooltip,
)
from pytest_bandwidth.reports.pages.theme import Spec
from pytest_bandwidth.reports.summary import signed_percent
from pytest_bandwidth.reports.text_safe import one_line

TICKS = 5


def run_points(measured: Measured) -> list[dict[str, Any]]:
    """Return the point of each run for a chart, the oldest first."""
    return [_point(measured, i, value) for i, value in enumerate(measured.values)]


def trend_spec(trend: Trend, points: list[dict[str, Any]]) -> Spec:
    """Draw points for runs, from `run_points`, the oldest at the left; a line for each level, with its change."""
    levels = [_level(trend, level) for level in trend.levels]
    spec = base("", "", f"{FIGURE_WORDS[trend.figure]} of {len(points)} runs, the oldest first", 170)
    del spec["title"]
    y: Spec = {
        "field": "value",
        "type": "quantitative",
        "scale": {"zero": False, "nice": True, "padding": 12},
        "axis": {"title": None, "tickCount": 4},
    }
    spec["layer"] = [
        {
            "data": {"values": levels},
            "mark": {"type": "rule", "color": "$ink", "strokeWidth": 2},
            "encoding": {"x": _x(trend, "start"), "x2": {"field": "stop"}, "y": y},
        },
        {
            "data": {"values": [level for level in levels if level["text"]]},
            "mark": {"type": "rule", "color": "$axis", "strokeDash": [3, 3]},
            "encoding": {"x": _x(trend, "start")},
        },
        {
            "data": {"values": [level for level in levels if level["text"]]},
            "name": WIDE_ONLY,
            "mark": {"type": "text", "align": "left", "dx": 5, "baseline": "top", "color": "$ink"},
            "encoding": {"x": _x(trend, "start"), "y": {"value": 2}, "text": {"field": "text"}},
        },
        {
            "data": {"values": gravest_last(points)},
            "mark": {"type": "point", "filled": True, "size": 34, "opacity": 0.75},
            "encoding": {
                "x": _x(trend, "position"),
                "y": y,
                **ending_encoding({point["ending"] for point in points}),
                "tooltip": tooltip("run", "figure", "GB/s", "status", "when", "device"),
            },
        },
    ]
    # A layer over no data at all would have no scale.
    spec["layer"] = [layer for layer in spec["layer"] if layer["data"]["values"]]
    return spec


def _point(measured: Measured, position: int, value: float) -> dict[str, Any]:
    point = measured.points[position]
    known = Status.__members__.get(point.status)
    return {
        "position": position,
        "value": _scaled(measured, value),
        "ending": ENDINGS["warn" if known is None else severity_of(known, strict=False)],
        "run": one_line(point.commit_name, 40),
        "figure": value_text(measured.figure, value),
        "GB/s": "–" if point.gbps is None else f"{point.gbps:.4g}",
        "status": one_line(point.status, 40),
        "when": f"{point.at:%Y-%m-%d %H:%M}",
        "device": one_line(point.serial, 40),
    }


def _level(trend: Trend, level: Level) -> dict[str, Any]:
    commit = one_line(trend.points[level.start].commit_name, 16)
    return {
        "start": level.start - 0.5,
        "stop": level.stop - 0.5,
        "value": _scaled(trend, level.value),
        "text": "" if level.change is None else f"{signed_percent(level.change)} at {commit}",
    }


def _scaled(measured: Measured, value: float) -> float:
    return float(f"{value * (100 if measured.figure == 'relative' else 1):.6g}")


def _x(trend: Trend, field: str) -> Spec:
    last = len(trend.points) - 1
    places = sorted({round(last * i / (TICKS - 1)) for i in range(TICKS)})
    # Runs are evenly spaced, however far apart in time: a tick names the date of its run, in digits and dashes.
    dates = ", ".join(f"'{place}': '{trend.points[place].at:%Y-%m-%d}'" for place in places)
    return {
        "field": field,
        "type": "quantitative",
        "scale": {"domain": [-0.5, last + 0.5], "nice": False, "zero": False},
        "axis": {
            "title": None,
            "grid": False,
            "values": places,
            "labelExpr": f"{{{dates}}}[datum.value]",
            "labelFlush": True,
            "labelOverlap": True,
        },
    }
