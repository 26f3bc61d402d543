"""List the tests that the history knows, and each one's runs on devices of one model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from pytest_bandwidth.features.history.store.reading import History, Row
from pytest_bandwidth.features.history.trend import Point, Series
from pytest_bandwidth.storage.schema_check import LARGEST, SMALLEST

SERIES_AT_MOST = 20_000
# A file from elsewhere may hold any number. Python knows no other years.
MOMENT = "started_at BETWEEN TIMESTAMP '0001-01-01' AND TIMESTAMP '9999-12-31'"


def figure_in(column: str) -> str:
    """Return the SQL of a figure: null where a file from elsewhere holds none that can be."""
    return f"CASE WHEN {column} BETWEEN {SMALLEST} AND {LARGEST} THEN {column} END"


_GBPS, _RELATIVE = map(figure_in, ("gbps", "relative"))
# What tells of a test's level.
_EVIDENCE = f"{MOMENT} AND is_valid AND ({_GBPS} IS NOT NULL OR sectors IS NOT NULL)"
_POINT = f'run_id, started_at, "commit", uncommitted, serial, status, figure, {_GBPS}, {_RELATIVE}, sectors'
_NAMES = "test_name, kind_name, device_name"
_SAME = "coalesce(test, '') AS test_name, coalesce(device_kind, '') AS kind_name, coalesce(device, '') AS device_name"
_OF_DEVICE = "($1 IS NULL OR device = $1 OR serial = $1)"


@dataclass(frozen=True, slots=True)
class SeriesName:
    """Name a series that the history holds, and when the oldest of its newest runs began."""

    test: str
    device_kind: str
    device: str
    since: datetime


def names_in(history: History, newest: int, device: str | None = None) -> list[SeriesName]:
    """Return every test on every model of device. newest: as in `series_in`; device: only of this model or serial."""
    rows = history.rows(
        f"SELECT {_SAME}, {_since(newest)} FROM history WHERE {_EVIDENCE} AND {_OF_DEVICE} "
        f"GROUP BY {_NAMES} ORDER BY {_NAMES} LIMIT {SERIES_AT_MOST}",
        [device],
    )
    return [SeriesName(*row) for row in rows]


def series_in(history: History, names: Sequence[SeriesName], newest: int, device: str | None = None) -> list[Series]:
    """Return the named series, with at most the `newest` runs of each, oldest first. device: as in `names_in`."""
    if not names:
        return []
    # Where the newest runs begin is known first: ranking whole rows takes ten times as long, and files, which are of a
    # time each, are skipped where none of them can be among these.
    begin = min(name.since for name in names)
    tests = sorted({name.test for name in names})
    chosen = f"FROM history WHERE {_EVIDENCE} AND {_OF_DEVICE} AND coalesce(test, '') IN (SELECT unnest($2::VARCHAR[]))"
    begins = f"SELECT {_SAME}, {_since(newest)} AS since {chosen}"
    late = "AND started_at >= $3"
    rows = history.rows(
        f"SELECT seen.* FROM (SELECT {_SAME}, {_POINT} {chosen} {late}) AS seen "
        f"JOIN ({begins} {late} GROUP BY {_NAMES}) USING ({_NAMES}) "
        f"WHERE seen.started_at >= since ORDER BY {_NAMES}, started_at, run_id",
        [device, tests, begin],
    )
    wanted = {(name.test, name.device_kind, name.device) for name in names}
    return [
        Series(test, device_kind, model, tuple(_point(row[3:]) for row in list(group)[-newest:]))
        for (test, device_kind, model), group in groupby(rows, key=lambda row: row[:3])
        if (test, device_kind, model) in wanted
    ]


def _since(newest: int) -> str:
    return f"list_min(max(started_at, {int(newest)}))"


def _point(row: Row) -> Point:
    """Return a row as a point: the types are the table's own; any column may be null."""
    run_id, at, commit, uncommitted, serial, *rest = row
    return Point(run_id or "", at, commit, uncommitted is True, serial or "", *rest)
