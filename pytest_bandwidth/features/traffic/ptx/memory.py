"""Hold the memory of a launch: one region per array, per module variable, and per state space's window.

Addresses are the same for every run of the same launch. Bits 63..40 of a generic address number a region, the rest is
the place in it. A region's first byte is in the middle of its 2⁴⁰ bytes, so that an address somewhat before an array is
still seen to belong to it, and is aligned as cudaMalloc aligns (256 bytes and more).
"""

from __future__ import annotations

import errno
import mmap
import os
import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from pytest_bandwidth.domain.code.identity import digest
from pytest_bandwidth.domain.errors import NotOnThisDevice, OutOfMemory, UsageError
from pytest_bandwidth.domain.units import format_bytes
from pytest_bandwidth.features.traffic.ptx.lanes import Array
from pytest_bandwidth.features.traffic.ptx.program import Symbol, readable_name

REGION_SHIFT = 40
ORIGIN = 1 << (REGION_SHIFT - 1)

# The bit in a shared address from which on it holds the rank, plus one, of a block of the cluster; 0 for the own block.
RANK_AT = 24

SHARED_REGION = 1
LOCAL_REGION = 2
PARAM_REGION = 3
# Memory in which cooperative groups' grid.sync() counts arrivals; a driver allocates it for cooperative launches.
GRID_REGION = 4
FIRST_VARIABLE_REGION = 0x10
FIRST_ARRAY_REGION = 0x100000


def region_base(region: int) -> int:
    """Return the generic address of a region's first byte."""
    return (region << REGION_SHIFT) + ORIGIN


PARAM_BASE = region_base(PARAM_REGION)
# The registers that hold that memory's address.
GRID_REGISTERS = {"%envreg1": region_base(GRID_REGION) >> 32, "%envreg2": region_base(GRID_REGION) & 0xFFFFFFFF}
WINDOWS = {"shared": region_base(SHARED_REGION), "local": region_base(LOCAL_REGION)}

RegionKind = Literal["global", "const", "param", "shared", "local"]


