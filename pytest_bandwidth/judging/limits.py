"""Say what one test is held to: its marker's arguments, and the run's options behind them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pytest_bandwidth.domain.baseline import Baseline, Entry
from pytest_bandwidth.judging.floors import Floors
from pytest_bandwidth.judging.interval import Looks
from pytest_bandwidth.judging.marker import MarkerOptions


def floors_of(marker: MarkerOptions) -> Floors:
    """Return the marker's limits that hold whatever a baseline says."""
    return Floors(marker.min_gbps, marker.min_utilization, marker.min_relative)


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

    @property
    def floors(self) -> Floors:
        """Return the marker's limits that hold whatever a baseline says."""
        return floors_of(self.marker)

    def writes_entry(self, entry: Entry | None) -> bool:
        """Return whether this run writes the entry instead of judging by it."""
        return self.writes == "all" or (self.writes == "new" and entry is None)


def tolerance_of(marker: float | None, entry: Entry | None, baseline: Baseline | None, option: float) -> float:
    """Return the smallest loss to catch: the marker's before the entry's own, the file's and the option's."""
    for tolerance in (marker, entry.tolerance if entry else None, baseline.tolerance if baseline else None):
        if tolerance is not None:
            return tolerance
    return option


def count_tolerance_of(marker: float | None, entry: Entry | None) -> float:
    """Return the same of counts, which are exact: none is granted but the marker's or the entry's own."""
    return tolerance_of(marker, entry, None, 0.0)
