"""Hold a batch's registers: one array each, of the smallest shape that holds its values."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pytest_bandwidth.features.traffic.ptx.arrays import Array
from pytest_bandwidth.features.traffic.ptx.lanes import Geometry
from pytest_bandwidth.features.traffic.ptx.program import Guard, Kernel, Read, Write


class Registers:
    """Hold values. They are never changed in place, so a copy is the same array, and batches share constants."""

    def __init__(self, kernel: Kernel, geometry: Geometry, arguments: dict[int, Array]) -> None:
        self._values: list[Array | None] = [None] * kernel.register_count
        for index, array in (*kernel.constants.items(), *arguments.items()):
            self._values[index] = array
        for index, name in kernel.specials.items():
            self._values[index] = geometry.special(name)
        self._kept = 0

    def keep(self, live: Iterable[int]) -> None:
        """Note the registers (as bit sets) that lanes outside the running group may still read:
        writes leave those lanes' values.
        """
        self._kept = 0
        for registers in live:
            self._kept |= registers

    def read(self, source: Read) -> Array:
        value = self._values[source.register]
        if value is None:  # never written: compilers leave that to values nobody needs
            return np.zeros((1, 1), source.dtype)
        if source.narrow:
            value = value.view(f"u{value.dtype.itemsize}").astype(f"u{source.dtype.itemsize}")
        if value.dtype is not source.dtype:
            value = value.view(source.dtype)
        return ~value if source.negated else value

    def write(self, target: Write | None, value: Array, lanes: Array, guarded: bool) -> None:
        """Give `lanes` the value; others keep theirs where it may still be read, or where the write is `guarded`."""
        if target is None:
            return
        if target.widen is not None:
            value = value.astype(target.widen)
        register = target.register
        if guarded or (self._kept >> register) & 1:
            old = self._values[register]
            if old is not None:
                value = np.where(lanes, value, old.view(value.dtype))
        self._values[register] = value

    def predicate(self, guard: Guard) -> Array:
        """Tell where a guard holds."""
        value = self._values[guard.register]
        if value is None:
            value = np.zeros((1, 1), np.bool_)
        return ~value if guard.negated else value

    def guarded(self, guard: Guard | None, lanes: Array) -> Array:
        """Return the lanes for which the guard holds."""
        return lanes if guard is None else lanes & self.predicate(guard)
