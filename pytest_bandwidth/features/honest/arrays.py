"""Look into arrays while a test is measured, and change what they hold: where they lie, on the host or a GPU."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pytest_bandwidth.devices.base import Device
from pytest_bandwidth.devices.contents import sums_of
from pytest_bandwidth.devices.host import usable_processors
from pytest_bandwidth.domain.errors import OutOfMemory, UsageError
from pytest_bandwidth.frameworks.arrays import framework_of
from pytest_bandwidth.frameworks.base import span_of

# A host folds larger arrays to so many words before it mixes them, at the speed of its memory. Values that change
# places by a multiple of that would not show: it is odd, and drawn for each process.
FOLD_WORDS = 6145 + 2 * secrets.randbelow(1024)
# A region that is changed between samples has this share of the array: few elements that a cheat looks at lie in it
# seldom, and the rows that a sparse access reads often.
REGION_SHARE = 16
# Fewer bytes take less time than a thread takes to start.
PART_BYTES = 1 << 24
# So often a place is drawn to take other values from: few places are too near, or hold the same.
MOST_DRAWN = 32
# Halves change places by so many elements at a time.
_AT_A_TIME = 1 << 14
# By the bytes of an element: as a number tiny, and no whole number of note.
_FILLED = {size: int.from_bytes(b"\xa5" * size, "little") for size in (2, 4, 8)}
# Of these, most arrays tell whether their numbers are in order.
_A_FEW = 1 << 10


@dataclass(frozen=True, slots=True)
class View:
    """Hold an array as NumPy or CuPy sees it. name: how a message calls it. own: the array as the test has it.

    device: the `Device` that it is on; None will do for an array of NumPy's.
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
        """Return the array's elements as whole numbers of one dimension: its own memory where that has no gaps."""
        array = self.array.T if self.array.flags.f_contiguous else self.array
        size = array.dtype.itemsize
        return self.xp.ascontiguousarray(array).reshape(-1).view(f"u{size}" if size in (1, 2, 4, 8) else "u1")

    def digest(self) -> object:
        """Return what is the same for the same contents; added up where the array lies. Raises UsageError."""
        if not isinstance(self.array, np.ndarray):
            return self.device.contents(self.array)
        data = self.bits().view("u1")
        folded, rest = divmod(data.size, FOLD_WORDS * 8)
        if folded < 2:
            return sums_of(data)
        words = data[: data.size - rest].view("u8").reshape(folded, FOLD_WORDS)
        sums = _on_all_processors(lambda part: np.add.reduce(part, axis=0), words)
        return sums_of(np.add.reduce(sums, axis=0)), sums_of(data[data.size - rest :])

    def copy(self) -> Any:
        """Return a copy of the contents. Raises OutOfMemory."""
        try:
            return self.array.copy(order="K")
        except MemoryError as error:
            raise OutOfMemory(f"honest: a copy of {self.name} does not fit: {error}") from None

    def poison(self) -> None:
        """Invert every bit: what nothing writes afterwards differs from what it was in every element."""
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
        """Fill the array with what no work computes, before anything is written."""
        if self.is_writable and (size := self.array.dtype.itemsize) in _FILLED:
            self.array.view(f"u{size}")[...] = _FILLED[size]

    def filled(self) -> Any:
        """Return the places, in the order of `bits`, of what is as `fill` left it."""
        filled = _FILLED.get(self.array.dtype.itemsize)
        return self.xp.flatnonzero(self.bits() == filled) if filled else self.xp.empty(0, "i8")

    def parts(self) -> Any:
        """Return the array as one dimension, or else in rows, so that a slice of it is a region of its memory."""
        array = self.array
        if array.ndim == 0:
            return array.reshape(1)
        if array.flags.c_contiguous:
            return array.reshape(-1)
        return array.T.reshape(-1) if array.flags.f_contiguous else array


def _on_all_processors(function: Callable[[Any], Any], array: Any) -> list[Any]:
    """Return what a function returns for each part of a host's array; for small ones in this thread."""
    count = min(len(usable_processors()), array.nbytes // PART_BYTES)
    if count < 2:
        return [function(array)]
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(function, np.array_split(array, count)))


