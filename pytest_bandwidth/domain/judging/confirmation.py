"""Decide a suspect by what fresh processes measured, and say when they have measured enough.

Some machines change the speed of their memory from minute to minute. A share of a probe that is faster than any of the
baseline's tells of memory rather than of the kernel, so processes at the baseline's speed outweigh those on a faster
device. `session.fresh.confirm` runs the processes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_bandwidth.domain.baseline import Metric
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.judging import device_change
from pytest_bandwidth.domain.judging.device_change import BaselineBounds, is_faster
from pytest_bandwidth.domain.judging.drop import confirm_drop
from pytest_bandwidth.domain.judging.floors import Floors, confirm_floor, is_by_floor
from pytest_bandwidth.domain.judging.reference import Reference
from pytest_bandwidth.domain.judging.rule import fresh_gate
from pytest_bandwidth.domain.measurement import Measurement
from pytest_bandwidth.domain.metrics import Metrics
from pytest_bandwidth.domain.verdict import Status, Verdict

# By label, GB/s of the fastest probe beside which a fresh process shall measure where it can.
FastestProbes = Mapping[str | None, float]
# What one fresh process measured, by label.
FreshMetrics = Mapping[str | None, Metrics]
# So many times the fresh processes that were asked for are tried where too few met the baseline's memory speed.
MOST_FRESH_FACTOR = 2
# Of a measurement's time budget, for the rounds of a fresh process: a test waits for two or three of them, and their
# median is steadier than any (benchmarks/gate.py has the seconds, and what is found).
ROUNDS_SHARE = 0.75
# The same of the two processes of a pair that sample in turn, at most: most have enough before. What a pair says
# depends on the pages that its processes were given more than on many rounds: five short pairs tell more than three
# long ones.
IN_TURN_SHARE = 0.5
# So many fresh processes at the baseline's memory speed are worth waiting and trying for. Where time ends before, one
# outweighs those on a faster device as well: the gate of one process is as wide as that asks for.
ENOUGH_ALIKE = 2


@dataclass(frozen=True, slots=True)
class Case:
    """Hold one measurement with everything the rule needs to judge it."""

    measurement: Measurement
    figures: Metrics
    reference: Reference | None
    tolerance: float
    known: BaselineBounds | None


@dataclass(frozen=True, slots=True)
class FreshRow:
    """Hold what one fresh process saw of one measurement, and what it cost.

    waited_seconds: for the baseline's memory speed. wall_seconds: from its start to measure until its end, waiting
    included.
    """

    figures: Metrics
    waited_seconds: float
    wall_seconds: float


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Decide what the suspects of one test need of the fresh processes, which measure all of them.

    confirm: how many processes were asked for. dropped: the suspects that no floor decides. floors: whether there are
    others, which rest on the first `confirm`.
    """

    confirm: int
    dropped: Sequence[Case]
    floors: bool

    def is_complete(self, fresh: Sequence[FreshMetrics]) -> bool:
        """Return whether no further process is needed, or is worth its time."""
        if not self.floors and all(_is_settled(case, fresh, self.confirm) for case in self.dropped):
            return True
        # A label that none of those asked for has shown will not turn up in more.
        hopeful = any(_seen(case, fresh) for case in self._wanting(fresh))
        return len(fresh) >= (MOST_FRESH_FACTOR if hopeful else 1) * self.confirm

    def fastest_probes(self, fresh: Sequence[FreshMetrics]) -> FastestProbes:
        """Return what the next process shall wait for."""
        if self.floors:  # one holds at any speed: to choose one would be to choose the verdict
            return {}
        return {
            c.measurement.label: device_change.fastest_alike(c.known)
            for c in self._wanting(fresh)
            if c.known is not None
        }

    def _wanting(self, fresh: Sequence[FreshMetrics]) -> list[Case]:
        """Return the suspects of which too few processes met the baseline's memory speed."""
        return [
            case
            for case in self.dropped
            if case.reference is not None
            and needs_comparable_runs(_seen(case, fresh), case.known, case.reference.figure, self.confirm)
        ]


# Runs the fresh processes that a confirmation needs: what they measured, and why there are no more of them, if not
# because no more are needed or there is no time.
MeasureAgain = Callable[[Confirmation], tuple[list[FreshMetrics], BandwidthError | None]]


