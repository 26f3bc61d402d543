"""Follow asynchronous copies (cp.async) from global to shared memory, until their threads have waited for them.

The bytes are there at once. What is read of them before the wait is a fault: on a GPU they may not be there yet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pytest_bandwidth.features.traffic.ptx.faults import Checker, FaultLog
from pytest_bandwidth.features.traffic.ptx.lanes import Array, Geometry, spread
from pytest_bandwidth.features.traffic.ptx.memory import Access

# Copies are of 4, 8 or 16 bytes.
GRANULE = 4
EARLY = (
    "{verb} {{array}} at byte {{place}}, which an asynchronous copy still writes: expected cp.async.wait_group "
    "(__pipeline_wait_prior) and a barrier before"
)


@dataclass(slots=True)
class _Copy:
    """Hold the copies of one instruction that lanes have not waited for. groups: those that each lane had committed."""

    access: Access
    places: Array
    waiting: Array
    groups: Array


class AsyncCopies(Checker):
    """Know which bytes of shared memory copies still write. done: is shown each copy again once it was waited for."""

    def __init__(self, faults: FaultLog, done: Checker) -> None:
        self._faults, self._done = faults, done
        self._copies: list[_Copy] = []

    def begin(self, geometry: Geometry) -> None:
        super().begin(geometry)
        shape = (geometry.rows, geometry.lanes)
        self._committed = np.zeros(shape, np.int64)
        self._copies = []
        self._pending: Array = np.zeros((geometry.rows, 0), np.uint16)

    def see(self, access: Access) -> None:
        """Add a fault where it touches bytes that are still written."""
        if access.region.kind != "shared" or not self._copies:
            return
        shape = self._committed.shape
        offset, mask = spread(access.offset, shape), spread(access.mask, shape)
        rows = np.arange(shape[0])[:, None]
        first = np.where(mask, offset, 0) // GRANULE
        hits = np.zeros(shape, np.bool_)
        for place in range(max(1, access.width // GRANULE)):
            hits |= self._pending[rows, first + place] > 0
        verb = "reads" if access.kind == "load" else "writes"
        self._faults.add("early", access.site, access.region, hits & mask, offset, EARLY.format(verb=verb))

    def issue(self, access: Access) -> None:
        """Take in a copy, as the store that it makes."""
        shape = self._committed.shape
        mask = spread(access.mask, shape).copy()
        places = np.where(mask, spread(access.offset, shape), 0) // GRANULE
        if not self._pending.shape[1]:
            self._pending = np.zeros((shape[0], -(-access.region.nbytes // GRANULE)), np.uint16)
        copy = _Copy(access, places, mask, self._committed.copy())
        self._copies.append(copy)
        self._mark(copy, mask, 1)

    def commit(self, lanes: Array) -> None:
        """Close the lanes' group of copies."""
        self._committed += lanes

    def wait(self, lanes: Array, groups: int | None) -> None:
        """Wait for all but the lanes' newest groups; None: for every copy, committed or not."""
        for copy in self._copies:
            done = copy.waiting & lanes
            if groups is not None:
                done &= copy.groups < self._committed - groups
            if done.any():
                self._mark(copy, done, -1)
                copy.waiting &= ~done
                self._done.see(replace(copy.access, mask=done, offset=spread(copy.access.offset, done.shape)))
        self._copies = [copy for copy in self._copies if copy.waiting.any()]

    def _mark(self, copy: _Copy, lanes: Array, step: int) -> None:
        row, lane = np.nonzero(lanes)
        for place in range(copy.access.width // GRANULE):
            np.add.at(self._pending, (row, copy.places[row, lane] + place), np.uint16(step & 0xFFFF))
