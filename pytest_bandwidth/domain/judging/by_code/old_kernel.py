"""Judge a changed kernel by its old code, which took turns with it on the same arrays, in fresh processes.

Card, clocks, driver and neighbours are the same for both, so their ratio scatters little, and needs neither the
baseline's runs nor a prior: what is stored only said whom to suspect.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from pytest_bandwidth.domain.judging.by_code.last_word import Suspect
from pytest_bandwidth.domain.judging.by_code.looks import Looks, Shown
from pytest_bandwidth.domain.judging.by_code.same_code import what_differs
from pytest_bandwidth.domain.judging.drop import confirm_drop, drop_sentence, is_past_gate_beside, moved
from pytest_bandwidth.domain.measured.metrics import Metrics
from pytest_bandwidth.domain.units import drop_of_log, format_percent, log_of_drop
from pytest_bandwidth.domain.verdict import Status, Verdict

# The code of verdicts that rest on it, and of the finding that says why none could.
OLD_KERNEL = "old-kernel"
# The processes after which it is looked whether they tell.
LOOKS = Looks((3, 4, 6, 8))


@dataclass(frozen=True, slots=True)
class BesideOld:
    """Hold what one fresh process saw of a kernel that took turns with its old code.

    figures: the kernel's. drop: the median over the rounds of ln(its seconds ÷ the old code's).
    """

    figures: Metrics
    drop: float


def is_enough(drops: Sequence[float], tolerance: float) -> bool:
    """Return whether no further process is needed, or is worth its time. drops: of the processes so far."""
    if len(drops) >= LOOKS.most:
        return True
    return len(drops) in LOOKS.after and LOOKS.tell(drops, log_of_drop(tolerance), last=False).status is not None


def judge_by_old(suspect: Suspect, seen: Sequence[BesideOld]) -> Verdict | None:
    """Judge a suspect, or a drop in doubt, by its old code; None where the processes are too few or too noisy to tell.

    REGRESSED by `Looks.tell`. Where that says WITHIN or IMPROVED, and the processes confirm all the same what the
    suspect lost against the stored figures, without what the mean drop explains of it, old and new lost that alike:
    DEVICE. Else it is WITHIN, or IMPROVED where there are no stored figures.
    """
    if len(seen) < LOOKS.after[0]:
        return None
    shown = _shown(seen, suspect.case.tolerance)
    if shown.status is None:
        return None
    verdict = _by_ratio(suspect, seen, shown)
    if shown.status is Status.REGRESSED or suspect.first.status is Status.NO_BASELINE:
        return replace(verdict, status=shown.status)
    if suspect.first.status is Status.DEVICE:  # what the device lost stays lost, whoever is at fault
        return replace(suspect.first, reason=f"{suspect.first.reason}; {verdict.reason}")
    stored = _by_stored(suspect, seen)
    if stored is None or stored.status is not Status.REGRESSED:
        return verdict
    if not is_past_gate_beside(stored, shown.mean.centre):
        return replace(verdict, reason=f"{moved(stored, 'the baseline')}, as its code explains: {verdict.reason}")
    differs = what_differs(suspect.case.measurement, suspect.entry)
    reason = f"it lost more than its code explains: {verdict.reason}; but {drop_sentence(stored)}; {differs}"
    return replace(stored, status=Status.DEVICE, code=OLD_KERNEL, reason=reason)


def why_untold(seen: Sequence[BesideOld], tolerance: float) -> str:
    """Say why so many processes, two at least, do not tell."""
    shown = _shown(seen, tolerance)
    drop = drop_of_log(shown.mean.centre)
    ratio = f"{format_percent(abs(drop), 1)} {'slower' if drop >= 0 else 'faster'}"
    return f"{len(seen)} fresh processes do not tell: {ratio} {LOOKS.evidence(shown, tolerance)}"


def _shown(seen: Sequence[BesideOld], tolerance: float) -> Shown:
    """Return what all processes that there are show."""
    return LOOKS.tell([one.drop for one in seen], log_of_drop(tolerance), last=True)


def _by_ratio(suspect: Suspect, seen: Sequence[BesideOld], shown: Shown) -> Verdict:
    """Return WITHIN with the numbers of the ratio; the reference is the old code's GB/s in the same rounds."""
    tolerance, mean = suspect.case.tolerance, shown.mean
    visible = LOOKS.visible(mean, log_of_drop(tolerance), last=True)
    verdict = replace(
        suspect.first,
        status=Status.WITHIN,
        code=OLD_KERNEL,
        figure="gbps",
        observed=median(one.figures.gbps for one in seen),
        reference=median(one.figures.gbps * math.exp(one.drop) for one in seen),
        tolerance=tolerance,
        drop=drop_of_log(mean.centre),
        allowed_drop=tolerance,
        visible_drop=drop_of_log(visible),
        spread=mean.spread,
        degrees=mean.degrees,
        baseline_runs=len(seen),
        confirmations=tuple(one.figures.gbps for one in seen),
        runs_advised=None,
    )
    turns = f"which took turns with it on the same arrays in {len(seen)} fresh processes"
    reason = f"{moved(verdict, 'the old kernel')}, {turns} {LOOKS.evidence(shown, tolerance)}"
    return replace(verdict, reason=reason)


def _by_stored(suspect: Suspect, seen: Sequence[BesideOld]) -> Verdict | None:
    """Hold a suspect's figures in the same processes to the baseline's; None where nothing was suspected of it."""
    reference = suspect.case.reference
    if suspect.first.status is not Status.SUSPECT or reference is None:
        return None
    values = [value for one in seen if (value := one.figures.of(reference.figure)) is not None]
    return confirm_drop(suspect.first, reference, values, suspect.case.tolerance) if values else None
