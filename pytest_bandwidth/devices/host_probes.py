"""The host's probes: the plainest read, write, copy and add, on arrays of their own.

How fast memory is depends on the mix of reads and writes, so a workload is held against the probe of the nearest mix.
With Numba the probes run on all threads and bypass the caches when they write: the best that this host can do. Without
it they are NumPy's own operations, on one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pytest_bandwidth.devices.base import Probe
from pytest_bandwidth.devices.host_arrays import Array, empty_array
from pytest_bandwidth.domain.traffic import Traffic

ELEMENT = np.dtype(np.float32)
# A probe of fewer bytes shows the cost of a call, one of more shows nothing new: 1 GiB leaves every cache.
SMALLEST_BYTES = 4096
LARGEST_BYTES = 1 << 30


class ProbeOperations(Protocol):
    """The four operations, on float32 arrays of one length."""

    name: str

    def read(self, x: Array) -> None: ...
    def write(self, out: Array) -> None: ...
    def copy(self, out: Array, x: Array) -> None: ...
    def add(self, out: Array, x: Array, y: Array) -> None: ...


class NumpyOperations:
    """What NumPy does by itself."""

    name = "NumPy"

    def read(self, x: Array) -> None:
        x.max()

    def write(self, out: Array) -> None:
        out.fill(1)

    def copy(self, out: Array, x: Array) -> None:
        np.copyto(out, x)

    def add(self, out: Array, x: Array, y: Array) -> None:
        np.add(x, y, out=out)


class NumbaOperations:
    """The host kernels of the stream family. Raises ImportError without Numba."""

    name = "Numba"

    def __init__(self, threads: int) -> None:
        from pytest_bandwidth.devices import host_stream

        self._kernels = host_stream
        self._threads = threads
        self._sink = np.zeros(1, ELEMENT)

    def read(self, x: Array) -> None:
        self._kernels.read(self._threads, self._sink, x, np.float32(np.nan), x.size)

    def write(self, out: Array) -> None:
        self._kernels.write(self._threads, out, np.float32(1), out.size)

    def copy(self, out: Array, x: Array) -> None:
        self._kernels.copy(self._threads, out, x, x.size)

    def add(self, out: Array, x: Array, y: Array) -> None:
        self._kernels.add(self._threads, out, x, y, x.size)


@dataclass(frozen=True, slots=True)
class Mix:
    """How many arrays a probe reads and writes."""

    name: str
    reads: int
    writes: int

    @property
    def arrays(self) -> int:
        return self.reads + self.writes

    @property
    def written_share(self) -> float:
        return self.writes / self.arrays


READ = Mix("read", 1, 0)
ADD = Mix("add", 2, 1)
COPY = Mix("copy", 1, 1)
WRITE = Mix("write", 0, 1)


def nearest_mix(traffic: Traffic) -> Mix:
    """The mix whose share of written bytes is nearest to the traffic's; of two as near, the one that writes less."""
    share = traffic.bytes_written / traffic.bytes_moved
    return min((READ, ADD, COPY, WRITE), key=lambda mix: abs(mix.written_share - share))


class HostProbes:
    """Makes probes; keeps the arrays of the last one, which the next may use as well."""

    def __init__(self, operations: ProbeOperations) -> None:
        self._operations = operations
        self._kept: list[Array] = []

    def probe(self, traffic: Traffic) -> Probe:
        """A probe that moves as many bytes as the traffic, within 4 KiB and 1 GiB. Raises OutOfMemory."""
        mix = nearest_mix(traffic)
        wanted = min(max(traffic.bytes_moved, SMALLEST_BYTES), LARGEST_BYTES)
        elements = wanted // (mix.arrays * ELEMENT.itemsize)
        arrays = self._arrays(mix.arrays, elements)
        operation: Callable[..., None] = getattr(self._operations, mix.name)
        # The output comes first; a read has none.
        return Probe(
            f"{self._operations.name} {mix.name}", lambda: operation(*arrays), elements * ELEMENT.itemsize * mix.arrays
        )

    def release(self) -> None:
        """Gives the arrays back; probes made before must not run any more."""
        self._kept = []

    def _arrays(self, count: int, elements: int) -> tuple[Array, ...]:
        """Allocated one by one, as a test's arrays are: out of one pool they would lie on other banks of memory."""
        # Those that are too small have to go before others come.
        self._kept = [array for array in self._kept if array.size >= elements]
        while len(self._kept) < count:
            array = empty_array(elements, ELEMENT)
            # Touched, or reads would all be of the system's one page of zeros.
            self._operations.write(array)
            self._kept.append(array)
        return tuple(array[:elements] for array in self._kept[:count])


def numba_threads() -> tuple[int, str] | None:
    """Threads that Numba runs on, and its threading layer; None without Numba."""
    try:
        import numba
    except ImportError:
        return None
    return int(numba.get_num_threads()), _threading_layer(numba)


def _threading_layer(numba: Any) -> str:
    try:
        return str(numba.threading_layer())
    except ValueError:  # not started yet
        pass
    from importlib.util import find_spec

    asked = str(numba.config.THREADING_LAYER)
    pools = {"tbb": "tbbpool", "omp": "omppool", "workqueue": "workqueue"}
    if asked in pools:
        return asked
    for layer in numba.config.THREADING_LAYER_PRIORITY:
        if layer in pools and find_spec(f"numba.np.ufunc.{pools[layer]}") is not None and _loads(pools[layer]):
            return str(layer)
    return asked


def _loads(pool: str) -> bool:
    from importlib import import_module

    try:
        import_module(f"numba.np.ufunc.{pool}")
    except ImportError:  # its library, such as libgomp or TBB, is not there
        return False
    return True
