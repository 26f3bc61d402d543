"""Sort results by the attention that they deserve: what fails first, and the largest loss before others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pytest_bandwidth.domain.verdict import Status
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.reports.names import natural
from pytest_bandwidth.reports.values import mapping, number

Severity = Literal["bad", "warn", "good", "plain"]


def severity_of(status: Status, *, strict: bool) -> Severity:
    """Grade a status: bad fails its test, warn could not be judged, good is welcome news, plain is as it should be."""
    if status.fails(strict=strict):
        return "bad"
    if status.warns:
        return "warn"
    return "good" if status is Status.IMPROVED else "plain"


def gravity(status: Status, *, strict: bool) -> tuple[int, int]:
    """Sort key: what fails first, then what could not be judged, then the rest; inside those by precedence."""
    rank = {"bad": 0, "warn": 1, "good": 2, "plain": 3}[severity_of(status, strict=strict)]
    return rank, list(Status).index(status)


def by_attention(outcomes: Iterable[Outcome], *, strict: bool) -> list[Outcome]:
    """Sort by gravity, then the largest loss first, then names in natural order."""
    return sorted(outcomes, key=lambda outcome: attention_key(outcome, strict=strict))


def attention_key(outcome: Outcome, *, strict: bool) -> tuple[object, ...]:
    """Return what `by_attention` sorts by."""
    grave = gravity(Status(outcome.status), strict=strict)
    return (*grave, -loss_of(outcome), natural(outcome.key), outcome.key)


def loss_of(outcome: Outcome) -> float:
    """Return the share of its figure that a row lost, of a count the largest rise as a share; 0 where none is known."""
    verdict = outcome.verdict
    drop = number(verdict, "drop")
    if drop is not None:
        return drop
    observed, reference = number(verdict, "observed"), number(verdict, "reference")
    if observed is not None and reference:
        return 1 - observed / reference
    changes = mapping(verdict, "facts").get("changes")
    return max(map(_rise, changes), default=0.0) if isinstance(changes, (list, tuple)) else 0.0


def _rise(change: object) -> float:
    """Return the share of a count that was not there before: 100 → 200 is a half. Saved runs may hold anything."""
    match change:
        case (_, int(then), int(now)) if now > 0:
            return 1 - then / now
    return 0.0
