"""Tell from what processes saw of new code beside old whether it lost something: the rule, and when it is asked.

A drop is ln(new seconds ÷ old seconds) of one pair of processes, or of one process in which both took turns. What the
two share leaves it; what is left is the noise that Student's t-interval knows about. No prior: the drops are this run's
only evidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from pytest_bandwidth.domain.judging.rule import REGRESSED_LEVEL
from pytest_bandwidth.domain.statistics import t_quantile
from pytest_bandwidth.domain.units import drop_of_log, format_percent, log_of_drop
from pytest_bandwidth.domain.verdict import Status

# How sure looks together have to be that code lost no more than the tolerance. Of code that lost just that, one test in
# a hundred passes where drops spread by a fifth of the tolerance: see benchmarks/pairs_simulation.py.
WITHIN_LEVEL = 0.99
# The fewest drops that are more than their two extreme ones.
FEWEST_TO_TRIM = 4


@dataclass(frozen=True, slots=True)
class Mean:
    """Hold a mean of drops, their standard deviation, the mean's standard error and the degrees of freedom of that.

    left_out: how many drops it leaves out.
    """

    centre: float
    spread: float
    error: float
    degrees: int
    left_out: int = 0

    def reach(self, level: float) -> float:
        """Return how far the one-sided interval about it reaches."""
        return t_quantile(level, self.degrees) * self.error


def mean_of(drops: Sequence[float]) -> Mean:
    """Return the mean of two drops at least."""
    return mean_of_many(len(drops), mean(drops), stdev(drops))


def mean_of_many(count: int, centre: float, spread: float) -> Mean:
    """Return what the mean of two drops at least would be, had they this mean and this standard deviation."""
    return Mean(centre, spread, spread / math.sqrt(count), count - 1)


def trimmed_mean_of(drops: Sequence[float]) -> Mean:
    """Return the mean of four drops at least without the largest and the smallest one.

    Its error is that of Tukey and McLaughlin (Sankhyā A 25, 1963, p. 331), from the drops with the extreme ones moved
    to the next: sd ÷ ((1 − 2/n) · √n), with n − 3 degrees of freedom.
    """
    n, (_, *kept, _) = len(drops), sorted(drops)
    spread = stdev([kept[0], *kept, kept[-1]])
    return Mean(mean(kept), spread, spread / ((1 - 2 / n) * math.sqrt(n)), n - 3, left_out=2)


@dataclass(frozen=True, slots=True)
class Shown:
    """Hold the mean that tells and what it shows; None where it is too uncertain, and the mean is of all drops."""

    mean: Mean
    status: Status | None


@dataclass(frozen=True, slots=True)
class Looks:
    """Say after how many drops it is looked whether they tell, and how sure that has to be.

    alarms: the chance that any of the looks finds a loss where there is none, at most (by the union bound).
    trims: whether the last look is taken once more without the two extreme drops, where all of them do not tell.
    from_unlike: the number from which on drops count whose two processes had not all in common.
    settles: whether they decide what stored figures cannot, so that their number is not the user's to say.
    """

    after: Sequence[int]
    alarms: float = 1 - REGRESSED_LEVEL
    trims: bool = False
    from_unlike: int = 0
    settles: bool = False

    @property
    def most(self) -> int:
        """Return after how many drops the last look is."""
        return self.after[-1]

    @property
    def number(self) -> int:
        """Return how many looks there are at most."""
        return len(self.after) + self.trims

    @property
    def loss_level(self) -> float:
        """Return how sure one look has to be that something was lost."""
        return 1 - self.alarms / self.number

    @property
    def within_level(self) -> float:
        """Return how sure one look has to be that no more than the tolerance was."""
        return 1 - (1 - WITHIN_LEVEL) / self.number

    def is_due(self, number: int, *, alike: bool) -> bool:
        """Return whether it is looked after so many. alike: whether each two processes had all in common."""
        return alike or number >= self.from_unlike

    def tell(self, drops: Sequence[float], allowed: float, *, last: bool) -> Shown:
        """Tell from two drops at least. allowed: the tolerance's log drop. last: whether no look follows.

        REGRESSED where their mean is past the tolerance and the interval excludes that nothing was lost; IMPROVED is
        its mirror image. WITHIN where the interval excludes that more than the tolerance was. The last look decides
        what is between the two: something was surely lost, not surely less than the tolerance (REGRESSED); or nothing
        is shown to be lost, by an interval no wider than the tolerance and a mean nearer to nothing (WITHIN).
        """
        means = [mean_of(drops)]
        if last and self.trims and len(drops) >= FEWEST_TO_TRIM:
            means.append(trimmed_mean_of(drops))
        for look in (self._shows, self._decides_between) if last else (self._shows,):
            for seen in means:
                status = look(seen, allowed)
                if status is not None:
                    return Shown(seen, status)
        return Shown(means[0], None)

    def visible(self, seen: Mean, allowed: float, *, last: bool) -> float:
        """Return the log drop past which a mean as uncertain as this one is REGRESSED."""
        past = allowed - seen.reach(self.within_level) if last else allowed
        return max(seen.reach(self.loss_level), past)

    def evidence(self, shown: Shown, tolerance: float) -> str:
        """Return how sure a drop, or a gain, is, and how much of one is allowed: in words, to follow what was seen."""
        seen, allowed = shown.mean, log_of_drop(tolerance)
        least, most = abs(seen.centre) - seen.reach(self.loss_level), seen.centre + seen.reach(self.within_level)
        confidence = f"with {format_percent(1 - self.alarms, 1)} confidence"
        sure = f"at least {format_percent(drop_of_log(least), 1)} {confidence}" if least > 0 else "not told from none"
        is_open = shown.status is None or (shown.status is Status.REGRESSED and seen.centre <= allowed)
        # Two decimals, since it may be past the tolerance by little.
        may_be = f", and may be {format_percent(drop_of_log(most), 2)}" if is_open else ""
        spread, allows = format_percent(seen.spread, 1), format_percent(tolerance, 1)
        return f"({sure}, spread {spread}){may_be}, {allows} allowed"

    def _shows(self, seen: Mean, allowed: float) -> Status | None:
        if abs(seen.centre) > max(allowed, seen.reach(self.loss_level)):
            return Status.REGRESSED if seen.centre > 0 else Status.IMPROVED
        return Status.WITHIN if seen.centre + seen.reach(self.within_level) <= allowed else None

    def _decides_between(self, seen: Mean, allowed: float) -> Status | None:
        if seen.centre > seen.reach(self.loss_level):
            return Status.REGRESSED
        narrow = seen.reach(WITHIN_LEVEL) <= allowed
        return Status.WITHIN if narrow and seen.centre <= allowed / 2 else None
