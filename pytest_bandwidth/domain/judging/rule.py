"""Compute the rule's numbers: what a first look and the median of fresh processes are held to.

`judging` puts it in words; the self-test and the simulation count its statuses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from pytest_bandwidth.domain.judging.reference import Reference
from pytest_bandwidth.domain.units import log_of_drop
from pytest_bandwidth.domain.verdict import Status

SUSPECT_LEVEL = 0.99
# Of unchanged tests no more than one in twenty takes fresh processes for it, where the entry's spread is the true one.
DOUBT_LEVEL = 0.95
REGRESSED_LEVEL = 0.999
# A gate that is the tolerance's own log drop may come out one rounding above it.
_ROUNDING = 1 + 1e-12


@dataclass(frozen=True, slots=True)
class Bounds:
    """Hold log drops. allowed: what one process may show; gate: past which its fresh ones would be REGRESSED.

    doubt: past which fresh processes are asked although it is allowed; infinite where there are none.
    tells: whether a drop of the tolerance can be told from noise.
    """

    doubt: float
    allowed: float
    gate: float
    tells: bool


def bounds_of(reference: Reference, tolerance: float, confirm: int) -> Bounds:
    """Return what a first look holds a figure to; confirm: how many fresh processes a suspect has, 0 for none."""
    gate = fresh_gate(reference, tolerance, max(confirm, 1))
    level = SUSPECT_LEVEL if confirm else REGRESSED_LEVEL
    return Bounds(
        _doubt(reference, tolerance) if confirm else math.inf,
        reference.bound(level, tolerance, 1),
        gate,
        tells(gate, tolerance),
    )


def _doubt(reference: Reference, tolerance: float) -> float:
    """Return the log drop that noise seldom shows, and from which it may be no further to the tolerance."""
    noise = reference.noise(DOUBT_LEVEL, 1)
    return max(noise, log_of_drop(tolerance) - noise)


def first_status(drop: float, bounds: Bounds, confirm: int) -> Status:
    """Return SUSPECT, INSUFFICIENT, IMPROVED or WITHIN (with confirm=0, REGRESSED) of one process's log drop."""
    if drop > bounds.allowed:
        return Status.SUSPECT if confirm else Status.REGRESSED
    if not bounds.tells:
        return Status.INSUFFICIENT
    return Status.IMPROVED if -drop > bounds.allowed else Status.WITHIN


def fresh_gate(reference: Reference, tolerance: float, processes: int) -> float:
    """Return the log drop past which the median of so many fresh processes is REGRESSED.

    It is no wider for more of them.
    """
    return reference.bound(REGRESSED_LEVEL, tolerance, processes)


def tells(gate: float, tolerance: float) -> bool:
    """Return whether a drop of the tolerance reaches a gate that noise may have widened."""
    return gate <= log_of_drop(tolerance) * _ROUNDING


def median_drop(reference: Reference, fresh: Sequence[float]) -> float:
    """Return the log drop of the median of some fresh processes' figures, one at least, all positive."""
    return reference.centre - median([math.log(value) for value in fresh])
