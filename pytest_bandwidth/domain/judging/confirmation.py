"""A suspect's last word: fresh processes, as many as it takes, and what they confirm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.judging import device_change
from pytest_bandwidth.domain.judging.device_change import BaselineBounds
from pytest_bandwidth.domain.judging.drop import confirm_drop
from pytest_bandwidth.domain.judging.floors import Floors, confirm_floor, is_by_floor
from pytest_bandwidth.domain.judging.fresh_evidence import evidence_of, is_settled, needs_comparable_runs
from pytest_bandwidth.domain.judging.reference import Reference
from pytest_bandwidth.domain.measurement import Measurement
from pytest_bandwidth.domain.metrics import Metrics
from pytest_bandwidth.domain.verdict import Status, Verdict

# By label, GB/s of the fastest probe beside which a fresh process shall measure where it can.
Paces = Mapping[str | None, float]
# Figures by label, from one fresh process each; None for more than were asked for where there is no time for it.
FreshRun = Callable[[Paces], Mapping[str | None, Metrics] | None]
# So many times the fresh processes that were asked for are tried where too few met the baseline's pace.
MOST_FRESH_FACTOR = 2
# Of a measurement's time budget, for the rounds of a fresh process: a test waits for two or three of them, and their
# median is steadier than any (benchmarks/gate.py has the seconds, and what is found).
ROUNDS_SHARE = 0.75


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement with everything the rule needs to judge it."""

    measurement: Measurement
    figures: Metrics
    reference: Reference | None
    tolerance: float
    known: BaselineBounds | None


def fresh_metrics(
    fresh_run: FreshRun, confirm: int, dropped: Sequence[Case], *, floors: bool
) -> tuple[list[Mapping[str | None, Metrics]], BandwidthError | None]:
    """What fresh processes saw, and what went wrong with the last.

    dropped: the suspects that no floor decides; floors: whether there are others, which rest on the first `confirm`.
    """
    seen: list[Mapping[str | None, Metrics]] = []
    while True:
        if not floors and all(_is_settled(case, seen, confirm) for case in dropped):
            return seen, None
        wanting = [case for case in dropped if _needs_comparable_runs(case, seen, confirm)]
        # A label that none of those asked for has shown will not turn up in more.
        hopeful = any(_seen(case, seen) for case in wanting)
        if len(seen) >= (MOST_FRESH_FACTOR if hopeful else 1) * confirm:
            return seen, None
        # A floor holds at any pace: to choose one would be to choose the verdict.
        wanted = [] if floors else wanting
        paces = {c.measurement.label: device_change.fastest_alike(c.known) for c in wanted if c.known}
        try:
            figures = fresh_run(paces)
        except BandwidthError as error:
            return seen, error
        if figures is None:
            return seen, None
        seen.append(figures)


def last_word(
    first: Verdict,
    case: Case,
    fresh: Sequence[Mapping[str | None, Metrics]],
    confirm: int,
    floors: Floors,
    trouble: BandwidthError | None,
) -> Verdict:
    """What the fresh processes make of a suspect; trouble: why there are no more of them."""
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


def _not_confirmed(first: Verdict, why: str) -> Verdict:
    reason = f"{first.reason}; not confirmed: {why}"
    return replace(first, status=Status.UNCONFIRMED, code="no-fresh-process", reason=reason)


def _seen(case: Case, fresh: Sequence[Mapping[str | None, Metrics]]) -> list[Metrics]:
    return [run[case.measurement.label] for run in fresh if case.measurement.label in run]


def _is_settled(case: Case, fresh: Sequence[Mapping[str | None, Metrics]], confirm: int) -> bool:
    seen = _seen(case, fresh)
    if case.reference is None or len(seen) < len(fresh):
        return False
    return is_settled(seen, case.known, case.reference, case.tolerance, confirm)


def _needs_comparable_runs(case: Case, fresh: Sequence[Mapping[str | None, Metrics]], confirm: int) -> bool:
    return case.reference is not None and needs_comparable_runs(
        _seen(case, fresh), case.known, case.reference.figure, confirm
    )


def device_verdict(verdict: Verdict, reason: str | None) -> Verdict | None:
    """The verdict made DEVICE where there is a reason for it."""
    return None if reason is None else replace(verdict, status=Status.DEVICE, code="device", reason=reason)
