"""Read and change the contents of arrays during a measurement, in place on the host or a GPU."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pytest_bandwidth.devices.base import Device
from pytest_bandwidth.devices.contents import bytes_digest
from pytest_bandwidth.devices.host import usable_processors
from pytest_bandwidth.domain.errors import OutOfMemory, UsageError
from pytest_bandwidth.frameworks.arrays import framework_of
from pytest_bandwidth.frameworks.base import span_of

# Larger arrays on the host are first added up to so many words, at memory speed, and then mixed. A swap of values a
# multiple of that apart would not change the sum: so the number is odd, and drawn for each process.
FOLD_WORDS = 6145 + 2 * secrets.randbelow(1024)
# A region that is changed between samples is this fraction of the array. It seldom has the few elements that a cheat
# looks at, and often has rows that a sparse access reads.
REGION_SHARE = 16
# Smaller parts take less time than the start of a thread.
PART_BYTES = 1 << 24
# So many places are drawn to take other values from: few are too near, or hold equal values.
MOST_DRAWN = 32
# Halves are swapped in steps of so many elements.
_AT_A_TIME = 1 << 14
# The pattern of `View.fill` by element size: a tiny float, and an unusual integer.
_FILLED = {size: int.from_bytes(b"\xa5" * size, "little") for size in (2, 4, 8)}
# Changes of one element, by the method that finds its place.
EXTREMES = {"largest": "argmax", "smallest": "argmin"}
# So many first elements are enough to find most arrays unordered.
_A_FEW = 1 << 10


@dataclass(frozen=True, slots=True)
class View:
    """Hold an array as a NumPy or CuPy array. name: for messages. own: the array object of the test.

    device: the `Device` that it is on; may be None for a NumPy array.
    """

    name: str
    own: Any
    array: Any
    device: Any

    @property
    def xp(self) -> Any:
        return np if isinstance(self.array, np.ndarray) else self.device.xp

    @property
    def is_writable(self) -> bool:
        return bool(getattr(self.array.flags, "writeable", True)) and self.array.size > 0

    @property
    def is_floating(self) -> bool:
        return self.array.dtype.kind in "fcV"

    def bits(self) -> Any:
        """Return the elements as integers in one dimension: a view where the array is contiguous, else a copy."""
        array = self.array.T if self.array.flags.f_contiguous else self.array
        size = array.dtype.itemsize
        return self.xp.ascontiguousarray(array).reshape(-1).view(f"u{size}" if size in (1, 2, 4, 8) else "u1")

    def digest(self) -> object:
        """Return a digest of the contents, computed on the host or the GPU that holds them. Raises UsageError."""
        if not isinstance(self.array, np.ndarray):
            return self.device.contents(self.array)
        data = self.bits().view("u1")
        folded, rest = divmod(data.size, FOLD_WORDS * 8)
        if folded < 2:
            return bytes_digest(data)
        words = data[: data.size - rest].view("u8").reshape(folded, FOLD_WORDS)
        sums = _on_all_processors(lambda part: np.add.reduce(part, axis=0), words)
        return bytes_digest(np.add.reduce(sums, axis=0)), bytes_digest(data[data.size - rest :])

    def copy(self) -> Any:
        """Return a copy of the contents. Raises OutOfMemory."""
        try:
            return self.array.copy(order="K")
        except MemoryError as error:
            raise OutOfMemory(f"honest: a copy of {self.name} does not fit: {error}") from None

    def poison(self) -> None:
        """Invert every bit, so that each element differs from its old value until the work writes it."""
        if self.array.dtype.kind == "b":
            self.xp.logical_not(self.array, out=self.array)
            return
        bits = self.bits()
        if self.xp is np:
            _on_all_processors(lambda part: np.invert(part, out=part), bits)
        else:
            self.xp.invert(bits, out=bits)
        if not (self.array.flags.c_contiguous or self.array.flags.f_contiguous):
            self.array[...] = bits.view(self.array.dtype).reshape(self.array.shape)

    def fill(self) -> None:
        """Fill the array with a pattern that no work computes, before the first run."""
        if self.is_writable and (size := self.array.dtype.itemsize) in _FILLED:
            self.array.view(f"u{size}")[...] = _FILLED[size]

    def filled(self) -> Any:
        """Return the places, in the order of `bits`, that still hold the pattern of `fill`."""
        filled = _FILLED.get(self.array.dtype.itemsize)
        return self.xp.flatnonzero(self.bits() == filled) if filled else self.xp.empty(0, "i8")

    def parts(self) -> Any:
        """Return the array in one dimension, else as it is, so that a slice of it is a region of its memory."""
        array = self.array
        if array.ndim == 0:
            return array.reshape(1)
        if array.flags.c_contiguous:
            return array.reshape(-1)
        return array.T.reshape(-1) if array.flags.f_contiguous else array


def _on_all_processors(function: Callable[[Any], Any], array: Any) -> list[Any]:
    """Return a function's result for each part of a host array, in parallel; a small array is one part."""
    count = min(len(usable_processors()), array.nbytes // PART_BYTES)
    if count < 2:
        return [function(array)]
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(function, np.array_split(array, count)))


