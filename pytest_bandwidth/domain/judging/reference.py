"""Join a baseline's runs: an entry seen through one metric, and what noise explains of a drop.

For an entry with k runs, L = ln(figure), centre c = median of the runs' L and
s² = (5·prior² + (k−1)·sd² + past)/(k+4+d): five processes' worth of prior belief about between-process noise, the rest
seen, in the entry's runs and in earlier ones of the same code, whose squared deviations `past` have d degrees.
A hand-written entry is an exact reference: 1/k = 0, five degrees of freedom and the past's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from types import MappingProxyType

from pytest_bandwidth.domain.baseline import Entry, Metric, Run
from pytest_bandwidth.domain.measured.metrics import (
    METRICS,
    Metrics,
    metrics_of_run,
    middle_of,
    steadier_metric,
    value_of_run,
)
from pytest_bandwidth.domain.statistics import t_quantile, variance_ratio_below
from pytest_bandwidth.domain.units import log_of_drop

PRIOR_DEGREES = 5
# A file holds kernels of all kinds: an entry whose runs agree as well as only so many would by chance, were its noise
# that of the others, has a noise of its own.
UNLIKE_OTHERS = 0.01
# A file whose entries repeat better than the prior takes it down, to this share of it at the lowest: a kernel may come
# that none of them is like. Not of GB/s: what moves a machine from day to day moves all entries, and an update's runs,
# which are of one hour, do not show it.
LOWEST_SHARE = {"relative": 0.5, "gbps": 1.0}
# Degrees of freedom of the others' spread from which that is told well enough, to a fifth of it.
ENOUGH_TO_LOWER = 12
PRIOR_SPREAD: Mapping[str, float] = {"relative": 0.01, "gbps": 0.01, "gbps:host": 0.03}


@dataclass(frozen=True, slots=True)
class Reference:
    """Hold an entry seen through one figure: centre and spread of its logarithm, and how many runs tell them."""

    figure: Metric
    centre: float
    spread: float
    degrees: float
    runs: int

    def bound(self, level: float, tolerance: float, processes: int) -> float:
        """Return the log drop that `processes` fresh ones may show: the larger of tolerance and what noise explains."""
        return max(log_of_drop(tolerance), self.noise(level, processes))

    def noise(self, level: float, processes: int) -> float:
        """Return the log drop of the median of `processes` fresh ones that noise explains."""
        return noise_bound(level, self.spread, self.degrees, self.runs, processes)

    @property
    def value(self) -> float:
        return math.exp(self.centre)


def noise_bound(level: float, spread: float, degrees: float, runs: int, processes: int) -> float:
    """Return the log drop that noise explains between medians of `runs` (0: an exact reference) and `processes`."""
    of_reference = 1.0 / runs if runs else 0.0
    return t_quantile(level, degrees) * spread * math.sqrt(1.0 / processes + of_reference)


def prior_spread(figure: Metric, on_host: bool) -> float:
    """Return the prior's standard deviation of ln(figure), before any run of a file is looked at."""
    return PRIOR_SPREAD["gbps:host" if figure == "gbps" and on_host else figure]


@dataclass(frozen=True, slots=True)
class Scatter:
    """Say how ln(figure) lies in an entry's runs: median, squared deviations from the mean, and how many runs."""

    centre: float
    squares: float
    runs: int


def scatter_of(runs: Sequence[Run], figure: Metric) -> Scatter | None:
    """Return how the runs' figures scatter; None where no run holds the figure."""
    logs = [math.log(value) for run in runs if (value := value_of_run(run, figure)) is not None]
    if not logs:
        return None
    # Not `statistics.stdev`: it computes in fractions, which 10,000 entries feel.
    mean = sum(logs) / len(logs)
    return Scatter(median(logs), sum([(value - mean) ** 2 for value in logs]), len(logs))


@dataclass(frozen=True, slots=True)
class Past:
    """Say how ln(figure) scattered in a test's runs before: squared deviations from the mean of each code's, degrees.

    They tell of noise alone: where the figure lay is for the entry's own runs to say.
    """

    squares: float = 0.0
    degrees: int = 0


NO_PAST = Past()


