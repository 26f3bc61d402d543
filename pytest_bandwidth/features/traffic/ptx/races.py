"""Find accesses to one place that nothing orders, at least one of them a write.

Lockstep hides a missing barrier: the values come out right. So a shadow remembers, per place, the last writer and
reader, and the barriers passed by then. In shared memory two threads of a block conflict if no __syncthreads() came
between (inside a warp, no __syncwarp() either); in global memory two blocks of one launch conflict unless a fence and
atomics order them. Two writes of the same value are no race that anyone could see, and are not reported. Atomics
conflict with nothing.

Asynchronous copies (cp.async) from global to shared memory end when their threads have waited for them. Their bytes are
there at once. What is read of them before the wait is a fault: on a GPU they may not be there yet.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from pytest_bandwidth.features.traffic.ptx import loops
from pytest_bandwidth.features.traffic.ptx.faults import Checker, FaultLog
from pytest_bandwidth.features.traffic.ptx.lanes import Array, Geometry, spread, warps_with
from pytest_bandwidth.features.traffic.ptx.memory import Access, Region

NEVER = np.iinfo(np.int64).max


class HappensBefore:
    """Track what orders the accesses of a batch: barriers in blocks and warps, fences and atomics between blocks.

    It counts the barriers that were passed, and keeps what blocks published to each other.

    block_epoch: barriers passed, int64 (1 or rows, 1). warp_epoch: warp barriers passed, int64 (1 or rows, warps).

    Between blocks, a fence followed by an atomic publishes what a block did before; an atomic of another block after
    that receives it. Which address the atomics use is not looked at, so some races through unrelated atomics go unseen.

    State is kept for blocks of batches that met a fence or an atomic, whatever the grid; batches come in rising order.
    """

    def __init__(self) -> None:
        self._count = 0
        self._known = np.zeros(0, np.int64)
        self._published = np.zeros(0, np.int64)
        self._received = np.zeros(0, np.int64)
        self._fenced = np.zeros(0, np.bool_)
        self._clock = 0
        self._geometry: Geometry | None = None
        self.block_epoch: Array = np.zeros((1, 1), np.int64)
        self.warp_epoch: Array = np.zeros((1, 1), np.int64)

    def begin(self, geometry: Geometry) -> None:
        self._geometry = geometry
        self.block_epoch = np.zeros((1, 1), np.int64)
        self.warp_epoch = np.zeros((1, geometry.lanes // 32), np.int64)

    def block_barrier(self, rows: Array) -> None:
        """Pass a block barrier. rows: bool (1 or rows, 1), the blocks whose threads all passed."""
        self.block_epoch = self.block_epoch + (1 if rows.all() else rows)

    def warp_barrier(self, lanes: Array) -> None:
        self.warp_epoch = self.warp_epoch + warps_with(lanes)

    def fence(self, lanes: Array) -> None:
        slots = self._slots_with(lanes)  # first: it may make room
        self._fenced[slots] = True

    def atomic(self, lanes: Array) -> None:
        """Order the blocks' atomics: each receives what those before it published."""
        slots = self._slots_with(lanes)
        times = self._clock + np.arange(len(slots))
        self._clock += len(slots)
        self._received[slots] = times
        publishing = self._fenced[slots]
        self._published[slots[publishing]] = np.minimum(self._published[slots[publishing]], times[publishing])

    def between(self, earlier: Array, later: Array) -> Array:
        """Tell where what block `earlier` published reached block `later`; False where `earlier` is negative (several
        blocks).
        """
        published = self._look_up(self._published, earlier, NEVER)
        return (published < self._look_up(self._received, later, -1)) & (earlier >= 0)

    def _look_up(self, state: Array, blocks: Array, otherwise: int) -> Array:
        known = self._known[: self._count]
        if not len(known):
            return np.full(blocks.shape, otherwise, np.int64)
        slots = np.minimum(np.searchsorted(known, blocks), len(known) - 1)
        return np.where(known[slots] == blocks, state[slots], otherwise)

    def _slots_with(self, lanes: Array) -> Array:
        """Return where the state of the batch's blocks with any of these lanes is kept."""
        if self._geometry is None:
            return np.zeros(0, np.int64)
        blocks = self._geometry.blocks
        if not self._count or self._known[self._count - 1] < blocks[0]:
            self._make_room(len(blocks))
            self._known[self._count : self._count + len(blocks)] = blocks
            self._count += len(blocks)
        slots = np.arange(self._count - len(blocks), self._count)
        rows = lanes.any(axis=1)
        return slots if len(rows) == 1 and rows[0] else slots[spread(rows, (self._geometry.rows,))]

    def _make_room(self, blocks: int) -> None:
        more = max(0, self._count + blocks - len(self._known))
        if more:
            more = max(more, len(self._known))  # doubled, so that each block is copied twice at most
            self._known = np.concatenate((self._known, np.zeros(more, np.int64)))
            self._published = np.concatenate((self._published, np.full(more, NEVER, np.int64)))
            self._received = np.concatenate((self._received, np.full(more, -1, np.int64)))
            self._fenced = np.concatenate((self._fenced, np.zeros(more, np.bool_)))


