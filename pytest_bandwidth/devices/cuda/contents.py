"""Hash what arrays on a GPU hold, there: one pass over the memory, and a few kilobytes to the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from pytest_bandwidth.devices.contents import Sums, added, sums_of

THREADS, BLOCKS_PER_SM = 256, 8
_WORD_BYTES = 8


class DeviceSums:
    """Add up the words of CuPy's arrays as `devices.contents.sums_of` does those of NumPy's.

    kernel: ``sum_words`` of cuda_src/probe.cu.
    """

    def __init__(self, cupy: Any, kernel: Any, sm_count: int) -> None:
        self._cupy, self._kernel, self._most_blocks = cupy, kernel, BLOCKS_PER_SM * sm_count

    def __call__(self, array: Any) -> Sums:
        """Return an array's sums; work on it has to be done. A view with gaps, or off a word's boundary, is copied."""
        if not (array.flags.c_contiguous or array.flags.f_contiguous):
            array = self._cupy.ascontiguousarray(array)
        data = (array.T if not array.flags.c_contiguous else array).reshape(-1).view(np.uint8)
        if data.data.ptr % _WORD_BYTES:
            data = data.copy()
        count = data.size // _WORD_BYTES
        tail = bytes(data[count * _WORD_BYTES :].get())
        blocks = max(1, min(-(-count // THREADS), self._most_blocks))
        sums = self._cupy.zeros((blocks, 2), np.uint64)
        if count:
            words = data[: count * _WORD_BYTES].view(np.uint64)
            self._kernel((blocks,), (THREADS,), (words, sums, np.int64(count)))
        first, second = (int(total) for total in sums.get().sum(axis=0, dtype=np.uint64))
        return added([(first, second), _of_tail(tail, count)])


def _of_tail(tail: bytes, place: int) -> Sums:
    """Return the sums of the bytes after the last whole word, which `sums_of` fills up with zeros."""
    return sums_of(np.frombuffer(tail, np.uint8), start=place) if tail else (0, 0)
