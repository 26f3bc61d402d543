"""Set the variables of a loaded module, and restore them after the test."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from pytest_bandwidth.devices.base import KernelSource
from pytest_bandwidth.devices.code.variables import checked_contents, variable_settings
from pytest_bandwidth.domain.code.identity import digest


class Variables:
    """Hold what a test set in one module: CuPy loads a source once for all of its kernels.

    module: CuPy's. sizes: the bytes of each variable. Nothing on the device may use the module meanwhile.
    """

    def __init__(self, cupy: Any, module: Any, sizes: Mapping[str, int]) -> None:
        self._cupy, self._module, self._sizes = cupy, module, sizes
        self._before: dict[str, Any] = {}
        self._digests: dict[str, str] = {}

    @property
    def settings(self) -> tuple[str, ...]:
        """Return what identifies launches, with code and arguments."""
        return variable_settings(self._digests)

    def set(self, name: str, value: Any, source: KernelSource) -> None:
        """Write a whole variable. source: the kernel's. Raises UsageError."""
        if isinstance(value, self._cupy.ndarray):
            value = self._cupy.asnumpy(value)
        data = checked_contents(name, value, self._sizes, source)
        if name not in self._before:
            before = np.empty(len(data), np.uint8)
            self._place(name).copy_to_host(before.ctypes.data, before.nbytes)
            self._before[name] = before
        self._write(name, np.frombuffer(data, np.uint8))
        self._digests[name] = digest(data)

    def restore(self) -> None:
        """Give the variables back what they held before."""
        for name, before in self._before.items():
            self._write(name, before)
        self._before.clear()
        self._digests.clear()

    def _write(self, name: str, data: Any) -> None:
        self._place(name).copy_from_host(data.ctypes.data, data.nbytes)

    def _place(self, name: str) -> Any:
        memory = self._cupy.cuda.UnownedMemory(self._module.get_global_var(name), self._sizes[name], self._module)
        return self._cupy.cuda.MemoryPointer(memory, 0)


@functools.cache
def _kind(raw_kernel: type) -> type:
    """Return a subclass of CuPy's RawKernel, whose objects take attributes."""
    return type("RawKernel", (raw_kernel,), {})


def with_attributes(cupy: Any, kernel: Any) -> Any:
    """Return a RawKernel as an object that takes attributes."""
    kind: Any = _kind(cupy.RawKernel)
    made = kind.__new__(kind)
    made.__setstate__(kernel.__getstate__())
    _ = made.kernel  # of the same module, which is loaded
    return made
