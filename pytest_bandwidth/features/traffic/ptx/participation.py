"""Find warp instructions whose lanes do not all take part, and track undefined values to their use.

A lane must be in its own mask. A shuffle reads an undefined value from a lane that has exited, does not exist, cannot
reach a shuffle any more or is not in the mask. A read of unwritten shared or local memory is undefined as well. The use
of an undefined value is a fault, so such values are tracked from register to register. It is also a fault if a lane in
a mask waits at __syncthreads() instead. It is no fault if the lane has exited, or is in another branch, since it may
execute the same instruction there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from pytest_bandwidth.features.traffic.ptx import memory, program
from pytest_bandwidth.features.traffic.ptx.faults import NOWHERE, UNWRITTEN, FaultLog
from pytest_bandwidth.features.traffic.ptx.lanes import (
    ALL_LANES,
    EXCHANGES,
    WARP,
    Array,
    Geometry,
    exchange,
    packed,
    spread,
)

_MASKED = EXCHANGES.keys() - {"active mask"}
# Opcodes whose result may not depend on an undefined operand.
_CHOICES = ("selp", "and", "or")
_MATRICES = ("ldmatrix", "stmatrix", "mma", "wmma")
_NO_LANE = np.zeros((1, 1), np.bool_)
# The origin of undefined values: an instruction, and the memory that it read; None for a shuffle.
Origin: TypeAlias = tuple[int, memory.Region | None]
Marks: TypeAlias = dict[Origin, Array]


class Participation:
    """Track undefined values and the lanes of warp instructions in one batch.

    An undefined value has a mark for each of its origins, int64: source · 2¹⁰ + the thread that read it + 1; 0 for
    lanes whose value is defined. The source is the place in memory in bytes, or the lane (plus 32 if it is not in the
    mask).
    """

    def __init__(self, faults: FaultLog, geometry: Geometry, kernel: program.Kernel) -> None:
        self._faults, self._sites, self._blocks = faults, kernel.sites, kernel.blocks
        self._shape = (geometry.rows, geometry.lanes)
        self._in_clusters = geometry.cluster_blocks > 1
        self._numbers = geometry.numbers
        # The lanes that have not exited, and the lanes that may still execute a shuffle.
        self._alive = self._active = geometry.present
        # By register.
        self.undefined: dict[int, Marks] = {}
        self._origins: dict[tuple[str, int, memory.Region | None, str], Origin] = {}
        # By instruction and mask: how often each lane executed it without some lane of the mask since the last block
        # barrier.
        self._alone: dict[tuple[str, int], Array] = {}
        self._last_sites: dict[tuple[str, int], int] = {}

    def go(self, number: int, lanes: Array) -> None:
        """Note that lanes go on at a basic block."""
        if self._blocks[0].shuffles and not self._blocks[number].shuffles:
            self._active = self._active & ~lanes

    def exit(self, lanes: Array) -> None:
        self._alive, self._active = self._alive & ~lanes, self._active & ~lanes

    def use(self, registers: Iterable[program.Read], lanes: Array, site: int) -> None:
        """Add a fault where the lanes use undefined values, which then count as defined, to report them once."""
        for register in registers:
            for origin, marks in self.undefined.get(register.register, {}).items():
                self._report(origin, np.where(lanes, marks, 0), site)
            self._mark((program.Write(register.register),), {}, lanes)

    def _report(self, origin: Origin, marks: Array, used_at: int) -> None:
        row, lane = np.nonzero(spread(marks, self._shape))
        if not len(row):
            return
        marks = spread(marks, self._shape)[row, lane] - 1
        readers, found = marks & 1023, marks >> 10
        hits, places = np.zeros(self._shape, np.bool_), np.zeros(self._shape, np.int64)
        hits[row, readers], places[row, readers] = True, found
        site, region = origin
        if region is not None:
            where, use = self._faults.line_of(site), self._faults.line_of(used_at)
            sentence = UNWRITTEN + ("" if where == use else f"; {use} uses it")
            self._faults.add("uninitialised", site, hits, sentence, region, places)
            return
        reader, source = np.argwhere(hits)[0][1] % WARP, int(places[hits][0])
        why = "is not active" if source < WARP else "its mask does not name"
        sentence = f"uses an undefined value: lane {reader} reads lane {source % WARP}, which {why}"
        self._faults.add("participation", site, hits, sentence)

    def compute(self, step: program.Compute, operands: Sequence[Array], lanes: Array) -> None:
        """Mark the results of undefined operands. lanes: those for which the step's guard holds."""
        marks = self._of_sources(step)
        if marks and self._sites[step.site].opcode.split(".")[0] in _CHOICES:
            differs = _bits(step.function(*self._otherwise(step, operands))) != _bits(step.function(*operands))
            marks = {origin: np.where(differs, one, 0) for origin, one in marks.items()}
        self._mark(step.targets, marks, lanes)

    def _of_sources(self, step: program.Step) -> Marks:
        marks: Marks = {}
        for source in step.sources:
            marks = _joined(marks, self.undefined.get(source.register, {}))
        return marks

    def _otherwise(self, step: program.Step, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Return a step's operands with every undefined bit inverted."""
        found = []
        for values, source in zip(operands, step.sources, strict=True):
            bits = values if values.dtype == np.bool_ else _bits(values)
            where = _somewhere(self.undefined.get(source.register, {}))
            found.append(np.where(where, ~bits, bits).view(values.dtype))
        return tuple(found)

    def _mark(self, targets: Sequence[program.Write | None], marks: Marks, lanes: Array) -> None:
        """Set the marks of registers that lanes write; removes the marks of defined values."""
        for target in targets:
            if target is None:
                continue
            old = self.undefined.pop(target.register, {})
            planes: Marks = {
                origin: np.where(lanes, marks.get(origin, NOWHERE), old.get(origin, NOWHERE))
                for origin in {**old, **marks}
            }
            now = {origin: spread(plane, self._shape) for origin, plane in planes.items() if plane.any()}
            if now:
                self.undefined[target.register] = now

    def _origin(self, site: int, region: memory.Region | None = None, array: str = "") -> Origin:
        """Return one origin for all instructions of a line that read an array: loops are unrolled."""
        where = self._sites[site]
        return self._origins.setdefault((where.file, where.line or -where.ptx_line, region, array), (site, region))

    def load(self, step: program.Step, unwritten: Iterable[tuple[memory.Access, Sequence[Array]]]) -> None:
        """Mark the values that were read from unwritten memory. unwritten: see `InitialisationChecker`.

        Such a read is a fault at once if no register gets the value, or if it may be another block's memory.
        """
        for access, planes in unwritten:
            row, lane = np.argwhere(np.any(planes, axis=0))[0]
            array = access.region.describe(int(spread(access.offset, self._shape)[row, lane]))
            origin = self._origin(step.site, access.region, array)
            # The step may read another block's shared memory.
            remote = (
                "shared::cluster" in self._sites[step.site].opcode or getattr(step, "space", "") not in memory.WINDOWS
            )
            if (
                not isinstance(step, program.Load)
                or isinstance(step, program.GroupProduct)
                or (remote and self._in_clusters)
            ):
                fresh = self._mark_of(access.offset)
                self._report(origin, np.where(access.mask & np.any(planes, axis=0), fresh, 0), step.site)
                continue
            width, nbytes = len(planes) // step.count, access.width // step.count
            for element, target in enumerate(step.targets):
                # In a partly written word the rest may be padding: structures are copied by whole words.
                of_word = max(1, 4 * width // nbytes)
                of_element = np.array(planes[element * width : (element + 1) * width])
                hit = of_element.reshape(-1, min(width, of_word), *of_element.shape[1:]).all(axis=1).any(axis=0)
                fresh = self._mark_of(access.offset + element * nbytes)
                self._mark((target,), {origin: np.where(hit, fresh, 0)}, access.mask)

    def _mark_of(self, place: Array) -> Array:
        """Return a mark for each lane, from the byte offset that it read."""
        return (place << 10 | self._numbers) + 1

    def stored(self, step: program.Store, address: Array, lanes: Array) -> tuple[Array, ...]:
        """Return which lanes store an undefined value, for each element of shared or local memory; () for no lanes.

        A store elsewhere is a fault, and a store of a shuffle's undefined value always is. A partly undefined vector
        may be a structure with padding, which compilers copy whole.
        """
        values = step.sources[1:]
        if not self.undefined or not any(value.register in self.undefined for value in values):
            return ()
        inside = np.isin(address >> memory.REGION_SHIFT, (memory.SHARED_REGION, memory.LOCAL_REGION)) | (
            step.space in memory.WINDOWS
        )
        found = []
        padded = ~np.all([spread(_somewhere(self.undefined.get(v.register, {})), self._shape) for v in values], axis=0)
        for value in values:
            undefined: Array = _NO_LANE
            for origin, marks in self.undefined.get(value.register, {}).items():
                passed_on = (inside | padded) & (origin[1] is not None)
                self._report(origin, np.where(lanes & ~passed_on, marks, 0), step.site)
                undefined = undefined | (passed_on & inside & (marks != 0))
            found.append(undefined)
        return tuple(found)

    def act(self, step: program.Step, sources: tuple[Array, ...], lanes: Array) -> None:
        """Track a step that is no computation."""
        masked = isinstance(step, program.WarpBarrier) or (isinstance(step, program.WarpStep) and step.name in _MASKED)
        if isinstance(step, program.WarpStep) and step.name == "shuffle":
            self._shuffle(step, sources, lanes)
        elif self.undefined and isinstance(step, program.WarpStep) and step.name in _MATRICES:
            self._matrices(step, sources, lanes)
        elif self.undefined:
            self.use(step.sources[:1] if isinstance(step, program.Store) else step.sources, lanes, step.site)
            self._mark(step.targets, {}, lanes)
        if masked and not _whole_warps(lanes, sources[-1]):
            self._check_mask(step, spread(sources[-1], self._shape), spread(lanes, self._shape))

    def _matrices(self, step: program.WarpStep, sources: tuple[Array, ...], lanes: Array) -> None:
        """Mark the elements that depend on undefined elements of any lane of the warp."""
        found, other = (
            exchange(step.function, given, lanes, self._shape) for given in (sources, self._otherwise(step, sources))
        )
        warps = (self._shape[0], -1, WARP)
        of_warps: Marks = {}
        for origin, one in self._of_sources(step).items():
            latest = spread(one, self._shape).reshape(warps).max(axis=2)
            of_warps[origin] = np.repeat(latest, WARP, axis=1)
        for target, one, two in zip(step.targets, found, other, strict=False):
            differs = _bits(one) != _bits(two)
            self._mark((target,), {origin: np.where(differs, of, 0) for origin, of in of_warps.items()}, lanes)

    def _check_mask(self, step: program.Step, members: Array, lanes: Array) -> None:
        named = members >> (self._numbers % WARP).astype(np.uint32) & np.uint32(1) != 0
        name = self._sites[step.site].opcode
        what = f"executes {name} with a mask that does not name it"
        self._faults.add("participation", step.site, lanes & ~named, what)
        warps = (self._shape[0], -1, WARP)
        absent = packed(spread(self._alive, self._shape).reshape(warps)) & ~packed(lanes.reshape(warps))
        alone = lanes & ((members.reshape(warps) & absent) != 0).reshape(self._shape)
        for mask in {*np.unique(members[alone]).tolist(), *(mask for known, mask in self._alone if known == name)}:
            self._alone[name, mask] = self._alone.get((name, mask), 0) + (lanes & (members == mask))
            self._last_sites[name, mask] = step.site

    def block_barrier(self, rows: Array) -> None:
        """Add a fault where lanes wait at a barrier but have executed fewer instructions than others of their mask."""
        numbers, warps = np.arange(WARP), (self._shape[0], -1, WARP)
        alive = spread(self._alive & rows, self._shape).reshape(warps)
        for (name, mask), counts in list(self._alone.items()):
            named = (mask >> numbers & 1) != 0
            times = counts.reshape(warps) * named
            most = times.max(axis=2, keepdims=True)
            behind = alive & named & (times < most)
            if behind.any():
                hits = (times == most) & behind.any(axis=2, keepdims=True)
                lane = int(np.argwhere(behind)[0][2])
                what = f"executes {name} without lane {lane}, which its mask names"
                self._faults.add("participation", self._last_sites[name, mask], hits.reshape(self._shape), what)
            self._alone[name, mask] = np.where(rows, 0, counts)

    def _shuffle(self, step: program.WarpStep, sources: tuple[Array, ...], lanes: Array) -> None:
        if not self.undefined and _whole_warps(lanes, sources[-1]):
            return
        members = sources[-1]

        def from_lane(plane: Array) -> Array:
            return exchange(step.function, (plane, *sources[1:]), lanes, self._shape)[0]

        source = from_lane(self._numbers % WARP).astype(np.uint32)
        unnamed = (members >> source & np.uint32(1)) == 0
        unnamed &= source != self._numbers % WARP
        active = from_lane(self._active)
        for (name, mask), counts in self._alone.items():
            if name == self._sites[step.site].opcode:  # executed earlier, in another branch
                active = active | ((members == mask) & (from_lane(counts) > counts))
        wrong = ~active | unnamed
        fresh = np.where(wrong, (source + WARP * unnamed << 10 | self._numbers) + 1, 0)
        operand = self.undefined.get(step.sources[0].register, {})
        moved = {origin: np.where(wrong, 0, from_lane(plane)) for origin, plane in operand.items()}
        self.use(step.sources[1:], lanes, step.site)
        self._mark(step.targets[:1], _joined({self._origin(step.site): fresh}, moved), lanes)
        self._mark(step.targets[1:], {}, lanes)


def _whole_warps(lanes: Array, members: Array) -> bool:
    """Return whether whole warps execute, with masks of all their lanes."""
    if not (members == ALL_LANES).all():
        return False
    warps = lanes.reshape(len(lanes), -1, min(WARP, lanes.shape[1]))
    return bool((warps.all(axis=2) == warps.any(axis=2)).all())


def _joined(one: Marks, other: Marks) -> Marks:
    return one | {origin: np.maximum(marks, one.get(origin, NOWHERE)) for origin, marks in other.items()}


def _somewhere(marks: Marks) -> Array:
    """Return the lanes with any mark."""
    lanes: Array = _NO_LANE
    for one in marks.values():
        lanes = lanes | (one != 0)
    return lanes


def _bits(values: Any) -> Array:
    return values.view(f"u{values.dtype.itemsize}")
