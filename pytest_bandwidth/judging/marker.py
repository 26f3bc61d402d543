"""Hold the arguments of `@pytest.mark.bandwidth(...)`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_bandwidth.domain.baseline import Metric


@dataclass(frozen=True, slots=True)
class MarkerOptions:
    """Hold what `@pytest.mark.bandwidth(...)` says about one test; None where it is silent.

    min_gbps: floor of the achieved bandwidth, in GB/s or with a unit, that holds whatever the baseline says.
    min_utilization: floor of the share of the peak; an error where the peak is unknown.
    min_relative: floor of the share of the probe's bandwidth, which may pass 1.
    max_dram_ratio: the most that DRAM may move ÷ what is declared; held where --bandwidth-counters counts.
    tolerance: the drop that matters to this test, such as "3%".
    judged_on: the figure that verdicts compare, "relative" or "gbps".
    max_time: budget of each of the test's measurements, in seconds.
    min_samples: samples of each measurement, time permitting.
    device: the kind of device that the test is for; on others it skips.
    blocks: the traffic device runs only so many of the grid's blocks, evenly spread (None: all).
    """

    min_gbps: float | None = None
    min_utilization: float | None = None
    min_relative: float | None = None
    tolerance: float | None = None
    judged_on: Metric | None = None
    max_time: float | None = None
    min_samples: int | None = None
    device: str | None = None
    blocks: int | None = None
    max_dram_ratio: float | None = None