def judge_by_fresh(
    first: Verdict,
    case: Case,
    fresh: Sequence[FreshMetrics],
    confirm: int,
    floors: Floors,
    trouble: BandwidthError | None,
) -> Verdict:
    """Judge a suspect by its fresh processes. trouble: why there are no more of them."""
    seen = _seen(case, fresh)
    if trouble is None:
        confirm = min(confirm, len(fresh))  # fewer only where the rest was spared
    if len(seen) < confirm:
        too_few = f"{len(seen)} fresh processes measured it, and validly; {confirm} have to"
        return _not_confirmed(first, str(trouble) if trouble else too_few)
    if is_by_floor(first):
        return confirm_floor(first, seen[:confirm], floors)
    if case.reference is None:
        raise ValueError("a suspect without a reference")
    evidence = evidence_of(seen, case.known, confirm)
    values = evidence.values(case.reference.figure)
    if len(values) < evidence.needed:
        return _not_confirmed(first, f"a probe ran in {len(values)} of {len(evidence.processes)} fresh processes")
    verdict = confirm_drop(first, case.reference, values, case.tolerance)
    if verdict.status is Status.REGRESSED and verdict.figure == "relative" and case.known is not None:
        blame = device_change.blame_when_up(case.figures, evidence.processes, case.known)
        return device_verdict(verdict, blame) or verdict
    return verdict


def device_verdict(verdict: Verdict, reason: str | None) -> Verdict | None:
    """Return the verdict as DEVICE where there is a reason for it; None where there is none."""
    return None if reason is None else replace(verdict, status=Status.DEVICE, code="device", reason=reason)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Hold the fresh processes that count, and how many of them must hold the figure that is judged."""

    processes: Sequence[Metrics]
    needed: int

    def values(self, figure: Metric) -> list[float]:
        """Return the figure in each process that holds it."""
        return [value for process in self.processes if (value := process.of(figure)) is not None]


def evidence_of(fresh: Sequence[Metrics], known: BaselineBounds | None, confirm: int) -> Evidence:
    """Choose those at the baseline's memory speed, where any are and others are not; else all.

    Where all count, as many as were asked for, `confirm`, must hold the figure.
    """
    alike = _at_known_speed(fresh, known)
    if 0 < len(alike) < len(fresh):
        return Evidence(alike, min(_enough_alike(confirm), len(alike)))
    return Evidence(fresh, confirm)


def needs_comparable_runs(fresh: Sequence[Metrics], known: BaselineBounds | None, figure: Metric, confirm: int) -> bool:
    """Return whether a suspect needs more processes at the baseline's memory speed, as its share of the probe does."""
    return figure == "relative" and known is not None and len(_at_known_speed(fresh, known)) < _enough_alike(confirm)


def is_settled(
    fresh: Sequence[Metrics], known: BaselineBounds | None, reference: Reference, tolerance: float, confirm: int
) -> bool:
    """Return whether the rest of `confirm` processes cannot change what the median says: most agree already.

    False where one was on a faster device, or lacks the figure: which of them count is then open.
    """
    values = [value for f in fresh if (value := f.of(reference.figure)) is not None]
    if not len(values) == len(_at_known_speed(fresh, known)) == len(fresh):
        return False
    drops = [reference.centre - math.log(value) for value in values]
    # How many will count in the end, from these to all, is open: past the widest gate then, or within the narrowest.
    widest, narrowest = (fresh_gate(reference, tolerance, count) for count in (max(len(fresh), 1), confirm))
    past, within = sum(drop > widest for drop in drops), sum(drop <= narrowest for drop in drops)
    return max(past, within) > confirm // 2


def _not_confirmed(first: Verdict, why: str) -> Verdict:
    reason = f"{first.reason}; not confirmed: {why}"
    return replace(first, status=Status.UNCONFIRMED, code="no-fresh-process", reason=reason)


def _seen(case: Case, fresh: Sequence[FreshMetrics]) -> list[Metrics]:
    return [run[case.measurement.label] for run in fresh if case.measurement.label in run]


def _is_settled(case: Case, fresh: Sequence[FreshMetrics], confirm: int) -> bool:
    seen = _seen(case, fresh)
    if case.reference is None or len(seen) < len(fresh):
        return False
    return is_settled(seen, case.known, case.reference, case.tolerance, confirm)


def _enough_alike(confirm: int) -> int:
    return min(ENOUGH_ALIKE, confirm)


def _at_known_speed(fresh: Sequence[Metrics], known: BaselineBounds | None) -> list[Metrics]:
    """Return the processes beside whose kernels the device was no faster than beside the baseline's."""
    if known is None:
        return list(fresh)
    return [f for f in fresh if f.probe_gbps is None or not is_faster(f.probe_gbps, known)]
