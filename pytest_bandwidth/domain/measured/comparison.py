"""Compare several callables that were measured in the same rounds: paired ratios, with an interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from statistics import median

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.measured.measurement import Measurement

CONFIDENCE = 0.99


@dataclass(frozen=True, slots=True)
class Ratio:
    """Say how many times as much bandwidth, and an interval that holds the median of the paired ratios.

    low, high: distribution-free interval from order statistics; None where there are too few rounds for one.
    The rounds are one process's: the interval does not cover what changes from process to process.
    """

    value: float
    low: float | None
    high: float | None
    rounds: int
    confidence: float = CONFIDENCE

    def at_least(self, factor: float) -> bool:
        """Return whether the whole interval is at or above the factor; False where there is no interval."""
        return self.low is not None and self.low >= factor

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.value:.3g}× ({self.rounds} rounds, too few for an interval)"
        return f"{self.value:.3g}× ({self.low:.3g} to {self.high:.3g}, {self.rounds} rounds)"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Hold measurements by name, taken in the same rounds."""

    measurements: Mapping[str, Measurement]

    def __getitem__(self, name: str) -> Measurement:
        if name not in self.measurements:
            raise UsageError(f"compare: found {name!r}, expected one of {', '.join(self.measurements)}")
        return self.measurements[name]

    def ratio(self, name: str, over: str) -> Ratio:
        """Return the bandwidth of `name` ÷ bandwidth of `over`, paired round by round.

        Raises UsageError for unknown names, and where no round was left or a sample took no time.
        """
        mine, other = self[name], self[over]
        if mine.samples and min(mine.samples) <= 0:
            raise UsageError(f"nothing to compare: a sample of {name!r} took no time")
        share = mine.bytes_moved / other.bytes_moved
        pairs = [share * b / a for a, b in zip(mine.samples, other.samples, strict=True)]
        if not pairs:
            raise UsageError("no round was left to compare: every sample was dropped, or nothing was timed")
        low, high = interval_of_median(pairs, CONFIDENCE)
        return Ratio(median(pairs), low, high, len(pairs))


def interval_of_median(values: Sequence[float], confidence: float) -> tuple[float | None, float | None]:
    """Return the order statistics that hold the median with at least `confidence`; (None, None) if no two do.

    The number of values below the median is binomial(n, ½): Conover, Practical Nonparametric Statistics, §3.2.
    """
    ordered, n = sorted(values), len(values)
    outside = 0.0
    rank = -1
    for k in range(n // 2):
        outside += comb(n, k) / 2**n
        if 2 * outside > 1 - confidence:
            break
        rank = k
    return (None, None) if rank < 0 else (ordered[rank], ordered[n - 1 - rank])
