"""Follow the cards of a fleet over time: each beside the median of its model, and the cards that drift away from it.

A card's share is the median, over its figures of a time, of figure ÷ the model's median for that test, commit and day.
What a commit or the whole fleet's machines change moves that median too: what is left is the card's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from statistics import median

from pytest_bandwidth.features.history.trend import Level, levels_of

# Change points take time that grows with the square of the points, and a stretch's median has less noise than a day's.
POINTS_AT_MOST = 100
# Levels that lie this much further from the model's median than the first did: a quarter of what a test may lose.
LEAST_DRIFT = 0.01


@dataclass(frozen=True, slots=True)
class CardDay:
    """Hold one card's day on one commit. share: of its model's median; figures: how many that is the median of."""

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
class CardSeries:
    """Hold a card's stretches, the oldest first. host: where it was last; days: on how many it was measured."""

    device_kind: str
    device: str
    serial: str
    host: str
    days: int
    stretches: tuple[Stretch, ...]

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(stretch.share for stretch in self.stretches)


@dataclass(frozen=True, slots=True)
class CardTrend:
    """Hold a card with the levels of its share; there is at least one."""

    card: CardSeries
    levels: tuple[Level, ...]

    @property
    def change(self) -> float:
        """Return how the last level differs from the first, as a fraction of that."""
        return self.levels[-1].value / self.levels[0].value - 1

    @property
    def drifts(self) -> bool:
        """Return whether the last level lies further from the model's median than the first, by `LEAST_DRIFT`."""
        first, last = (abs(level.value - 1) for level in (self.levels[0], self.levels[-1]))
        return last - first >= LEAST_DRIFT

    @property
    def changed_on(self) -> date | None:
        """Return the first day of the second level; None where there is none."""
        return self.card.stretches[self.levels[1].start].first if len(self.levels) > 1 else None


def series_of_cards(days: Iterable[CardDay]) -> list[CardSeries]:
    """Return every card's days, in stretches where there are many, by model and serial."""

    def card(one: CardDay) -> tuple[str, str, str]:
        return one.device_kind, one.device, one.serial

    ordered = sorted(days, key=lambda one: (*card(one), one.day))
    return [_series(list(group)) for _, group in groupby(ordered, key=card)]


def card_trend(card: CardSeries, starts: Sequence[int]) -> CardTrend:
    """Return a card's levels, from the places among its stretches where new ones start (rising, without 0)."""
    return CardTrend(card, levels_of(card.values, starts))


def _series(rows: Sequence[CardDay]) -> CardSeries:
    """Return one card's rows, which are in the order of their days."""
    by_day = [list(group) for _, group in groupby(rows, key=lambda row: row.day)]
    long = -(-len(by_day) // POINTS_AT_MOST)
    stretches = [[row for day in by_day[i : i + long] for row in day] for i in range(0, len(by_day), long)]
    newest = rows[-1]
    return CardSeries(
        newest.device_kind,
        newest.device,
        newest.serial,
        newest.host,
        len(by_day),
        tuple(
            Stretch(part[0].day, part[-1].day, median(row.share for row in part), sum(row.figures for row in part))
            for part in stretches
        ),
    )
