"""Compare new processes with a baseline's stored figures: the coarse fallback where old code cannot run.

For an entry with k runs, L = ln(figure), centre c = median of the runs' L and s² = (5·prior² + (k−1)·sd²)/(k+4): five
processes' worth of prior belief about noise from process to process, the rest observed. A hand-written entry is an
exact reference: 1/k = 0. The median of m new processes is past the gate where it lies below c by more than
the tolerance and by more than t₀.₉₉₉ · s · √(1/m + 1/k).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist, median

from pytest_bandwidth.domain.baseline import Entry, Metric
from pytest_bandwidth.domain.measured.metrics import median_metrics, steadier_metric, value_of_run
from pytest_bandwidth.domain.statistics import t_quantile
from pytest_bandwidth.domain.units import log_of_drop
from pytest_bandwidth.judging.pairs import DETECTION_QUANTILE

GATE_LEVEL = 0.999
PRIOR_DEGREES = 5
PRIOR_SPREAD: Mapping[str, float] = {"relative": 0.01, "gbps": 0.01, "gbps:host": 0.03}
RUNS_CONSIDERED = range(1, 21)
# A run with a drop of more than this share of the tolerance is measured again in new processes.
SLOW_SHARE = 0.5
# Rounding may place a gate that is the tolerance's own log drop slightly above it.
_ROUNDING = 1 + 1e-12
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Reference:
    """Hold one figure of an entry: centre and spread of its logarithm, and the number of runs.

    spread: with the prior. scatter: of the runs alone; half of all such estimates are too low. 0 for one run.
    """

    figure: Metric
    centre: float
    spread: float
    scatter: float
    degrees: float
    runs: int

    @property
    def value(self) -> float:
        return math.exp(self.centre)

    def drop(self, value: float) -> float:
        """Return ln(reference ÷ value)."""
        return self.centre - math.log(value)

    def gate(self, tolerance: float, processes: int) -> float:
        """Return the log drop above which the median of so many new processes is a regression."""
        return max(log_of_drop(tolerance), _noise(self.spread, self.degrees, self.runs, processes))

    def resolves(self, tolerance: float, processes: int) -> bool:
        """Return whether a drop above the tolerance is past the gate, although noise may widen the gate."""
        return self.gate(tolerance, processes) <= log_of_drop(tolerance) * _ROUNDING

    def detects(self, tolerance: float, processes: int) -> float | None:
        """Return the log drop that is found 95 times in 100: past the gate, and slow enough in the first process.

        The figures scatter as the runs do, not as the prior. The gate scatters with its estimated spread. None for
        fewer than two runs, which do not show how they scatter.
        """
        if self.runs < 2:
            return None
        of_centre = _variance_of_median(self.runs)
        of_median = self.scatter**2 * (_variance_of_median(processes) + of_centre)
        noise = _noise(self.spread, self.degrees, self.runs, processes)
        of_spread = math.sqrt((self.runs - 1) / 2) * self.scatter**2 / (self.degrees * self.spread**2)
        gate, of_gate = _maximum(log_of_drop(tolerance), noise, noise * of_spread)
        return max(
            gate + DETECTION_QUANTILE * math.sqrt(of_median + of_gate),
            SLOW_SHARE * log_of_drop(tolerance) + DETECTION_QUANTILE * self.scatter * math.sqrt(1.0 + of_centre),
        )


def prior_spread(figure: Metric, on_host: bool) -> float:
    """Return the prior's standard deviation of ln(figure), for an entry without runs."""
    return PRIOR_SPREAD["gbps:host" if figure == "gbps" and on_host else figure]


def reference_of(entry: Entry, figure: Metric, on_host: bool) -> Reference | None:
    """Return centre and spread of an entry; None where it lacks the figure."""
    logs = [math.log(value) for run in entry.runs if (value := value_of_run(run, figure)) is not None]
    if not logs:
        if figure == "relative" or entry.gbps is None:
            return None
        return Reference(figure, math.log(entry.gbps), prior_spread(figure, on_host), 0.0, PRIOR_DEGREES, 0)
    # Not `statistics.stdev`: it computes in fractions, which is slow for 10,000 entries.
    mean = sum(logs) / len(logs)
    squares = sum([(value - mean) ** 2 for value in logs])
    prior, of_runs = prior_spread(figure, on_host), len(logs) - 1
    # ÷ the median of χ² (Wilson and Hilferty, PNAS 17, 1931).
    scatter = math.sqrt(squares / (of_runs * (1 - 2 / (9 * of_runs)) ** 3)) if of_runs else 0.0
    spread = math.sqrt((PRIOR_DEGREES * prior**2 + squares) / (PRIOR_DEGREES + of_runs))
    return Reference(figure, median(logs), spread, scatter, PRIOR_DEGREES + of_runs, len(logs))


def runs_needed(reference: Reference, tolerance: float, processes: int) -> int | None:
    """Return the fewest runs of the same spread that detect a drop of the tolerance; None where 20 do not suffice."""
    for k in RUNS_CONSIDERED:
        # Each further run adds one degree of freedom to the spread of these.
        degrees = reference.degrees + k - max(reference.runs, 1)
        if _noise(reference.spread, degrees, k, processes) <= log_of_drop(tolerance) * _ROUNDING:
            return k
    return None


def steadier_of_runs(figure: Metric, entry: Entry, on_host: bool) -> Metric:
    """Return `relative`, unless the entry's own runs show a smaller spread of GB/s from process to process."""

    def spread_of(which: Metric) -> float:
        reference = reference_of(entry, which, on_host)
        return math.inf if reference is None else reference.spread

    return steadier_metric(figure, len(entry.runs), spread_of)


def _noise(spread: float, degrees: float, runs: int, processes: int) -> float:
    return t_quantile(GATE_LEVEL, degrees) * spread * math.sqrt(1.0 / processes + (1.0 / runs if runs else 0.0))


def _variance_of_median(count: int) -> float:
    """Return the variance of a median of so many normal values, in units of theirs; π/2n for many, 1 for one."""
    return math.pi / 2 / (count + math.pi / 2 - 1)


def _maximum(constant: float, mean: float, deviation: float) -> tuple[float, float]:
    """Return mean and variance of the larger of a constant and a normal value (Clark, Operations Research 9, 1961)."""
    if not deviation:
        return max(constant, mean), 0.0
    at = (constant - mean) / deviation
    below, density = _NORMAL.cdf(at), _NORMAL.pdf(at) * deviation
    first = constant * below + mean * (1 - below) + density
    second = constant**2 * below + (mean**2 + deviation**2) * (1 - below) + (constant + mean) * density
    return first, max(second - first**2, 0.0)


def since_anchor(entry: Entry, figure: Metric) -> float | None:
    """Return the fraction that the entry's runs gained since its anchor; None where one of them lacks the figure."""
    if entry.anchor is None or not entry.runs:
        return None
    then, now = value_of_run(entry.anchor, figure), median_metrics(entry.runs).of(figure)
    return now / then - 1 if then and now else None
