"""Put trends into words and figures: the terminal, the page and the JSON of `pytest-bandwidth history` agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from pytest_bandwidth.domain.units import counted, digits, format_moment, format_percent
from pytest_bandwidth.features.history.trend import (
    CommitRow,
    Level,
    Point,
    Trend,
    TrendFigure,
    by_commit,
    newest_commit,
)
from pytest_bandwidth.reports.summary import signed_percent

FIGURE_WORDS = {"relative": "share of the probe, %", "gbps": "GB/s", "sectors": "sectors of 32 bytes"}
COMMIT_HEADINGS = ("since", "commit", "runs", "GB/s", "of probe", "sectors", "change")
OVERVIEW_HEADINGS = ("test", "device", "runs", "GB/s", "of probe", "sectors", "last change", "commit", "trend")
BARS_IN_OVERVIEW = 16
_BARS = "▁▂▃▄▅▆▇█"
# The whole height of the bars is at least this share of the figure: noise stays small.
_LEAST_HEIGHT = 0.05


def value_text(figure: TrendFigure, value: float) -> str:
    """Return a figure with its unit."""
    if figure == "relative":
        return f"{format_percent(value, 1)} of probe"
    return f"{digits(value)} GB/s" if figure == "gbps" else f"{value:,.0f} sectors"


def summary_of(trend: Trend) -> str:
    """Say how many runs and commits there are, what the figure is now, and what changed last."""
    commits = len({point.commit_name for point in trend.points})
    last = trend.levels[-1]
    runs = f"{counted(len(trend.points), 'run')} of {counted(commits, 'commit')}, "
    if last.change is None:
        return f"{runs}no change of level: {value_text(trend.figure, last.value)}"
    point = trend.points[last.start]
    where = f"{point.commit_name} ({point.at:%Y-%m-%d})"
    more = f"{counted(len(trend.levels) - 1, 'change')} of level, the last {signed_percent(last.change)} at {where}"
    return f"{runs}{more}: now {value_text(trend.figure, last.value)}"


def commit_rows(trend: Trend) -> list[tuple[str, ...]]:
    """Return one row a commit, the oldest first, by COMMIT_HEADINGS."""
    return [_commit_row(row) for row in by_commit(trend)]


def overview_row(trend: Trend) -> tuple[str, ...]:
    """Return the whole trend in one row, by OVERVIEW_HEADINGS."""
    newest, last = newest_commit(trend), trend.levels[-1]
    changed = trend.points[last.start].commit_name if last.change is not None else ""
    return (
        trend.series.test,
        trend.series.device,
        str(len(trend.points)),
        *_figures(newest),
        "" if last.change is None else signed_percent(last.change),
        changed,
        bars(trend.values, BARS_IN_OVERVIEW),
    )


def bars(values: Sequence[float], width: int) -> str:
    """Return the values as `width` bars at most; if there are more, each bar is the mean of a stretch."""
    if len(values) > width:
        bounds = [len(values) * i // width for i in range(width + 1)]
        parts = [values[a:b] for a, b in pairwise(bounds)]
        values = [sum(part) / len(part) for part in parts]
    low, high = min(values), max(values)
    middle, height = (low + high) / 2, max(high - low, _LEAST_HEIGHT * high)
    return "".join(_BARS[min(7, int(8 * ((value - middle) / height + 0.5)))] for value in values)


def trend_plain(trend: Trend) -> dict[str, Any]:
    """Return the trend as JSON-ready data; docs/history.md describes it."""
    series = trend.series
    return {
        "test": series.test,
        "device": series.device,
        "device_kind": series.device_kind,
        "figure": trend.figure,
        "runs": [_point_plain(point) for point in trend.points],
        "levels": [_level_plain(trend, level) for level in trend.levels],
    }


def _point_plain(point: Point) -> dict[str, Any]:
    plain = {**asdict(point), "at": format_moment(point.at)}
    del plain["judged_on"]
    return plain


def _level_plain(trend: Trend, level: Level) -> dict[str, Any]:
    first = trend.points[level.start]
    return {
        "start": level.start,
        "runs": level.stop - level.start,
        "value": level.value,
        "change": level.change,
        "commit": first.commit,
        "at": format_moment(first.at),
    }


def _commit_row(row: CommitRow) -> tuple[str, ...]:
    changes = ", ".join(signed_percent(level.change) for level in row.changes if level.change is not None)
    return (f"{row.at:%Y-%m-%d %H:%M}", row.commit, str(row.runs), *_figures(row), changes)


def _figures(row: CommitRow) -> tuple[str, str, str]:
    return (
        "" if row.gbps is None else digits(row.gbps),
        "" if row.relative is None else format_percent(row.relative, 1),
        "" if row.sectors is None else f"{row.sectors:,.0f}",
    )
