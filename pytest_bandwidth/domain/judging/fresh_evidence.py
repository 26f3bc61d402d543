"""Which of a suspect's fresh processes a confirmation rests on, and when they are enough.

Some machines change their pace from minute to minute. A share of a probe that is faster than any of the baseline's
tells of memory rather than of the kernel, so processes at the baseline's pace outweigh those on a faster device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_bandwidth.domain.baseline import Metric
from pytest_bandwidth.domain.judging.device_change import BaselineBounds, is_faster
from pytest_bandwidth.domain.judging.reference import Reference
from pytest_bandwidth.domain.judging.rule import fresh_gate
from pytest_bandwidth.domain.metrics import Metrics

# So many fresh processes at the baseline's pace are worth waiting and trying for. Where time ends before, one outweighs
# those on a faster device as well: the gate of one process is as wide as that asks for.
ENOUGH_ALIKE = 2


@dataclass(frozen=True, slots=True)
class FreshRow:
    """What one fresh process saw of one measurement, and what it cost.

    waited_seconds: for the baseline's pace. wall_seconds: from its leave to measure until its end, waiting included.
    """

    figures: Metrics
    waited_seconds: float
    wall_seconds: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """The fresh processes that count, and how many of them must hold the figure that is judged."""

    processes: Sequence[Metrics]
    needed: int

    def values(self, figure: Metric) -> list[float]:
        """The figure in each process that holds it."""
        return [value for process in self.processes if (value := process.of(figure)) is not None]


def evidence_of(fresh: Sequence[Metrics], known: BaselineBounds | None, confirm: int) -> Evidence:
    """Those at the baseline's pace, where any are and others are not; else all.

    Where all count, as many as were asked for, `confirm`, must hold the figure.
    """
    alike = _at_known_pace(fresh, known)
    if 0 < len(alike) < len(fresh):
        return Evidence(alike, min(_enough_alike(confirm), len(alike)))
    return Evidence(fresh, confirm)


def needs_comparable_runs(fresh: Sequence[Metrics], known: BaselineBounds | None, figure: Metric, confirm: int) -> bool:
    """Whether a suspect needs more fresh processes at the baseline's pace: it is judged by its share of the probe."""
    return figure == "relative" and known is not None and len(_at_known_pace(fresh, known)) < _enough_alike(confirm)


def is_settled(
    fresh: Sequence[Metrics], known: BaselineBounds | None, reference: Reference, tolerance: float, confirm: int
) -> bool:
    """Whether the rest of `confirm` fresh processes cannot change what the median says: most of them agree already.

    False where one was on a faster device, or lacks the figure: which of them count is then open.
    """
    values = [value for f in fresh if (value := f.of(reference.figure)) is not None]
    if not len(values) == len(_at_known_pace(fresh, known)) == len(fresh):
        return False
    drops = [reference.centre - math.log(value) for value in values]
    # How many will count in the end, from these to all, is open: past the widest gate then, or within the narrowest.
    widest, narrowest = (fresh_gate(reference, tolerance, count) for count in (max(len(fresh), 1), confirm))
    past, within = sum(drop > widest for drop in drops), sum(drop <= narrowest for drop in drops)
    return max(past, within) > confirm // 2


def _enough_alike(confirm: int) -> int:
    return min(ENOUGH_ALIKE, confirm)


def _at_known_pace(fresh: Sequence[Metrics], known: BaselineBounds | None) -> list[Metrics]:
    """The processes beside whose kernels the device was no faster than beside the baseline's."""
    if known is None:
        return list(fresh)
    return [f for f in fresh if f.probe_gbps is None or not is_faster(f.probe_gbps, known)]
