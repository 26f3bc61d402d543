"""Compare new code with old: the trimmed mean of their log ratios, its interval, and after how many to decide.

A drop is ln(new seconds ÷ old seconds) of one pair of processes, or of one process in which both kernels ran
alternately. Influences on both cancel; the rest is noise that Student's t-interval describes. There is no prior: the
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

# One-sided errors of all looks together: to find a loss although nothing was lost, and to find no loss above the
# tolerance although there was one. Each look has an equal part of them (union bound).
LOSS_ERROR = 0.003
COST_ERROR = 0.01
# At the last look: the confidence that noise hides no loss above the tolerance.
NARROW_LEVEL = 0.99
NUMBER_OF_LOOKS = 3
# For each so many drops, one may be left out at each end: a process may be 10 or 20 % slower than its twin by chance.
DROPS_PER_TRIM = 6
# The normal quantile of 95 %: a drop of the size `detects` of a row is found with that chance.
DETECTION_QUANTILE = 1.6449
# |ln| of the probes' ratio above which the machine itself changed between the two processes of a pair. The memory of a
# shared host was seen in two states for seconds to minutes each, copies at 49 and at 72 GB/s: |ln| = 0.385.
EVEN_PROBES = 0.10


@dataclass(frozen=True, slots=True)
class Looks:
    """Define after how many comparisons to look: after `first`, twice and three times as many."""

    first: int = 4

    @property
    def after(self) -> tuple[int, ...]:
        return tuple(self.first * number for number in range(1, NUMBER_OF_LOOKS + 1))

    @property
    def most(self) -> int:
        return self.after[-1]

    def following(self, number: int) -> int | None:
        """Return the number of comparisons at the next look after `number`; None after the last."""
        return next((look for look in self.after if look > number), None)


@dataclass(frozen=True, slots=True)
class Interval:
    """Hold a mean of log ratios, its standard error, and the degrees of freedom of the error.

    spread: standard deviation of the drops, extreme ones moved inwards. count: the number of all drops.
    """

    mean: float
    spread: float
    error: float
    degrees: int
    count: int

    @property
    def loss_reach(self) -> float:
        """Return the distance of the lower bound from the mean: a bound above 0 shows a loss."""
        return t_quantile(1 - LOSS_ERROR / NUMBER_OF_LOOKS, self.degrees) * self.error

    @property
    def low(self) -> float:
        """Return the lower bound of the loss."""
        return self.mean - self.loss_reach

    @property
    def high(self) -> float:
        """Return the upper bound of the loss."""
        return self.mean + t_quantile(1 - COST_ERROR / NUMBER_OF_LOOKS, self.degrees) * self.error

    def is_narrow(self, allowed: float) -> bool:
        """Return whether noise hides at most `allowed`, a log drop."""
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
    """Return the narrowest interval of two drops at least, by their plain mean or a trimmed one.

    All drops count where they scatter little, and an outlier does not widen the interval of the others. Because of this
    choice, the bounds err a fifth more often than stated (benchmarks/pairs_simulation.py).
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
    """Return the interval around no loss of so many drops with this standard deviation."""
    return Interval(0.0, spread, spread / math.sqrt(count), count - 1, count)


# Where the floor is a larger share of some seconds, it is not subtracted: the rest would hold more of the floor's own
# error than of a drop.
MOST_FLOOR_SHARE = 0.5


def floor_of_both(floor_seconds: float | None, seconds: Sequence[float]) -> float:
    """Return what to subtract from all these seconds to get the work's; 0 where that is unknown, or too large.

    floor_seconds: the time of an empty launch.
    """
    return floor_seconds if floor_seconds and floor_seconds < MOST_FLOOR_SHARE * min(seconds) else 0.0


@dataclass(frozen=True, slots=True)
class Pair:
    """Hold one measurement's figures in two new processes: this code's, the other revision's.

    alternate: where they sampled alternately, the median over the rounds of ln(this code's seconds ÷ the other's); None
    where one ran after the other. alike: whether both had the same addresses, and all arrays in the same memory.
    floor_seconds: the part of each process's `seconds` that is not the work's (see `floor_of_both`).
    """

    head: Metrics
    base: Metrics
    alternate: float | None = None
    alike: bool = False
    floor_seconds: float = 0.0
    seconds: tuple[float, float] = (math.inf, math.inf)

    @property
    def even(self) -> bool:
        """Return whether both had the same machine: they sampled alternately, or their probes agree if both ran."""
        if self.alternate is not None:
            return True
        head, base = self.head.probe_gbps, self.base.probe_gbps
        return not head or not base or abs(math.log(head / base)) <= EVEN_PROBES

    def drop(self, figure: Metric) -> float | None:
        """Return ln(base ÷ head) of a figure, for the work alone: positive where this code is slower."""
        if self.alternate is not None:
            return self.alternate
        head, base = self.head.of(figure), self.base.of(figure)
        here, there = (1 - self.floor_seconds / seconds for seconds in self.seconds)
        return math.log(base / head * here / there) if head and base else None


def figure_of_pairs(pairs: Sequence[Pair], asked: Metric | None, regime: str | None) -> Metric:
    """Choose the figure to compare, by the other revision: a kernel that lost bandwidth must not choose its own.

    It is `relative`, unless GB/s differ less from pair to pair. That choice uses spreads alone, which do not depend on
    the mean of normal values. The smaller of two spreads makes the interval err about twice as often as stated, at
    worst. asked: the marker's. regime: the other revision's.
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
