"""Follow the cards of a fleet over time: each against the median of its model, and the cards that drift away.

A card's share is the median, over its figures of a time, of figure ÷ the model's median for that test, commit and day.
A change by a commit, or of the whole fleet, moves the model's median too: the share shows the card's own changes.

A fleet has tens of millions of figures in years. They are read once, into a table of two hashes and the figure, for
DuckDB's medians. If they are too many for a few seconds, only every second, third, … day is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from itertools import groupby
from operator import attrgetter
from statistics import median
from typing import Any

from pytest_bandwidth.domain.units import counted, format_percent
from pytest_bandwidth.features.history.reading import History, Row, quoted
from pytest_bandwidth.features.history.trend import BARS_IN_OVERVIEW, MOMENT, Level, bars, level_plain
from pytest_bandwidth.outcomes.run_findings import FEWEST_DEVICES
from pytest_bandwidth.reports.summary import signed_percent
from pytest_bandwidth.storage.saved_run import LARGEST, SMALLEST

# Change points take time that grows with the square of the points, and a stretch's median has less noise than a day's.
POINTS_AT_MOST = 100
# A card drifts if its last level is this much further from the model's median than its first: a quarter of a tolerance.
LEAST_DRIFT = 0.01
CARD_HEADINGS = ("card", "host", "device", "days", "figures", "of median", "change", "since", "finding", "trend")
# The columns of words.
CARD_WORDS = ("host", "device", "since", "finding", "trend")
# A day of 200 cards and 200 tests has 40,000 rows, which give a card's share to a thousandth.
ROWS_AT_MOST = 5_000_000

_DAY = "CAST(started_at AS DATE)"
# Equal code on equal days: another commit's figures are no match, nor are those of changes to it.
_ALIKE = f'hash(device_kind, device, test, "commit", uncommitted, {_DAY})'
_CARD = f'hash(device_kind, device, serial, "commit", uncommitted, {_DAY})'
_COLUMNS_OF_CARD = f'{_CARD}, any_value({_DAY}), any_value("commit"), any_value(uncommitted)'
_NAMES_OF_CARD = ", ".join(f"coalesce(any_value({name}), '')" for name in ("device_kind", "device", "serial", "host"))


@dataclass(frozen=True, slots=True)
class CardDay:
    """Hold one card's day on one commit. share: of its model's median; figures: the number of figures behind it."""

    device_kind: str
    device: str
    serial: str
    host: str
    day: date
    share: float
    figures: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """Hold consecutive days of one card, from `first` to `last`; share and figures as of a day."""

    first: date
    last: date
    share: float
    figures: int


@dataclass(frozen=True, slots=True)
class Card:
    """Hold a card's stretches, the oldest first; and the levels of its share, once they are known.

    host: its last one; days: the number of days on which it was measured.
    """

    device_kind: str
    device: str
    serial: str
    host: str
    days: int
    stretches: tuple[Stretch, ...]
    levels: tuple[Level, ...] = ()

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(stretch.share for stretch in self.stretches)

    @property
    def change(self) -> float:
        """Return the change from the first level to the last, as a fraction of the first."""
        return self.levels[-1].value / self.levels[0].value - 1

    @property
    def drifts(self) -> bool:
        """Return whether the last level lies further from the model's median than the first, by `LEAST_DRIFT`."""
        first, last = (abs(level.value - 1) for level in (self.levels[0], self.levels[-1]))
        return last - first >= LEAST_DRIFT

    @property
    def changed_on(self) -> date | None:
        """Return the first day of the second level; None without a second level."""
        return self.stretches[self.levels[1].start].first if len(self.levels) > 1 else None


