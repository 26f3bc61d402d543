"""Hash the contents of arrays of whole numbers: indices, lengths and masks decide which memory a kernel touches.

The hash is a sum over 64-bit words, mixed with their places, so that a device adds it up at the speed of its memory.
Floating-point numbers are left out: they decide the results, and hardly ever which memory is read.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from pytest_bandwidth.devices.host import usable_processors
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.units import format_bytes

# Names of such types in NumPy, PyTorch and JAX, with quantized ones. Times are whole numbers, too.
_WHOLE = re.compile(r"q?u?int\d*|bool_?|u?long|short|byte|datetime64.*|timedelta64.*|(bytes|str)\d*", re.ASCII)
# The longest time for a host's array; larger arrays are not hashed.
MOST_SECONDS = 10.0
# splitmix64's constants; cuda_src/probe.cu has the same sums.
_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK = 2**64 - 1
_WORD_BYTES = 8
# A chunk and its temporary arrays stay in a core's cache; a processor takes all chunks of a part.
_CHUNK_WORDS = 1 << 14
_PART_WORDS = 1 << 21
_PLACES = np.arange(_CHUNK_WORDS, dtype=np.uint64)

Sums = tuple[int, int]


def holds_whole_numbers(array: Any) -> bool:
    """Return whether an array's elements are integers, booleans or texts, or hold some."""
    dtype = getattr(array, "dtype", None)
    if isinstance(dtype, np.dtype):
        return _has_whole(dtype)
    return _WHOLE.fullmatch(str(dtype).rsplit(".", 1)[-1]) is not None


def _has_whole(dtype: np.dtype[Any]) -> bool:
    if dtype.subdtype is not None:
        return _has_whole(dtype.subdtype[0])
    if dtype.names is not None:
        return any(_has_whole(dtype.fields[name][0]) for name in dtype.names if dtype.fields is not None)
    return _WHOLE.fullmatch(dtype.name) is not None


def contents_text(array: Any, sums: Sums) -> str:
    """Return a text that identifies an array's contents: its type and shape, and the sums of its words."""
    return f"{array.dtype} {tuple(array.shape)} {sums[0]:x} {sums[1]:x}"


def host_contents(array: Any) -> str:
    """Identify the contents of an array in host memory. Raises UsageError where reading fails, or takes too long."""
    try:
        return contents_text(array, sums_of(array if isinstance(array, np.ndarray) else np.asarray(array)))
    except (TypeError, ValueError, RuntimeError, MemoryError) as error:
        raise UsageError(f"a {type(array).__name__} cannot be read ({error})") from None


def sums_of(array: np.ndarray[Any, Any], *, start: int = 0) -> Sums:
    """Add up an array's words, each mixed with its place: s₁ = Σ mᵢ and s₂ = Σ (2 i + 1) mᵢ, modulo 2⁶⁴.

    The last word is filled up with zeros. start: the first word's place. Raises UsageError after MOST_SECONDS.
    """
    if array.dtype.hasobject:
        raise UsageError("an array of Python objects holds references, not numbers")
    once = array[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in array.strides)]
    data = np.ascontiguousarray(once.T if once.flags.f_contiguous else once).reshape(-1).view(np.uint8)
    whole = data.size // _WORD_BYTES
    words = data[: whole * _WORD_BYTES].view(np.uint64)
    parts = [(start + at, words[at : at + _PART_WORDS]) for at in range(0, whole, _PART_WORDS)]
    tail = data[whole * _WORD_BYTES :]
    if tail.size:
        parts.append((start + whole, np.frombuffer(tail.tobytes().ljust(_WORD_BYTES, b"\0"), np.uint64)))
    deadline = time.monotonic() + MOST_SECONDS

    def add(part: tuple[int, np.ndarray[Any, Any]]) -> Sums:
        if time.monotonic() > deadline:
            raise UsageError(f"hashing {format_bytes(array.nbytes)} of indices takes longer than {MOST_SECONDS:g} s")
        return _sums_from(*part)

    if whole <= _PART_WORDS:  # a thread would take longer to start
        return added(map(add, parts))
    with ThreadPoolExecutor(min(len(parts), len(usable_processors()))) as pool:
        return added(pool.map(add, parts))


def added(sums: Iterable[Sums]) -> Sums:
    """Add sums of parts."""
    first = second = 0
    for one, other in sums:
        first, second = (first + one) & _MASK, (second + other) & _MASK
    return first, second


def _sums_from(start: int, words: np.ndarray[Any, Any]) -> Sums:
    first = second = 0
    mixed, shifted = np.empty((2, min(_CHUNK_WORDS, words.size)), np.uint64)
    for at in range(0, words.size, _CHUNK_WORDS):
        chunk = words[at : at + _CHUNK_WORDS]
        place = start + at
        m, s, places = mixed[: chunk.size], shifted[: chunk.size], _PLACES[: chunk.size]
        np.multiply(places, np.uint64(_STEP), out=m)
        m += np.uint64((place + 1) * _STEP & _MASK)
        m += chunk
        for shift, factor in ((30, _FIRST), (27, _SECOND), (31, None)):
            np.right_shift(m, np.uint64(shift), out=s)
            m ^= s
            if factor is not None:
                m *= np.uint64(factor)
        plain = int(m.sum(dtype=np.uint64))
        np.multiply(m, places, out=s)
        # Places are counted from the chunk's beginning: (2 (place + i) + 1) m = 2 i m + (2 place + 1) m.
        first += plain
        second += 2 * int(s.sum(dtype=np.uint64)) + (2 * place + 1) * plain
    return first & _MASK, second & _MASK
