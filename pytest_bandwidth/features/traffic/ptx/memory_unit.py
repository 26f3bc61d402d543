"""Execute memory instructions: map addresses to regions, call the checkers, and access the bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from pytest_bandwidth.domain.errors import NotOnThisDevice
from pytest_bandwidth.features.traffic.ptx import loops, matrices, memory, program
from pytest_bandwidth.features.traffic.ptx.counts import TrafficCounter
from pytest_bandwidth.features.traffic.ptx.faults import Checker, FaultLog, within_bounds
from pytest_bandwidth.features.traffic.ptx.lanes import Array, Geometry, least, spread
from pytest_bandwidth.features.traffic.ptx.mbarriers import Mbarriers
from pytest_bandwidth.features.traffic.ptx.opcodes import halves
from pytest_bandwidth.features.traffic.ptx.races import BULK, AsyncCopies

Kind = Literal["load", "store", "atomic"]


@dataclass(eq=False)
class MemoryUnit:
    """Execute the loads, stores and atomics of one batch. regions: by the region number in an address.

    watches: whether to compare memory before and after each store or atomic. If it differs, `changed` and `progressed`
    become true; the interpreter resets them.
    """

    watches = changed = progressed = False
    # True during an access to another block's memory that not all checkers support.
    is_remote = False

    _regions: Mapping[int, memory.Region]
    _geometry: Geometry
    _checkers: Sequence[Checker]
    _faults: FaultLog
    copies: AsyncCopies
    # Only for kernels that use mbarriers or bulk copies.
    barriers: Mbarriers | None = None
    bulk_stores: AsyncCopies | None = None

    def __post_init__(self) -> None:
        self._shape = (self._geometry.rows, self._geometry.lanes)

    def access(self, step: program.Memory, address: Array, operands: tuple[Array, ...], lanes: Array) -> list[Array]:
        """Execute a load, a store, an atomic or an mbarrier operation; return its results.

        operands: the sources after the address. Those of a store may be followed by `undefined`, see `Access`.
        """
        if isinstance(step, program.Load):
            return self._load(step, address, lanes)
        if isinstance(step, program.Store):
            return self._store(step, address, operands, lanes)
        if isinstance(step, program.Atomic):
            return self._atomic(step, address, operands, lanes)
        assert isinstance(step, program.BarrierStep)
        return self._barrier(step, address, operands, lanes)

    def _load(self, step: program.Load, address: Array, lanes: Array) -> list[Array]:
        """Return one array per element of the access, of the smallest shape for it; 0 where a lane takes no part."""
        results: list[Array] | None = None
        for access in self._accesses(step, "load", address, lanes):
            self._check(access, counted=not isinstance(step, program.GroupProduct))
            values = self._gather(access, step)
            if results is None:
                results = values
            else:  # lanes of one instruction read several arrays
                results = [np.where(access.mask, new, old) for new, old in zip(values, results, strict=True)]
        return results or [np.zeros((1, 1), step.dtype)] * step.count

    def _store(self, step: program.Store, address: Array, given: tuple[Array, ...], lanes: Array) -> list[Array]:
        for access in self._accesses(step, "store", address, lanes, given[: step.count], given[step.count :]):
            self._check(access)
            before = self._held(access, step)
            self._scatter(access, step)
            self._compare(before, access, step)
            if isinstance(step, program.CopyStore):
                self.copies.issue(access)
        return []

    def group_product(self, step: program.GroupProduct, sources: tuple[Array, ...], lanes: Array) -> list[Array]:
        """Return the registers of a warp group's product, of (rows, lanes)."""
        if self._shape[1] % matrices.GROUP_LANES:
            raise NotOnThisDevice("wgmma in a block of no whole warp groups of 128 threads is not modelled")
        left, right, result = step.kinds
        adds, *words = (spread(source, self._shape) for source in sources)
        registers = step.columns // 8 * (2 if result == "f16" else 4)
        held, given, descriptor = words[:registers], words[registers:-1], words[-1]
        warps = (self._shape[0], -1, matrices.GROUP_LANES // 32, 32)
        if len(given) == 1:
            a = self._matrix(step, given[0], matrices.GROUP_ROWS, left, step.transposed[0], lanes)
        else:
            rows = matrices.eights(tuple(word.reshape(warps) for word in given), left, 2)
            a = rows.reshape(*rows.shape[:2], matrices.GROUP_ROWS, step.depth)
        b = self._matrix(step, descriptor, step.columns, right, step.transposed[1], lanes)
        c = tuple(np.where(adds, word, word.dtype.type(0)).reshape(warps) for word in held)
        return [word.reshape(self._shape) for word in matrices.added(-a if step.negative else a, b, c, result)]

    def _matrix(
        self, step: program.GroupProduct, descriptor: Array, extent: int, kind: str, transposed: bool, lanes: Array
    ) -> Array:
        """Read a matrix from shared memory: (rows, groups, extent, depth)."""
        groups = (self._shape[0], self._shape[1] // matrices.GROUP_LANES)
        first = descriptor.reshape(*groups, matrices.GROUP_LANES)[..., 0]
        nbytes = step.depth * matrices.BITS[kind] // 8
        places = matrices.chunk_addresses(first, extent, nbytes, transposed)
        parts = []
        for begin in range(0, places.shape[-1], matrices.GROUP_LANES):
            some = places[..., begin : begin + matrices.GROUP_LANES]
            missing = matrices.GROUP_LANES - some.shape[-1]
            wide = np.pad(some, ((0, 0), (0, 0), (0, missing)))
            reads = np.arange(self._shape[1])[None] % matrices.GROUP_LANES < some.shape[-1]
            found = self._load(step, wide.reshape(self._shape).astype(np.uint64), lanes & reads)
            words = np.stack([spread(word, self._shape) for word in found], axis=-1)
            parts.append(words.reshape(*groups, matrices.GROUP_LANES, 4)[..., : some.shape[-1], :])
        return matrices.from_chunks(np.concatenate(parts, axis=-2).view(np.uint32), kind, extent, transposed)

    def _atomic(self, step: program.Atomic, address: Array, operands: tuple[Array, ...], lanes: Array) -> list[Array]:
        """Return the values before each lane's update; lanes go one by one, in the order of blocks and threads.

        Returns one array per element of the access. operands: the elements' values, then for cas the new values.
        """
        old = [np.zeros(self._shape, step.dtype) for _ in range(step.count)]
        for access in self._accesses(step, "atomic", address, lanes, operands):
            self._check(access)
            before = self._held(access, step)
            index, mask, *values = (spread(a, self._shape) for a in (access.offset, access.mask, *operands))
            place = index >> (step.dtype.itemsize.bit_length() - 1)
            for element in range(step.count):
                self._update(step, access.region, place + element, mask, values[element], values[-1], old[element])
            self._compare(before, access, step)
        return old

    def _barrier(
        self, step: program.BarrierStep, address: Array, operands: tuple[Array, ...], lanes: Array
    ) -> list[Array]:
        """Execute an mbarrier operation; return the tokens, or whether phases have ended. It is not counted."""
        assert self.barriers is not None
        kind: Kind = "load" if step.operation == "test" else "atomic"
        if step.operation in ("init", "inval"):
            kind = "store"
        results = [np.zeros((1, 1), np.bool_ if kind == "load" else np.int64)]
        for access in self._accesses(step, kind, address, lanes):
            self._check(access, counted=False)
            if access.region.kind != "shared":
                sentence = "has an mbarrier in {array}, which is not shared memory"
                self._faults.add("out-of-bounds", step.site, access.mask, sentence, access.region, access.offset)
                continue
            before = self._held(access, step)
            results = [self.barriers.act(step, access, operands)]
            self._compare(before, access, step)
        return results

    def bulk_copy(self, step: program.BulkCopy, to: Array, start: Array, nbytes: Array, lanes: Array) -> None:
        """Copy pieces of memory at once; a later wait is still needed for writes, and for reads of shared memory."""
        assert self.bulk_stores is not None
        lanes, nbytes = spread(lanes, self._shape), spread(nbytes, self._shape)
        for size in map(int, np.unique(nbytes[lanes])):
            mine = lanes & (nbytes == size)
            if size % program.BULK_BYTES:
                sentence = f"copies {size} bytes, expected a multiple of {program.BULK_BYTES}"
                self._faults.add("misaligned", step.site, mine, sentence)
            count = size // program.BULK_BYTES * (program.BULK_BYTES // step.reads.dtype.itemsize)
            reads, writes = replace(step.reads, count=count), replace(step.writes, count=count)
            for read in self._accesses(reads, "load", start, mine) if count else ():
                for write in self._accesses(writes, "store", to, read.mask):
                    self._copy_bytes(replace(read, mask=write.mask), write)

    def _copy_bytes(self, read: memory.Access, write: memory.Access) -> None:
        assert self.bulk_stores is not None
        for access in (read, write):
            self._check(access, counted=access.region.kind == "global")
        begin, end = spread(read.offset, self._shape), spread(write.offset, self._shape)
        for row, lane in np.argwhere(spread(write.mask, self._shape)):
            source, target = read.region, write.region
            piece = source.data[row * source.block_step, begin[row, lane] :][: read.width]
            target.data[row * target.block_step, end[row, lane] :][: read.width] = piece
        self.changed = self.progressed = True
        if write.region.kind == "shared":
            self.copies.issue(write, BULK)
        else:
            self.bulk_stores.issue(read)

    def _held(self, access: memory.Access, step: program.Memory) -> Array | None:
        """Return the bits in memory at the lanes' places; None unless `watches`."""
        if not self.watches:
            return None
        region, data = access.region, access.region.typed(np.dtype(f"u{step.dtype.itemsize}"))
        row, lane = np.nonzero(spread(access.mask, self._shape))
        place = spread(access.offset, self._shape)[row, lane] // step.dtype.itemsize
        rows = row * region.block_step + lane * region.thread_step
        return np.stack([data[rows, place + element] for element in range(step.count)])

    def _compare(self, before: Array | None, access: memory.Access, step: program.Memory) -> None:
        now = self._held(access, step)
        if before is not None and now is not None and not np.array_equal(before, now):
            self.changed = self.progressed = True

    @staticmethod
    def _update(
        step: program.Atomic, region: memory.Region, place: Array, mask: Array, value: Array, other: Array, old: Array
    ) -> None:
        if step.type in ("f16", "bf16", "f16x2", "bf16x2", "b16"):
            _update_halves(step, region, place, mask, value, other, old)
            return
        data = region.typed(step.dtype)
        if step.dtype.kind == "f":
            loops.atomic_float(data, region.block_step, region.thread_step, place, mask, value, old)
        else:
            code = loops.ATOMIC_CODES[step.operation]
            loops.atomic_integer(data, region.block_step, region.thread_step, place, mask, code, value, other, old)

    def _check(self, access: memory.Access, counted: bool = True) -> None:
        """Pass an access to the checkers. counted: False for reads of tensor cores, which are no requests of a warp."""
        for checker in self._checkers:
            if (counted or not isinstance(checker, TrafficCounter)) and (checker.sees_remote or not self.is_remote):
                checker.see(access)

    def _accesses(
        self,
        step: program.Memory,
        kind: Kind,
        address: Array,
        lanes: Array,
        values: tuple[Array, ...] = (),
        undefined: tuple[Array, ...] = (),
    ) -> Iterator[memory.Access]:
        """Split the access by region, without the lanes that are out of bounds."""
        start = np.uint64((step.offset + memory.WINDOWS.get(step.space, 0)) & 0xFFFFFFFFFFFFFFFF)
        if address.dtype.itemsize < 8:  # signed: compilers use places before the window with offsets into it
            address = address.view(np.int32).astype(np.int64).view(np.uint64)
        if start:
            address = address + start
        shape = tuple(map(max, address.shape, lanes.shape))
        low, high, together, count = loops.span(spread(address, shape), spread(lanes, shape))
        if count == 0:
            return
        if low >> memory.REGION_SHIFT == high >> memory.REGION_SHIFT:
            parts = [(int(low) >> memory.REGION_SHIFT, lanes)]
        else:
            region_of = address >> np.uint64(memory.REGION_SHIFT)
            here = np.unique(spread(region_of, shape)[spread(lanes, shape)])
            parts = [(int(number), lanes & (region_of == number)) for number in here]
        whole = len(parts) == 1
        for number, mask in parts:
            region = self._regions.get(number)
            base = memory.region_base(number)
            offset = (address - np.uint64(base)).view(np.int64)
            first, end = int(low) - base, int(high) - base + step.width
            if region is None and not self._faults.faults:
                first_address = int(spread(address, shape)[spread(mask, shape)][0])
                memory.refuse_addresses_in(self._regions.values(), first_address, self._faults.line_of(step.site))
            if region is None or not whole or not self._fits(step, kind, region, first, end, int(together)):
                place = address.view(np.int64) if region is None else offset
                mask = within_bounds(self._faults, step.site, kind, region, place, mask, step.width, step.align)
                if region is None or not mask.any():
                    continue
                first, end = max(first, 0), min(end, region.nbytes)
            about = (step.site, kind, region, offset, mask, step.width, first, end, values, step.ordered, undefined)
            yield memory.Access(*about, step.fresh)

    @staticmethod
    def _fits(step: program.Memory, kind: Kind, region: memory.Region, first: int, end: int, together: int) -> bool:
        """Return whether every lane is inside the region (inside one variable of it), aligned and allowed."""
        if together & (step.align - 1) or (kind != "load" and not region.writable):
            return False
        if region.kind == "shared" or region.kind == "local":
            return any(s.address <= first and end <= s.address + s.size for s in region.symbols)
        return first >= 0 and end <= region.nbytes

    def _gather(self, access: memory.Access, step: program.Load) -> list[Array]:
        region = access.region
        unsigned = np.dtype(f"u{step.dtype.itemsize}")
        offset, mask = least(access.offset, access.mask)
        if region.block_step or region.thread_step:
            shape = (self._shape[0], self._shape[1] if region.thread_step else offset.shape[1])
            offset, mask = spread(offset, shape), spread(access.mask if region.thread_step else mask, shape)
        data, shift = region.typed(unsigned), unsigned.itemsize.bit_length() - 1
        values = []
        for element in range(step.count):
            out = np.empty(offset.shape, unsigned)
            loops.gather(data, region.block_step, region.thread_step, offset, shift, mask, element, out)
            values.append(out.view(step.dtype))
        return values

    def _scatter(self, access: memory.Access, step: program.Store) -> None:
        region = access.region
        unsigned = np.dtype(f"u{step.dtype.itemsize}")
        shape = np.broadcast_shapes(access.offset.shape, access.mask.shape, *(value.shape for value in access.values))
        shape = (
            self._shape[0] if region.block_step else shape[0],
            self._shape[1] if region.thread_step else shape[1],
        )
        offset, shift = spread(access.offset, shape), unsigned.itemsize.bit_length() - 1
        mask, data = spread(access.mask, shape), region.typed(unsigned)
        for element, value in enumerate(access.values):
            stored = spread(value.view(unsigned), shape)
            loops.scatter(data, region.block_step, region.thread_step, offset, shift, mask, element, stored)


def _update_halves(
    step: program.Atomic, region: memory.Region, index: Array, mask: Array, value: Array, other: Array, old: Array
) -> None:
    """Update 16-bit floats, which hardware and Numba lack as scalars, in rounds of one lane per place.

    Fills `old`; several lanes at one place go in the order of blocks and threads.
    """
    rows = {"add": halves.arithmetic(np.add), "min": halves.minmax("min"), "max": halves.minmax("max")}
    function = None if step.operation == "cas" else rows[step.operation]({"half": step.type})
    data = region.typed(step.dtype)
    first_row = spread(np.arange(len(index))[:, None] * region.block_step, index.shape)
    pending = np.flatnonzero(mask)
    keys = first_row.reshape(-1) * np.int64(data.shape[1]) + index.reshape(-1)
    while len(pending):
        _, first = np.unique(keys[pending], return_index=True)
        turn = pending[first]
        row, place = np.divmod(keys[turn], data.shape[1])
        was = data[row, place]
        old.reshape(-1)[turn] = was
        given, instead = value.reshape(-1)[turn], other.reshape(-1)[turn]
        data[row, place] = np.where(was == given, instead, was) if function is None else function(was, given)
        pending = np.delete(pending, first)


class ClusterMemory(MemoryUnit):
    """Execute instructions of blocks that access each other's shared memory.

    An access to another block's memory is executed, checked and reported as one of that block's same thread.
    """

    _arrives = False

    def bulk_copy(self, step: program.BulkCopy, to: Array, start: Array, nbytes: Array, lanes: Array) -> None:
        places = ((to, step.writes), (start, step.reads))
        if any((self._targets(at, part) * lanes).any() for at, part in places if part.space == "shared"):
            raise NotOnThisDevice("cp.async.bulk into another block's shared memory is not modelled")
        super().bulk_copy(step, to, start, nbytes, lanes)

    def _targets(self, address: Array, step: program.Memory) -> Array:
        """Return the rank, plus one, of the block whose shared memory each lane addresses; 0 for any other place.

        The offset is added first: compilers use places before a block's memory with offsets into it.
        """
        address = spread(address, self._shape)
        if step.space == "shared":
            place = address.view(f"i{address.dtype.itemsize}").astype(np.int64) + step.offset
            return np.maximum(place, 0) >> memory.RANK_AT
        inside = address >> np.uint64(memory.REGION_SHIFT) == memory.SHARED_REGION
        place = (address - np.uint64(memory.region_base(memory.SHARED_REGION))).view(np.int64) + step.offset
        return np.where(inside, np.maximum(place, 0) >> memory.RANK_AT, 0)

    def access(self, step: program.Memory, address: Array, operands: tuple[Array, ...], lanes: Array) -> list[Array]:
        """Execute the access for the lanes of each pair of ranks, in the rows of the accessed block."""
        targets = np.zeros((1, 1), np.int64)
        if step.space in ("shared", "generic"):
            targets = self._targets(address, step) * spread(lanes, self._shape)
        if not targets.any():
            return super().access(step, address, operands, lanes)
        peers, ranks = self._geometry.peers, self._geometry.cluster_ranks[:, 0]
        own = super().access(step, address, operands, lanes & (targets == 0))
        results = [spread(result, self._shape).copy() for result in own]
        for target in map(int, np.unique(targets[targets > 0])):
            for source in range(peers.shape[1]):
                here = np.flatnonzero(ranks == source)
                mine = targets[here] == target
                if not mine.any():
                    continue
                if target > peers.shape[1]:
                    raise NotOnThisDevice(f"mapa of rank {target - 1} in a cluster of {peers.shape[1]} blocks")
                there = peers[here, target - 1]
                address_there, who, *given = (
                    self._moved(a, here, there) for a in (address, targets == target, *operands)
                )
                address_there -= address_there.dtype.type(target << memory.RANK_AT) * who
                # A block's clocks do not include arrivals from other blocks.
                self._arrives = self._arrives or isinstance(step, program.BarrierStep)
                self.is_remote = self._arrives
                reached = super().access(step, address_there, tuple(given), who)
                self.is_remote = False
                for result, found in zip(results, reached, strict=True):
                    result[here] = np.where(mine, spread(found, self._shape)[there], result[here])
        return results

    def _moved(self, array: Array, here: Array, there: Array) -> Array:
        moved = np.zeros(self._shape, array.dtype)
        moved[there] = spread(array, self._shape)[here]
        return moved