def card_days_in(
    history: History, figure: str, newest_days: int, chosen: Callable[[list[str]], list[str]] | None
) -> tuple[list[CardDay], int]:
    """Return every card's share of its model's median on the newest days, where at least three cards have one.

    Return n as well if one day in n was read. figure: gbps or relative, which is a column; newest_days: counted back
    from the last run; chosen: returns the tests to read from all their names; None for all.
    """
    by_day = history.rows(f"SELECT {_DAY}, count(*) FROM history WHERE {MOMENT} GROUP BY 1 ORDER BY 1")
    if not by_day:
        return [], 1
    kept = [(day, rows) for day, rows in by_day if by_day[-1][0] - day < timedelta(days=newest_days)]
    every = max(1, -(-sum(rows for _, rows in kept) // ROWS_AT_MOST))
    days = [day for day, _ in kept[::-1][::every]][::-1]  # the newest is one of them
    given: list[object] = [datetime.combine(days[0], time.min), datetime.combine(days[-1], time.max)]
    seen = "FROM history WHERE started_at BETWEEN $1 AND $2"
    if every > 1:
        # Literals are compared while the files are read, so that other days' figures are not unpacked.
        seen += f" AND {_DAY} IN ({', '.join(f'DATE {quoted(day.isoformat())}' for day in days)})"
    if chosen is not None:
        known_tests = history.rows("SELECT DISTINCT test FROM history ORDER BY test")
        given.append(chosen([test for (test,) in known_tests if test]))
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
    # By hash: day, commit, uncommitted, kind, device, serial and host.
    named = history.rows(f"SELECT {_COLUMNS_OF_CARD}, {_NAMES_OF_CARD} {seen} GROUP BY {_CARD}", given)
    known = {row[0]: row[1:] for row in named}
    together: dict[Row, set[str]] = {}
    for *alike, serial, _ in known.values():
        together.setdefault(tuple(alike), set()).add(serial)
    found = []
    for card, share, figures in shares:
        *alike, serial, host = known[card]
        if len(together[tuple(alike)]) >= FEWEST_DEVICES:
            day, _, _, kind, device = alike
            found.append(CardDay(kind, device, serial, host, day, share, figures))
    return found, every


def cards_of(days: Iterable[CardDay]) -> list[Card]:
    """Return every card's days, in stretches where there are many, by model and serial."""
    cards = []
    ordered = sorted(days, key=attrgetter("device_kind", "device", "serial", "day"))
    for names, group in groupby(ordered, key=attrgetter("device_kind", "device", "serial")):
        by_day = [list(of_day) for _, of_day in groupby(group, key=lambda row: row.day)]
        long = -(-len(by_day) // POINTS_AT_MOST)
        stretches = []
        for begin in range(0, len(by_day), long):
            part = [row for day in by_day[begin : begin + long] for row in day]
            share, figures = median(row.share for row in part), sum(row.figures for row in part)
            stretches.append(Stretch(part[0].day, part[-1].day, share, figures))
        cards.append(Card(*names, by_day[-1][-1].host, len(by_day), tuple(stretches)))
    return cards


def drift_lines(cards: Sequence[Card], every: int) -> list[str]:
    """Write a line with the number of cards, and one for each that drifts. every: one day in so many was read."""
    first = min(one.stretches[0].first for one in cards)
    last = max(one.stretches[-1].last for one in cards)
    drifting = [one for one in cards if one.drifts]
    models = len({(one.device_kind, one.device) for one in cards})
    some = f"; one day in {every} was looked at (--newest N takes fewer days, and more of them)"
    return [
        f"{counted(len(cards), 'card')} of {counted(models, 'model')}, {first} to {last}: "
        f"{len(drifting) or 'none'} {'drift' if len(drifting) > 1 else 'drifts'} away from the median of its model"
        + (some if every > 1 else ""),
        *(
            f"{one.serial} in {one.host or 'an unknown host'} drifts: {signed_percent(one.change)} since "
            f"{one.changed_on}, now {format_percent(one.levels[-1].value, 1)} of its model's median"
            for one in drifting
        ),
    ]


def card_row(card: Card) -> tuple[str, ...]:
    """Return a card's row, by CARD_HEADINGS."""
    changed = card.changed_on
    return (
        card.serial,
        card.host,
        card.device,
        str(card.days),
        str(sum(stretch.figures for stretch in card.stretches)),
        format_percent(card.levels[-1].value, 1),
        "" if changed is None else signed_percent(card.change),
        "" if changed is None else str(changed),
        "drifts" if card.drifts else "",
        bars(card.values, BARS_IN_OVERVIEW),
    )


def card_plain(card: Card) -> dict[str, Any]:
    """Return a card as JSON-ready data; docs/history.md describes it."""
    return {
        "serial": card.serial,
        "host": card.host,
        "device": card.device,
        "device_kind": card.device_kind,
        "days": card.days,
        "drifts": card.drifts,
        "change": card.change,
        "stretches": [
            {"first": str(part.first), "last": str(part.last), "share": part.share, "figures": part.figures}
            for part in card.stretches
        ],
        "levels": [
            {**level_plain(level, "stretches"), "first": str(card.stretches[level.start].first)}
            for level in card.levels
        ],
    }
