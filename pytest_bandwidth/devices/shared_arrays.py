"""Exchange the pages of arrays for pages that two processes share, while both sample alternately.

The same code on the same data is 1 to 40 % faster or slower on other pages of memory. The difference lasts as long as
the arrays: it changes in another process, or in new arrays of the same process.
Addresses and contents stay: only arrays with the same bytes in both processes are exchanged, if a run of the workload
leaves them unchanged. Each process gets its own pages back, as they were, once both have sampled.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import sys
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pytest_bandwidth.devices.base import Call
from pytest_bandwidth.devices.host import count_numa_nodes, huge_pages

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
# The number of an array in a process's list, and the offset of its room in the shared memory.
Places = Sequence[tuple[int, int]]

HUGE_PAGE_BYTES = 1 << 21
# NumPy requests huge pages from this size on. In pages of 4 KiB a triad was up to a quarter slower. In the same memory
# it was 10 % slower in one process than in the other: each process has its own page table.
HUGE_FROM_BYTES = 1 << 22
# Larger ones take long to copy. There is no least size: with two vectors of 16 KiB in their own pages, a layer norm was
# 10 to 45 % slower in one process of ten.
MOST_BYTES = 1 << 34
MOST_ARRAYS = 1024
# As much after the beginning of a page as malloc's large blocks, on a boundary of 64.
_OFFSET_BYTES = 64
_MADV_COLLAPSE = 25  # since Linux 6.1; CPython has no name for it
_MAP_FIXED = 0x10
_MREMAP_MAYMOVE, _MREMAP_FIXED, _MREMAP_DONTUNMAP = 1, 2, 4
_FAILED = ctypes.c_void_p(-1).value
_MADV_REMOVE = 9
_MFD_CLOEXEC = 1
# NumPy's own switch: with 0 it requests no huge pages.
_NUMPY_HUGE_PAGES = "NUMPY_MADVISE_HUGEPAGE"


@contextmanager
def shared_memory(root: Path = Path("/")) -> Iterator[int | None]:
    """Yield the descriptor of empty memory that processes inherit; None where shared pages would change the timing.

    On several NUMA nodes all of it would lie on the node of the process that fills it. Without huge pages for arrays,
    or with ones of another size, shared pages would be of another kind than the arrays' usual pages.
    root: holds sys.
    """
    descriptor = None
    if sys.platform == "linux" and sys.maxsize >= 1 << 32 and (count_numa_nodes(root) or 1) == 1:
        chosen, size = huge_pages(root)
        asked = chosen == "madvise" and os.environ.get(_NUMPY_HUGE_PAGES, "1") != "0"
        # Not os.memfd_create: Pythons that are built for older systems lack it.
        if size == HUGE_PAGE_BYTES and (asked or chosen == "always") and hasattr(_system(), "memfd_create"):
            given = int(_system().memfd_create(b"pytest-bandwidth-arrays", _MFD_CLOEXEC))
            descriptor = None if given < 0 else given
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


@dataclass(slots=True)
class _Array:
    """Hold an array's own pages. skew: the array's offset in them. size: its bytes. buffer: ends with the array.

    shared: the address of the shared pages that it may get; aside: the address for its own pages meanwhile; 0 = not
    mapped. exchanged: whether its own pages are at `aside`.
    """

    address: int
    length: int
    skew: int
    size: int
    buffer: weakref.ref[Any]
    shared: int = 0
    aside: int = 0
    exchanged: bool = False

    @property
    def data(self) -> int:
        return self.address + self.skew

    @property
    def copied(self) -> int:
        """Return the address of its bytes in the shared pages that it may get."""
        return self.shared + self.skew


class SharedArrays:
    """Hold one process's side. descriptor: that of the memory which both processes share.

    seed: decides the arrays' offsets in their pages: it differs from pair to pair, and is the same for both processes.

    First both processes list their arrays. Then they copy them into the shared memory (`copy`) and report the equal
    ones (`same`). They `exchange` these, until each restores its own.
    """

    def __init__(self, descriptor: int, seed: int = 0) -> None:
        self._descriptor, self._seed = descriptor, seed
        self._made: list[_Array] = []
        self._of_size: Counter[int] = Counter()
        self._forks = self._forks_before = 0
        os.register_at_fork(before=self._note_fork)
        # The listed arrays, and their buffers, which keep the pages from going back to the system meanwhile.
        self._listed: list[_Array] = []
        self._kept: list[Any] = []

    def allocate(self, size: int) -> Bytes | None:
        """Return so many bytes, from a multiple of 64, in pages of their own; None where they cannot be exchanged."""
        self._made = [array for array in self._made if array.buffer() is not None]
        if not 0 < size <= MOST_BYTES or len(self._made) >= MOST_ARRAYS:
            return None
        page, skew = _page_bytes(size), _OFFSET_BYTES
        if page == HUGE_PAGE_BYTES:
            # Arrays that all begin in the same sets of a cache evict each other. The place depends on the number among
            # arrays as large, so that one more array of another size makes no difference.
            place = random.Random(f"{self._seed} {size} {self._of_size[size]}").randrange(page // mmap.PAGESIZE)
            skew += place * mmap.PAGESIZE
        self._of_size[size] += 1
        length = -(-(skew + size) // page) * page
        address = _anonymous(length, page)
        if not address:
            return None
        buffer = (ctypes.c_uint8 * length).from_address(address)
        weakref.finalize(buffer, _system().munmap, address, length).atexit = False
        self._made.append(_Array(address, length, skew, size, weakref.ref(buffer)))
        return np.frombuffer(memoryview(buffer), np.uint8)[skew : skew + size]

    def listed(self, touched: Iterable[Any] = ()) -> list[tuple[int, int, int]]:
        """List the arrays; return for each its bytes, their offset in its pages, and the bytes of these.

        touched: the workload's known arguments; only arrays among them are listed, or all arrays where it has no array.
        """
        self.restore()
        starts = [array.ctypes.data for array in touched if isinstance(array, np.ndarray)]
        buffers = [(array, array.buffer()) for array in self._made if not starts or _holds_any(array, starts)]
        self._listed = [array for array, buffer in buffers if buffer is not None]
        self._kept = [buffer for _, buffer in buffers if buffer is not None]
        return [(array.size, array.skew, array.length) for array in self._listed]

    def lists_all(self, touched: Iterable[Any]) -> bool:
        """Return whether all of the workload's known arguments are in listed arrays, and there are any.

        touched: the known arguments; numbers do not count.
        """
        given = [one for one in touched if one is not None and not isinstance(one, (int, float, complex, np.generic))]
        return bool(given) and all(
            isinstance(one, np.ndarray) and any(_holds_any(array, [one.ctypes.data]) for array in self._listed)
            for one in given
        )

    def copy(self, places: Places) -> list[int]:
        """Copy arrays to places of the shared memory; return the numbers of those copied."""
        done = [number for number, offset in places if self._is_mapped(number, offset)]
        for array in (self._listed[number] for number in done):
            ctypes.memmove(array.copied, array.data, array.size)
        return done

    def same(self, places: Places, run: Call) -> list[int]:
        """Return the numbers of the arrays that equal their copies, before a run of the workload and after it.

        Empty where it forks: its children have copies of its own memory, and would write into the shared memory.
        """
        mapped = [number for number, offset in places if self._is_mapped(number, offset)]
        before, forks = [number for number in mapped if self._is_copied(number)], self._forks
        run()
        return [number for number in before if self._is_copied(number)] if forks == self._forks else []

    def _is_copied(self, number: int) -> bool:
        array = self._listed[number]
        return bool(_system().memcmp(array.copied, array.data, array.size) == 0)

    @property
    def has_forked(self) -> bool:
        """Return whether Python has forked since pages were exchanged, so that its children may write into them."""
        return self._forks != self._forks_before and any(array.exchanged for array in self._listed)

    def _note_fork(self) -> None:
        self._forks += 1

    def exchange(self, numbers: Iterable[int]) -> list[int]:
        """Put shared pages in the place of these arrays' own ones; return their numbers.

        All arrays keep or get back their own pages where no number is given, or the system refuses to move any pages.
        """
        wanted = sorted(set(numbers))
        try:
            for array in (self._listed[number] for number in wanted):
                # The array's addresses stay mapped meanwhile, so that no other thread gets them.
                _move(array.address, array.aside, array.length, _MREMAP_DONTUNMAP)
                array.exchanged = True
                _move(array.shared, array.address, array.length)
                array.shared = 0
        except OSError:
            wanted = []
        self._forks_before = self._forks
        if not wanted:
            self.restore(remove=True)  # the other process restores its own, too
        return wanted

    def restore(self, *, remove: bool = False) -> None:
        """Give each array its own pages back, as they were, and return unused pages to the system.

        remove: whether to remove their shared memory as well, which then neither process may need any more.
        """
        for array in self._listed:
            shared = array.address if array.exchanged and not array.shared else array.shared
            if remove and shared:
                _system().madvise(shared, array.length, _MADV_REMOVE)
            if array.exchanged:
                _move(array.aside, array.address, array.length)
                array.exchanged, array.aside = False, 0
            for unused in filter(None, (array.shared, array.aside)):
                _system().munmap(unused, array.length)
            array.shared = array.aside = 0
        self._listed, self._kept = [], []

    def _is_mapped(self, number: int, offset: int) -> bool:
        """Map the shared memory there, and addresses for the array's own pages; return whether both are mapped."""
        array = self._listed[number]
        page = _page_bytes(array.size)
        array.shared = array.shared or _shared(self._descriptor, offset, array.length, page)
        array.aside = array.aside or _anonymous(array.length, page)
        return bool(array.shared and array.aside)


