"""Reduce a measurement to the metrics of one process, and choose the one that it is judged by.

`relative` is the share of the probe's bandwidth in the same rounds: influences on both cancel. GB/s are the figure
where kernel and probe have few influences in common.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from pytest_bandwidth.domain.baseline import Entry, Metric, Run
from pytest_bandwidth.domain.device import Peak
from pytest_bandwidth.domain.measured.measurement import LARGEST_SHARE, Measurement, is_credible_share
from pytest_bandwidth.domain.statistics import median_known
from pytest_bandwidth.domain.units import format_percent

METRICS: tuple[Metric, ...] = ("relative", "gbps")
# Below this share of its probe's bandwidth, a kernel does not wait for memory, and does not slow down with its probe.
SHARED_FATE = 0.35
# With fewer runs, or pairs of processes, a spread is too uncertain to choose a figure by it.
ENOUGH_FOR_SPREAD = 5


@dataclass(frozen=True, slots=True)
class Metrics:
    """Hold the figures of one measurement in one fresh process."""

    gbps: float
    relative: float | None = None
    probe_gbps: float | None = None
    utilization: float | None = None
    sol: float | None = None

    def of(self, figure: Metric) -> float | None:
        return self.relative if figure == "relative" else self.gbps

    @property
    def has_credible_share(self) -> bool:
        """Return whether a probe ran next to the kernel, and the share is credible."""
        return is_credible_share(self.relative)


def metrics_of_measurement(measurement: Measurement) -> Metrics:
    """Return the figures of one process's measurement. Raises ValueError where nothing was timed."""
    gbps = measurement.gbps
    if gbps is None:
        raise ValueError("a measurement without samples has no figures")
    share = measurement.utilization if measurement.peak is not None else None
    return Metrics(gbps, measurement.relative, measurement.probe_gbps, share, measurement.sol)


def metrics_of_row(row: Mapping[str, Any], peak: Peak | None) -> Metrics:
    """Return the figures of a new process's row; peak: the run's."""
    # Not the row's own share: a new process reads no baseline, which may give the peak.
    share = None if peak is None else row["gbps"] / peak.gbps
    return Metrics(row["gbps"], row["relative"], row["probe_gbps"], share)


def metrics_of_run(run: Run) -> Metrics:
    """Return the figures of a baseline's run. A file may omit the share, which then follows from the probe's GB/s."""
    return Metrics(run.gbps, value_of_run(run, "relative"), run.probe_gbps)


def value_of_run(run: Run, figure: Metric) -> float | None:
    """Return one figure of a baseline's run, as in `metrics_of_run`. Verdicts need it for all runs of an entry."""
    if figure == "gbps" or run.relative is not None:
        return run.gbps if figure == "gbps" else run.relative
    return run.gbps / run.probe_gbps if run.probe_gbps else None


def middle_of(seen: Sequence[Metrics]) -> Metrics:
    """Return each figure's median over the processes that have it. seen: one process at least."""
    return Metrics(
        median(figures.gbps for figures in seen),
        median_known(figures.relative for figures in seen),
        median_known(figures.probe_gbps for figures in seen),
        median_known(figures.utilization for figures in seen),
        median_known(figures.sol for figures in seen),
    )


def median_metrics(runs: Sequence[Run]) -> Metrics:
    """Return the medians of GB/s and of the share of the probe over a list of runs, one at least."""
    return middle_of([metrics_of_run(run) for run in runs])


def anchor_of(runs: Sequence[Run]) -> Run | None:
    """Return the medians of an entry's first runs, to find slow drifts; None without runs."""
    if not runs:
        return None
    newest = runs[-1]
    middle = metrics_of_run(newest) if len(runs) == 1 else median_metrics(runs)
    return Run(middle.gbps, relative=middle.relative, at=newest.at, commit=newest.commit, dirty=newest.dirty)


def choose_metric(asked: Metric | None, entry: Entry | None, figures: Metrics, regime: str | None) -> Metric:
    """Return `relative` where the same influences slow the probe and the kernel, GB/s otherwise.

    A figure that the marker or the entry names is chosen, even if this measurement lost its share of the probe.
    """
    wanted = asked or (entry.judged_on if entry else None)
    if wanted is None:
        shared = figures.has_credible_share and (figures.relative or 0.0) >= SHARED_FATE and regime != "compute-bound"
        wanted = "relative" if shared else "gbps"
    shares = [figures.relative] if entry is None else (value_of_run(run, "relative") for run in entry.runs)
    return "gbps" if wanted == "relative" and all(share is None for share in shares) else wanted


def steadier_metric(figure: Metric, processes: int, spread_of: Callable[[Metric], float]) -> Metric:
    """Return `relative`, unless enough runs or pairs of `processes` show a smaller spread of GB/s.

    This is so for a kernel that waits at times for memory and at times for arithmetic.
    """
    if figure != "relative" or processes < ENOUGH_FOR_SPREAD:
        return figure
    return "gbps" if spread_of("gbps") < spread_of("relative") else "relative"


def disbelief(figures: Metrics) -> str:
    """Return why the share of the probe is not credible; figures: some whose `has_credible_share` is False."""
    if figures.relative is None:
        return "no probe ran in the kernel's rounds, or its threads waited for a processor"
    return (
        f"{format_percent(figures.relative)} of the probe's bandwidth, more than {format_percent(LARGEST_SHARE)}, is "
        "not credible: the probe was disturbed, or less moved than was declared"
    )
