"""Write the page of a fleet: a row for each card, and what its tests reached, compared with the others of its model.

One file without scripts or network. It holds a few figures a test, and not those of every card: the JSON has them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from pytest_bandwidth.domain.units import counted, digits, format_percent, format_seconds
from pytest_bandwidth.reports.pages.template import Templates, policy, style_sheet
from pytest_bandwidth.reports.text_safe import clean, one_line

_TEMPLATES = Templates("pytest_bandwidth.features.fleet")
NAME_AT_MOST, REASON_AT_MOST = 300, 500
# Fewer have no middle that one could be compared with.
FEWEST_CARDS = 2


@dataclass(frozen=True, slots=True)
class _Card:
    """Hold a card's row; texts are cleaned. tail: its last lines, "" where they are of no interest."""

    cells: tuple[str, ...]
    state: str
    tail: str


@dataclass(frozen=True, slots=True)
class _Model:
    """Hold the tests of the cards of one model."""

    name: str
    rows: tuple[tuple[str, ...], ...]


def render_fleet(document: Mapping[str, Any]) -> str:
    """Return the page of a fleet's document (docs/fleet.md)."""
    cards: Sequence[Mapping[str, Any]] = document["cards"]
    style = style_sheet()
    return _TEMPLATES.render(
        "fleet.html.j2",
        policy=policy(style, []),
        style=style,
        sentence=_sentence(cards),
        facts=[
            one_line(str(document["environment"].get(name) or ""), 200) for name in ("started_at", "host", "commit")
        ],
        unlike=[clean(str(card["unlike"]), REASON_AT_MOST) for card in cards if card["unlike"]],
        cards=[_card(card) for card in cards],
        models=_models(cards),
    )


def _sentence(cards: Sequence[Mapping[str, Any]]) -> str:
    states = Counter(card["state"] for card in cards)
    words = (("failed", "failed"), ("missing", "did not report"))
    parts = [f"{states[state]} {text}" for state, text in words if states[state]]
    whole = counted(len(cards), "card")
    return f"{' and '.join(parts)}, of {whole}" if parts else f"{whole} measured"


def _card(card: Mapping[str, Any]) -> _Card:
    device = card["device"] or {}
    cells = (
        one_line(str(card["name"]), NAME_AT_MOST),
        str(card["state"]),
        one_line(f"{device['name']} ({device['serial']})", NAME_AT_MOST) if device else "",
        ", ".join(f"{count} {status}" for status, count in sorted(card["statuses"].items())),
        format_seconds(card["seconds"]) if card["seconds"] else "",
        one_line(str(card["reason"]), REASON_AT_MOST),
    )
    return _Card(cells, str(card["state"]), "\n".join(card["tail"]))


def _models(cards: Sequence[Mapping[str, Any]]) -> list[_Model]:
    """Return the models of which several cards reported, each with its tests."""
    by_model: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for card in cards:
        if (device := card["device"]) is not None and card["gbps"]:
            by_model.setdefault((device["kind"], device["name"], device.get("memory_gib")), []).append(card)
    return [
        _Model(f"{one_line(str(name), NAME_AT_MOST)}: {counted(len(found), 'card')}", _tests(found))
        for (_, name, _), found in by_model.items()
        if len(found) >= FEWEST_CARDS
    ]


def _tests(cards: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...], ...]:
    reached: dict[str, list[tuple[float, str]]] = {}
    for card in cards:
        for key, gbps in card["gbps"].items():
            reached.setdefault(key, []).append((gbps, str(card["name"])))
    rows = []
    for key, found in sorted(reached.items()):
        middle, (least, slowest), (most, fastest) = median(gbps for gbps, _ in found), min(found), max(found)
        rows.append(
            (
                one_line(key, NAME_AT_MOST),
                str(len(found)),
                digits(middle),
                f"{digits(least)} ({format_percent(least / middle - 1, 1)}), {one_line(slowest, 80)}",
                f"{digits(most)} ({format_percent(most / middle - 1, 1)}), {one_line(fastest, 80)}",
            )
        )
    return tuple(rows)
