"""Find unordered accesses to one place, at least one of them a write.

Execution in lockstep hides a missing barrier: the values are right. So a shadow records, for each place, the last
writer and reader, and the barriers passed before. Two threads of a block conflict without a __syncthreads() between
(inside a warp, without a __syncwarp() either). In global memory two blocks of one launch conflict as well; a fence and
atomics order blocks and threads. Two writes of the same value are not reported, since no reader could notice. Atomics
do not conflict with each other; in shared memory they conflict with plain stores.

Asynchronous copies (cp.async) from global to shared memory end when their threads have waited for them. Here they copy
at once. A read of their bytes before the wait is a fault, since on a GPU the bytes may not have arrived.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from pytest_bandwidth.features.traffic.ptx import loops
from pytest_bandwidth.features.traffic.ptx.faults import VERBS, Checker, FaultLog
from pytest_bandwidth.features.traffic.ptx.lanes import WARP, Array, Geometry, spread, warps_with
from pytest_bandwidth.features.traffic.ptx.memory import Access, Region

NEVER = np.iinfo(np.int64).max
# The bits for an instruction's number in a shadow's word.
SITES = 0x3FFF


class HappensBefore:
    """Track what orders the accesses of a batch: barriers in blocks and warps, fences and atomics between blocks.

    It counts the passed barriers, and records what blocks published to each other.

    passed: whether any barrier was passed.
    block_epoch: barriers passed, int64 (1 or rows, 1). warp_epoch: warp barriers passed, int64 (1 or rows, warps).

    Between blocks, a fence followed by an atomic, or by an ordered or volatile store, publishes a block's earlier
    accesses. A later atomic of another block, or such a load, receives them. The addresses of these are ignored, so
    some races through unrelated addresses are not found.

    Threads of one block do the same, each for itself, between two block barriers. A thread's accesses after it has
    published also count as published: some races are not found.

    State is kept only for blocks of batches with a fence or an atomic, in any grid; batches come in ascending order.
    """

    _geometry: Geometry
    _threads: _Threads | None

    def __init__(self) -> None:
        self._count = self._clock = 0
        self._known, self._published, self._received = (np.zeros(0, np.int64) for _ in range(3))
        self._fenced = np.zeros(0, np.bool_)

    def begin(self, geometry: Geometry) -> None:
        self._geometry, self._threads, self.passed = geometry, None, False
        self.block_epoch: Array = np.zeros((1, 1), np.int64)
        self.warp_epoch: Array = np.zeros((1, geometry.lanes // 32), np.int64)
        self._cluster_epoch: Array = np.zeros((1, 1), np.int64)

    def block_barrier(self, rows: Array) -> None:
        """Pass a block barrier. rows: bool (1 or rows, 1), the blocks whose threads all passed."""
        self.passed = True
        self.block_epoch = self.block_epoch + (1 if rows.all() else rows)
        if rows.all():
            self._threads = None
        elif self._threads is not None:
            self._threads.block_barrier(rows)

    def warp_barrier(self, lanes: Array) -> None:
        self.passed = True
        self.warp_epoch = self.warp_epoch + warps_with(lanes)
        if self._threads is not None:
            self._threads.warp_barrier(lanes)

    def fence(self, lanes: Array) -> None:
        if self._threads is None:
            self._threads = _Threads((self._geometry.rows, self._geometry.lanes))
        self._threads.fence(lanes, self.warp_epoch > 0)
        slots = self._slots_with(lanes)  # first, since it may enlarge the state
        self._fenced[slots] = True

    def synchronise(self, lanes: Array, *, publishes: bool = True, receives: bool = True) -> None:
        """Order synchronising accesses: each one receives what earlier ones published. Atomics publish and receive; of
        other accesses, including volatile ones, stores publish and loads receive.
        """
        if self._threads is not None:
            self._threads.synchronise(lanes, self.warp_epoch > 0, publishes, receives)
        slots = self._slots_with(lanes)
        times = self._clock + np.arange(len(slots))
        self._clock += len(slots)
        if receives:
            self._received[slots] = times
        if publishes:
            publishing = self._fenced[slots]
            self._published[slots[publishing]] = np.minimum(self._published[slots[publishing]], times[publishing])

    def cluster_barrier(self, rows: Array) -> None:
        """Pass a cluster barrier, after the block barrier."""
        self._cluster_epoch = np.where(rows, self.block_epoch, self._cluster_epoch)

    def in_cluster(self, blocks: Array, epochs: Array) -> Array:
        """Return where a cluster barrier came after a block's accesses of that epoch. Negative blocks (several) count
        as the lane's own block.
        """
        if not self._cluster_epoch.any():
            return np.zeros((1, 1), np.bool_)
        geometry = self._geometry
        rows = np.where(blocks < 0, np.arange(geometry.rows)[:, None], blocks - geometry.blocks[0])
        inside = (rows >= 0) & (rows < geometry.rows)
        rows = np.where(inside, rows, 0)
        first, epoch = geometry.peers[:, 0], spread(self._cluster_epoch, (geometry.rows, 1))[:, 0]
        return inside & (first[rows] == first[:, None]) & (epochs < epoch[rows])

    def between(self, earlier: Array, later: Array) -> Array:
        """Return where block `later` has received from block `earlier`; False for a negative `earlier` (several)."""
        published = self._look_up(self._published, earlier, NEVER)
        return (published < self._look_up(self._received, later, -1)) & (earlier >= 0)

    def in_turn(self, earlier: Array, several: Array) -> Array:
        """Return where each thread of the batch has received from thread `earlier` of its block (or, with `several`,
        from some thread).
        """
        if self._threads is None:
            return np.zeros(earlier.shape, np.bool_)
        return self._threads.in_turn(earlier, several)

    def acquired(self, others: Array) -> Array:
        """Return where mbarriers order a lane after another lane of its block; False without `Clocks`."""
        return np.zeros(others.shape, np.bool_)

    def _look_up(self, state: Array, blocks: Array, otherwise: int) -> Array:
        known = self._known[: self._count]
        if not len(known):
            return np.full(blocks.shape, otherwise, np.int64)
        slots = np.minimum(np.searchsorted(known, blocks), len(known) - 1)
        return np.where(known[slots] == blocks, state[slots], otherwise)

    def _slots_with(self, lanes: Array) -> Array:
        """Return the indexes of the state of the batch's blocks with any of these lanes."""
        blocks = self._geometry.blocks
        if not self._count or self._known[self._count - 1] < blocks[0]:
            if more := max(0, self._count + len(blocks) - len(self._known)):
                more = max(more, len(self._known))  # doubled, to copy each block at most twice
                self._known = np.concatenate((self._known, np.zeros(more, np.int64)))
                self._published = np.concatenate((self._published, np.full(more, NEVER, np.int64)))
                self._received = np.concatenate((self._received, np.full(more, -1, np.int64)))
                self._fenced = np.concatenate((self._fenced, np.zeros(more, np.bool_)))
            self._known[self._count : self._count + len(blocks)] = blocks
            self._count += len(blocks)
        slots = np.arange(self._count - len(blocks), self._count)
        rows = lanes.any(axis=1)
        return slots if len(rows) == 1 and rows[0] else slots[spread(rows, (self._geometry.rows,))]