def extreme_of(view: View, kind: str) -> int | None:
    """Return the place of the "largest" or "smallest" element of `View.parts`; None for what has none."""
    if view.array.dtype.kind not in "biuf" or not view.array.size:
        return None
    return int(getattr(view.parts(), "argmax" if kind == "largest" else "argmin")())


@dataclass(slots=True)
class Region:
    """Hold what gives a changed array back what it held. start: of the changed region; None where all is changed."""

    restore: Callable[[], object]
    start: int | None = None


def view_of(device: Device, name: str, array: Any) -> View | None:
    """Return a view of an array's memory; None where there is none, as of JAX's on a GPU."""
    found: Any = array
    if not isinstance(array, np.ndarray):
        framework = framework_of(array)
        found = None if framework is None else framework.as_numpy(array)
        if found is None and hasattr(type(array), "__cuda_array_interface__"):
            try:
                found = device.xp.asarray(array)
            except (TypeError, ValueError, RuntimeError, AttributeError):
                return None  # CuPy raises any of these for a type that it does not have
    if found is None or found.dtype.hasobject or found.dtype.kind in "OSUMm":
        return None
    if found.dtype.names is not None or found.dtype.char in "gG":
        return None  # between their numbers are bytes that nothing has to write
    return View(name, array, found, device)


def overlap(one: Any, other: Any) -> bool:
    """Return whether two arrays share memory, as far as both tell where they lie."""
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
    """Let an array's halves change places, which changes all of it in little memory; return whether they differ."""
    half, differ = len(parts) // 2, False
    for at in range(0, half, _AT_A_TIME):
        first = parts[at : min(at + _AT_A_TIME, half)]
        second = parts[half + at : half + at + len(first)]
        held = first.copy()
        differ = differ or bool((_raw(second) != _raw(held)).any())
        first[...] = second
        second[...] = held
    return differ


def changed_region(view: View, generator: np.random.Generator, kind: str, extreme: int | None = None) -> Region | None:
    """Overwrite a region of an array with values from elsewhere in it; None where all values are the same.

    Values stay among those that the array has: what computes an index of them finds it in bounds. Where they never
    fall, they do not afterwards.
    kind: "any" changes a region that is drawn, "one" a single element, "all" every one; "largest" and "smallest" those
    elements, since some results tell only them. extreme: where that one is.
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
    if extreme is not None:
        start = min(max(extreme // row - size // 2, 0), count - size)
    held = parts[start : start + size].copy()
    for _ in range(MOST_DRAWN):
        other = int(generator.integers(0, count - size + 1))
        if abs(other - start) < size and not ordered:
            continue  # it may bring the largest one back
        taken = held[:1] if ordered else parts[other : other + size].copy()
        if bool((_raw(taken) != _raw(held)).any()):
            parts[start : start + size] = taken
            return Region(partial(parts.__setitem__, slice(start, start + size), held), start)
    return None


def _raw(array: Any) -> Any:
    """Return elements as whole numbers where their size allows it: NaN differs from itself."""
    size = array.dtype.itemsize
    return array.view(f"u{size}") if size in (1, 2, 4, 8) and array.dtype.kind != "c" else array


def is_ordered(view: View) -> bool:
    """Return whether numbers never fall, as offsets and edges do: in another order they may be no valid input."""
    if view.array.dtype.kind not in "iuf":
        return False
    flat = view.array.reshape(-1)
    return all(bool((some[1:] >= some[:-1]).all()) for some in (flat[:_A_FEW], flat))


def place_in(array: Any, place: int) -> str:
    """Write the place of an element, counted in the order of `View.bits`: ``[3, 17]``."""
    shape = array.shape[::-1] if array.flags.f_contiguous and not array.flags.c_contiguous else array.shape
    found = [int(one) for one in np.unravel_index(place, shape)]
    return str(found[::-1] if shape is not array.shape else found)
