"""Exchange the pages of arrays for pages that another process has as well, while both sample in turn.

Which pages of memory a process is given makes the same code on the same data 1 to 40 % faster or slower, for as long as
the arrays last: in another process, or in new arrays of the same one, it is another figure (benchmarks/new_arrays.py).
Addresses and contents stay: only arrays that hold the same bytes in both processes are exchanged, and each process gets
its own pages back, as they were, once both have sampled.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pytest_bandwidth.devices.numpy_arrays import available_bytes

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
# The number of an array among those that are told, and where the shared memory has room for it.
Places = Sequence[tuple[int, int]]

HUGE_PAGE_BYTES = 1 << 21
# NumPy asks for huge pages from this size on. In pages of 4 KiB a triad was up to a quarter slower, and 10 % slower in
# one process than in the other, in the same memory: each has its own table of its pages.
HUGE_FROM_BYTES = 1 << 22
# Smaller arrays lie in a few pages, as all else of a process does; larger ones take long to copy.
LEAST_BYTES = 1 << 16
MOST_BYTES = 1 << 34
MOST_ARRAYS = 1024
# Arrays that all begin at the same place of a page, or of a cache's sets, are in each other's way.
_SKEW_BYTES = 173 * 4096 + 64
_MADV_COLLAPSE = 25  # since Linux 6.1; CPython has no name for it
_MAP_FIXED = 0x10
_MREMAP_MAYMOVE, _MREMAP_FIXED, _MREMAP_DONTUNMAP = 1, 2, 4
_FAILED = ctypes.c_void_p(-1).value
_NODES = Path("/sys/devices/system/node")
_HUGE_PAGE_FILE = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")


@contextmanager
def shared_memory() -> Iterator[int | None]:
    """Give the descriptor of memory, empty yet, that processes inherit; None where they had better have none.

    On several NUMA nodes all of it would lie on that of the process which fills it.
    """
    with ExitStack() as stack:
        yield _descriptor(stack) if _is_of_use() else None


def _is_of_use() -> bool:
    try:
        huge_page_bytes = int(_HUGE_PAGE_FILE.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return False
    one_node = len([*_NODES.glob("node[0-9]*")]) <= 1
    return one_node and huge_page_bytes == HUGE_PAGE_BYTES and hasattr(os, "memfd_create")


def _descriptor(stack: ExitStack) -> int | None:
    with suppress(OSError):  # no such call in a sandbox
        descriptor = os.memfd_create("pytest-bandwidth-arrays")
        stack.callback(os.close, descriptor)
        return descriptor
    return None


@dataclass(slots=True)
class _Array:
    """Hold where an array's pages are. buffer: ends with the array.

    shared: where the shared ones are that it may get; own: where its own ones are meanwhile.
    """

    address: int
    length: int
    skew: int
    size: int
    buffer: weakref.ref[Any]
    shared: int | None = None
    own: int | None = None

    @property
    def data(self) -> int:
        return self.address + self.skew

    @property
    def is_huge(self) -> bool:
        return self.size >= HUGE_FROM_BYTES


class SharedArrays:
    """Hold one process's side. descriptor: of memory that the other process has as well.

    `told` says which arrays there are; then one process lays copies into the shared memory (`copy`), the other one says
    which of its own hold the same (`same`), and both `exchange` those, until each restores its own.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._made: list[_Array] = []
        self._of_size: Counter[int] = Counter()
        # What was told, and what keeps it from being given back to the system meanwhile.
        self._told: list[_Array] = []
        self._kept: list[Any] = []

    def allocate(self, size: int) -> Bytes | None:
        """Return so many bytes, from a multiple of 64, in pages of their own; None where they cannot be exchanged."""
        self._made = [array for array in self._made if array.buffer() is not None]
        if not LEAST_BYTES <= size <= MOST_BYTES or len(self._made) >= MOST_ARRAYS:
            return None
        page = HUGE_PAGE_BYTES if size >= HUGE_FROM_BYTES else mmap.PAGESIZE
        # By the number among arrays as large: one more of another size makes no difference to these.
        skew = self._of_size[size] * _SKEW_BYTES % page
        self._of_size[size] += 1
        length = -(-(skew + size) // page) * page
        address = _anonymous(length, page)
        if address is None:
            return None
        buffer = (ctypes.c_uint8 * length).from_address(address)
        weakref.finalize(buffer, _system().munmap, address, length).atexit = False
        self._made.append(_Array(address, length, skew, size, weakref.ref(buffer)))
        return np.frombuffer(memoryview(buffer), np.uint8)[skew : skew + size]

    def told(self) -> list[tuple[int, int, int]]:
        """Return of each array its bytes, where in its pages they begin, and the bytes of these."""
        self.restore()
        buffers = [(array, array.buffer()) for array in self._made]
        self._told = [array for array, buffer in buffers if buffer is not None]
        self._kept = [buffer for _, buffer in buffers if buffer is not None]
        return [(array.size, array.skew, array.length) for array in self._told]

    def copy(self, places: Places) -> list[int]:
        """Lay copies of arrays there; return their numbers, none where memory is short."""
        needed, free = sum(self._told[number].length for number, _ in places), available_bytes()
        if free is not None and needed > free:
            return []
        done = [number for number, offset in places if self._mapped(number, offset)]
        for array in (self._told[number] for number in done):
            ctypes.memmove(self._shared_data(array), array.data, array.size)
        return done

    def same(self, places: Places) -> list[int]:
        """Return the numbers of the arrays that hold what lies there."""
        done = [number for number, offset in places if self._mapped(number, offset)]
        arrays = [(number, self._told[number]) for number in done]
        return [n for n, a in arrays if _system().memcmp(self._shared_data(a), a.data, a.size) == 0]

    def exchange(self, numbers: Iterable[int]) -> None:
        """Put shared pages in the place of these arrays' own ones. Raises OSError where the system does not do that."""
        wanted = set(numbers)
        for number, array in enumerate(self._told):
            if array.shared is None:
                continue
            if number not in wanted:
                _system().munmap(array.shared, array.length)
                array.shared = None
                continue
            aside = _anonymous(array.length, _page_bytes(array))
            if aside is None:
                raise OSError("the system gives no addresses for the pages of an array")
            # The array's addresses stay taken meanwhile, so that no other thread is given them.
            _move(array.address, aside, array.length, _MREMAP_DONTUNMAP)
            array.own = aside
            _move(array.shared, array.address, array.length)
            array.shared = None

    def restore(self) -> None:
        """Give each array its own pages back, as they were."""
        for array in self._told:
            if array.own is not None:
                _move(array.own, array.address, array.length)
                array.own = None
        self.exchange(())
        self._told, self._kept = [], []

    def _mapped(self, number: int, offset: int) -> bool:
        """Map the shared memory there, beside the array; return whether the system did."""
        array = self._told[number]
        array.shared = _shared(self._descriptor, offset, array)
        return array.shared is not None

    @staticmethod
    def _shared_data(array: _Array) -> int:
        assert array.shared is not None
        return array.shared + array.skew


def _page_bytes(array: _Array) -> int:
    return HUGE_PAGE_BYTES if array.is_huge else mmap.PAGESIZE


def _anonymous(length: int, page_bytes: int) -> int | None:
    """Return the address of memory of this process, from a multiple of the page; None where there is none."""
    system, room = _system(), length + page_bytes - mmap.PAGESIZE
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    begin = system.mmap(None, room, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if begin == _FAILED:
        return None
    address = -(-begin // page_bytes) * page_bytes
    for start, end in ((begin, address), (address + length, begin + room)):
        if end > start:
            system.munmap(start, end - start)
    if page_bytes == HUGE_PAGE_BYTES:
        system.madvise(address, length, mmap.MADV_HUGEPAGE)  # as NumPy does; where it is not done, nor is it there
    return int(address)


def _shared(descriptor: int, offset: int, array: _Array) -> int | None:
    """Return the address of shared memory for the array, in huge pages where its own are; None without such."""
    system, page = _system(), _page_bytes(array)
    address = _anonymous(array.length, page)
    if address is None:
        return None
    access, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | _MAP_FIXED
    if system.mmap(address, array.length, access, flags, descriptor, offset) == address:
        if not array.is_huge:
            return address
        everything = (ctypes.c_uint8 * array.length).from_address(address)
        pages = np.frombuffer(memoryview(everything), np.uint8)[::HUGE_PAGE_BYTES]
        pages |= 0  # what nothing has touched is not made a huge page
        if system.madvise(address, array.length, _MADV_COLLAPSE) == 0:
            return address
    system.munmap(address, array.length)
    return None


def _move(at: int, to: int, length: int, flags: int = 0) -> None:
    """Move pages to other addresses, in place of what is there. Raises OSError where the system does not."""
    if _system().mremap(at, length, length, _MREMAP_MAYMOVE | _MREMAP_FIXED | flags, to) != to:
        number = ctypes.get_errno()
        raise OSError(number, f"pages of an array cannot be moved: {os.strerror(number)}")


@cache
def _system() -> ctypes.CDLL:
    system = ctypes.CDLL(None, use_errno=True)
    address, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    system.mmap.argtypes = (address, size, number, number, number, ctypes.c_int64)
    system.mmap.restype = address
    system.mremap.argtypes = (address, size, size, number, address)
    system.mremap.restype = address
    system.munmap.argtypes = (address, size)
    system.madvise.argtypes = (address, size, number)
    system.memcmp.argtypes = (address, address, size)
    return system
