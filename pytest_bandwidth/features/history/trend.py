"""Follow one test on devices of one model over many runs: its figure, the levels between change points, its commits.

The terminal, the page and the JSON of `pytest-bandwidth history` take their words and figures from here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import groupby, pairwise, takewhile
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from pytest_bandwidth.domain.statistics import median_known
from pytest_bandwidth.domain.text import short_commit
from pytest_bandwidth.domain.units import counted, digits, format_moment, format_percent
from pytest_bandwidth.reports.summary import signed_percent
from pytest_bandwidth.storage.saved_run import LARGEST, SMALLEST

if TYPE_CHECKING:
    from pytest_bandwidth.features.history.reading import History

TrendFigure = Literal["relative", "gbps", "sectors"]
# Counts are exact, and a device that is slow as a whole hardly moves kernel ÷ probe.
METRICS: tuple[TrendFigure, ...] = ("sectors", "relative", "gbps")
FIGURE_WORDS = {"relative": "share of the probe, %", "gbps": "GB/s", "sectors": "sectors of 32 bytes"}
COMMIT_HEADINGS = ("since", "commit", "runs", "GB/s", "of probe", "sectors", "change")
OVERVIEW_HEADINGS = ("test", "device", "runs", "GB/s", "of probe", "sectors", "last change", "commit", "trend")
BARS_IN_OVERVIEW = 16
_BARS = "▁▂▃▄▅▆▇█"
# The whole height of the bars is at least this share of the figure: noise stays small.
_LEAST_HEIGHT = 0.05
SERIES_AT_MOST = 20_000
# A file from elsewhere may hold any number. Python has no other years.
MOMENT = "started_at BETWEEN TIMESTAMP '0001-01-01' AND TIMESTAMP '9999-12-31'"
# Null where a file from elsewhere holds an impossible figure.
_GBPS, _RELATIVE = (
    f"CASE WHEN {name} BETWEEN {SMALLEST} AND {LARGEST} THEN {name} END" for name in ("gbps", "relative")
)
# The rows that count for a test's level.
_EVIDENCE = f"{MOMENT} AND is_valid AND ({_GBPS} IS NOT NULL OR sectors IS NOT NULL)"
_POINT = f'run_id, started_at, "commit", uncommitted, serial, status, figure, {_GBPS}, {_RELATIVE}, sectors'
_NAMES = "test_name, kind_name, device_name"
_SAME = "coalesce(test, '') AS test_name, coalesce(device_kind, '') AS kind_name, coalesce(device, '') AS device_name"
_OF_DEVICE = "($1 IS NULL OR device = $1 OR serial = $1)"


@dataclass(frozen=True, slots=True)
class Point:
    """Hold one run's figures of one test. GB/s; `relative` is kernel ÷ probe; sectors of 32 bytes; None where unknown.

    judged_on: the figure that the run's verdict was about; None without one.
    """

    run_id: str
    at: datetime
    commit: str | None
    uncommitted: bool
    serial: str
    status: str
    judged_on: str | None
    gbps: float | None
    relative: float | None
    sectors: int | None

    def figure(self, name: TrendFigure) -> float | None:
        """Return a figure; None where it is unknown, and for zero and less, since levels are compared by ratio."""
        value: float | int | None = getattr(self, name)
        return float(value) if value is not None and value > 0 else None

    @property
    def commit_name(self) -> str:
        """Return the commit, short, with a + where files differed from it."""
        return f"{short_commit(self.commit)}{'+' if self.uncommitted else ''}" if self.commit else "–"


@dataclass(frozen=True, slots=True)
class Series:
    """Hold a test's runs on devices of one model, the oldest first."""

    test: str
    device_kind: str
    device: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Level:
    """Hold the runs between two change points: `start` and `stop` count the trend's points.

    value: median of the figure; change: against the level before, as a fraction of that; None for the first.
    """

    start: int
    stop: int
    value: float
    change: float | None


@dataclass(frozen=True, slots=True)
class Trend(Series):
    """Hold those runs of a series that have a figure, at least one; and its levels, once they are known."""

    figure: TrendFigure
    levels: tuple[Level, ...] = ()

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(value for point in self.points if (value := point.figure(self.figure)) is not None)


