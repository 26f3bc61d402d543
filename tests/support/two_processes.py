"""Memory for the arrays of two processes in turn, where the system has what they take."""

import os
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from pytest_bandwidth.devices.shared_arrays import HUGE_FROM_BYTES, LEAST_BYTES, SharedArrays, shared_memory


def memory_of(size: int) -> Callable[[], Iterator[int]]:
    """Return a fixture's function: the descriptor of so many bytes."""

    def memory() -> Iterator[int]:
        with shared_memory() as descriptor:
            if descriptor is None or not _can_exchange():
                pytest.skip("this system cannot exchange pages (Linux 6.1, huge pages of 2 MiB, one NUMA node can)")
            os.ftruncate(descriptor, size)
            yield descriptor

    return memory


def _can_exchange() -> bool:
    with shared_memory() as descriptor:
        assert descriptor is not None
        os.ftruncate(descriptor, 1 << 24)
        arrays = SharedArrays(descriptor)
        kept = [arrays.allocate(size) for size in (LEAST_BYTES, HUGE_FROM_BYTES)]
        assert all(isinstance(array, np.ndarray) for array in kept)
        arrays.told()
        found = arrays.exchange(arrays.copy([(0, 0), (1, 1 << 23)]))
        arrays.restore()
        return found == [0, 1]
