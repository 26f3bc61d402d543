"""Show a fleet as a table, and as one document: a row for each card."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from pytest_bandwidth.cli.output import SCHEMA, terminal_width
from pytest_bandwidth.domain.units import counted, format_seconds
from pytest_bandwidth.features.fleet.cards import CardRow
from pytest_bandwidth.reports.tables import aligned
from pytest_bandwidth.reports.text_safe import printable

# Of one processor: the background of any system, as a host's measurements take it.
IDLE_PROCESSORS = 0.05


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
    words = ("state", "device", "why")
    return [*aligned(headings, cells, left=words, width=terminal_width()), _counted(rows), *_of_ray(rows)]


def progress(row: CardRow) -> str:
    """Return the line that says that a card has ended."""
    told = f"{counted(sum(row.statuses.values()), 'measurement')}" if row.statuses else ""
    about = "; ".join(part for part in (told, row.reason) if part)
    return printable(
        f"{row.card.name}: {row.state} after {format_seconds(row.seconds)}" + (f": {about}" if about else "")
    )


def fleet_document(
    run_id: str, environment: Mapping[str, Any], rows: Sequence[CardRow], unlike: Mapping[int, str], status: int
) -> dict[str, Any]:
    """Return the fleet's document. unlike: by card's number, how its device differs from the others of its model."""
    return {
        "schema": SCHEMA,
        "run_id": run_id,
        "environment": dict(environment),
        "exit_status": status,
        "cards": [{**_plain(row), "unlike": unlike.get(row.card.number)} for row in rows],
    }


def fleet_json(document: Mapping[str, Any]) -> str:
    """Return the document as the text of a file."""
    return json.dumps(document, indent=1, allow_nan=False)


def _plain(row: CardRow) -> dict[str, Any]:
    plain = {f.name: getattr(row, f.name) for f in fields(row) if f.name != "card"}
    card = asdict(row.card)
    del card["number"]
    return {**card, **plain}


def _of_ray(rows: Sequence[CardRow]) -> list[str]:
    """Say what Ray's own processes used before the cards were measured."""
    known = [(row.ray_processors, row.card.node) for row in rows if row.ray_processors is not None]
    if not known:
        return []
    most, node = max(known)
    if most < IDLE_PROCESSORS:
        return [f"Ray's own processes were idle on every node at the start: {most:.2f} processors at most"]
    return [
        f"Ray's own processes used up to {most:.2f} processors at the start ({node}): "
        "what they use while a test measures counts as others' work"
    ]


def _counted(rows: Sequence[CardRow]) -> str:
    found = Counter(row.state for row in rows)
    states = ", ".join(f"{count} {state}" for state, count in sorted(found.items()))
    return f"{counted(len(rows), 'card')}: {states}"