@dataclass(frozen=True, slots=True)
class Pool:
    """Say how the runs of several entries scatter: squared deviations of ln(figure) within each entry, and degrees.

    sums: of the entries that are judged by a figure; None: of all. scatters: of each that holds the figure, by key.
    past: of each that has a history, by key; it is in the sums too.
    """

    figure: Metric
    sums: Mapping[Metric | None, tuple[float, int]]
    scatters: Mapping[str, Scatter] = field(default_factory=dict)
    past: Mapping[str, Past] = field(default_factory=dict)

    def reference(self, entry: Entry, prior: float) -> Reference | None:
        """Return centre and spread of one of the entries; None where it does not hold the figure.

        prior: of an entry alone.
        """
        beside, own = self.prior_beside(entry, prior), self.scatters.get(entry.key)
        return reference_of(entry, self.figure, beside, own, self.past.get(entry.key, NO_PAST))

    def prior_beside(self, entry: Entry, prior: float) -> float:
        """Return the prior spread of an entry, given what the others judged by the same figure show.

        Of a kernel that goes by GB/s the share of the probe moves with memory's speed, which is no noise of a stream.
        prior: of an entry alone. It stays where too few runs of others tell, or the entry's own are clearly less noisy,
        or noisier, than what those would lend it.
        """
        squares, degrees = self.sums.get(entry.judged_on, (0.0, 0))
        own = _joined(self.scatters.get(entry.key), self.past.get(entry.key, NO_PAST))
        squares, degrees = max(0.0, squares - own.squares), degrees - own.degrees
        # Under five degrees of freedom the others are as uncertain as the prior that they would replace.
        if degrees < PRIOR_DEGREES:
            return prior
        spread = math.sqrt(squares / degrees)
        if spread < prior and degrees < ENOUGH_TO_LOWER:
            return prior
        spread = max(spread, LOWEST_SHARE[self.figure] * prior)
        return prior if _is_unlike(own, spread, degrees, spread > prior) else spread


def _is_unlike(own: Past, spread: float, degrees: int, others_are_noisier: bool) -> bool:
    """Return whether an entry's own runs are less noisy than others that are noisier, or noisier than quieter ones."""
    # Spares most entries of a large file what follows.
    if own.degrees < 1 or (own.squares >= own.degrees * spread**2) == others_are_noisier:
        return False
    ratio = own.squares / own.degrees / spread**2
    below = variance_ratio_below(ratio, own.degrees, degrees)
    return min(below, 1 - below) < UNLIKE_OTHERS


def pool_of(entries: Iterable[Entry], figure: Metric, past: Mapping[str, Past] = MappingProxyType({})) -> Pool:
    """Return the pool of all entries, which have keys of their own. past: what is known of some before, by key."""
    sums: dict[Metric | None, tuple[float, int]] = {}
    scatters: dict[str, Scatter] = {}
    for entry in entries:
        if (found := scatter_of(entry.runs, figure)) is not None:
            scatters[entry.key] = found
        own = _joined(found, past.get(entry.key, NO_PAST))
        for judged_on in (None, *([entry.judged_on] if entry.judged_on else METRICS)):
            squares, degrees = sums.get(judged_on, (0.0, 0))
            sums[judged_on] = squares + own.squares, degrees + own.degrees
    return Pool(figure, sums, scatters, past)


def _joined(scatter: Scatter | None, past: Past) -> Past:
    return past if scatter is None else Past(past.squares + scatter.squares, past.degrees + scatter.runs - 1)


def reference_of(
    entry: Entry, figure: Metric, prior: float, scatter: Scatter | None = None, past: Past = NO_PAST
) -> Reference | None:
    """Return centre and spread of an entry; None where it does not hold the figure.

    scatter: where it is known. past: of the same test, before.
    """
    seen = scatter or scatter_of(entry.runs, figure)
    if seen is None:
        if figure == "relative" or entry.gbps is None:
            return None
        seen = Scatter(math.log(entry.gbps), 0.0, 0)
    degrees = PRIOR_DEGREES + max(seen.runs - 1, 0) + past.degrees
    spread = math.sqrt((PRIOR_DEGREES * prior**2 + seen.squares + past.squares) / degrees)
    return Reference(figure, seen.centre, spread, degrees, seen.runs)


def steadier_of_runs(figure: Metric, entry: Entry, on_host: bool) -> Metric:
    """Return `relative`, unless the entry's own runs show GB/s to repeat better from process to process."""

    def spread_of(which: Metric) -> float:
        reference = reference_of(entry, which, prior_spread(which, on_host))
        return math.inf if reference is None else reference.spread

    return steadier_metric(figure, len(entry.runs), spread_of)


def median_metrics(runs: Sequence[Run]) -> Metrics:
    """Return GB/s and share of the probe that a list of runs stands for, one at least."""
    return middle_of([metrics_of_run(run) for run in runs])
