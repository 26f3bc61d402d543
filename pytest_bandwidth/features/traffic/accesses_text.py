"""List what a traffic device counted, out of a result's `detail`: by kind of access, and by source line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.reports.text_safe import printable
from pytest_bandwidth.reports.values import Plain, mapping, sequence, text

KINDS = (("load", "loads"), ("store", "stores"), ("atomic", "atomics"))


def accesses_of(detail: Plain) -> list[tuple[str, Plain]]:
    """Return kind and counts of every kind that occurs."""
    return [(kind, access) for kind, name in KINDS if (access := mapping(detail, name)) and access.get("requests") != 0]


def line_accesses_of(detail: Plain) -> list[tuple[str, Plain]]:
    """Return the same for each source line; every mapping begins with `place`, ``FILE:LINE``."""
    return [
        (kind, {"place": f"{text(line, 'file')}:{line.get('line')}", **access})
        for line in sequence(detail, "lines")
        for kind, name in KINDS
        if (access := mapping(line, name)).get("requests")
    ]


def sectors_text(outcome: Outcome) -> str:
    """Write loads and stores of the traffic device: 4.0 + 4.0."""
    found = [_count_of(outcome, kind, "sectors_per_request") for kind in ("loads", "stores")]
    return " + ".join("–" if value is None else f"{value:.1f}" for value in found) if outcome.counts else ""


def patterns_text(outcome: Outcome) -> str:
    """Name the commonest access pattern of loads and stores, once where they agree."""
    found = [_count_of(outcome, kind, "pattern") for kind in ("loads", "stores")]
    names = list(dict.fromkeys(printable(str(name)) for name in found if name and name != "none"))
    return " / ".join(names)


def _count_of(outcome: Outcome, kind: str, name: str) -> Any:
    access = outcome.detail.get(kind)
    return access.get(name) if isinstance(access, Mapping) else None
