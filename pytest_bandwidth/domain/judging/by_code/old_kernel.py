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
from pytest_bandwidth.domain.judging.by_code.paired import mean_of
from pytest_bandwidth.domain.judging.by_code.same_code import what_differs
from pytest_bandwidth.domain.judging.drop import confirm_drop, drop_sentence, is_past_gate_beside, moved
from pytest_bandwidth.domain.judging.rule import REGRESSED_LEVEL
from pytest_bandwidth.domain.measured.metrics import Metrics
from pytest_bandwidth.domain.units import drop_of_log, format_percent, log_of_drop
from pytest_bandwidth.domain.verdict import Status, Verdict

# The code of verdicts that rest on it, and of the finding that says why none could.
OLD_KERNEL = "old-kernel"
# The processes after which it is looked whether they tell, and the level of each look: together they err no more often
# than one look at REGRESSED_LEVEL (union bound).
LOOKS = (3, 4, 6, 8)
LOOK_LEVEL = 1 - (1 - REGRESSED_LEVEL) / len(LOOKS)


@dataclass(frozen=True, slots=True)
class BesideOld:
    """Hold what one fresh process saw of a kernel that took turns with its old code.

    figures: the kernel's. drop: the median over the rounds of ln(its seconds ÷ the old code's).
    """

    figures: Metrics
    drop: float


@dataclass(frozen=True, slots=True)
class _Told:
    """Hold what the processes' log-ratios tell: their mean, their spread, how far the one-sided interval reaches."""

    centre: float
    spread: float
    half: float
    allowed: float

    @property
    def slower(self) -> bool:
        return self.centre > self.allowed and self.centre > self.half

    @property
    def faster(self) -> bool:
        return -self.centre > self.allowed and -self.centre > self.half

    @property
    def sure(self) -> bool:
        """Return whether they show a drop of the tolerance, or that there is none."""
        return self.slower or self.half <= self.allowed or self.centre + self.half <= self.allowed


def is_enough(drops: Sequence[float], tolerance: float) -> bool:
    """Return whether no further process is needed, or is worth its time. drops: of the processes so far."""
    return len(drops) >= LOOKS[-1] or (len(drops) in LOOKS and _told(drops, tolerance).sure)


def judge_by_old(suspect: Suspect, seen: Sequence[BesideOld]) -> Verdict | None:
    """Judge a suspect, or a drop in doubt, by its old code; None where the processes are too few or too noisy to tell.

    REGRESSED where the mean drop exceeds the tolerance and the 99.9 % interval excludes none. Where it does not, and
    the processes confirm all the same what the suspect lost against the stored figures, without what the mean drop
    explains of it, old and new lost that alike: DEVICE. Else WITHIN, or IMPROVED, which mirrors REGRESSED, where there
    are no stored figures.
    """
    drops, tolerance = [one.drop for one in seen], suspect.case.tolerance
    if len(drops) < LOOKS[0] or not (told := _told(drops, tolerance)).sure:
        return None
    verdict = _by_ratio(suspect, seen, told)
    if told.slower:
        return replace(verdict, status=Status.REGRESSED)
    if told.faster and suspect.first.status is Status.NO_BASELINE:
        return replace(verdict, status=Status.IMPROVED)
    if suspect.first.status is Status.DEVICE:  # what the device lost stays lost, whoever is at fault
        return replace(suspect.first, reason=f"{suspect.first.reason}; {verdict.reason}")
    stored = _by_stored(suspect, seen)
    if stored is None or stored.status is not Status.REGRESSED:
        return verdict
    if not is_past_gate_beside(stored, told.centre):
        return replace(verdict, reason=f"{moved(stored, 'the baseline')}, as its code explains: {verdict.reason}")
    differs = what_differs(suspect.case.measurement, suspect.entry)
    reason = f"it lost more than its code explains: {verdict.reason}; but {drop_sentence(stored)}; {differs}"
    return replace(stored, status=Status.DEVICE, code=OLD_KERNEL, reason=reason)


def why_untold(seen: Sequence[BesideOld], tolerance: float) -> str:
    """Say why so many processes, two at least, do not tell."""
    told = _told([one.drop for one in seen], tolerance)
    visible = format_percent(drop_of_log(max(told.half, told.allowed)), 1)
    return f"in {len(seen)} fresh processes drops under {visible} cannot be told from noise"


def _told(drops: Sequence[float], tolerance: float) -> _Told:
    seen = mean_of(drops)
    return _Told(seen.centre, seen.spread, seen.reach(LOOK_LEVEL), log_of_drop(tolerance))


def _by_ratio(suspect: Suspect, seen: Sequence[BesideOld], told: _Told) -> Verdict:
    """Return WITHIN with the numbers of the ratio; the reference is the old code's GB/s in the same rounds."""
    tolerance = suspect.case.tolerance
    verdict = replace(
        suspect.first,
        status=Status.WITHIN,
        code=OLD_KERNEL,
        figure="gbps",
        observed=median(one.figures.gbps for one in seen),
        reference=median(one.figures.gbps * math.exp(one.drop) for one in seen),
        tolerance=tolerance,
        drop=drop_of_log(told.centre),
        allowed_drop=tolerance,
        visible_drop=drop_of_log(max(told.half, told.allowed)),
        spread=told.spread,
        degrees=len(seen) - 1,
        baseline_runs=len(seen),
        confirmations=tuple(one.figures.gbps for one in seen),
        runs_advised=None,
    )
    least = drop_of_log(abs(told.centre) - told.half)
    bound = f"at least {format_percent(least, 1)} with 99.9 % confidence" if least > 0 else "not told from none"
    return replace(
        verdict,
        reason=f"{moved(verdict, 'the old kernel')}, which took turns with it on the same arrays in {len(seen)} fresh "
        f"processes ({bound}, spread {format_percent(told.spread, 1)}), {format_percent(tolerance, 1)} allowed",
    )


def _by_stored(suspect: Suspect, seen: Sequence[BesideOld]) -> Verdict | None:
    """Hold a suspect's figures in the same processes to the baseline's; None where nothing was suspected of it."""
    reference = suspect.case.reference
    if suspect.first.status is not Status.SUSPECT or reference is None:
        return None
    values = [value for one in seen if (value := one.figures.of(reference.figure)) is not None]
    return confirm_drop(suspect.first, reference, values, suspect.case.tolerance) if values else None
