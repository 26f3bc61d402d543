"""Execute operations on mbarrier objects, and track the order of accesses that they enforce.

A lane that arrives at a phase releases its warp's earlier accesses, and a lane that waits for that phase acquires them.
So each lane has a vector clock, with a component per warp (Flanagan and Freund, FastTrack, 2009).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytest_bandwidth.features.traffic.ptx import loops
from pytest_bandwidth.features.traffic.ptx.faults import FaultLog
from pytest_bandwidth.features.traffic.ptx.lanes import WARP, Array, Geometry, spread, warps_with
from pytest_bandwidth.features.traffic.ptx.memory import Access, Region
from pytest_bandwidth.features.traffic.ptx.program import BarrierStep
from pytest_bandwidth.features.traffic.ptx.races import BULK, NO_BARRIER, AsyncCopies, HappensBefore, RaceChecker


class Clocks(HappensBefore):
    """Order accesses by mbarriers as well.

    known: int32 (rows, lanes, warps): up to this time of each warp, all its accesses come before a lane's next access.
    time: int32 (rows, warps), counts a warp's releases. Barriers are identified by their place in shared memory.
    """

    def begin(self, geometry: Geometry) -> None:
        super().begin(geometry)
        self._shape = (geometry.rows, geometry.lanes)
        warps = geometry.lanes // WARP
        self.known: Array = np.full((*self._shape, warps), -1, np.int32)
        self.time: Array = np.zeros((geometry.rows, warps), np.int32)
        self._of_block_barrier: Array = self.time - 1
        self._arrived: dict[int, Array] = {}
        self._completed: dict[int, Array] = {}

    def block_barrier(self, rows: Array) -> None:
        super().block_barrier(rows)
        rows = spread(rows, (self._shape[0], 1))
        self.known = np.where(rows[:, :, None], self.time[:, None, :], self.known)
        self._of_block_barrier = np.where(rows, self.time, self._of_block_barrier)
        self.time += rows

    def warp_barrier(self, lanes: Array) -> None:
        super().warp_barrier(lanes)
        rows, warps = self.time.shape
        taking_part = spread(lanes, self._shape).reshape(rows, warps, WARP, 1)
        known = self.known.reshape(rows, warps, WARP, warps)
        joint = np.where(taking_part, known, -1).max(axis=2, keepdims=True)
        own = np.arange(warps)
        joint[:, own, 0, own] = self.time
        self.known = np.where(taking_part, joint, known).reshape(self.known.shape)
        self.time += taking_part.any(axis=2)[..., 0]

    def release(self, place: int, lanes: Array) -> None:
        """Let lanes (bool, of the batch's shape) arrive at an mbarrier."""
        known = np.where(lanes[..., None], self.known, -1).max(axis=1)
        own = warps_with(lanes)
        known = np.maximum(known, np.where(own, self.time, -1))
        self._arrived[place] = np.maximum(self._arrived.get(place, np.int32(-1)), known)
        self.time += own

    def complete(self, place: int, rows: Array) -> None:
        """End the phase of an mbarrier. rows: bool (rows,)."""
        before = self._completed.get(place, np.int32(-1))
        self._completed[place] = np.where(rows[:, None], self._arrived.get(place, np.int32(-1)), before)

    def acquired(self, others: Array) -> Array:
        """Return where lanes have acquired a release of another lane's warp since the last block barrier, or of any
        warp where `others` is negative. All accesses of that warp count as released.
        """
        since = self.known > self._of_block_barrier[:, None, :]
        own = np.take_along_axis(since, (np.maximum(others, 0) // WARP)[..., None], axis=2)[..., 0]
        return np.where(others < 0, since.any(axis=2), own)

    def acquire(self, place: int, lanes: Array) -> None:
        """Record that lanes have waited for the last phase that ended."""
        if place in self._completed:
            now = np.maximum(self.known, self._completed[place][:, None, :])
            self.known = np.where(lanes[..., None], now, self.known)


class ClockRaces(RaceChecker):
    """Find races in shared memory by clocks, which ignore arrivals at other blocks' mbarriers."""

    sees_remote = False

    _order: Clocks

    def begin(self, geometry: Geometry) -> None:
        super().begin(geometry)
        self._seen: tuple[Array, ...] = ()

    def _conflicts(self, access: Access) -> Array | None:
        shape = (self.geometry.rows, self.geometry.lanes)
        if not self._seen:
            places = (shape[0], -(-access.region.nbytes // self._granule))
            reads = np.zeros((*places, shape[1] // WARP), np.int32)
            self._seen = (np.zeros(places, np.int32), np.zeros(places, np.int64), reads, np.zeros(places, np.int32))
        hit = np.zeros(shape, np.int64)
        order = self._order
        found = loops.find_unordered(*self._seen, *self._places(access, shape), order.known, order.time, hit)
        return hit if found else None


class Mbarriers:
    """Hold the mbarriers of one batch. lacking: for each site the mbarrier's word at its last failed wait."""

    def __init__(self, clocks: Clocks, copies: AsyncCopies, faults: FaultLog, geometry: Geometry) -> None:
        self._clocks, self._copies, self._faults = clocks, copies, faults
        self._shape = (geometry.rows, geometry.lanes)
        self.lacking: dict[int, int] = {}

    def act(self, step: BarrierStep, access: Access, operands: Sequence[Array]) -> Array:
        """Update or test mbarriers; return the previous tokens, or whether phases have ended, in the batch's shape."""
        index, lanes, *values = (spread(a, self._shape) for a in (access.offset, access.mask, *operands))
        result = np.zeros(self._shape, np.bool_ if step.operation == "test" else np.int64)
        data = access.region.typed(np.dtype(np.int64))
        for place in map(int, np.unique(index[lanes] // 8)):
            mine = lanes & (index // 8 == place)
            if step.operation == "test":
                self._test(step, data[:, place][:, None], place, mine, values[0], result)
            elif step.operation in ("update", "complete"):
                self._update(step, access.region, place, mine, values, result)
            else:
                row, lane = np.nonzero(mine)
                count = values[0][row, lane].astype(np.int64) if values else 0
                data[row, place] = count | count << loops.EXPECTED_AT
        return result

    def _test(self, step: BarrierStep, word: Array, place: int, lanes: Array, value: Array, result: Array) -> None:
        now = loops.phase_of(word)
        ended = lanes & ((now & 1 != value & 1) if step.parity else now != loops.phase_of(value.view(np.int64)))
        result |= ended
        if (waits := lanes & ~ended).any():
            self.lacking[step.site] = int(word[np.flatnonzero(waits.any(axis=1))[0], 0])
        if ended.any():
            self._copies.arrive(place, ended.any(axis=1))
            if step.orders:
                self._clocks.acquire(place, ended)

    def _update(
        self, step: BarrierStep, region: Region, place: int, lanes: Array, values: Sequence[Array], old: Array
    ) -> None:
        arrivals, nbytes = (value.astype(np.int64) for value in values)
        expected = -nbytes if step.operation == "complete" else nbytes
        if step.joins:
            self._copies.bind(lanes, place, BULK if step.operation == "complete" else NO_BARRIER)
        if step.orders:
            self._clocks.release(place, lanes)
        data = region.typed(np.dtype(np.int64))
        before = loops.phase_of(data[:, place])
        over = np.zeros(self._shape, np.bool_)
        loops.arrive(data, region.block_step, place, lanes, arrivals, expected, step.drops, old, over)
        sentence = "arrives at {array} once more than its mbarrier.init says; count the threads that arrive in a phase"
        self._faults.add("barrier", step.site, over, sentence, region, np.full((1, 1), place * 8))
        ended = loops.phase_of(data[:, place]) != before
        if ended.any():
            self._clocks.complete(place, ended)
            self._copies.land(place, ended)
