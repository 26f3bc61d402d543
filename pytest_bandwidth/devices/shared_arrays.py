"""Lay the arrays of two processes that take turns into the same memory, so that where it lies is the same for both.

Which pages of memory a process is given makes the same code on the same data 1 to 40 % faster or slower, for as long as
the arrays last: in another process, or in new arrays of the same one, it is another figure (benchmarks/new_arrays.py).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import secrets
import sys
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from typing import Any

import numpy as np

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

# More arrays than that, or larger ones, are each process's own. The file is sparse: only what is touched takes memory.
MOST_ARRAYS = 4096
LARGEST_BYTES = 1 << 36
# NumPy asks for huge pages from this size on. In pages of 4 KiB a triad was up to a quarter slower, and 10 % slower in
# one process than in the other, in the same memory: each has its own table of its pages.
HUGE_FROM_BYTES = 1 << 22
_HUGE_PAGE_BYTES = 1 << 21
_MADV_COLLAPSE = 25  # since Linux 6.1; CPython has no name for it
_MAP_FIXED = 0x10
_PROT_NONE = 0
_FAILED = ctypes.c_void_p(-1).value
_WORD_BYTES = 8
_SEED_MASK = (1 << 63) - 1
_SLOT_BYTES = LARGEST_BYTES + 2 * _HUGE_PAGE_BYTES
# Arrays that all begin at the same place of a page, or of a cache's sets, are in each other's way.
_SKEW_BYTES = 173 * 4096 + 64
# A huge page begins at a multiple of its size, in the file as well.
_TABLE_BYTES = _HUGE_PAGE_BYTES


@contextmanager
def shared_memory() -> Iterator[int | None]:
    """Give the descriptor of memory for the arrays of two processes that inherit it; None where the system has none."""
    with ExitStack() as stack:
        yield _descriptor(stack)


def _descriptor(stack: ExitStack) -> int | None:
    if fcntl is None or not hasattr(os, "memfd_create") or sys.maxsize < LARGEST_BYTES:
        return None
    with suppress(OSError):  # no such call in a sandbox, or a limit of files' sizes
        descriptor = os.memfd_create("pytest-bandwidth-arrays")
        stack.callback(os.close, descriptor)
        os.ftruncate(descriptor, _TABLE_BYTES + 2 * MOST_ARRAYS * _SLOT_BYTES)
        os.pwrite(descriptor, secrets.token_bytes(_WORD_BYTES), 0)
        return descriptor
    return None


class SharedArrays:
    """Hold one process's side: its n-th array lies where the other's n-th array of the same size lies.

    What one writes, the other reads: both run the same test with the same random numbers, and one at a time. `hold`
    before arrays are made, filled or looked at; `release` where the other may go on.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # A lock of this process: the inherited descriptor is of one description, which both would hold.
        self._lock = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR)
        table = np.frombuffer(mmap.mmap(descriptor, _TABLE_BYTES), np.int64)
        self.seed = int(table[0]) & _SEED_MASK
        # Of each array that one of them has made its size, below 0 where each has its own.
        self._sizes = table[1:]
        self._made = 0
        self._holds = False

    def hold(self) -> None:
        """Wait until the other process is between its own `release` and `hold`, or has ended."""
        if not self._holds:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            self._holds = True

    def release(self) -> None:
        """Let the other process go on."""
        if self._holds:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            self._holds = False

    def resume(self) -> None:
        """Wait as `hold` does, where anything is shared."""
        if self._made:
            self.hold()

    def allocate(self, size: int) -> Bytes | None:
        """Return so many bytes, from a multiple of 64; None for none, and where they have to be the process's own."""
        self.hold()
        number = self._made
        self._made += 1
        if not 0 < size <= LARGEST_BYTES or number >= MOST_ARRAYS:
            return None
        known = int(self._sizes[number])
        if known == -size:
            return None
        # Where the other's n-th array is of another size, this one lies apart, in memory of the same kind.
        slot, skew = number if known in (0, size) else MOST_ARRAYS + number, number * _SKEW_BYTES % _HUGE_PAGE_BYTES
        found = _mapped(self._descriptor, _TABLE_BYTES + slot * _SLOT_BYTES, skew, size)
        if not known:
            self._sizes[number] = size if found is not None else -size
        return found


def _mapped(descriptor: int, offset: int, skew: int, size: int) -> Bytes | None:
    """Map so many bytes of a file, in huge pages where NumPy's own would be; None where the system gives none.

    skew: how far after the boundary of a huge page they begin.
    """
    if size < HUGE_FROM_BYTES:
        return np.frombuffer(mmap.mmap(descriptor, size, offset=offset), np.uint8)
    system, length = _system(), -(-(skew + size) // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES
    # Room for a huge page's boundary; what is not used of it takes addresses, not memory.
    room = length + _HUGE_PAGE_BYTES
    begin = system.mmap(None, room, _PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if begin == _FAILED:
        return None
    at = -(-begin // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES
    flags = mmap.MAP_SHARED | _MAP_FIXED
    if system.mmap(at, length, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, offset) == at:
        buffer = (ctypes.c_uint8 * length).from_address(at)
        found: Bytes = np.frombuffer(memoryview(buffer), np.uint8)
        found[::_HUGE_PAGE_BYTES] |= 0  # what nothing has touched is not made a huge page
        if system.madvise(at, length, _MADV_COLLAPSE) == 0:
            weakref.finalize(buffer, system.munmap, begin, room).atexit = False
            return found[skew : skew + size]
        del found, buffer
    system.munmap(begin, room)
    return None


@cache
def _system() -> ctypes.CDLL:
    system = ctypes.CDLL(None)
    address, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    system.mmap.argtypes = (address, size, number, number, number, ctypes.c_int64)
    system.mmap.restype = address
    system.munmap.argtypes = (address, size)
    system.madvise.argtypes = (address, size, number)
    return system