class _RaceChecker(Checker):
    """Look at plain loads and stores of one kind of memory."""

    kind: Literal["shared", "global"]

    def __init__(self, faults: FaultLog, granule_bytes: Mapping[str, int], order: HappensBefore) -> None:
        self._faults, self._order = faults, order
        self._granule = granule_bytes.get(self.kind, 1)
        self._hits: dict[tuple[int, int], Array] = {}

    def see(self, access: Access) -> None:
        if access.region.kind != self.kind or access.kind == "atomic" or access.ordered:
            return
        hit = self._conflicts(access)
        if hit is not None:
            self._report(access, hit)
            hit[:] = 0

    @abstractmethod
    def _conflicts(self, access: Access) -> Array | None:
        """Update the shadow; return with what each lane conflicts, None where none does."""

    @abstractmethod
    def _report(self, access: Access, hit: Array) -> None: ...

    def _zeros(self, shape: tuple[int, int]) -> Array:
        """Return an array of zeros that is kept for the next access of that shape: conflicts are rare, and clearing it
        each time is not free.
        """
        if shape not in self._hits:
            self._hits[shape] = np.zeros(shape, np.int64)
        return self._hits[shape]

    def _add(self, access: Access, hits: Array, what: str) -> None:
        verb = "writes" if access.kind == "store" else "reads"
        sentence = f"{verb} {{array}} at byte {{place}}, which {what}"
        self._faults.add("race", access.site, access.region, hits & access.mask, access.offset, sentence)


