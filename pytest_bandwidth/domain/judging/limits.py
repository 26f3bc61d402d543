"""Say what one test is held to: its marker's arguments, and the run's options behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.judging.floors import Floors
from pytest_bandwidth.domain.judging.marker import MarkerOptions


def floors_of(marker: MarkerOptions) -> Floors:
    """Return the marker's limits that hold whatever a baseline says."""
    return Floors(marker.min_gbps, marker.min_utilization, marker.min_relative)


@dataclass(frozen=True, slots=True)
class Limits:
    """Hold one test's limits: its marker before the options; a baseline's own tolerance lies between.

    tolerance: the options'. confirm: fresh processes that have to agree. writes: which entries this run writes.
    unsure: whether what stored runs cannot tell is to be settled as suspects are: INSUFFICIENT, DEVICE, and that
    changed code lost no more than the tolerance.
    """

    marker: MarkerOptions
    tolerance: float
    confirm: int
    writes: Literal["none", "new", "all"] = "none"
    unsure: bool = False

    @property
    def floors(self) -> Floors:
        """Return the marker's limits that hold whatever a baseline says."""
        return floors_of(self.marker)

    def written(self, entry: Entry | None) -> bool:
        """Return whether this run writes the entry instead of judging by it."""
        return self.writes == "all" or (self.writes == "new" and entry is None)
