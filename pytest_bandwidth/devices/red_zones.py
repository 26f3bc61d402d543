"""Find writes beyond the ends of an array by a pattern in the memory before and after it.

The pattern is written when the test gets the array. It is checked when the array is freed or the test's body ends.
Timed work does not change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from pytest_bandwidth.devices.numpy_arrays import ALIGNMENT_BYTES
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.units import counted

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

# Shows a write 4 KiB away, of an element of up to 4 KiB. Whole pages, so that an array begins at the same place of a
# page, and of CUDA's 512 bytes, as without zones.
ZONE_BYTES = 8192
# A kernel that goes too far often computes the values for one array's zone from another array's zone. A copy is
# detected: zones of two arrays differ in all bytes, but for a third of the numbers' last bytes. A sum is detected: by
# its last byte each float is negative, neither infinite nor NaN, and all are of similar size.
_FIRST, _PERIOD, _LAST = 0x81, 121, (0xBD, 0xBE, 0xBF)
_LARGEST_NUMBER_BYTES = 8
_MOST_REPORTED = 3


@dataclass(slots=True)
class _Array:
    """Hold an array's name for messages, and where it ends in its block. number: the test's first array is 1."""

    zones: RedZones
    number: int
    shape: tuple[int, ...]
    dtype: str
    itemsize: int
    end: int


class Block:
    """Hold the memory of one array with its zones, as long as a view of the array exists.

    raw: the memory, as bytes. The array begins at byte `begin` of it. NumPy takes `size` bytes there for an array;
    CuPy has this object as its memory's owner.
    """

    def __init__(self, raw: Any, address: int, begin: int, size: int) -> None:
        self.raw, self.begin = raw, begin
        self.array: _Array | None = None
        data = (address + begin, False)
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (size,), "data": data}

    def __del__(self) -> None:
        if self.array is not None and not self.array.zones.is_paused:
            with suppress(BandwidthError, RuntimeError):  # of a GPU's lost context, which `written` reports
                self.array.zones.look(self, self.array)


class RedZones:
    """Hold the zones of a device's arrays, and what was written into them in this test.

    read, write: get bytes of a block, and set them. address_of: where an array begins.
    """

    def __init__(
        self,
        read: Callable[[Any], Bytes] = np.asarray,
        write: Callable[[Any, Bytes], None] = np.copyto,
        address_of: Callable[[Any], int] = lambda array: int(array.ctypes.data),
    ) -> None:
        self._read, self._write, self._address_of = read, write, address_of
        # By the address of the array.
        self._blocks: WeakValueDictionary[int, Block] = WeakValueDictionary()
        self.count = 0  # of the arrays that this test was given
        self._found: list[tuple[int, str]] = []
        self.is_paused = False

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Neither make nor check zones meanwhile: a sample may make arrays, or free some."""
        self.is_paused = True
        try:
            yield
        finally:
            self.is_paused = False

    def allocate(self, size: int) -> Bytes | None:
        """Return so many bytes of the host, on a boundary of 64, with room for zones; None while paused."""
        if self.is_paused:
            return None
        raw = np.empty(size + 2 * ZONE_BYTES + ALIGNMENT_BYTES, np.uint8)
        address = raw.ctypes.data
        return np.asarray(self.block(raw, address, ZONE_BYTES + -address % ALIGNMENT_BYTES, size))

    def block(self, raw: Any, address: int, begin: int, size: int) -> Block:
        """Return a block for the memory at an address. begin, size: the array's place in that memory."""
        block = self._blocks[address + begin] = Block(raw, address, begin, size)
        return block

    def lay(self, array: Any) -> None:
        """Write the pattern around an array that lies in such a block."""
        if self.is_paused:
            return
        self.count += 1
        block = self._blocks.get(self._address_of(array))
        if block is None:
            return
        end, itemsize = block.begin + array.nbytes, array.dtype.itemsize
        block.array = _Array(self, self.count, array.shape, array.dtype.name, itemsize, end)
        pattern = _pattern(self.count, itemsize)
        for zone in (block.raw[block.begin - ZONE_BYTES : block.begin], block.raw[end : end + ZONE_BYTES]):
            self._write(zone, pattern)

    def end_test(self) -> None:
        """Forget the test's arrays, and the writes that were found."""
        for block in self._blocks.values():
            block.array = None
        self.count = 0
        self._found.clear()

    def written(self) -> str | None:
        """Describe this test's writes beyond the ends of its arrays so far; None where there were no such writes."""
        for block in list(self._blocks.values()):
            if block.array is not None:
                self.look(block, block.array)
                block.array = None
        if not self._found:
            return None
        texts = [text for _, text in sorted(self._found)]
        more = [f"and {len(texts) - _MOST_REPORTED} more places"] if len(texts) > _MOST_REPORTED else []
        return f"a write out of bounds: {'; '.join((*texts[:_MOST_REPORTED], *more))}"

    def look(self, block: Block, array: _Array) -> None:
        """Check the zones of an array, and keep a text for each changed one."""
        pattern, itemsize = _pattern(array.number, array.itemsize), max(array.itemsize, 1)
        whose = f"array {array.number} of the test, {array.shape} {array.dtype}"
        sides = (("before", "beginning", block.begin - ZONE_BYTES), ("after", "end", array.end))
        for side, bound, start in sides:
            changed = np.flatnonzero(self._read(block.raw[start : start + ZONE_BYTES]) != pattern)
            if not changed.size:
                continue
            nearest = int(changed[0]) if side == "after" else ZONE_BYTES - 1 - int(changed[-1])
            elements = nearest // itemsize
            away = f"{elements * itemsize} bytes ({counted(elements, 'element')}) from its {bound}"
            self._found.append((array.number, f"{counted(changed.size, 'byte')} changed {side} {whose}, {away}"))


def _pattern(number: int, itemsize: int) -> Bytes:
    """Return the pattern for the zones of an array. number: among the test's arrays."""
    size = math.gcd(itemsize, _LARGEST_NUMBER_BYTES)
    start = number % _PERIOD * size
    return _rising(size, _LAST[number % len(_LAST)])[start : start + ZONE_BYTES]


@cache
def _rising(size: int, last: int) -> Bytes:
    """Return bytes that rise and begin again. In numbers of so many bytes, each last byte is `last` instead."""
    rising = (_FIRST + np.arange(ZONE_BYTES + _PERIOD * size) % _PERIOD).astype(np.uint8)
    if size > 1:
        rising[size - 1 :: size] = last
    return rising
