"""Write the page of a fleet: a row for each card, and what its tests reached, compared with the others of its model.

One file without scripts or network. It holds a few figures a test, and not those of every card: the JSON has them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from pytest_bandwidth.domain.units import counted, digits, format_percent, format_seconds
from pytest_bandwidth.reports.pages.template import Templates
from pytest_bandwidth.reports.text_safe import clean, one_line

NAME_AT_MOST, REASON_AT_MOST = 300, 500
# Fewer have no middle that one could be compared with.
FEWEST_CARDS = 2

Card = Mapping[str, Any]


def render_fleet(document: Mapping[str, Any]) -> str:
    """Return the page of a fleet's document (docs/fleet.md)."""
    cards: Sequence[Card] = document["cards"]
    facts = (str(document["environment"].get(name) or "") for name in ("started_at", "host", "commit"))
    return Templates("pytest_bandwidth.features.fleet").page(
        "fleet.html.j2",
        sentence=_sentence(cards),
        facts=[one_line(fact, 200) for fact in facts],
        unlike=[clean(str(card["unlike"]), REASON_AT_MOST) for card in cards if card["unlike"]],
        rows=[_row(card) for card in cards],
        tails=[(one_line(str(card["name"]), NAME_AT_MOST), "\n".join(card["tail"])) for card in cards if card["tail"]],
        models=_models(cards),
    )


def _sentence(cards: Sequence[Card]) -> str:
    states = Counter(card["state"] for card in cards)
    words = (("failed", "failed"), ("missing", "did not report"))
    parts = [f"{states[state]} {text}" for state, text in words if states[state]]
    whole = counted(len(cards), "card")
    return f"{' and '.join(parts)}, of {whole}" if parts else f"{whole} measured"


def _row(card: Card) -> tuple[str, ...]:
    device = card["device"] or {}
    return (
        one_line(str(card["name"]), NAME_AT_MOST),
        str(card["state"]),
        one_line(f"{device['name']} ({device['serial']})", NAME_AT_MOST) if device else "",
        ", ".join(f"{count} {status}" for status, count in sorted(card["statuses"].items())),
        format_seconds(card["seconds"]) if card["seconds"] else "",
        one_line(str(card["reason"]), REASON_AT_MOST),
    )


def _models(cards: Sequence[Card]) -> list[tuple[str, list[tuple[str, ...]]]]:
    """Return the models of which several cards reported: name, and a row for each test."""
    by_model: dict[tuple[Any, ...], list[Card]] = {}
    for card in cards:
        if (device := card["device"]) is not None and card["gbps"]:
            by_model.setdefault((device["kind"], device["name"], device.get("memory_gib")), []).append(card)
    return [
        (f"{one_line(str(name), NAME_AT_MOST)}: {counted(len(found), 'card')}", _tests(found))
        for (_, name, _), found in by_model.items()
        if len(found) >= FEWEST_CARDS
    ]


def _tests(cards: Sequence[Card]) -> list[tuple[str, ...]]:
    reached: dict[str, list[tuple[float, str]]] = {}
    for card in cards:
        for key, gbps in card["gbps"].items():
            reached.setdefault(key, []).append((gbps, str(card["name"])))
    rows = []
    for key, found in sorted(reached.items()):
        middle = median(gbps for gbps, _ in found)
        ends = (
            f"{digits(gbps)} ({format_percent(gbps / middle - 1, 1)}), {one_line(name, 80)}"
            for gbps, name in (min(found), max(found))
        )
        rows.append((one_line(key, NAME_AT_MOST), str(len(found)), digits(middle), *ends))
    return rows
