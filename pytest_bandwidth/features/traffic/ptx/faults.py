"""Find accesses out of bounds, misaligned or read-only, which are not executed, and reads of unwritten memory.

Checkers get each access while a kernel runs. The first fault of each kind, line and array is described, others counted.

An empty array is filled with a pattern of 16 bytes (`fill_untouched`). At a launch, each piece that still has the
pattern counts as never written, by a kernel or by NumPy.
A value equals the pattern by chance with a probability of 2⁻¹²⁸.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pytest_bandwidth.features.traffic.ptx import loops
from pytest_bandwidth.features.traffic.ptx.lanes import Array, Geometry, least, spread
from pytest_bandwidth.features.traffic.ptx.memory import Access, Region, flat_bytes
from pytest_bandwidth.features.traffic.ptx.program import Site, readable_name

# The most bytes that one instruction loads into registers.
WIDEST_REGISTERS = 32
VERBS = {"load": "reads", "store": "writes", "atomic": "updates"}
_OF_NO_ADDRESS = ("barrier", "trap", "participation")
UNWRITTEN = "reads {array} at byte {place}, where nothing defined was written before"
NOWHERE = np.zeros((1, 1), np.int64)
# Random bytes.
_PATTERN = np.array([0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4], np.uint64)


@dataclass(frozen=True, slots=True)
class AccessFault:
    """Describe a fault of a thread.

    code: ``out-of-bounds``, ``misaligned``, ``uninitialised``, ``race``, ``early``, ``read-only``, ``barrier``,
    ``participation`` or ``trap``.
    threads: the number of accesses of this line with the same fault in the same array.
    """

    code: str
    text: str
    array: str
    block: str
    thread: str
    file: str
    line: int
    threads: int = 1


class Checker(ABC):
    """Check one batch of blocks: `see` gets every access that is in bounds, before it is executed.

    sees_remote: also accesses to other blocks' shared memory, after arrivals at other blocks' mbarriers.
    """

    geometry: Geometry
    sees_remote = True

    def begin(self, geometry: Geometry) -> None:
        """Begin a new batch of blocks with new shared and local memory."""
        self.geometry = geometry

    @abstractmethod
    def see(self, access: Access) -> None: ...


class FaultLog:
    _geometry: Geometry

    def __init__(self, sites: Sequence[Site]) -> None:
        self._sites = sites
        self._found: dict[tuple[str, int, str], AccessFault] = {}

    def begin(self, geometry: Geometry) -> None:
        self._geometry = geometry

    def add(
        self, code: str, site: int, hits: Array, sentence: str, region: Region | None = None, offset: Array = NOWHERE
    ) -> None:
        """Add a fault of the lanes in `hits`, if any. The sentence follows the thread's name.

        hits: bool, broadcastable to (rows, lanes); offset: bytes in the region, if there is one.
        """
        if not hits.any():
            return
        geometry = self._geometry
        shape = np.broadcast_shapes(hits.shape, offset.shape)
        everywhere = spread(hits, shape)
        row, lane = (int(place) for place in np.argwhere(everywhere)[0])
        place = int(spread(offset, shape)[row, lane])
        array = "" if region is None else region.describe(place)
        where = self._sites[site]
        threads = (
            int(np.count_nonzero(everywhere)) * (geometry.rows // shape[0]) * (1 if shape[1] > 1 else geometry.threads)
        )
        key = (code, where.line or -where.ptx_line, array)
        if key in self._found:
            self._found[key] = replace(self._found[key], threads=self._found[key].threads + threads)
            return
        block, thread = geometry.block_name(int(geometry.blocks[row])), geometry.thread_name(lane)
        address = place if region is None else region.base + place
        what = sentence.format(array=array or "no array", place=place)
        at = "" if code in _OF_NO_ADDRESS else f" (address {address:#x})"
        text = f"{where.place}: thread {thread} of block {block} {what}{at}"
        self._found[key] = AccessFault(code, text, array, block, thread, where.file, where.line, threads)

    def line_of(self, site: int) -> str:
        where = self._sites[site]
        return f"line {where.line}" if where.line else f"PTX line {where.ptx_line}"

    @property
    def faults(self) -> tuple[AccessFault, ...]:
        return tuple(self._found.values())


def within_bounds(
    faults: FaultLog, site: int, kind: str, region: Region | None, offset: Array, mask: Array, width: int, align: int
) -> Array:
    """Return the mask without the lanes whose access is a fault, and report those. Called only for possible faults."""
    verb = VERBS[kind]
    if region is None:
        faults.add("out-of-bounds", site, mask, f"{verb} {width} bytes that belong to no array", None, offset)
        return np.zeros((1, 1), np.bool_)
    outside = (offset < 0) | (offset > region.nbytes - width)
    if region.kind == "shared" or region.kind == "local":
        starts = [(symbol.address, symbol.address + symbol.size - width) for symbol in region.symbols]
        outside = outside | ~np.any([(offset >= first) & (offset <= last) for first, last in starts], axis=0)
    misaligned = (offset & (align - 1)) != 0
    inside = f"{{array}}, which has {region.nbytes} bytes" if region.kind == "global" else "{array}"
    inside += _dynamic_shared(region, offset, mask & outside)
    at = f"{verb} {width} bytes at byte {{place}} of"
    faults.add("out-of-bounds", site, mask & outside, f"{at} {inside}", region, offset)
    no_multiple = f"{at} {{array}}, which is not a multiple of {align}"
    faults.add("misaligned", site, mask & ~outside & misaligned, no_multiple, region, offset)
    fine = mask & ~(outside | misaligned)
    if kind != "load" and not region.writable:
        faults.add("read-only", site, fine, f"{verb} {{array}}, which is read-only", region, offset)
        return np.zeros((1, 1), np.bool_)
    return fine


def _dynamic_shared(region: Region, offset: Array, hits: Array) -> str:
    """Return a note on the launch's dynamic shared memory, if the first hit is beyond it."""
    dynamic = region.symbols[-1] if region.kind == "shared" else None
    if dynamic is None or not hits.any():
        return ""
    shape = np.broadcast_shapes(hits.shape, offset.shape)
    if spread(offset, shape)[spread(hits, shape)][0] < dynamic.address:
        return ""
    given = f"only {dynamic.size} bytes" if dynamic.size else "none"
    return f": {readable_name(dynamic.name)} is dynamic shared memory, and the launch gives {given} (shared_mem=)"


