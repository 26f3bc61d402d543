"""Follow one test on one kind of device over many runs: its metric, the levels between change points, runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, takewhile
from statistics import median
from typing import Literal

from pytest_bandwidth.domain.statistics import median_known
from pytest_bandwidth.domain.text import short_commit

TrendFigure = Literal["relative", "gbps", "sectors"]
# Counts are exact, and a device that is slow as a whole hardly moves kernel ÷ probe.
METRICS: tuple[TrendFigure, ...] = ("sectors", "relative", "gbps")


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
        value: float | int | None = getattr(self, name)
        return None if value is None else float(value)

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
class Measured:
    """Hold a series' points that have the figure; there is at least one."""

    series: Series
    figure: TrendFigure
    points: tuple[Point, ...]

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(value for point in self.points if (value := point.figure(self.figure)) is not None)


@dataclass(frozen=True, slots=True)
class Trend(Measured):
    """Hold a series' points with its levels; there is at least one."""

    levels: tuple[Level, ...]


@dataclass(frozen=True, slots=True)
class CommitRow:
    """Sum up consecutive runs of one commit: medians of their figures; `changes`: the levels that begin among them."""

    commit: str
    at: datetime
    runs: int
    gbps: float | None
    relative: float | None
    sectors: float | None
    changes: tuple[Level, ...]


def figure_of(series: Series) -> TrendFigure | None:
    """Choose the figure to follow: what the runs were judged on, else what a slow device changes least."""
    judged = Counter(point.judged_on for point in series.points if point.judged_on in ("relative", "gbps"))
    usual = judged.most_common(1)[0][0] if judged else None
    known = [name for name in METRICS if points_with(series, name)]
    if usual == "gbps" and "gbps" in known:
        return "gbps"
    return known[0] if known else None


def points_with(series: Series, figure: TrendFigure) -> tuple[Point, ...]:
    """Return the points that have the figure; zero and less is none, since levels are compared by ratio."""
    return tuple(point for point in series.points if _known(point.figure(figure)))


def measured_of(series: Series, figure: TrendFigure | None) -> Measured | None:
    """Return the series by that figure, by default `figure_of` it; None where no point has it."""
    chosen = figure or figure_of(series)
    points = () if chosen is None else points_with(series, chosen)
    return Measured(series, chosen, points) if chosen is not None and points else None


def trend_of(measured: Measured, starts: Sequence[int]) -> Trend:
    """Return the levels from the places where new ones start (rising, each within the points, without 0)."""
    levels = levels_of(measured.values, starts)
    return Trend(measured.series, measured.figure, measured.points, levels)


def levels_of(values: Sequence[float], starts: Sequence[int]) -> tuple[Level, ...]:
    """Return the levels of values from the places where new ones start, as for `trend_of`."""
    levels: list[Level] = []
    for start, stop in zip((0, *starts), (*starts, len(values)), strict=True):
        value = median(values[start:stop])
        levels.append(Level(start, stop, value, value / levels[-1].value - 1 if levels else None))
    return tuple(levels)


def by_commit(trend: Trend) -> list[CommitRow]:
    """Return the trend's runs, those of one commit that follow each other taken together; the oldest first."""
    rows = []
    begins = {level.start: level for level in trend.levels[1:]}
    place = 0
    for _, group in groupby(trend.points, key=lambda point: point.commit_name):
        runs = list(group)
        changes = tuple(begins[i] for i in range(place, place + len(runs)) if i in begins)
        rows.append(_commit_row(runs, changes))
        place += len(runs)
    return rows


def newest_commit(trend: Trend) -> CommitRow:
    """Return the last of `by_commit`'s rows."""
    name = trend.points[-1].commit_name
    runs = list(takewhile(lambda point: point.commit_name == name, reversed(trend.points)))[::-1]
    start = len(trend.points) - len(runs)
    return _commit_row(runs, tuple(level for level in trend.levels[1:] if level.start >= start))


def _commit_row(runs: Sequence[Point], changes: tuple[Level, ...]) -> CommitRow:
    return CommitRow(
        runs[0].commit_name,
        runs[0].at,
        len(runs),
        median_known(point.gbps for point in runs),
        median_known(point.relative for point in runs),
        median_known(point.sectors for point in runs),
        changes,
    )


def _known(value: float | None) -> bool:
    return value is not None and value > 0
