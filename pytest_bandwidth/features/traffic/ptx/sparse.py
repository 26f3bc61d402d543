"""Hold arrays of zeros that take memory only where something touched them, and tell where that was.

They lie in a file of memory (memfd). Its pages come into being when they are touched, the system knows which are there
(SEEK_DATA), and no setting of overcommit counts the others.
"""

from __future__ import annotations

import errno
import mmap
import os
import weakref
from collections.abc import Iterator

import numpy as np

from pytest_bandwidth.domain.code.identity import digest
from pytest_bandwidth.domain.errors import OutOfMemory
from pytest_bandwidth.domain.units import format_bytes
from pytest_bandwidth.features.traffic.ptx.lanes import Array


class _Pages(mmap.mmap):
    """Map a file of memory, which stays open as long: it is asked for its pages."""

    file: int


def sparse_zeros(nbytes: int) -> Array:
    """Return so many bytes. Raises OutOfMemory where the process may not have so much address space."""
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
    """Yield the parts of bytes `low` to `high` that may be other than zero: of a dense array, all.

    data: a whole allocation's bytes, of one dimension.
    """
    pages = _pages_of(data)
    if pages is None:
        yield slice(low, high)
        return
    while low < high:
        try:
            low = os.lseek(pages.file, low, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing from there on
                return
            raise
        end = os.lseek(pages.file, low, os.SEEK_HOLE)
        if low < high:
            yield slice(low, min(end, high))
        low = end


def digest_of(data: Array) -> str:
    """Hash what an allocation's bytes hold; of a sparse one the pages with something in them, each with its place."""
    if not is_sparse(data):
        return digest(data.tobytes())
    held: list[str | bytes] = [str(data.size)]
    for part in touched(data, 0, data.size):
        for start in range(part.start, part.stop, mmap.PAGESIZE):
            page = data[start : start + mmap.PAGESIZE]
            if page.any():
                held += [str(start), page.tobytes()]
    return digest(*held)
