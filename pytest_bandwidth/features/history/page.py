"""Write the page of a history: every trend with its chart, and its runs by commit; one file, without network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import listed
from pytest_bandwidth.domain.verdict import Status
from pytest_bandwidth.features.history.trend import (
    COMMIT_HEADINGS,
    FIGURE_WORDS,
    OVERVIEW_HEADINGS,
    Trend,
    commit_rows,
    overview_row,
    summary_of,
    value_text,
)
from pytest_bandwidth.reports.pages import (
    DARK,
    ENDINGS,
    LIGHT,
    MISSING,
    WIDE_ONLY,
    Spec,
    Templates,
    base,
    charts_available,
    ending_encoding,
    gravest_last,
    javascript_bundle,
    layer,
    quantitative,
    tooltip,
)
from pytest_bandwidth.reports.summary import severity_of, signed_percent
from pytest_bandwidth.reports.text_safe import clean, one_line

# The limits of a page, so that it opens on a phone.
TRENDS_AT_MOST = 200
RUNS_AT_MOST = 40_000
COMMITS_AT_MOST = 200
DEVICES_NAMED = 5
NAME_AT_MOST = 300
TICKS = 5
# The page has charts instead of the bars.
_OVERVIEW = OVERVIEW_HEADINGS[1:-1]


def render_history(measured: Sequence[Trend], changed: Callable[[], Sequence[Trend]]) -> str:
    """Return the page. changed: returns `measured` with levels; called last, when only these are missing.

    Raises UsageError for more trends or runs than a page can hold.
    """
    runs = sum(len(one.points) for one in measured)
    if len(measured) > TRENDS_AT_MOST:
        raise UsageError(f"found {len(measured)} trends, expected at most {TRENDS_AT_MOST} on a page: choose by KEY")
    if runs > RUNS_AT_MOST:
        raise UsageError(f"found {runs} runs, expected at most {RUNS_AT_MOST} on a page: use --newest or choose by KEY")
    drawn = (
        [[_point(one, i, value) for i, value in enumerate(one.values)] for one in measured]
        if charts_available()
        else []
    )
    library = javascript_bundle() if drawn else ""
    trends = changed()
    changed_level = sum(len(trend.levels) > 1 for trend in trends)
    if len(trends) == 1:
        sentence = "The level of this test changed" if changed_level else "The level of this test never changed"
    else:
        sentence = f"{changed_level or 'None'} of {len(trends)} trends changed level"
    columns = _filled([overview_row(trend)[1:-1] for trend in trends])
    charts = {str(i): _chart(trends[i], points) for i, points in enumerate(drawn)}
    return Templates("pytest_bandwidth.features.history").page(
        "history.html.j2",
        script="history.js",
        library=library,
        data={"charts": charts, "palettes": {"light": LIGHT, "dark": DARK}},
        sentence=sentence,
        facts=_facts(trends),
        headings=[_OVERVIEW[i] for i in columns],
        sections=[_section(i, trend, columns) for i, trend in enumerate(trends)],
        charts_missing=None if charts else MISSING,
    )


def _facts(trends: Sequence[Trend]) -> list[str]:
    points = [point for trend in trends for point in trend.points]
    devices = dict.fromkeys(one_line(trend.device, 80) for trend in trends)
    days = sorted(point.at for point in points)
    runs, commits = len({point.run_id for point in points}), len({point.commit_name for point in points})
    return [
        listed(list(devices), DEVICES_NAMED),
        f"{runs} runs of {commits} commits",
        f"{days[0]:%Y-%m-%d} to {days[-1]:%Y-%m-%d}",
    ]


def _section(number: int, trend: Trend, columns: Sequence[int]) -> dict[str, Any]:
    """Return one trend's part of the page; texts are cleaned. Its newest commits come first."""
    rows = commit_rows(trend)[::-1]
    kept, whole = _filled(rows), overview_row(trend)[1:-1]
    return {
        "anchor": f"trend-{number}",
        "test": one_line(trend.test, NAME_AT_MOST) or "(unnamed)",
        "device": one_line(trend.device, 120),
        "figure": FIGURE_WORDS[trend.figure],
        "summary": clean(summary_of(trend), 400),
        "overview": [one_line(whole[i], 120) for i in columns],
        "headings": [COMMIT_HEADINGS[i] for i in kept],
        "commits": [[one_line(row[i], 80) for i in kept] for row in rows[:COMMITS_AT_MOST]],
        "left_out": max(0, len(rows) - COMMITS_AT_MOST),
    }


