"""Join a baseline's runs: an entry seen through one metric, and what noise explains of a drop.

For an entry with k runs, L = ln(figure), centre c = median of the runs' L and
s² = (5·prior² + (k−1)·sd²)/(k+4): five processes' worth of prior belief about between-process noise, the rest seen.
A hand-written entry is an exact reference: 1/k = 0, five degrees of freedom.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from pytest_bandwidth.domain.baseline import Entry, Metric, Run
from pytest_bandwidth.domain.metrics import METRICS, Metrics, metrics_of_run, middle_of, steadier_metric, value_of_run
from pytest_bandwidth.domain.statistics import t_quantile, variance_ratio_below
from pytest_bandwidth.domain.units import log_of_drop

PRIOR_DEGREES = 5
# A file holds kernels of all kinds: an entry whose runs agree as well as only so many would by chance, were its noise
# that of the others, has a noise of its own.
UNLIKE_OTHERS = 0.01
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


def prior_spread(figure: Metric, on_host: bool, others: float = 0.0) -> float:
    """Return the prior's standard deviation of ln(figure).

    `others`: what the file's other entries judged by the same figure show, where larger.
    """
    return max(PRIOR_SPREAD["gbps:host" if figure == "gbps" and on_host else figure], others)


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
class Pool:
    """Say how the runs of several entries scatter: squared deviations of ln(figure) within each entry, and degrees.

    sums: of the entries that are judged by a figure; None: of all. scatters: of each that holds the figure, by key.
    """

    sums: Mapping[Metric | None, tuple[float, int]]
    scatters: Mapping[str, Scatter] = field(default_factory=dict)

    def spread_beside(self, entry: Entry) -> float:
        """Return the between-process standard deviation that the other entries judged by the same figure show.

        Of a kernel that goes by GB/s the share of the probe moves with memory's speed, which is no noise of a stream.
        0 where too few runs tell it, or the entry's own are clearly less noisy than those.
        """
        squares, degrees = self.sums.get(entry.judged_on, (0.0, 0))
        own = self.scatters.get(entry.key)
        if own is None:
            return _pooled(squares, degrees)
        degrees -= own.runs - 1
        spread = _pooled(max(0.0, squares - own.squares), degrees)
        return 0.0 if _is_quieter(own, spread, degrees) else spread


def _is_quieter(own: Scatter, spread: float, degrees: int) -> bool:
    own_degrees = own.runs - 1
    if own.squares >= own_degrees * spread**2:  # spares most entries of a large file what follows
        return False
    ratio = own.squares / own_degrees / spread**2
    return variance_ratio_below(ratio, own_degrees, degrees) < UNLIKE_OTHERS


def _pooled(squares: float, degrees: int) -> float:
    # Under five degrees of freedom the pool is as uncertain as the prior that it would replace.
    return math.sqrt(squares / degrees) if degrees >= PRIOR_DEGREES else 0.0


def pool_of(entries: Iterable[Entry], figure: Metric) -> Pool:
    """Return the pool of all entries, which have keys of their own."""
    sums: dict[Metric | None, tuple[float, int]] = {}
    scatters: dict[str, Scatter] = {}
    for entry in entries:
        found = scatter_of(entry.runs, figure)
        if found is None:
            continue
        scatters[entry.key] = found
        for judged_on in (None, *([entry.judged_on] if entry.judged_on else METRICS)):
            squares, degrees = sums.get(judged_on, (0.0, 0))
            sums[judged_on] = squares + found.squares, degrees + found.runs - 1
    return Pool(sums, scatters)


def reference_of(entry: Entry, figure: Metric, prior: float, scatter: Scatter | None = None) -> Reference | None:
    """Return centre and spread of an entry; None where it does not hold the figure. scatter: where it is known."""
    seen = scatter or scatter_of(entry.runs, figure)
    if seen is None:
        if figure == "relative" or entry.gbps is None:
            return None
        return Reference(figure, math.log(entry.gbps), prior, PRIOR_DEGREES, 0)
    degrees = seen.runs + PRIOR_DEGREES - 1
    spread = math.sqrt((PRIOR_DEGREES * prior**2 + seen.squares) / degrees)
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