@dataclass(eq=False)
class Region:
    """Hold the bytes behind one range of addresses.

    data: uint8 of shape (rows, bytes). Lane (b, t) of the batch uses row b·block_step + t·thread_step: global memory
    has one row, shared memory one per block, local memory one per thread.
    views: the array arguments inside the region. symbols: the variables inside, for messages and bounds.
    is_set: False for a __constant__ variable without a value from the source or the test.
    """

    name: str
    kind: RegionKind
    number: int
    data: Array
    block_step: int = 0
    thread_step: int = 0
    writable: bool = True
    views: tuple[Symbol, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    is_set: bool = True
    _typed: dict[np.dtype[Any], Array] = field(default_factory=dict, repr=False)

    @property
    def base(self) -> int:
        return region_base(self.number)

    @property
    def nbytes(self) -> int:
        return int(self.data.shape[1])

    def typed(self, dtype: np.dtype[Any]) -> Array:
        """Return a view of the bytes as (rows, elements) of `dtype`, without a tail too short for an element."""
        if dtype not in self._typed:
            whole = self.nbytes // dtype.itemsize * dtype.itemsize
            self._typed[dtype] = self.data[:, :whole].view(dtype)
        return self._typed[dtype]

    def zeros_per_place(self, places: int, dtype: Any) -> Array:
        """Return zeros of (1, places) for flags of each place; sparse where the region's bytes are sparse."""
        kind = np.dtype(dtype)
        if not is_sparse(self.data):
            return np.zeros((1, places), kind)
        return sparse_zeros(places * kind.itemsize).view(kind)[None, :]

    def describe(self, offset: int) -> str:
        """Return the name of the variable or array at a byte offset, else of the nearest one before it."""
        places = [(s.address, s.address + s.size, readable_name(s.name)) for s in (*self.symbols, *self.views)]
        for start, end, name in places:
            if start <= offset < end:
                return name
        before = [(end, name) for _, end, name in places if end <= offset]
        return max(before)[1] if before else self.name


@dataclass(frozen=True, slots=True)
class Access:
    """Describe one memory instruction of one group of lanes, inside one region and inside its bounds.

    kind: ``load``, ``store`` or ``atomic``. offset: bytes from the region's start, int64, and mask: bool, both
    broadcastable to (rows, lanes). values: the stored values, one array per element, else empty. width: bytes per lane.
    The access is between bytes `first` and `end` of the region. undefined: which lanes store an undefined value, bool,
    for each of the values, else empty. ordered: synchronisation, no race. fresh: ordered or volatile.
    """

    site: int
    kind: Literal["load", "store", "atomic"]
    region: Region
    offset: Array
    mask: Array
    width: int
    first: int
    end: int
    values: tuple[Array, ...] = ()
    ordered: bool = False
    undefined: tuple[Array, ...] = ()
    fresh: bool = False


def refuse_addresses_in(regions: Iterable[Region], address: int, where: str) -> None:
    """Raise NotOnThisDevice where an array of the launch holds an address of this process near `address`.

    Tables of pointers, as for grouped matrix products, point to arrays that are not arguments of the launch.
    """
    for region in regions:
        for view in () if is_sparse(region.data) else region.views:  # else all of a virtual array would be touched
            begin, end = -(-view.address // 8), (view.address + view.size) // 8
            words = region.typed(np.dtype(np.uint64))[0, begin:end]
            near = words[(words <= address) & (words + np.uint64(1 << REGION_SHIFT) > address)]
            if _is_mapped(np.unique(near)):
                raise NotOnThisDevice(
                    f"{where}: {view.name} holds addresses of arrays, which the traffic device does not model: "
                    "pass each array as an argument"
                )


def _is_mapped(addresses: Array) -> bool:
    """Return whether this process may write to any of the sorted addresses, as to those of NumPy arrays."""
    with suppress(OSError), open("/proc/self/maps", encoding="ascii", errors="replace") as lines:
        spans = [line.split(None, 1)[0].split("-") for line in lines if " rw" in line]
        ends = np.array([(int(low, 16), int(high, 16)) for low, high in spans], np.uint64)
        return bool((np.searchsorted(addresses, ends[:, 0]) < np.searchsorted(addresses, ends[:, 1])).any())
    return False


def flat_bytes(array: Array) -> tuple[Array, int]:
    """Return the bytes of the whole allocation that `array` views, as uint8, and the offset of its first element.
    Raises UsageError for an array over a buffer that it does not cover in one piece.
    """
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    flat = owner.ravel(order="K").view(np.uint8)
    if flat.__array_interface__["data"][0] != owner.__array_interface__["data"][0]:  # ravel had to copy
        raise UsageError(
            f"an array of shape {array.shape} lies in a buffer with gaps; copy it into one of its own first"
        )
    start = array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
    return flat, int(start)


# ---- arrays of zeros that take memory only where they are touched ----------------------------------------------------


class _Pages(mmap.mmap):
    """Map a file in memory (memfd), which stays open as long, so that its touched pages can be listed (SEEK_DATA).

    Pages are allocated when they are touched, and no overcommit setting counts the others.
    """

    file: int


def sparse_zeros(nbytes: int) -> Array:
    """Return so many zero bytes. Raises OutOfMemory where the process has not enough address space."""
    file = os.memfd_create("pytest-bandwidth")
    try:
        os.ftruncate(file, max(nbytes, 1))
        pages = _Pages(file, max(nbytes, 1))
    except (OSError, OverflowError):
        os.close(file)
        raise OutOfMemory(
            f"a virtual array needs {format_bytes(nbytes)} of address space, more than there is: use a smaller shape, "
            "or raise `ulimit -v`"
        ) from None
    pages.file = file
    weakref.finalize(pages, os.close, file)
    return np.ndarray((nbytes,), np.uint8, pages)


def _pages_of(array: Array) -> _Pages | None:
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return owner if isinstance(owner, _Pages) else None


def is_sparse(array: Array) -> bool:
    return _pages_of(array) is not None


def touched(data: Array, low: int, high: int) -> Iterator[slice]:
    """Yield the parts of bytes `low` to `high` that may differ from zero: all of a dense array.

    data: a whole allocation's bytes, in one dimension.
    """
    pages = _pages_of(data)
    if pages is None:
        yield slice(low, high)
        return
    while low < high:
        try:
            low = os.lseek(pages.file, low, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # no data from there on
                return
            raise
        end = os.lseek(pages.file, low, os.SEEK_HOLE)
        if low < high:
            yield slice(low, min(end, high))
        low = end


def digest_of(data: Array) -> str:
    """Hash an allocation's bytes; of a sparse one only the pages that are not zero, each with its place."""
    if not is_sparse(data):
        return digest(data.tobytes())
    held: list[str | bytes] = [str(data.size)]
    for part in touched(data, 0, data.size):
        for start in range(part.start, part.stop, mmap.PAGESIZE):
            page = data[start : start + mmap.PAGESIZE]
            if page.any():
                held += [str(start), page.tobytes()]
    return digest(*held)