def _filled(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the columns that hold anything in any row."""
    return [i for i in range(len(rows[0])) if any(row[i] for row in rows)]


def _chart(trend: Trend, points: list[dict[str, Any]]) -> Spec:
    """Draw points for runs, the oldest at the left; a line for each level, with its change."""
    levels = []
    for level in trend.levels:
        commit = one_line(trend.points[level.start].commit_name, 16)
        text = "" if level.change is None else f"{signed_percent(level.change)} at {commit}"
        value = _scaled(trend, level.value)
        levels.append({"start": level.start - 0.5, "stop": level.stop - 0.5, "value": value, "text": text})
    changes = [level for level in levels if level["text"]]
    spec = base("", "", f"{FIGURE_WORDS[trend.figure]} of {len(points)} runs, the oldest first", 170)
    y = quantitative("value", {"zero": False, "nice": True, "padding": 12}, {"title": None, "tickCount": 4})
    label = {"type": "text", "align": "left", "dx": 5, "baseline": "top", "color": "$ink"}
    at_the_top = {"x": _x(trend, "start"), "y": {"value": 2}, "text": {"field": "text"}}
    dot = {
        "x": _x(trend, "position"),
        "y": y,
        **ending_encoding({point["ending"] for point in points}),
        "tooltip": tooltip("run", "figure", "GB/s", "status", "when", "device"),
    }
    ends = {"x": _x(trend, "start"), "x2": {"field": "stop"}, "y": y}
    layers = [
        layer({"type": "rule", "color": "$ink", "strokeWidth": 2}, ends, levels),
        layer({"type": "rule", "color": "$axis", "strokeDash": [3, 3]}, {"x": _x(trend, "start")}, changes),
        layer(label, at_the_top, changes, name=WIDE_ONLY),
        layer({"type": "point", "filled": True, "size": 34, "opacity": 0.75}, dot, gravest_last(points)),
    ]
    # A layer over no data at all would have no scale.
    spec["layer"] = [one for one in layers if one["data"]["values"]]
    return spec


def _point(trend: Trend, position: int, value: float) -> dict[str, Any]:
    point = trend.points[position]
    known = Status.__members__.get(point.status)
    return {
        "position": position,
        "value": _scaled(trend, value),
        "ending": ENDINGS["warn" if known is None else severity_of(known, strict=False)],
        "run": one_line(point.commit_name, 40),
        "figure": value_text(trend.figure, value),
        "GB/s": "–" if point.gbps is None else f"{point.gbps:.4g}",
        "status": one_line(point.status, 40),
        "when": f"{point.at:%Y-%m-%d %H:%M}",
        "device": one_line(point.serial, 40),
    }


def _scaled(trend: Trend, value: float) -> float:
    return float(f"{value * (100 if trend.figure == 'relative' else 1):.6g}")


def _x(trend: Trend, field: str) -> Spec:
    last = len(trend.points) - 1
    places = sorted({round(last * i / (TICKS - 1)) for i in range(TICKS)})
    # Runs are evenly spaced, however far apart in time: a tick names the date of its run, in digits and dashes.
    dates = ", ".join(f"'{place}': '{trend.points[place].at:%Y-%m-%d}'" for place in places)
    axis = {
        "title": None,
        "grid": False,
        "values": places,
        "labelExpr": f"{{{dates}}}[datum.value]",
        "labelFlush": True,
        "labelOverlap": True,
    }
    return quantitative(field, {"domain": [-0.5, last + 0.5], "nice": False, "zero": False}, axis)
