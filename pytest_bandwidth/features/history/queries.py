"""Ask the history for each test's runs on devices of one model, and how each card of a fleet stood day by day.

The figures of years of a fleet are tens of millions. They are read once, into a table of two hashes and the figure, of
which DuckDB takes the medians; and where there are more than a few seconds allow, those of every second or third day, …
What the hashes stand for is looked up among the rows of one test, which nearly every card ran.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, time, timedelta
from itertools import groupby

from pytest_bandwidth.features.history.cards import CardDay
from pytest_bandwidth.features.history.reading import History, Row, quoted
from pytest_bandwidth.features.history.trend import Point, Series
from pytest_bandwidth.outcomes.devices import FEWEST_DEVICES
from pytest_bandwidth.storage.schema_check import LARGEST, SMALLEST

SERIES_AT_MOST = 20_000
# A file from elsewhere may hold any number. Python knows no other years.
MOMENT = "started_at BETWEEN TIMESTAMP '0001-01-01' AND TIMESTAMP '9999-12-31'"
# Null where a file from elsewhere holds no figure that can be.
_GBPS, _RELATIVE = (
    f"CASE WHEN {name} BETWEEN {SMALLEST} AND {LARGEST} THEN {name} END" for name in ("gbps", "relative")
)
# What counts for a test's level.
_EVIDENCE = f"{MOMENT} AND is_valid AND ({_GBPS} IS NOT NULL OR sectors IS NOT NULL)"
_POINT = f'run_id, started_at, "commit", uncommitted, serial, status, figure, {_GBPS}, {_RELATIVE}, sectors'
_NAMES = "test_name, kind_name, device_name"
_SAME = "coalesce(test, '') AS test_name, coalesce(device_kind, '') AS kind_name, coalesce(device, '') AS device_name"
_OF_DEVICE = "($1 IS NULL OR device = $1 OR serial = $1)"


def series_in(
    history: History,
    newest: int,
    device: str | None = None,
    chosen: Callable[[list[str]], Iterable[str]] = list,
) -> list[Series]:
    """Return the chosen tests on every model of device, with at most the `newest` runs of each, oldest first.

    device: only of this model or serial. chosen: returns which of the tests, by name, are asked for.
    """
    # Where the newest runs begin is known first: ranking whole rows takes ten times as long, and files, which are of a
    # time each, are skipped where none of them can be among these.
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


# A day of 200 cards and 200 tests has 40,000: of so many a card's share is known to a thousandth.
ROWS_AT_MOST = 5_000_000

_DAY = "CAST(started_at AS DATE)"
# Equal code on equal days: another commit's figures are no match, nor are those of changes to it.
_ALIKE = f'hash(device_kind, device, test, "commit", uncommitted, {_DAY})'
_CARD = f'hash(device_kind, device, serial, "commit", uncommitted, {_DAY})'
_COLUMNS_OF_CARD = f'{_CARD}, any_value({_DAY}), any_value("commit"), any_value(uncommitted)'
_NAMES_OF_CARD = ", ".join(f"coalesce(any_value({name}), '')" for name in ("device_kind", "device", "serial", "host"))


def tests_in(history: History) -> list[str]:
    """Return the tests that the history knows."""
    return [test for (test,) in history.rows("SELECT DISTINCT test FROM history ORDER BY test") if test]


def card_days_in(
    history: History, figure: str, newest_days: int, tests: Sequence[str] | None = None
) -> tuple[list[CardDay], int]:
    """Return every card's share of its model's median on the newest days, where at least three cards have one.

    With it comes that one day in so many was looked at. figure: gbps or relative, which is a column; newest_days: up to
    the last run's; tests: only these.
    """
    counted = history.rows(f"SELECT {_DAY}, count(*) FROM history WHERE {MOMENT} GROUP BY 1 ORDER BY 1")
    if not counted:
        return [], 1
    kept = [(day, rows) for day, rows in counted if counted[-1][0] - day < timedelta(days=newest_days)]
    every = max(1, -(-sum(rows for _, rows in kept) // ROWS_AT_MOST))
    days = [day for day, _ in kept[::-1][::every]][::-1]  # the newest is one of them
    given: list[object] = [datetime.combine(days[0], time.min), datetime.combine(days[-1], time.max)]
    seen = "FROM history WHERE started_at BETWEEN $1 AND $2"
    if every > 1:
        # As literals, which are looked up while the files are read: other days' figures are not even unpacked.
        seen += f" AND {_DAY} IN ({', '.join(f'DATE {quoted(day.isoformat())}' for day in days)})"
    if tests is not None:
        given.append(tests)
        seen += f" AND test IN (SELECT unnest(${len(given)}::VARCHAR[]))"
    sound = f"is_valid AND {figure} BETWEEN {SMALLEST} AND {LARGEST}"
    history.rows(
        f"CREATE TEMP TABLE figures AS SELECT {_ALIKE} AS alike, {_CARD} AS card, {figure} AS figure "
        f"{seen} AND {sound}",
        given,
    )
    history.rows("CREATE TEMP TABLE middles AS SELECT alike, median(figure) AS middle FROM figures GROUP BY alike")
    shares = history.rows(
        "SELECT card, median(figure / middle), count(*) FROM figures JOIN middles USING (alike) GROUP BY card"
    )
    return _enough_together(shares, _days_by_hash(history, seen, given, shares)), every


def _days_by_hash(history: History, seen: str, given: Sequence[object], shares: Sequence[Row]) -> dict[int, Row]:
    """Return what each hash of a card's day stands for: its day, commit, uncommitted, kind, device, serial and host."""
    names = f"SELECT {_COLUMNS_OF_CARD}, {_NAMES_OF_CARD} {seen}"
    one_test = history.rows(f"SELECT test {seen} LIMIT 1", given)
    for test in one_test[0][:1] if one_test else ():
        among = f"test = ${len(given) + 1}"
        known = {row[0]: row[1:] for row in history.rows(f"{names} AND {among} GROUP BY {_CARD}", [*given, test])}
        if all(card in known for card, _, _ in shares):
            return known
    return {row[0]: row[1:] for row in history.rows(f"{names} GROUP BY {_CARD}", given)}


def _enough_together(shares: Sequence[Row], known: dict[int, Row]) -> list[CardDay]:
    """Return the rows of those days and commits on which so many cards of the model were measured."""
    together: dict[Row, set[str]] = {}
    for *alike, serial, _ in known.values():
        together.setdefault(tuple(alike), set()).add(serial)
    days = []
    for card, share, figures in shares:
        *alike, serial, host = known[card]
        if len(together[tuple(alike)]) >= FEWEST_DEVICES:
            day, _, _, kind, device = alike
            days.append(CardDay(kind, device, serial, host, day, share, figures))
    return days