def series_in(
    history: History,
    newest: int,
    device: str | None = None,
    chosen: Callable[[list[str]], Iterable[str]] = list,
) -> list[Series]:
    """Return the chosen tests on every model of device, with at most the `newest` runs of each, oldest first.

    device: only of this model or serial. chosen: returns the tests to read from all their names.
    """
    # Find the start of the newest runs first: ranking whole rows takes ten times as long. DuckDB then skips files that
    # hold older runs only.
    named = history.rows(
        f"SELECT {_SAME}, {_since(newest)} FROM history WHERE {_EVIDENCE} AND {_OF_DEVICE} "
        f"GROUP BY {_NAMES} ORDER BY {_NAMES} LIMIT {SERIES_AT_MOST}",
        [device],
    )
    tests = set(chosen(sorted({test for test, *_ in named})))
    wanted = {tuple(name): since for *name, since in named if name[0] in tests}
    if not wanted:
        return []
    among = f"FROM history WHERE {_EVIDENCE} AND {_OF_DEVICE} AND coalesce(test, '') IN (SELECT unnest($2::VARCHAR[]))"
    begins = f"SELECT {_SAME}, {_since(newest)} AS since {among}"
    late = "AND started_at >= $3"
    rows = history.rows(
        f"SELECT seen.* FROM (SELECT {_SAME}, {_POINT} {among} {late}) AS seen "
        f"JOIN ({begins} {late} GROUP BY {_NAMES}) USING ({_NAMES}) "
        f"WHERE seen.started_at >= since ORDER BY {_NAMES}, started_at, run_id",
        [device, sorted(tests), min(wanted.values())],
    )
    found = []
    for (test, kind, model), group in groupby(rows, key=lambda row: row[:3]):
        if (test, kind, model) not in wanted:
            continue
        points = []
        for _, _, _, run_id, at, commit, uncommitted, serial, *rest in list(group)[-newest:]:
            # The types are the table's own; any column may be null.
            points.append(Point(run_id or "", at, commit, uncommitted is True, serial or "", *rest))
        found.append(Series(test, kind, model, tuple(points)))
    return found


def _since(newest: int) -> str:
    return f"list_min(max(started_at, {int(newest)}))"


def trend_of(series: Series, figure: TrendFigure | None) -> Trend | None:
    """Return the series by that figure; None where no point has it.

    By default the figure that most runs were judged on, else the one that a slow device changes least.
    """
    judged = Counter(point.judged_on for point in series.points if point.judged_on in ("relative", "gbps"))
    order: tuple[TrendFigure, ...] = ("gbps", *METRICS) if "gbps" in dict(judged.most_common(1)) else METRICS
    for name in order if figure is None else (figure,):
        points = tuple(point for point in series.points if point.figure(name) is not None)
        if points:
            return Trend(series.test, series.device_kind, series.device, points, name)
    return None


def levels_of(values: Sequence[float], starts: Sequence[int]) -> tuple[Level, ...]:
    """Return the levels of values from the places where new ones start (rising, each within the values, without 0)."""
    levels: list[Level] = []
    for start, stop in zip((0, *starts), (*starts, len(values)), strict=True):
        value = median(values[start:stop])
        levels.append(Level(start, stop, value, value / levels[-1].value - 1 if levels else None))
    return tuple(levels)


def value_text(figure: TrendFigure, value: float) -> str:
    """Return a figure with its unit."""
    if figure == "relative":
        return f"{format_percent(value, 1)} of probe"
    return f"{digits(value)} GB/s" if figure == "gbps" else f"{value:,.0f} sectors"


def summary_of(trend: Trend) -> str:
    """Return a sentence: how many runs and commits there are, the figure now, and the last change."""
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
    """Return one row for runs of one commit that follow each other, the oldest first, by COMMIT_HEADINGS."""
    rows: list[tuple[str, ...]] = []
    begins = {level.start: _change(level) for level in trend.levels[1:]}
    place = 0
    for commit, group in groupby(trend.points, key=lambda point: point.commit_name):
        runs = list(group)
        changes = ", ".join(begins[i] for i in range(place, place + len(runs)) if i in begins)
        rows.append((f"{runs[0].at:%Y-%m-%d %H:%M}", commit, str(len(runs)), *_figures(runs), changes))
        place += len(runs)
    return rows


def overview_row(trend: Trend) -> tuple[str, ...]:
    """Return the whole trend in one row, by OVERVIEW_HEADINGS."""
    last, newest = trend.levels[-1], trend.points[-1].commit_name
    return (
        trend.test,
        trend.device,
        str(len(trend.points)),
        *_figures(list(takewhile(lambda point: point.commit_name == newest, reversed(trend.points)))),
        _change(last),
        "" if last.change is None else trend.points[last.start].commit_name,
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
    runs = [{**asdict(point), "at": format_moment(point.at)} for point in trend.points]
    for run in runs:
        del run["judged_on"]
    levels = []
    for level in trend.levels:
        first = trend.points[level.start]
        levels.append({**level_plain(level, "runs"), "commit": first.commit, "at": format_moment(first.at)})
    return {
        "test": trend.test,
        "device": trend.device,
        "device_kind": trend.device_kind,
        "figure": trend.figure,
        "runs": runs,
        "levels": levels,
    }


def level_plain(level: Level, of: str) -> dict[str, Any]:
    """Return a level as JSON-ready data. of: the name of its parts."""
    return {"start": level.start, of: level.stop - level.start, "value": level.value, "change": level.change}


def _change(level: Level) -> str:
    return "" if level.change is None else signed_percent(level.change)


def _figures(runs: Sequence[Point]) -> tuple[str, str, str]:
    """Return the medians of the runs' figures."""
    names = ("gbps", "relative", "sectors")
    gbps, relative, sectors = (median_known(getattr(run, name) for run in runs) for name in names)
    return (
        "" if gbps is None else digits(gbps),
        "" if relative is None else format_percent(relative, 1),
        "" if sectors is None else f"{sectors:,.0f}",
    )
