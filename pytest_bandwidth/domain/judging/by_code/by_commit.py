"""Decide a suspect by pairs of fresh processes against the commit that the baseline's runs were taken at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_bandwidth.domain.judging.by_code.last_word import Suspect
from pytest_bandwidth.domain.judging.by_code.same_code import what_differs
from pytest_bandwidth.domain.judging.confirmation import judge_by_fresh
from pytest_bandwidth.domain.judging.drop import drop_sentence, is_past_gate_beside, moved
from pytest_bandwidth.domain.judging.floors import Floors
from pytest_bandwidth.domain.judging.limits import Limits
from pytest_bandwidth.domain.measured.metrics import Metrics
from pytest_bandwidth.domain.units import log_of_drop
from pytest_bandwidth.domain.verdict import Status, Verdict

# The code of DEVICE where the commit's code lost as much.
BY_COMMIT = "commit"
_CLEARED = (Status.WITHIN, Status.IMPROVED)


def limits_of(suspect: Suspect, limits: Limits) -> Limits:
    """Return what pairs hold the suspect to: the tolerance and the metric that the baseline judges it by."""
    figure = None if suspect.case.reference is None else suspect.case.reference.figure
    return replace(limits, marker=replace(limits.marker, tolerance=suspect.case.tolerance, judged_on=figure))


def judge_by_commit(suspect: Suspect, paired: Verdict, heads: Sequence[Metrics], confirm: int) -> Verdict | None:
    """Return the last word of pairs; None where they have none, as `paired` says.

    paired: the verdict on the pairs, by the limits of `limits_of`. heads: what their processes of this code saw.
    confirm: of those, how many of a drop below the baseline have to be known, one at least.

    Of processes that sampled in turn, see `is_cleared`.
    """
    if paired.status in (Status.REGRESSED, Status.INSUFFICIENT):
        return paired
    if paired.status not in _CLEARED or not heads:
        return None
    seen = [{suspect.case.measurement.label: head} for head in heads]
    fresh = judge_by_fresh(suspect.first, suspect.case, seen, max(confirm, 1), Floors(), None)
    return of_cleared(suspect, paired, fresh)


def is_cleared(suspect: Suspect, paired: Verdict) -> bool:
    """Return whether pairs in turn show that the code lost nothing; what the device lost, they cannot tell.

    They have no share of a probe, and their arrays lie in other memory than those of the baseline's runs.
    """
    return paired.status in _CLEARED and suspect.case.reference is not None


def of_cleared(suspect: Suspect, paired: Verdict, fresh: Verdict | None) -> Verdict:
    """Return the verdict on code that lost nothing against the commit's.

    fresh: by the baseline, in fresh processes; None where none were wanted. It is not why the figures are below the
    baseline's. Where they stay there, by more than pairs saw of the code, the device or what runs beside it is; where
    that could not be looked at, what was lost is not waved through.
    """
    first = suspect.first
    if fresh is not None and fresh.status is Status.UNCONFIRMED and not fresh.confirmations:
        if first.status is Status.SUSPECT:
            reason = f"{fresh.reason}; the code is not why: {paired.reason}"
            return replace(fresh, reason=reason, why_not=paired.why_not)
        if first.status is Status.DEVICE:
            return replace(first, reason=f"{first.reason}; {paired.reason}", why_not=paired.why_not)
    if fresh is not None and is_past_gate_beside(fresh, log_of_drop(paired.drop or 0.0)):
        differs = what_differs(suspect.case.measurement, suspect.entry)
        reason = f"it lost more than its code explains: {paired.reason}; but {drop_sentence(fresh)}; {differs}"
        return replace(fresh, status=Status.DEVICE, code=BY_COMMIT, reason=reason)
    status = Status.WITHIN if first.status is Status.SUSPECT else paired.status
    return replace(paired, status=status, reason=f"{moved(first, 'the baseline')} here, {paired.reason}")
