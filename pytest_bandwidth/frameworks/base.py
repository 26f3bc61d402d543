"""Define the interface of frameworks, plugged-in ones included: above all, where each array lies.

From this the distinct bytes of arrays are counted: views may share memory, and each byte counts once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.units import format_bytes

# Strided views that overlap are marked cell by cell, a byte for each.
MOST_CELLS = 2**28


@dataclass(frozen=True, slots=True)
class Extent:
    """Describe where an array's elements lie: address of the first, shape, strides in bytes, bytes of an element.

    space: the memory that the address belongs to, such as a device; extents in different spaces never overlap.
    """

    space: Hashable
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int


class Framework(ABC):
    """Describe a framework's arrays; the defaults fit a framework whose work ends with the call or its stream.

    computes_later: arrays are computed after the call that returns them, on no stream that can be timed. is_lazy: they
    are recipes until they are realized, and an argument may become a recipe again. known_to_devices: a protocol gives
    their place, so that devices can size them. own_graphs: the only function that may capture the framework's work into
    a CUDA graph; None = any. own_device: the device that measures its work, where `cpu` and `cuda` cannot.
    """

    name: str
    computes_later = False
    is_lazy = False
    known_to_devices = True
    own_graphs: str | None = None
    own_device: str | None = None

    @abstractmethod
    def owns(self, value: object) -> bool:
        """Return whether the value is one of its arrays."""

    @abstractmethod
    def extent(self, array: Any, path: str) -> Extent:
        """Return where the array lies. Raises UsageError where it has no memory, or its use would not be measured."""

    @abstractmethod
    def is_on_host(self, array: Any) -> bool:
        """Return whether the array lies in host memory."""

    def is_made(self, array: Any) -> bool:
        """Return whether the array has memory: no recipe that each use would compute anew, no stand-in, not donated.

        Where it has no memory, `extent` raises with the reason.
        """
        return True

    def stream(self, array: Any) -> Any:
        """Return the stream that its work on a GPU is queued on; None where that is the device's current one."""
        del array

    def wait(self, arrays: Sequence[Any]) -> None:
        """Have the framework compute the arrays, and wait for them."""
        del arrays

    def kernels_run(self) -> int | None:
        """Return how many kernels it has run so far; None where it does not count them."""
        return None

    def as_numpy(self, array: Any) -> Any:
        """Return a host array as a view of NumPy's; None where that needs a copy."""
        del array


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Hold an extent as blocks without gaps: the first one's start, their length, and how often they repeat."""

    start: int
    length: int
    repeats: tuple[tuple[int, int], ...] = ()

    @property
    def end(self) -> int:
        return self.start + self.length + sum((size - 1) * stride for size, stride in self.repeats)

    @property
    def overlaps_itself(self) -> bool:
        """Return whether two blocks may share bytes, as those of sliding windows do."""
        span = self.length
        for size, stride in self.repeats:
            if stride < span:
                return True
            span += (size - 1) * stride
        return False


def span_of(extent: Extent) -> tuple[int, int]:
    """Return an extent's first address, and the one after its last."""
    blocks = _blocks(extent)
    return blocks.start, blocks.end if prod(extent.shape) else blocks.start


def distinct_bytes(extents: Iterable[Extent]) -> int:
    """Return the bytes that lie in any of the extents, each once.

    Elements that a stride of 0 repeats are in memory once. Raises UsageError where too much overlaps to be counted.
    """
    spaces: dict[Hashable, set[_Blocks]] = {}
    for extent in extents:
        if prod(extent.shape) * extent.itemsize:
            spaces.setdefault(extent.space, set()).add(_blocks(extent))
    total = 0
    for found in spaces.values():
        # Part by part: the spans of a part's blocks, from first byte to last, meet those of no other part.
        group: list[_Blocks] = []
        end = 0
        for blocks in sorted(found, key=lambda one: (one.start, one.end)):
            if group and blocks.start >= end:
                total += _union(group, end)
                group = []
            end = max(end, blocks.end) if group else blocks.end
            group.append(blocks)
        total += _union(group, end)
    return total


def _blocks(extent: Extent) -> _Blocks:
    start, length = extent.address, extent.itemsize
    dimensions: list[tuple[int, int]] = []
    for size, stride in zip(extent.shape, extent.strides, strict=True):
        if stride < 0:
            start += (size - 1) * stride
        if size > 1 and stride:
            dimensions.append((abs(stride), size))
    repeats: list[tuple[int, int]] = []
    for stride, size in sorted(dimensions):
        if not repeats and stride <= length:
            length += (size - 1) * stride
        else:
            repeats.append((size, stride))
    return _Blocks(start, length, tuple(repeats))


def _union(group: Sequence[_Blocks], end: int) -> int:
    """Return the bytes of connected blocks, each once. end: of the last of them."""
    start = group[0].start
    whole = any(not blocks.repeats and blocks.start == start and blocks.end == end for blocks in group)
    if whole or not any(blocks.repeats for blocks in group):
        return end - start
    if len(group) == 1 and not group[0].overlaps_itself:
        return group[0].length * prod(size for size, _ in group[0].repeats)
    # Mark what the blocks cover, in cells of the largest size that all of them are made of.
    steps = [step for b in group for step in (b.start - start, b.length, *(stride for _, stride in b.repeats))]
    cell = gcd(*steps)
    cells = (end - start) // cell
    if cells > MOST_CELLS:
        raise UsageError(
            f"views with gaps overlap in {format_bytes(end - start)} of memory, too much to count byte by byte: "
            "declare the bytes"
        )
    marks = np.zeros(cells, np.bool_)
    for b in group:
        first = marks[(b.start - start) // cell :]
        shape = (*(size for size, _ in b.repeats), b.length // cell)
        strides = (*(stride // cell for _, stride in b.repeats), 1)
        as_strided(first, shape, strides)[...] = True
    return int(np.count_nonzero(marks)) * cell