def fill_untouched(array: Array) -> None:
    """Fill the whole allocation of an array, of any dtype, with the pattern for "never written"."""
    pieces, rest = _in_pieces(array)
    pieces[:], rest[:] = _PATTERN, _PATTERN.view(np.uint8)[: rest.size]


def untouched(array: Array) -> Array:
    """Return whether each byte of the array's allocation has the pattern, in pieces of 16: bool of (bytes,)."""
    pieces, rest = _in_pieces(array)
    same = (pieces[:, 0] == _PATTERN[0]) & (pieces[:, 1] == _PATTERN[1])
    at_end = rest.size >= 4 and (rest == _PATTERN.view(np.uint8)[: rest.size]).all()
    return np.append(np.repeat(same, 16), np.full(rest.size, at_end))


def _in_pieces(array: Array) -> tuple[Array, Array]:
    """Return an allocation as rows of two words of 8 bytes, and the bytes of the rest."""
    data, _ = flat_bytes(array)
    whole = data.size // 16 * 16
    return data[:whole].view(np.uint64).reshape(-1, 2), data[whole:]


class InitialisationChecker(Checker):
    """Flag written memory, and find reads of unwritten memory. written: for each region of an array that was declared
    empty, or of a variable without a value, uint8 flags of (1, bytes), 1 where initialised.

    A read of unwritten shared or local memory is a fault only where the value is used. unwritten: such accesses since
    the list was last cleared, each with the lanes that read unwritten memory, bool, for each granule of its width.
    """

    def __init__(self, faults: FaultLog, granule_bytes: Mapping[str, int], written: Mapping[Region, Array]) -> None:
        self._faults = faults
        self._granules = granule_bytes
        self._written = dict(written)
        self._windows: dict[Region, Array] = {}
        self.unwritten: list[tuple[Access, list[Array]]] = []

    def begin(self, geometry: Geometry) -> None:
        super().begin(geometry)
        self._windows = {}

    def see(self, access: Access) -> None:
        region = access.region
        if region.kind == "shared" or region.kind == "local":
            self._see_window(access)
        elif region in self._written:
            self._check(access, self._written[region], 1, *least(access.offset, access.mask))

    def _see_window(self, access: Access) -> None:
        """Check an access to shared or local memory.

        Flags have one row as long as all blocks (for local memory, all threads) make the same accesses.
        """
        region, geometry = access.region, self.geometry
        granule = self._granules.get(region.kind, 1)
        flags = self._windows.get(region)
        if flags is None:
            flags = self._windows[region] = np.zeros((1, -(-region.nbytes // granule)), np.uint8)
        offset, mask = access.offset, access.mask
        columns = max(offset.shape[1], mask.shape[1])
        if region.thread_step:  # local: a row for each thread, unless the whole block accesses one place
            alike = offset.shape == (1, 1) and mask.shape == (1, 1)
            alike = alike or (offset.shape == (1, 1) and bool((mask == geometry.present).all()))
        else:
            alike = offset.shape[0] == 1 and mask.shape[0] == 1
        alike = alike and not access.undefined
        if not alike and len(flags) == 1 and len(region.data) > 1:
            flags = self._windows[region] = np.repeat(flags, len(region.data), axis=0)
        if len(flags) == 1:
            self._check(access, flags, granule, *least(offset, mask))
            return
        shape = (geometry.rows, geometry.lanes if region.thread_step else columns)
        self._check(access, flags, granule, spread(offset, shape), spread(mask, shape))

    def _check(self, access: Access, flags: Array, granule: int, offset: Array, mask: Array) -> None:
        count = max(1, access.width // granule)
        block_step, thread_step = (0, 0) if len(flags) == 1 else (access.region.block_step, access.region.thread_step)
        shift = granule.bit_length() - 1
        if access.kind != "store":
            hit = np.zeros(offset.shape, np.bool_)
            if loops.find_unmarked(flags, block_step, thread_step, offset, shift, mask, count, hit):
                if access.kind == "load" and access.region in self._windows:
                    planes = [hit]  # one is enough for a bulk copy
                    if access.width <= WIDEST_REGISTERS:
                        planes = [np.zeros(offset.shape, np.bool_) for _ in range(count)]
                        for place, one in enumerate(planes):
                            at = offset + place * granule
                            loops.find_unmarked(flags, block_step, thread_step, at, shift, mask, 1, one)
                    self.unwritten.append((access, planes))
                    return
                sentence = UNWRITTEN
                if access.region.kind == "const":
                    sentence = "reads the __constant__ {array}, which has no value: set it with kernel.set"
                self._faults.add("uninitialised", access.site, hit & access.mask, sentence, access.region, offset)
        if access.kind != "load":
            loops.mark(flags, block_step, thread_step, offset, shift, mask, count, 1, 0, 0)
        for element, undefined in enumerate(access.undefined):
            shape = (self.geometry.rows, self.geometry.lanes)
            row, lane = np.nonzero(spread(access.mask & undefined, shape))
            width = count // len(access.undefined)
            first = spread(access.offset, shape)[row, lane] // granule + element * width
            flags[row[:, None] * block_step + lane[:, None] * thread_step, first[:, None] + np.arange(width)] = 0
