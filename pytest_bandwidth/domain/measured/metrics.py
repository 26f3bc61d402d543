"""Reduce a measurement to the metrics of one process, and choose the one that it is judged by.

`relative` is the share of the probe's bandwidth in the same rounds: it leaves out what kernel and probe share. GB/s are
the figure where they share little.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from pytest_bandwidth.domain.baseline import Entry, Metric, Run
from pytest_bandwidth.domain.device import Peak
from pytest_bandwidth.domain.measured.measurement import LARGEST_SHARE, Measurement, is_share_told
from pytest_bandwidth.domain.statistics import median_known
from pytest_bandwidth.domain.units import format_percent

METRICS: tuple[Metric, ...] = ("relative", "gbps")
# A kernel under this share of its probe's bandwidth is not waiting for memory, so the probe does not share its fate.
SHARED_FATE = 0.35
# Runs, or pairs of processes, under which a spread tells too little to choose a figure by it.
ENOUGH_FOR_SPREAD = 5


@dataclass(frozen=True, slots=True)
class Metrics:
    """Hold what one fresh process saw of one measurement."""

    gbps: float
    relative: float | None = None
    probe_gbps: float | None = None
    utilization: float | None = None
    sol: float | None = None

    def of(self, figure: Metric) -> float | None:
        return self.relative if figure == "relative" else self.gbps

    @property
    def share_told(self) -> bool:
        """Return whether a probe ran beside the kernel and its share can be believed."""
        return is_share_told(self.relative)


def metrics_of_measurement(measurement: Measurement) -> Metrics:
    """Return the figures that one process's measurement stands for. Raises ValueError where nothing was timed."""
    gbps = measurement.gbps
    if gbps is None:
        raise ValueError("a measurement without samples has no figures")
    share = measurement.utilization if measurement.peak is not None else None
    return Metrics(gbps, measurement.relative, measurement.probe_gbps, share, measurement.sol)


def metrics_of_row(row: Mapping[str, Any], peak: Peak | None) -> Metrics:
    """Return the figures of a new process's row; peak: the run's."""
    # Not the row's own share: a new process reads no baseline, where the peak may stand.
    share = None if peak is None else row["gbps"] / peak.gbps
    return Metrics(row["gbps"], row["relative"], row["probe_gbps"], share)


def metrics_of_run(run: Run) -> Metrics:
    """Return the figures of a baseline's run; files may leave out the share, which the probe's GB/s give as well."""
    return Metrics(run.gbps, value_of_run(run, "relative"), run.probe_gbps)


def value_of_run(run: Run, figure: Metric) -> float | None:
    """Return one figure of a baseline's run, as `metrics_of_run` has it.

    A run's verdicts ask for those of every entry.
    """
    if figure == "gbps" or run.relative is not None:
        return run.gbps if figure == "gbps" else run.relative
    return run.gbps / run.probe_gbps if run.probe_gbps else None


def middle_of(seen: Sequence[Metrics]) -> Metrics:
    """Return each figure's median, over those of one process or more that hold it."""
    return Metrics(
        median(figures.gbps for figures in seen),
        median_known(figures.relative for figures in seen),
        median_known(figures.probe_gbps for figures in seen),
        median_known(figures.utilization for figures in seen),
        median_known(figures.sol for figures in seen),
    )


def median_metrics(runs: Sequence[Run]) -> Metrics:
    """Return GB/s and share of the probe that a list of runs stands for, one at least."""
    return middle_of([metrics_of_run(run) for run in runs])


def anchor_of(runs: Sequence[Run]) -> Run | None:
    """Return what an entry's first runs showed, by which slow drifts are found; None without runs."""
    if not runs:
        return None
    newest = runs[-1]
    middle = metrics_of_run(newest) if len(runs) == 1 else median_metrics(runs)
    return Run(middle.gbps, relative=middle.relative, at=newest.at, commit=newest.commit, dirty=newest.dirty)


def choose_metric(asked: Metric | None, entry: Entry | None, figures: Metrics, regime: str | None) -> Metric:
    """Return `relative` where the probe shares the kernel's fate, GB/s otherwise.

    Entry and marker decide where they speak, although this measurement may have lost its share.
    """
    wanted = asked or (entry.judged_on if entry else None)
    if wanted is None:
        shared = figures.share_told and (figures.relative or 0.0) >= SHARED_FATE and regime != "compute-bound"
        wanted = "relative" if shared else "gbps"
    shares = [figures.relative] if entry is None else (value_of_run(run, "relative") for run in entry.runs)
    return "gbps" if wanted == "relative" and all(share is None for share in shares) else wanted


def steadier_metric(figure: Metric, processes: int, spread_of: Callable[[Metric], float]) -> Metric:
    """Return `relative`, unless so many runs or pairs of `processes` show GB/s to repeat better, by their spread.

    So for a kernel that waits for memory at one time and for arithmetic at another.
    """
    if figure != "relative" or processes < ENOUGH_FOR_SPREAD:
        return figure
    return "gbps" if spread_of("gbps") < spread_of("relative") else "relative"


def disbelief(figures: Metrics) -> str:
    """Return why the share of the probe tells nothing; figures: those of which `share_told` is False."""
    if figures.relative is None:
        return "no probe ran beside the kernel, or its threads waited for a processor"
    return (
        f"{format_percent(figures.relative)} of the probe's bandwidth, past {format_percent(LARGEST_SHARE)}, tell "
        "nothing: the probe was hindered, or less moved than was declared"
    )