class _Threads:
    """Track the order by fences and atomics of each block's threads, from a fence to the next block barrier.

    joined: bool (1 or rows, warps), the warps that passed a warp barrier. In these, a thread publishes for its warp.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self._shape, self._warps = shape, (shape[0], shape[1] // WARP, WARP)
        self._clock = 0
        self._fenced = np.zeros(shape, np.bool_)
        self._published = np.full(shape, NEVER)
        self._received = np.full(shape, -1)

    def block_barrier(self, rows: Array) -> None:
        self._fenced &= ~rows
        self._published[spread(rows, self._shape)] = NEVER
        self._received[spread(rows, self._shape)] = -1

    def warp_barrier(self, lanes: Array) -> None:
        """Let each thread receive what any thread of its warp has received."""
        received = np.where(lanes, self._received, -1).reshape(self._warps).max(axis=2, keepdims=True)
        latest = spread(received, self._warps).reshape(self._shape)
        self._received = np.where(lanes, np.maximum(self._received, latest), self._received)

    def fence(self, lanes: Array, joined: Array) -> None:
        self._fenced |= lanes | (self._first(np.where(lanes, 0, NEVER), joined) == 0)

    def synchronise(self, lanes: Array, joined: Array, publishes: bool, receives: bool) -> None:
        now = np.where(lanes, self._clock + np.arange(self._shape[1]), NEVER)
        self._clock += self._shape[1]
        if publishes:
            at = np.where(lanes, now, self._first(now, joined))
            self._published = np.where(self._fenced, np.minimum(self._published, at), self._published)
        if receives:
            self._received = np.where(lanes, now, self._received)

    def _first(self, times: Array, joined: Array) -> Array:
        """Return the earliest time in each joined warp, NEVER in others."""
        least = spread(times, self._shape).reshape(self._warps).min(axis=2, keepdims=True)
        return spread(np.where(joined[..., None], least, NEVER), self._warps).reshape(self._shape)

    def in_turn(self, earlier: Array, several: Array) -> Array:
        published = np.take_along_axis(self._published, earlier, axis=1)
        some = self._published.min(axis=1, keepdims=True)
        return np.where(several, some, published) < self._received


class RaceChecker(Checker):
    """Check plain loads and stores of shared or global memory.

    Shared memory is small, so the words of its shadow also hold the site of an access.
    for_blocks: whether the kernel is written for blocks, like Triton's: its compiler gives one element to several
    threads. In global memory all of them read, one writes, and the others' values are not used. In shared memory each
    stores its copy, by one instruction; copies of a sum may differ in the last bit.
    """

    def __init__(
        self,
        kind: Literal["shared", "global"],
        faults: FaultLog,
        granule_bytes: Mapping[str, int],
        order: HappensBefore,
        for_blocks: bool = False,
    ) -> None:
        self._for_blocks = for_blocks
        self._kind, self._faults, self._order = kind, faults, order
        self._granule = granule_bytes.get(kind, 1)
        self._shift = self._granule.bit_length() - 1
        self._hits: dict[tuple[int, int], Array] = {}
        self._shadows: dict[Region, list[Array]] = {}
        self._shared = kind == "shared"
        self._word, self._epoch_at, self._warp_at = (np.int64, 32, 14) if self._shared else (np.int32, 15, 0)
        self._most = 0x7FFFF if self._shared else 0xFFFF

    def begin(self, geometry: Geometry) -> None:
        super().begin(geometry)
        self._first = np.zeros((1, 1), np.int64)
        if self._shared:
            self._shadows = {}
        else:  # lanes of a launch have numbers of 31 bits, which repeat in a larger one
            self._first = geometry.blocks[:, None] % (2**31 // geometry.lanes - 1) * geometry.lanes

    def see(self, access: Access) -> None:
        if access.region.kind != self._kind or access.ordered or (access.kind == "atomic" and not self._shared):
            return
        hit = self._conflicts(access)
        if hit is not None:
            self._report(access, spread(hit, (self.geometry.rows, self.geometry.lanes)))
            hit[:] = 0

    def _shadow(self, region: Region, rows: int) -> list[Array]:
        """Return the last writer and reader of each place of a region, and the times; see `loops.find_races`."""
        places = -(-region.nbytes // self._granule)
        if region not in self._shadows:
            empty = np.zeros((1, 0), self._word)
            self._shadows[region] = [*(region.zeros_per_place(places, np.int32) for _ in range(2)), empty, empty]
        shadow = self._shadows[region]
        if not shadow[2].size and (self._shared or self._order.passed):
            shadow[2:] = (region.zeros_per_place(places, self._word) for _ in range(2))
        if self._shared and len(shadow[0]) < rows:
            shadow[:] = (np.repeat(plane, rows, axis=0) for plane in shadow)
        return shadow

    def _conflicts(self, access: Access) -> Array | None:
        """Update the shadow; return the access that each lane conflicts with, None without conflicts."""
        geometry, order, region = self.geometry, self._order, access.region
        planes = (access.offset, access.mask, order.block_epoch, order.warp_epoch, self._first)
        shadow = self._shadow(region, max(map(len, planes)))
        rows = max(len(shadow[0]), *map(len, planes))
        shape = (rows, geometry.lanes)
        if shape not in self._hits:  # reused, since conflicts are rare and clearing takes time
            self._hits[shape] = np.zeros(shape, np.int64)
        hit = self._hits[shape]
        found = loops.find_races(
            *shadow,
            region.block_step,
            *self._places(access, shape),
            spread(self._first, (rows, 1)),
            spread(order.block_epoch, (rows, 1)),
            spread(order.warp_epoch, (rows, geometry.lanes // 32)),
            self._epoch_at,
            self._warp_at,
            self._most,
            hit,
        )
        return hit if found else None

    def _places(self, access: Access, shape: tuple[int, int]) -> tuple[Any, ...]:
        """Return an access's arguments for `loops`: places, mask, number of granules, whether it stores, and site."""
        offset, mask = spread(access.offset, shape), spread(access.mask, shape)
        site = access.site & SITES if self._shared else 0
        return offset, self._shift, mask, max(1, access.width // self._granule), access.kind == "store", site

    def _report(self, access: Access, hit: Array) -> None:
        hits = hit != 0
        who = (hit & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
        lane = np.where(who > 0, who, -who) - 1
        block = lane // self.geometry.lanes
        if self._shared:
            hits &= ~self._order.in_turn(lane % self.geometry.lanes, who < 0)
            if self._for_blocks:
                hits &= ((hit >> 32 & SITES) != access.site & SITES) | (who < 0)
        else:
            several = (who < 0) & ((lane & 31) == loops.SEVERAL_BLOCKS)
            block = np.where(several, -1, block)
            own = spread(self.geometry.blocks[:, None], hit.shape)
            inside = block == own
            in_turn = self._order.in_turn(lane % self.geometry.lanes, who < 0)
            in_turn |= self._order.acquired(np.where(who > 0, lane % self.geometry.lanes, -1))
            hits &= np.where(inside, ~in_turn, ~self._order.between(block, own) & (not access.fresh))
            hits &= ~self._order.in_cluster(block, hit >> 32 + self._epoch_at)
            if self._for_blocks:
                hits &= ~inside
        if access.values and hits.any():
            hits &= ~benign(access, hits)
        if not hits.any():
            return
        verb = VERBS[access.kind]
        place = tuple(np.argwhere(hits)[0])
        other = self._other(place[0], int(block[place]), int(lane[place]), bool(who[place] < 0))
        at = f" at {self._faults.line_of(int(hit[place]) >> 32 & SITES)}" if self._shared else ""
        sentence = f"{verb} {{array}} at byte {{place}}, which {other.format(at=at)}"
        self._faults.add("race", access.site, hits & access.mask, sentence, access.region, access.offset)

    def _other(self, row: int, block: int, lane: int, several: bool) -> str:
        """Return the text on the other side of a conflict."""
        geometry = self.geometry
        if not self._shared and block != geometry.blocks[row]:
            who = "several other blocks" if block < 0 else f"block {geometry.block_name(block)}"
            return f"{who} of the same launch accessed; nothing orders the two"
        lane %= geometry.lanes
        if not several:
            who = f"thread {geometry.thread_name(lane)}"
        else:
            who = "several threads" + (f" of warp {lane // 32}" if lane & 31 == loops.ONE_WARP else "")
        return f"{who} accessed{{at}} with no barrier between"


def benign(access: Access, hits: Array) -> Array:
    """Return which of a store's `hits` (bool of all (rows, lanes)) have the same effect as an ordered store.

    Lanes that store to one place must store the same value. If the first of them conflicts with an earlier instruction,
    the place must already hold that value.
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
    """Compare bits, but not a single-precision NaN's sign: a host keeps an operand's sign, a GPU has a fixed one."""
    same = one == other
    if one.dtype.itemsize == 4:
        sign, nan = np.uint32(0x7FFFFFFF), np.uint32(0x7FC00000)
        same |= ((one & sign) == nan) & ((other & sign) == nan)
    return same


# Copies have 4, 8 or 16 bytes; bulk copies have more.
GRANULE, MOST_OF_A_LANE = 4, 16
# Kinds of copies: without an mbarrier's phase, and bulk copies that have no phase yet.
NO_BARRIER, BULK = -1, -2
STILL_READ = (
    "{verb} {{array}} at byte {{place}}, which a bulk copy still reads: expected cp.async.bulk.wait_group.read by the "
    "thread that issued it, and a barrier before"
)
EARLY = (
    "{verb} {{array}} at byte {{place}}, which an asynchronous copy still writes: expected cp.async.wait_group "
    "(__pipeline_wait_prior) and a barrier before, or a wait for its mbarrier"
)


@dataclass(slots=True)
class _Copy:
    """Hold an instruction's copies that lanes have not waited for. groups: the number each lane had committed before.

    barrier: the place of the mbarrier whose phase they belong to, or a kind. landed: where that phase has ended,
    bool (rows,).
    """

    access: Access
    places: Array
    waiting: Array
    groups: Array
    barrier: int = NO_BARRIER
    landed: Array = False


class AsyncCopies(Checker):
    """Track the bytes of shared memory that copies still write. done: a checker that gets each copy after the wait.

    reads: whether the copies are to global memory: they only read these bytes, so other reads are allowed.
    """

    def __init__(self, faults: FaultLog, done: Checker, reads: bool = False) -> None:
        self._faults, self._done, self._reads = faults, done, reads
        self._copies: list[_Copy] = []

    def begin(self, geometry: Geometry) -> None:
        super().begin(geometry)
        shape = (geometry.rows, geometry.lanes)
        self._committed = np.zeros(shape, np.int64)
        self._copies = []
        self._pending: Array = np.zeros((geometry.rows, 0), np.uint16)

    def see(self, access: Access) -> None:
        """Add a fault where an access touches bytes that copies still use."""
        if access.region.kind != "shared" or not self._copies or (self._reads and access.kind == "load"):
            return
        shape = self._committed.shape
        offset, mask = spread(access.offset, shape), spread(access.mask, shape)
        rows = np.arange(shape[0])[:, None]
        first = np.where(mask, offset, 0) // GRANULE
        hits = np.zeros(shape, np.bool_)
        if access.width > MOST_OF_A_LANE:
            for row, lane in np.argwhere(mask):
                hits[row, lane] = self._pending[row, first[row, lane] :][: access.width // GRANULE].any()
        else:
            for place in range(max(1, access.width // GRANULE)):
                hits |= self._pending[rows, first + place] > 0
        verb = "reads" if access.kind == "load" else "writes"
        sentence = STILL_READ if self._reads else EARLY
        self._faults.add("early", access.site, hits & mask, sentence.format(verb=verb), access.region, offset)

    def issue(self, access: Access, barrier: int = NO_BARRIER) -> None:
        """Record a copy by its store, or, for a bulk copy to global memory, by its load."""
        shape = self._committed.shape
        mask = spread(access.mask, shape).copy()
        places = np.where(mask, spread(access.offset, shape), 0) // GRANULE
        if not self._pending.shape[1]:
            self._pending = np.zeros((shape[0], -(-access.region.nbytes // GRANULE)), np.uint16)
        copy = _Copy(access, places, mask, self._committed.copy(), barrier)
        self._copies.append(copy)
        self._mark(copy, mask, 1)

    def commit(self, lanes: Array) -> None:
        """Close the lanes' group of copies."""
        self._committed += lanes

    def wait(self, lanes: Array, groups: int | None) -> None:
        """Wait for all but the lanes' newest groups; None: for every copy, committed or not."""
        for copy in (copy for copy in self._copies if copy.barrier == NO_BARRIER):
            done = copy.waiting & lanes
            if groups is not None:
                done &= copy.groups < self._committed - groups
            if done.any():
                self._finish(copy, done)
                self._done.see(replace(copy.access, mask=done, offset=spread(copy.access.offset, done.shape)))
        self._copies = [copy for copy in self._copies if copy.waiting.any()]

    def bind(self, lanes: Array, barrier: int, kind: int) -> None:
        """Assign the lanes' copies of one kind (`BULK` or `NO_BARRIER`) to the phase of an mbarrier."""
        for copy in [copy for copy in self._copies if copy.barrier == kind]:
            mine = copy.waiting & lanes
            copy.waiting &= ~mine
            self._copies.append(replace(copy, waiting=mine, barrier=barrier))

    def land(self, barrier: int, rows: Array) -> None:
        """End the phase of an mbarrier in some blocks."""
        for copy in self._copies:
            if copy.barrier == barrier:
                copy.landed = copy.landed | rows

    def arrive(self, barrier: int, rows: Array) -> None:
        """Record that a thread of the blocks has waited for an ended phase."""
        for copy in self._copies:
            if copy.barrier == barrier:
                self._finish(copy, copy.waiting & (copy.landed & rows)[:, None])
        self._copies = [copy for copy in self._copies if copy.waiting.any()]

    def end(self) -> None:
        """Add a fault for each copy that still reads shared memory when its block ends."""
        for access, waiting in ((copy.access, copy.waiting) for copy in self._copies):
            sentence = "ends while its bulk copy still reads {array}: expected cp.async.bulk.wait_group.read before"
            self._faults.add("early", access.site, waiting, sentence, access.region, access.offset)

    def _finish(self, copy: _Copy, lanes: Array) -> None:
        self._mark(copy, lanes, -1)
        copy.waiting &= ~lanes

    def _mark(self, copy: _Copy, lanes: Array, step: int) -> None:
        row, lane = np.nonzero(lanes)
        if copy.access.width > MOST_OF_A_LANE:
            for block, first in zip(row, copy.places[row, lane], strict=True):
                self._pending[block, first : first + copy.access.width // GRANULE] += np.uint16(step & 0xFFFF)
            return
        for place in range(copy.access.width // GRANULE):
            np.add.at(self._pending, (row, copy.places[row, lane] + place), np.uint16(step & 0xFFFF))
