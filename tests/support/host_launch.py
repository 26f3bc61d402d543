"""Launch host kernels in tests: arrays with guards around them, at any alignment."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from pytest_bandwidth.devices.base import Launch
from pytest_bandwidth.devices.cpu.device import CpuDevice
from pytest_bandwidth.devices.kernel_source import read_source
from pytest_bandwidth.devices.numpy_arrays import RandomSource

# No element, one, fewer than a line, lines and ends, and enough for every thread to have several lines.
SIZES = (0, 1, 15, 16, 17, 64, 1000, 4099)
GUARD = 64
STORED = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


@lru_cache(maxsize=1)
def cpu() -> CpuDevice:
    return CpuDevice()


def run(file: str, name: str, *args: Any, blocks: int = 1) -> None:
    """Run a shipped kernel's twin once."""
    kernel = cpu().kernel(read_source(file, name, []))
    cpu().launcher(Launch(kernel, (blocks, 1, 1), (256, 1, 1), args), None)()


def numbers(n: int, dtype: Any, seed: int = 1, offset: int = 0) -> Any:
    """Return n values from -2 to 2, whose first lies `offset` elements past a line's boundary."""
    values = (RandomSource(seed).array(n + offset, np.float64) - 1.5) * 4
    array = cpu().empty(n + offset, dtype)
    array[:] = values
    return array[offset:]


class Guarded:
    """Hold an array to be written, with elements before and after that must stay as they are."""

    def __init__(self, n: int, dtype: Any, offset: int = 0) -> None:
        self._whole = cpu().empty(2 * GUARD + offset + n, dtype)
        self._whole.view(np.uint8)[:] = 0x5A
        self._start = GUARD + offset
        self._n = n

    @property
    def array(self) -> Any:
        return self._whole[self._start : self._start + self._n]

    def check(self) -> Any:
        """Return the array, if nothing outside of it was written."""
        outside = (self._whole[: self._start], self._whole[self._start + self._n :])
        for part in outside:
            assert (np.ascontiguousarray(part).view(np.uint8) == 0x5A).all(), "written outside of the array"
        return self.array
