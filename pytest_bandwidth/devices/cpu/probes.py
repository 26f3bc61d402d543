"""Run the host's probes: the plainest read, write, copy and add.

The speed of memory depends on the mix of reads and writes, so a workload is compared with the probe of the nearest mix.
It also depends on the place of the memory and on a hypervisor's pages for it. So a probe reads its workload's arrays
where it can: then the two differ only in their work.
With Numba the probes run on all threads and bypass the caches when they write: the best that this host can do. Without
it they are NumPy's own operations, on one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from pytest_bandwidth.devices.base import Call, Probe
from pytest_bandwidth.devices.numpy_arrays import Array, empty_array
from pytest_bandwidth.domain.traffic import Traffic, nearest_mix

# Whole numbers: a test's arrays hold anything, and processors are slow to add some floats (denormal ones).
ELEMENT = np.dtype(np.int32)
# A probe of fewer bytes measures the cost of a call; one of more gives the same result: 1 GiB exceeds every cache.
SMALLEST_BYTES = 4096
LARGEST_BYTES = 1 << 30
# A workload's own arrays serve a probe that is smaller than the workload, but no smaller than this share of it.
LEAST_SHARE = 0.9


# By the names of the mixes; the output comes first, a read has none.
Operations = Mapping[str, Callable[..., object]]


def numpy_operations() -> Operations:
    """Return the four operations of NumPy alone, on arrays of `ELEMENT` of one length."""
    return {
        "read": lambda x: x.max(),
        "write": lambda out: out.fill(1),
        "copy": np.copyto,
        "add": lambda out, x, y: np.add(x, y, out=out),
    }


def numba_operations(threads: int) -> Operations:
    """Return the kernels of `simd` for such arrays. Raises ImportError without Numba."""
    from pytest_bandwidth.devices.cpu import simd

    sink, one = np.zeros(1, ELEMENT), ELEMENT.type(1)
    return {
        "read": lambda x: simd.read(threads, sink, x, ELEMENT.type(0), x.size),
        "write": lambda out: simd.write(threads, out, one, out.size),
        "copy": lambda out, x: simd.copy(threads, out, x, x.size),
        "add": lambda out, x, y: simd.add(threads, out, x, y, x.size),
    }


class HostProbes:
    """Make probes; keep the arrays of the last one for the next. name: of the operations' library."""

    def __init__(self, name: str, operations: Operations) -> None:
        self._name, self._operations = name, operations
        self._kept: list[Array] = []

    def probe(self, traffic: Traffic, inputs: Sequence[Any] = ()) -> Probe:
        """Return a probe that moves as many bytes as the traffic, within 4 KiB and 1 GiB. Raises OutOfMemory.

        inputs: what the workload reads. Where enough of them are large enough NumPy arrays, the probe reads those; it
        writes to arrays of its own.
        """
        mix = nearest_mix(traffic)
        wanted = min(max(traffic.bytes_moved, SMALLEST_BYTES), LARGEST_BYTES)
        elements = wanted // (mix.arrays * ELEMENT.itemsize)
        lent = lent_arrays(inputs, mix.reads, elements)
        elements = min(elements, *(array.size for array in lent)) if lent else elements
        own = mix.arrays - len(lent)
        # One by one, as a test's are: out of one pool they would lie on other banks of memory. Arrays that are too
        # small are freed before others are made.
        self._kept = [array for array in self._kept if array.size >= elements]
        while len(self._kept) < own:
            array = empty_array(elements, ELEMENT)
            # Touched: otherwise all reads would be of the system's one page of zeros.
            self._operations["write"](array)
            self._kept.append(array)
        arrays = [array[:elements] for array in (*self._kept[:own], *lent)]
        operation = self._operations[mix.name]
        whose = ", reading the test's arrays" if lent else ""
        return Probe(
            f"{self._name} {mix.name}{whose}",
            lambda: operation(*arrays),
            elements * ELEMENT.itemsize * mix.arrays,
        )

    def release(self) -> None:
        """Give the arrays back; probes made before must not run any more."""
        self._kept = []


def buffer_reader(operations: Operations, size: int) -> Call:
    """Make a buffer of so many bytes, each page touched, and return a call that reads it. Raises OutOfMemory."""
    buffer = empty_array(size // ELEMENT.itemsize, ELEMENT)
    operations["write"](buffer)
    return lambda: operations["read"](buffer)


def lent_arrays(inputs: Sequence[Any], count: int, elements: int) -> list[Array]:
    """Return so many of a workload's arrays as flat ones of `ELEMENT`, the largest first; empty where they do not fit.

    They fit where each holds about as many elements, and no two share memory: a cache would serve the second.
    """
    flat: list[Array] = []
    found: list[Array] = []
    for array in inputs:  # those of plain numbers in one piece of memory
        if not isinstance(array, np.ndarray) or array.dtype.hasobject or array.ctypes.data % ELEMENT.itemsize:
            continue
        if array.flags.c_contiguous or array.flags.f_contiguous:
            raw = np.asarray(array).reshape(-1, order="A").view(np.uint8)
            flat.append(raw[: raw.size // ELEMENT.itemsize * ELEMENT.itemsize].view(ELEMENT))
    for array in sorted(flat, key=len, reverse=True):
        if not any(np.may_share_memory(array, other) for other in found):
            found.append(array)
    enough = [array for array in found[:count] if array.size >= LEAST_SHARE * elements]
    return enough if len(enough) == count else []


def numba_threads() -> int | None:
    """Return the number of threads that Numba runs on; None without Numba."""
    try:
        return int(import_module("numba").get_num_threads())
    except ImportError:
        return None
