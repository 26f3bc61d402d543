"""Choose and run the probe beside a workload: a plain read, write, copy or add of its size and nearly its mix.

What share of its peak a memory reaches depends on the mix of reads and writes, by up to 26 points on one GPU, so a copy
says little of a kernel that only reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pytest_bandwidth.devices.base import Probe
from pytest_bandwidth.devices.cuda.runtime import ContextGuard
from pytest_bandwidth.domain.errors import OutOfMemory
from pytest_bandwidth.domain.traffic import READ, WRITE, Mix, Traffic, nearest_mix

VECTOR_BYTES = 16
THREADS = 256
# Of each array, in a grid in which no thread has a second turn. Four loads under way is what probe_read unrolls.
VECTORS_A_THREAD = {READ: 4}
# HIP takes fewer than 2³² threads a launch; past that threads have a second turn.
MOST_BLOCKS = (2**32 - 1) // THREADS
# A probe smaller than this measures launching only; one that does not fit is halved down to there, then given up.
SMALLEST_BYTES = 64 * 1024
SMALLEST_AFTER_SHRINKING = 16 * 2**20


def blocks_of(vectors: int, mix: Mix) -> int:
    """Return the grid of a probe: so many blocks that no thread has a second turn, up to MOST_BLOCKS."""
    return min(-(-vectors // (THREADS * VECTORS_A_THREAD.get(mix, 1))), MOST_BLOCKS)


@dataclass(frozen=True, slots=True)
class ProbeCall:
    """Launch a probe on the current stream. It is a class of its own, so that the device knows its own calls.

    data_bytes: what its arrays hold, which is what it moves; written_share: how much of that it writes.
    """

    launch: Callable[[], None]
    data_bytes: int
    written_share: float

    def __call__(self) -> None:
        self.launch()


class ProbeSet:
    """Make probes and keep the arrays of the last one, which the next may use as well.

    allocate: bytes → an array of them, filled with random bits; raises the allocator's own error.
    free: gives unused memory back to the device before another try.
    """

    def __init__(
        self, kernels: Callable[[str], Any], allocate: Callable[[int], Any], free: Callable[[], None],
        guard: ContextGuard, sink: Any,
    ) -> None:  # fmt: skip  # one parameter a line would hide that it only stores them
        self._kernels = kernels
        self._allocate = allocate
        self._free = free
        self._guard = guard
        self.blocks = blocks_of
        self._sink = sink
        self._arrays: list[Any] = []
        self._seed = 0

    def probe(self, traffic: Traffic) -> Probe:
        """Return a probe for the traffic. Raises OutOfMemory where not even a small one fits."""
        mix = nearest_mix(traffic)
        vectors = self._fit(max(traffic.bytes_moved, SMALLEST_BYTES) // (mix.arrays * VECTOR_BYTES), mix)
        kernel = self._kernels(f"probe_{mix.name}")
        arrays = self._arrays
        count = np.int64(vectors)
        grid = (self.blocks(vectors, mix),)

        def launch() -> None:
            if mix is READ:
                args: tuple[Any, ...] = (arrays[0], self._sink, np.uint32(0x5EED5EED), count)
            elif mix is WRITE:
                self._seed = (self._seed + 1) % 2**32
                args = (arrays[0], np.uint32(self._seed), count)
            else:
                args = (*arrays[: mix.arrays], count)
            kernel(grid, (THREADS,), args)

        moved = vectors * VECTOR_BYTES * mix.arrays
        return Probe(mix.name, ProbeCall(launch, moved, float(mix.written_share)), moved)

    def release(self) -> None:
        """Give back the arrays."""
        self._arrays = []

    def _fit(self, vectors: int, mix: Mix) -> int:
        """Provide arrays of so many vectors, or of half as many, and so on; how many it came to."""
        of_all = VECTOR_BYTES * mix.arrays
        asked = vectors * of_all
        while True:
            try:
                with self._guard.allocation(f"the probe ({asked} bytes in {mix.arrays} arrays)"):
                    self._provide(vectors * VECTOR_BYTES, mix.arrays)
                return vectors
            except OutOfMemory:
                vectors //= 2
                if vectors * of_all < SMALLEST_AFTER_SHRINKING:
                    raise

    def _provide(self, size: int, count: int) -> None:
        if len(self._arrays) >= count and all(array.nbytes >= size for array in self._arrays[:count]):
            return
        self._arrays = []
        self._free()
        self._arrays = [self._allocate(size) for _ in range(count)]