def _holds_any(array: _Array, addresses: Iterable[int]) -> bool:
    return any(array.address <= address < array.address + array.length for address in addresses)


def _page_bytes(size: int) -> int:
    return HUGE_PAGE_BYTES if size >= HUGE_FROM_BYTES else mmap.PAGESIZE


def _anonymous(length: int, page_bytes: int) -> int:
    """Map new private memory and return its address, a multiple of the page size; 0 where the system refuses."""
    system, room = _system(), length + page_bytes - mmap.PAGESIZE
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    begin = system.mmap(None, room, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if begin == _FAILED:
        return 0
    address = -(-begin // page_bytes) * page_bytes
    for start, end in ((begin, address), (address + length, begin + room)):
        if end > start:
            system.munmap(start, end - start)
    if page_bytes == HUGE_PAGE_BYTES:
        system.madvise(address, length, mmap.MADV_HUGEPAGE)  # as NumPy does; a refusal affects both
    return int(address)


def _shared(descriptor: int, offset: int, length: int, page_bytes: int) -> int:
    """Map shared memory in such pages and return its address; 0 where the system refuses."""
    system, address = _system(), _anonymous(length, page_bytes)
    if not address:
        return 0
    access, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | _MAP_FIXED
    if system.mmap(address, length, access, flags, descriptor, offset) == address:
        if page_bytes == mmap.PAGESIZE:
            return address
        everything = (ctypes.c_uint8 * length).from_address(address)
        pages = np.frombuffer(memoryview(everything), np.uint8)[::HUGE_PAGE_BYTES]
        pages |= 0  # untouched memory does not become a huge page
        if system.madvise(address, length, _MADV_COLLAPSE) == 0:
            return address
    system.munmap(address, length)
    return 0


def _move(at: int, to: int, length: int, flags: int = 0) -> None:
    """Move pages to other addresses, and replace the pages there. Raises OSError where the system refuses."""
    how = _MREMAP_MAYMOVE | _MREMAP_FIXED | flags
    if _system().mremap(at, length, length, how, ctypes.c_void_p(to)) != to:
        number = ctypes.get_errno()
        raise OSError(number, f"pages of an array cannot be moved: {os.strerror(number)}")


@cache
def _system() -> ctypes.CDLL:
    system = ctypes.CDLL(None, use_errno=True)
    address, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    system.mmap.argtypes = (address, size, number, number, number, ctypes.c_int64)
    system.mmap.restype = address
    system.mremap.argtypes = (address, size, size, number)  # and one more: the call is a variadic one
    system.mremap.restype = address
    system.munmap.argtypes = (address, size)
    system.madvise.argtypes = (address, size, number)
    system.memcmp.argtypes = (address, address, size)
    return system
