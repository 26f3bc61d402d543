"""Hold the limits of one test: its marker's arguments, its floors, and the run's options as defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pytest_bandwidth.domain import values
from pytest_bandwidth.domain.baseline import Baseline, Entry, Metric
from pytest_bandwidth.domain.measured.metrics import Metrics
from pytest_bandwidth.domain.values import argument
from pytest_bandwidth.judging.pairs import Looks

# Each floor, and the figure that it limits.
_METRIC_OF_FLOOR = {
    "min_gbps": "gbps",
    "min_utilization": "utilization",
    "min_sol": "sol",
    "min_relative": "relative",
}
# Floors that are shares of the device's peak.
OF_PEAK = ("min_utilization", "min_sol")
# By the marker's argument, the resource of a compiled kernel that it limits.
RESOURCE_OF_LIMIT = {"max_registers": "registers", "max_spill_bytes": "local_bytes"}


@dataclass(frozen=True, slots=True)
class MarkerOptions:
    """Hold the arguments of `@pytest.mark.bandwidth(...)` for one test; None for those not given."""

    min_gbps: float | None = argument(
        values.gbps, "floor of the bandwidth, in GB/s or with a unit, independent of the baseline."
    )
    min_utilization: float | None = argument(
        values.positive_fraction, "floor of the share of the peak; an error if the peak is unknown."
    )
    min_sol: float | None = argument(
        values.positive_fraction,
        "floor of the least possible time ÷ the measured time; an error if the peak is unknown.",
    )
    min_relative: float | None = argument(
        values.share, "floor of the share of the probe's bandwidth, which may exceed 1."
    )
    tolerance: float | None = argument(
        values.fraction, 'smallest slowdown of this test that must be caught, such as "3%".'
    )
    judged_on: Metric | None = argument(values.figure, 'the figure that verdicts compare, "relative" or "gbps".')
    max_time: float | None = argument(values.seconds, "stop each measurement after so many seconds.")
    min_samples: int | None = argument(values.count(1), "samples of each measurement, time permitting.")
    device: str | None = argument(str, "the kind of device that the test is for; it skips on others.")
    blocks: int | None = argument(
        values.count(1), "execute only so many blocks of the grid on the traffic device, evenly spread (None: all)."
    )
    max_registers: int | None = argument(values.count(1), "registers a thread at most, on cuda and traffic.")
    max_spill_bytes: int | None = argument(
        values.count(0), "local memory a thread at most (spills and stack), in bytes, on cuda and traffic."
    )
    cold: bool | None = argument(values.switch, "False: do not flush caches, for kernels whose data stays in one.")
    honest: bool | None = argument(
        values.switch, "poison outputs and change inputs between samples, and check that the work is done each time."
    )
    max_dram_ratio: float | None = argument(
        values.ratio, "DRAM traffic ÷ declared bytes at most, if --bandwidth-counters counts."
    )

    @property
    def floors(self) -> dict[str, float]:
        """Return the limits that hold with and without a baseline, by name; each is a lower bound."""
        return {name: limit for name in _METRIC_OF_FLOOR if (limit := getattr(self, name)) is not None}

    @property
    def resource_limits(self) -> dict[str, int]:
        """Return the limits of a compiled kernel's resources, by name; they hold with and without a baseline."""
        return {name: limit for name in RESOURCE_OF_LIMIT if (limit := getattr(self, name)) is not None}


def first_missed(floors: Mapping[str, float], figures: Metrics) -> tuple[str, float, float] | None:
    """Return name, limit and observation of the first floor that the figures miss."""
    seen = ((name, limit, figure_of(name, figures)) for name, limit in floors.items())
    return next(((name, limit, value) for name, limit, value in seen if value is not None and value < limit), None)


def first_unseen(floors: Mapping[str, float], figures: Metrics) -> str | None:
    """Return the first floor whose figure is missing or not credible: it can neither hold nor be missed."""
    for name in floors:
        if figure_of(name, figures) is None or (name == "min_relative" and not figures.has_credible_share):
            return name
    return None


def is_of_resources(floor: str | None) -> bool:
    """Return whether the floor of a rule ``floor:NAME`` limits resources, as an upper bound."""
    return floor in RESOURCE_OF_LIMIT


def floor_of(rule: str) -> str | None:
    """Return the floor that a decision's rule names: ``floor:min_gbps`` → min_gbps; None for other rules."""
    name = rule.removeprefix("floor:")
    return None if name == rule else name


def figure_of(name: str, figures: Metrics) -> float | None:
    """Return the figure that a floor limits; None where it is unknown."""
    value: float | None = getattr(figures, _METRIC_OF_FLOOR[name])
    return value


@dataclass(frozen=True, slots=True)
class Limits:
    """Hold one test's limits.

    tolerance: the option's. confirm: new processes that measure a slow test again; with 0 the first look decides.
    writes: which entries this run writes. looks: after how many comparisons with old code to decide.
    """

    marker: MarkerOptions
    tolerance: float
    confirm: int
    writes: Literal["none", "new", "all"] = "none"
    looks: Looks = field(default_factory=Looks)

    def writes_entry(self, entry: Entry | None) -> bool:
        """Return whether this run writes the entry instead of judging by it."""
        return self.writes == "all" or (self.writes == "new" and entry is None)


def tolerance_of(
    marker: float | None, entry: Entry | None, baseline: Baseline | None, option: float, *, exact: bool = False
) -> float:
    """Return the smallest loss to catch: the marker's before the entry's own, the file's and the option's.

    exact: whether counts are compared. For these only the marker or the entry itself can set a tolerance.
    """
    of_file = baseline.tolerance if baseline and not exact else None
    known = (marker, entry.tolerance if entry else None, of_file)
    return next((one for one in known if one is not None), 0.0 if exact else option)
