"""Show a fleet at its end: a table, one document, its page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from pytest_bandwidth.cli.main import SCHEMA, terminal_width
from pytest_bandwidth.domain.units import counted, format_seconds
from pytest_bandwidth.features.fleet.cards import CardRow
from pytest_bandwidth.outcomes.outcome import Nested
from pytest_bandwidth.reports.text_safe import aligned, clean, one_line, printable

# As a share of one processor: the background of any system, as in a host's measurements.
IDLE_PROCESSORS = 0.05
NAME_AT_MOST, REASON_AT_MOST = 300, 500


def table(rows: Sequence[CardRow]) -> list[str]:
    """Return a line for each card, and one that counts them."""
    headings = ("card", "state", "device", "tests", "time", "attempts", "why")
    cells = [
        (
            row.card.name,
            row.state,
            "" if row.device is None else f"{row.device['name']} ({row.device['serial']})",
            str(sum(row.statuses.values()) or ""),
            format_seconds(row.seconds) if row.seconds else "",
            str(row.attempts) if row.attempts > 1 else "",
            row.reason,
        )
        for row in rows
    ]
    lines = aligned(headings, cells, left=("state", "device", "why"), width=terminal_width())
    found = Counter(row.state for row in rows)
    states = ", ".join(f"{count} {state}" for state, count in sorted(found.items()))
    lines.append(f"{counted(len(rows), 'card')}: {states}")
    by_ray = [(row.ray_processors, row.card.node) for row in rows if row.ray_processors is not None]
    if not by_ray:
        return lines
    most, node = max(by_ray)
    if most < IDLE_PROCESSORS:
        usage = f"were idle on every node at the start: {most:.2f} processors at most"
    else:
        usage = f"used up to {most:.2f} processors at the start ({node}): "
        usage += "while a test measures, this counts as other processes' work"
    return [*lines, f"Ray's own processes {usage}"]


def progress(row: CardRow) -> str:
    """Return the line for a card that has ended."""
    measured = counted(sum(row.statuses.values()), "measurement") if row.statuses else ""
    result = f"{row.state} after {format_seconds(row.seconds)}"
    about = "; ".join(part for part in (measured, row.reason) if part)
    return printable(": ".join(part for part in (row.card.name, result, about) if part))


def fleet_document(
    run_id: str, environment: Mapping[str, Any], rows: Sequence[CardRow], unlike: Mapping[int, str], status: int
) -> dict[str, Any]:
    """Return the fleet's document. unlike: by card's number, how its device differs from the others of its model."""
    cards = []
    for row in rows:
        card = {name: value for name, value in asdict(row.card).items() if name != "number"}
        of_run = {f.name: getattr(row, f.name) for f in fields(row) if f.name != "card"}
        cards.append({**card, **of_run, "unlike": unlike.get(row.card.number)})
    return {
        "schema": SCHEMA,
        "run_id": run_id,
        "environment": dict(environment),
        "exit_status": status,
        "cards": cards,
    }


# ---- the page: one file without scripts or network -------------------------------------------------------------------


def render_fleet(document: Mapping[str, Any]) -> str:
    """Return the page of a fleet's document (docs/fleet.md): a row for each card."""
    from pytest_bandwidth.reports.pages import Templates  # brings Jinja2

    cards: Sequence[Nested] = document["cards"]
    states, whole = Counter(card["state"] for card in cards), counted(len(cards), "card")
    words = (("failed", "failed"), ("missing", "did not report"))
    parts = [f"{states[state]} {text}" for state, text in words if states[state]]
    facts = (str(document["environment"].get(name) or "") for name in ("started_at", "host", "commit"))
    rows = []
    for card in cards:
        device = card["device"] or {}
        row = (
            one_line(str(card["name"]), NAME_AT_MOST),
            str(card["state"]),
            one_line(f"{device['name']} ({device['serial']})", NAME_AT_MOST) if device else "",
            ", ".join(f"{count} {status}" for status, count in sorted(card["statuses"].items())),
            format_seconds(card["seconds"]) if card["seconds"] else "",
            one_line(str(card["reason"]), REASON_AT_MOST),
        )
        rows.append(row)
    return Templates("pytest_bandwidth.features.fleet").page(
        "fleet.html.j2",
        sentence=f"{' and '.join(parts)}, of {whole}" if parts else f"{whole} measured",
        facts=[one_line(fact, 200) for fact in facts],
        unlike=[clean(str(card["unlike"]), REASON_AT_MOST) for card in cards if card["unlike"]],
        rows=rows,
        tails=[(one_line(str(card["name"]), NAME_AT_MOST), "\n".join(card["tail"])) for card in cards if card["tail"]],
    )
