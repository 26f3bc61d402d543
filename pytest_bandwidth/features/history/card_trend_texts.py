"""Put the cards of a fleet over time into words and figures, for the terminal, the page and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pytest_bandwidth.domain.units import counted, format_percent
from pytest_bandwidth.features.history.card_trend import CardTrend
from pytest_bandwidth.features.history.trend_texts import BARS_IN_OVERVIEW, bars
from pytest_bandwidth.reports.summary import signed_percent

CARD_HEADINGS = ("card", "host", "device", "days", "figures", "of median", "change", "since", "finding", "trend")
# Those that hold words.
CARD_WORDS = ("host", "device", "since", "finding", "trend")


@dataclass(frozen=True, slots=True)
class CardTrends:
    """Hold what is shown. figure: gbps or relative; every: one day in so many was looked at."""

    figure: str
    cards: Sequence[CardTrend]
    every: int

    @property
    def ordered(self) -> list[CardTrend]:
        """Return the cards that drift first, then by how far each lies from its model's median."""
        return sorted(self.cards, key=lambda one: (not one.drifts, -abs(one.levels[-1].value - 1)))


def card_rows(told: CardTrends) -> list[tuple[str, ...]]:
    """Return one row a card, by CARD_HEADINGS."""
    return [_row(one) for one in told.ordered]


def drift_lines(told: CardTrends) -> list[str]:
    """Say how many cards there are and which drift, in a line each."""
    first = min(one.card.stretches[0].first for one in told.cards)
    last = max(one.card.stretches[-1].last for one in told.cards)
    drifting = [one for one in told.ordered if one.drifts]
    models = len({(one.card.device_kind, one.card.device) for one in told.cards})
    some = f"; one day in {told.every} was looked at (--newest N takes fewer days, and more of them)"
    return [
        f"{counted(len(told.cards), 'card')} of {counted(models, 'model')}, {first} to {last}: "
        f"{len(drifting) or 'none'} {'drift' if len(drifting) > 1 else 'drifts'} away from the median of its model"
        + (some if told.every > 1 else ""),
        *(
            f"{one.card.serial} in {one.card.host or 'an unknown host'} drifts: {signed_percent(one.change)} since "
            f"{one.changed_on}, now {format_percent(one.levels[-1].value, 1)} of its model's median"
            for one in drifting
        ),
    ]


def cards_plain(told: CardTrends) -> dict[str, Any]:
    """Return the cards as JSON-ready data; docs/history.md describes it."""
    return {"figure": told.figure, "every_day": told.every, "cards": [_plain(one) for one in told.ordered]}


def _row(one: CardTrend) -> tuple[str, ...]:
    card, changed = one.card, one.changed_on
    return (
        card.serial,
        card.host,
        card.device,
        str(card.days),
        str(sum(stretch.figures for stretch in card.stretches)),
        format_percent(one.levels[-1].value, 1),
        "" if changed is None else signed_percent(one.change),
        "" if changed is None else str(changed),
        "drifts" if one.drifts else "",
        bars(card.values, BARS_IN_OVERVIEW),
    )


def _plain(one: CardTrend) -> dict[str, Any]:
    card = one.card
    return {
        "serial": card.serial,
        "host": card.host,
        "device": card.device,
        "device_kind": card.device_kind,
        "days": card.days,
        "drifts": one.drifts,
        "change": one.change,
        "stretches": [
            {"first": str(part.first), "last": str(part.last), "share": part.share, "figures": part.figures}
            for part in card.stretches
        ],
        "levels": [
            {
                "start": level.start,
                "stretches": level.stop - level.start,
                "value": level.value,
                "change": level.change,
                "first": str(card.stretches[level.start].first),
            }
            for level in one.levels
        ],
    }
