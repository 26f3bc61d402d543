"""Lay the arrays of two processes that take turns into the same memory, so that where it lies is the same for both.

Which pages of memory a process is given makes the same code on the same data 1 to 40 % faster or slower, for as long as
the arrays last: in another process, or in new arrays of the same one, it is another figure (benchmarks/in_turn.py).
"""

from __future__ import annotations

import mmap
import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
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
_WORD_BYTES = 8
_TABLE_BYTES = -(-(1 + MOST_ARRAYS) * _WORD_BYTES // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY


@contextmanager
def shared_memory() -> Iterator[int | None]:
    """Give the descriptor of memory for the arrays of two processes that inherit it; None where the system has none."""
    with ExitStack() as stack:
        yield _descriptor(stack)


def _descriptor(stack: ExitStack) -> int | None:
    if fcntl is None or not hasattr(os, "memfd_create"):
        return None
    with suppress(OSError):  # no such call in a sandbox, or a limit of files' sizes
        descriptor = os.memfd_create("pytest-bandwidth-arrays")
        stack.callback(os.close, descriptor)
        os.ftruncate(descriptor, _TABLE_BYTES + 2 * MOST_ARRAYS * LARGEST_BYTES)
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
        table = np.frombuffer(mmap.mmap(descriptor, _TABLE_BYTES), np.uint64)
        self.seed = int(table[0])
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
        """Return so many bytes, at the start of a page; None for none, and where they have to be the process's own."""
        self.hold()
        number = self._made
        self._made += 1
        if not 0 < size <= LARGEST_BYTES or number >= MOST_ARRAYS:
            return None
        if not self._sizes[number]:
            self._sizes[number] = size
        # Where the other's n-th array is of another size, this one lies apart, in memory of the same kind.
        slot = number if self._sizes[number] == size else MOST_ARRAYS + number
        return np.frombuffer(mmap.mmap(self._descriptor, size, offset=_TABLE_BYTES + slot * LARGEST_BYTES), np.uint8)
