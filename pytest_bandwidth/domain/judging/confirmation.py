"""Decide a suspect by what fresh processes measured, and say when they have measured enough.

`session.fresh.confirm` runs the processes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.judging import device_change
from pytest_bandwidth.domain.judging.device_change import BaselineBounds, is_faster
from pytest_bandwidth.domain.judging.drop import confirm_drop
from pytest_bandwidth.domain.judging.floors import Floors, confirm_floor, is_by_floor
from pytest_bandwidth.domain.judging.reference import Reference
from pytest_bandwidth.domain.judging.rule import fresh_gate
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.measured.metrics import Metrics
from pytest_bandwidth.domain.verdict import Status, Verdict

# What one fresh process measured, by label.
FreshMetrics = Mapping[str | None, Metrics]
# Of a measurement's time budget, for the rounds of a fresh process: a test waits for two or three of them, and their
# median is steadier than any (benchmarks/gate.py has the seconds, and what is found).
ROUNDS_SHARE = 0.75
# The same of the two processes of a pair that sample in turn, at most: most have enough before. What a pair says
# depends on the pages that its processes were given more than on many rounds: five short pairs tell more than three
# long ones.
IN_TURN_SHARE = 0.5


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

    wall_seconds: from its start to measure until its end.
    """

    figures: Metrics
    wall_seconds: float


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Decide what the suspects of one test need of the fresh processes, which measure all of them.

    confirm: how many processes were asked for. dropped: the suspects that no floor decides. floors: whether there are
    others, which rest on all of them.
    """

    confirm: int
    dropped: Sequence[Case]
    floors: bool

    def is_complete(self, fresh: Sequence[FreshMetrics]) -> bool:
        """Return whether no further process is needed."""
        if len(fresh) >= self.confirm:
            return True
        return not self.floors and all(_is_settled(case, fresh, self.confirm) for case in self.dropped)


# Runs the fresh processes that a confirmation needs: what they measured, and why there are no more of them, if not
# because no more are needed.
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
        return confirm_floor(first, seen, floors)
    if case.reference is None:
        raise ValueError("a suspect without a reference")
    values = [value for process in seen if (value := process.of(case.reference.figure)) is not None]
    if len(values) < max(confirm, 1):
        return _not_confirmed(first, f"a probe ran in {len(values)} of {len(seen)} fresh processes")
    verdict = confirm_drop(first, case.reference, values, case.tolerance)
    if verdict.status is Status.REGRESSED and verdict.figure == "relative" and case.known is not None:
        blame = device_change.blame_when_up(case.figures, seen, case.known)
        return device_verdict(verdict, blame) or verdict
    return verdict


def device_verdict(verdict: Verdict, reason: str | None) -> Verdict | None:
    """Return the verdict as DEVICE where there is a reason for it; None where there is none."""
    return None if reason is None else replace(verdict, status=Status.DEVICE, code="device", reason=reason)


def is_settled(
    fresh: Sequence[Metrics], known: BaselineBounds | None, reference: Reference, tolerance: float, confirm: int
) -> bool:
    """Return whether the rest of `confirm` processes cannot change what the median says: most agree already.

    False where one was on a faster device, which may be to blame, or lacks the figure.
    """
    values = [value for f in fresh if (value := f.of(reference.figure)) is not None]
    if len(values) < len(fresh) or any(_was_faster(f, known) for f in fresh):
        return False
    drops = [reference.centre - math.log(value) for value in values]
    # The verdict is by the gate of these, the rest's would be narrower: past the one, or within the other.
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


def _was_faster(process: Metrics, known: BaselineBounds | None) -> bool:
    return known is not None and process.probe_gbps is not None and is_faster(process.probe_gbps, known)