class SharedRaceChecker(_RaceChecker):
    kind = "shared"

    def begin(self, geometry: Geometry) -> None:
        super().begin(geometry)
        self._writers: Array | None = None
        self._readers: Array | None = None

    def _conflicts(self, access: Access) -> Array | None:
        geometry, order = self.geometry, self._order
        granules = -(-access.region.nbytes // self._granule)
        if self._writers is None or self._readers is None:
            self._writers, self._readers = np.zeros((1, granules), np.int64), np.zeros((1, granules), np.int64)
        rows = max(len(x) for x in (access.offset, access.mask, order.block_epoch, order.warp_epoch, self._writers))
        if len(self._writers) < rows:
            self._writers = np.repeat(self._writers, rows, axis=0)
            self._readers = np.repeat(self._readers, rows, axis=0)
        shape = (rows, geometry.lanes)
        hit = self._zeros(shape)
        found = loops.race_between_threads(
            self._writers,
            self._readers,
            spread(access.offset // self._granule, shape),
            spread(access.mask, shape),
            max(1, access.width // self._granule),
            access.kind == "store",
            access.site & 0x3FFF,
            spread(order.block_epoch & 0x7FFFF, (rows, 1)),
            spread(order.warp_epoch & 0x3FFFF, (rows, geometry.lanes // 32)),
            hit,
        )
        return hit if found else None

    def _report(self, access: Access, hit: Array) -> None:
        hit = spread(hit, (self.geometry.rows, self.geometry.lanes))
        hits = hit != 0
        if access.kind == "store":
            hits = hits & ~benign(access, hits)
        if not hits.any():
            return
        word = int(hit[tuple(np.argwhere(hits)[0])])
        who, site = word & 4095, (word >> 12) & 0x3FFF
        if who == loops.MANY_WARPS:
            other = "several threads"
        elif who >= loops.WARP_OF_READERS:
            other = f"several threads of warp {who - loops.WARP_OF_READERS}"
        else:
            other = f"thread {self.geometry.thread_name(who - 1)}"
        self._add(access, hits, f"{other} accessed at {self._faults.line_of(site)} with no barrier between")


class GlobalRaceChecker(_RaceChecker):
    kind = "global"

    def __init__(self, faults: FaultLog, granule_bytes: Mapping[str, int], order: HappensBefore) -> None:
        super().__init__(faults, granule_bytes, order)
        self._shadows: dict[Region, tuple[Array, Array]] = {}

    def _conflicts(self, access: Access) -> Array | None:
        geometry = self.geometry
        if access.region not in self._shadows:
            granules = -(-access.region.nbytes // self._granule)
            self._shadows[access.region] = np.zeros(granules, np.int32), np.zeros(granules, np.int32)
        writers, readers = self._shadows[access.region]
        offset, mask = access.offset, access.mask
        if access.kind == "load" and offset.shape[1] == 1 and mask.shape[1] > 1:
            mask = mask.any(axis=1, keepdims=True)  # threads of a block that read one place are alike, blocks are not
        shape = (geometry.rows, geometry.lanes if access.kind == "store" else offset.shape[1])
        hit = self._zeros(shape)
        found = loops.race_between_blocks(
            writers,
            readers,
            spread(offset // self._granule, shape),
            spread(mask, shape),
            max(1, access.width // self._granule),
            access.kind == "store",
            geometry.blocks[:, None],
            hit,
        )
        return hit if found else None

    def _report(self, access: Access, hit: Array) -> None:
        hits = (hit != 0) & ~self._order.between(hit - 1, spread(self.geometry.blocks[:, None], hit.shape))
        if access.kind == "store" and hits.any():
            hits &= ~benign(access, hits)
        if not hits.any():
            return
        other = int(hit[tuple(np.argwhere(hits)[0])]) - 1
        who = "several other blocks" if other < 0 else f"block {self.geometry.block_name(other)}"
        self._add(access, hits, f"{who} of the same launch accessed; nothing orders the two")


def benign(access: Access, hits: Array) -> Array:
    """Return which of a store's `hits` (bool of all (rows, lanes)) no reader could tell from a store that is ordered.

    Lanes that store to one place have to agree on the value; and if the first of them conflicts, that is with an access
    before this instruction, the place has to hold the value already.
    """
    shape, region = hits.shape, access.region
    mask, offset = spread(access.mask, shape), spread(access.offset, shape)
    rows = spread(np.arange(shape[0])[:, None] * region.block_step, shape)[mask]
    places = offset[mask]
    keys = rows * np.int64(region.nbytes) + places
    order = np.argsort(keys, kind="stable")
    starts = np.concatenate(([True], np.diff(keys[order]) != 0))
    heads, group = np.flatnonzero(starts), np.cumsum(starts) - 1
    fine = np.ones(len(heads), np.bool_)
    width = access.width // max(1, len(access.values))
    held = region.typed(np.dtype(f"u{width}"))
    conflict_before = hits[mask][order][heads]
    for element, value in enumerate(access.values):
        stored = np.ascontiguousarray(spread(value, shape)).view(f"u{width}")[mask][order]
        agreed = np.logical_and.reduceat(_alike(stored, stored[heads][group]), heads)
        now = held[rows[order][heads], places[order][heads] // width + element]
        fine &= agreed & (~conflict_before | _alike(now, stored[heads]))
    result = np.zeros(shape, np.bool_)
    flat = np.empty(len(keys), np.bool_)
    flat[order] = fine[group]
    result[mask] = flat
    return result & hits


def _alike(one: Array, other: Array) -> Array:
    """Compare bits; a NaN of single precision has no sign: a host keeps an operand's, a GPU gives one for all."""
    same = one == other
    if one.dtype.itemsize == 4:
        sign, nan = np.uint32(0x7FFFFFFF), np.uint32(0x7FC00000)
        same |= ((one & sign) == nan) & ((other & sign) == nan)
    return same


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
