"""Compare new code with old: the trimmed mean of their log ratios, how sure it is, and after how many to decide.

A drop is ln(new seconds ÷ old seconds) of one pair of processes, or of one process in which both kernels ran
alternately. What both share cancels; what remains is noise that Student's t-interval describes. There is no prior: the
drops are the only evidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from pytest_bandwidth.domain.baseline import Metric
from pytest_bandwidth.domain.measured.metrics import Metrics, choose_metric, middle_of, steadier_metric
from pytest_bandwidth.domain.statistics import t_quantile

# One-sided error of all looks together: that something was lost though nothing was; that no more than the tolerance
# was lost though it was. The looks share each evenly (union bound).
LOSS_ERROR = 0.003
COST_ERROR = 0.01
# At the last look: so sure that nothing wider than the tolerance hides in the noise.
NARROW_LEVEL = 0.99
NUMBER_OF_LOOKS = 3
# Of so many drops one may be left out at each end: a process that is 10 or 20 % slower than its twin by chance.
DROPS_PER_TRIM = 6
# The normal quantile of 95 %: a drop of the size that a row names as `detects` is found with that chance.
DETECTION_QUANTILE = 1.6449
# |ln| of the probes' ratio past which the machine itself changed between the two processes of a pair. The memory of a
# shared host was seen in two states for seconds to minutes each, copies at 49 and at 72 GB/s: |ln| = 0.385.
EVEN_PROBES = 0.10


@dataclass(frozen=True, slots=True)
class Looks:
    """Say after how many comparisons to look: after `first`, twice and three times as many."""

    first: int = 4

    @property
    def after(self) -> tuple[int, ...]:
        return tuple(self.first * number for number in range(1, NUMBER_OF_LOOKS + 1))

    @property
    def most(self) -> int:
        return self.after[-1]

    def following(self, number: int) -> int | None:
        """Return how many comparisons the look after so many has; None after the last."""
        return next((look for look in self.after if look > number), None)


@dataclass(frozen=True, slots=True)
class Interval:
    """Hold a mean of log ratios, its standard error, and the degrees of freedom of that.

    spread: standard deviation of the drops, extreme ones moved inwards. count: of all drops.
    """

    mean: float
    spread: float
    error: float
    degrees: int
    count: int

    @property
    def loss_reach(self) -> float:
        """Return how far below the mean the bound lies that shows a loss."""
        return t_quantile(1 - LOSS_ERROR / NUMBER_OF_LOOKS, self.degrees) * self.error

    @property
    def low(self) -> float:
        """Return what was lost at least."""
        return self.mean - self.loss_reach

    @property
    def high(self) -> float:
        """Return what was lost at most."""
        return self.mean + t_quantile(1 - COST_ERROR / NUMBER_OF_LOOKS, self.degrees) * self.error

    def is_narrow(self, allowed: float) -> bool:
        """Return whether noise alone would hide no more than `allowed`, a log drop."""
        return t_quantile(NARROW_LEVEL, self.degrees) * self.error <= allowed

    def detects(self, allowed: float, most: int) -> float:
        """Return the log drop that `most` comparisons with this spread find 95 times in 100.

        Their spread is estimated as well, which the normal approximation of a non-central t allows for (Johnson and
        Welch, Biometrika 31, 1940).
        """
        last = interval_of_spread(self.spread, max(most, self.count))
        t = t_quantile(1 - LOSS_ERROR / NUMBER_OF_LOOKS, last.degrees)
        return max(allowed, (t + DETECTION_QUANTILE * math.sqrt(1 + t * t / (2 * last.degrees))) * last.error)


def interval_of(drops: Sequence[float]) -> Interval:
    """Return the interval of two drops at least: that of the plain mean or of a trimmed one, whichever is narrowest.

    Quiet drops keep all of them, and a straggler does not widen what the others agree on. That the narrowest is taken
    lets the bounds err by a fifth more than they say (benchmarks/pairs_simulation.py).
    """
    ordered, n = sorted(drops), len(drops)
    intervals = []
    for g in range(n // DROPS_PER_TRIM + 1):
        # Without the g least and the g largest the error is that of Tukey and McLaughlin (Sankhyā A 25, 1963, p. 331):
        # the standard deviation of the drops with those moved to their neighbours ÷ ((1 − 2g/n) · √n), with
        # n − 2g − 1 degrees of freedom.
        kept = ordered[g : n - g]
        spread = stdev([*[kept[0]] * g, *kept, *[kept[-1]] * g])
        intervals.append(Interval(mean(kept), spread, spread / ((1 - 2 * g / n) * math.sqrt(n)), n - 2 * g - 1, n))
    return min(intervals, key=lambda one: one.loss_reach)


def interval_of_spread(spread: float, count: int) -> Interval:
    """Return the interval that so many drops of this standard deviation would have about no loss."""
    return Interval(0.0, spread, spread / math.sqrt(count), count - 1, count)


# Past this share of floor in some seconds, what is left of them is not taken for the work's: it would hold more of the
# floor's own error than of a drop.
MOST_FLOOR_SHARE = 0.5


def floor_of_both(floor_seconds: float | None, seconds: Sequence[float]) -> float:
    """Return what to leave out of all these seconds, so that what is left is the work's; 0 where that is not known.

    floor_seconds: what a launch that does nothing takes.
    """
    return floor_seconds if floor_seconds and floor_seconds < MOST_FLOOR_SHARE * min(seconds) else 0.0


@dataclass(frozen=True, slots=True)
class Pair:
    """Hold one measurement's figures in two new processes: this code's, the other revision's.

    alternate: where they sampled alternately, the median over the rounds of ln(this code's seconds ÷ the other's); None
    where one ran after the other. alike: whether both had the same addresses, and all arrays in the same memory.
    floor_seconds: of each process's `seconds`, what is not the work's (see `floor_of_both`).
    """

    head: Metrics
    base: Metrics
    alternate: float | None = None
    alike: bool = False
    floor_seconds: float = 0.0
    seconds: tuple[float, float] = (math.inf, math.inf)

    @property
    def even(self) -> bool:
        """Return whether both saw the same machine: sampled alternately, or by their probes where both have one."""
        if self.alternate is not None:
            return True
        head, base = self.head.probe_gbps, self.base.probe_gbps
        return not head or not base or abs(math.log(head / base)) <= EVEN_PROBES

    def drop(self, figure: Metric) -> float | None:
        """Return ln(base ÷ head) of a figure, as the work alone would have it: positive where this code is slower."""
        if self.alternate is not None:
            return self.alternate
        head, base = self.head.of(figure), self.base.of(figure)
        here, there = (1 - self.floor_seconds / seconds for seconds in self.seconds)
        return math.log(base / head * here / there) if head and base else None


def figure_of_pairs(pairs: Sequence[Pair], asked: Metric | None, regime: str | None) -> Metric:
    """Choose the figure to compare, by the other revision: a kernel that lost bandwidth must not choose its own.

    It is `relative`, unless GB/s differ less from pair to pair. That choice looks at spreads alone, of which a normal
    mean is independent; that the smaller of two is taken makes the interval err about twice as often as it says, at
    worst. asked: the marker's. regime: what the other revision's kernel was classed as.
    """
    if all(pair.alternate is not None for pair in pairs):
        return "gbps"
    base = middle_of([pair.base for pair in pairs])
    if base.relative is None or any(pair.head.relative is None for pair in pairs):
        return "gbps"
    figure, even = choose_metric(asked, None, base, regime), [pair for pair in pairs if pair.even]

    def spread_of(which: Metric) -> float:
        return stdev(drop for pair in even if (drop := pair.drop(which)) is not None)

    return figure if asked else steadier_metric(figure, len(even), spread_of)