@dataclass(slots=True)
class Region:
    """Hold the function that restores a changed array. start: of the changed region; None if all is changed."""

    restore: Callable[[], object]
    start: int | None = None


def view_of(device: Device, name: str, array: Any) -> View | None:
    """Return a view of an array's memory; None where that is impossible, as for JAX's arrays on a GPU."""
    found: Any = array
    if not isinstance(array, np.ndarray):
        framework = framework_of(array)
        found = None if framework is None else framework.as_numpy(array)
        if found is None and hasattr(type(array), "__cuda_array_interface__"):
            try:
                found = device.xp.asarray(array)
            except (TypeError, ValueError, RuntimeError, AttributeError):
                return None  # CuPy raises any of these for an unknown type
    if found is None or found.dtype.hasobject or found.dtype.kind in "OSUMm":
        return None
    if found.dtype.names is not None or found.dtype.char in "gG":
        return None  # they have padding bytes that no work has to write
    return View(name, array, found, device)


def overlap(one: Any, other: Any) -> bool:
    """Return whether two arrays share memory; False where the address of either is unknown."""
    spans = []
    for array in (one, other):
        framework = framework_of(array)
        try:
            extent = None if framework is None else framework.extent(array, "")
        except UsageError:
            return False
        if extent is None or not extent.address:
            return False
        spans.append((extent.space, *span_of(extent)))
    (space, start, end), (other_space, other_start, other_end) = spans
    return bool(space == other_space and start < other_end and other_start < end)


def swap_halves(parts: Any) -> bool:
    """Swap an array's halves, which changes all of it with little extra memory; return whether they differ."""
    half, differ = len(parts) // 2, False
    for at in range(0, half, _AT_A_TIME):
        first = parts[at : min(at + _AT_A_TIME, half)]
        second = parts[half + at : half + at + len(first)]
        held = first.copy()
        differ = differ or bool((_raw(second) != _raw(held)).any())
        first[...] = second
        second[...] = held
    return differ


def changed_region(view: View, generator: np.random.Generator, kind: str) -> Region | None:
    """Overwrite a region of an array with values from elsewhere in it; None where all values are the same.

    All values come from the array itself: indexes computed from them stay in bounds. Ascending arrays stay ascending.
    kind: "any" changes a random region, "one" a single element, "all" every one; "largest" and "smallest" change that
    element, since some results depend only on it.
    """
    parts = view.parts()
    count = len(parts)
    if count < 2:
        return None
    ordered = is_ordered(view)
    if kind == "all" and not ordered:
        return Region(partial(swap_halves, parts)) if swap_halves(parts) else None
    row = max(1, parts.size // count)
    size = max(count // REGION_SHARE, 1 + ordered) if kind in ("all", "any") or ordered else 1
    start = int(generator.integers(0, count - size + 1))
    if kind in EXTREMES and view.array.dtype.kind in "biuf":
        extreme = int(getattr(parts, EXTREMES[kind])())
        start = min(max(extreme // row - size // 2, 0), count - size)
    held = parts[start : start + size].copy()
    for _ in range(MOST_DRAWN):
        other = int(generator.integers(0, count - size + 1))
        if abs(other - start) < size and not ordered:
            continue  # an overlap may keep the largest element
        taken = held[:1] if ordered else parts[other : other + size].copy()
        if bool((_raw(taken) != _raw(held)).any()):
            parts[start : start + size] = taken
            return Region(partial(parts.__setitem__, slice(start, start + size), held), start)
    return None


def _raw(array: Any) -> Any:
    """Return elements as integers where their size allows it, since NaN differs from itself."""
    size = array.dtype.itemsize
    return array.view(f"u{size}") if size in (1, 2, 4, 8) and array.dtype.kind != "c" else array


def is_ordered(view: View) -> bool:
    """Return whether numbers ascend, as those of offsets and edges: in another order they may be no valid input."""
    if view.array.dtype.kind not in "iuf":
        return False
    flat = view.array.reshape(-1)
    return all(bool((some[1:] >= some[:-1]).all()) for some in (flat[:_A_FEW], flat))


def place_in(array: Any, place: int) -> str:
    """Format an element's place as indexes, ``[3, 17]``. place: in the order of `View.bits`."""
    shape = array.shape[::-1] if array.flags.f_contiguous and not array.flags.c_contiguous else array.shape
    found = [int(one) for one in np.unravel_index(place, shape)]
    return str(found[::-1] if shape is not array.shape else found)
