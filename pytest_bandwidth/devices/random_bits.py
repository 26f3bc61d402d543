"""Make random data, finite numbers with random mantissas, from masks over random 64-bit words.

No cuRAND: the CUDA parts that the extras install have none.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from pytest_bandwidth.domain.errors import UsageError

WORD_BYTES = 8


@dataclass(frozen=True, slots=True)
class Masks:
    """Hold the bits to keep and to set: word = (random & keep) | set, both 64 bit."""

    keep: int
    set: int


# Sign and exponent are fixed, the mantissa is random: values in [1, 2), none of them zero, subnormal or infinite, and
# sums and products of many stay well conditioned.
_FLOATS = {
    2: (0x03FF, 0x3C00),  # IEEE binary16: 10 mantissa bits, exponent bias 15
    4: (0x007F_FFFF, 0x3F80_0000),  # binary32: 23, 127
    8: (0x000F_FFFF_FFFF_FFFF, 0x3FF0_0000_0000_0000),  # binary64: 52, 1023
}
_BFLOAT16 = (0x007F, 0x3F80)  # the upper half of a binary32
_BOOL = (0x01, 0x00)
# Kinds of dtypes whose random numbers are the same in every run of a test: what whole numbers hold identifies a launch.
WHOLE_KINDS = "iub"


def resolve_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the NumPy dtype; ``"bfloat16"`` through ml_dtypes. Raises UsageError for what is no dtype."""
    if isinstance(dtype, str) and dtype in ("bfloat16", "bf16"):
        try:
            bfloat16: np.dtype[Any] = np.dtype(importlib.import_module("ml_dtypes").bfloat16)
            return bfloat16
        except ImportError:
            raise UsageError("bfloat16 needs the package ml_dtypes: pip install ml_dtypes") from None
    try:
        found: np.dtype[Any] = np.dtype(dtype)
        return found
    except TypeError:
        raise UsageError(f"{dtype!r} is no dtype, expected one such as 'float32', 'float16', 'bfloat16'") from None


def masks_for(dtype: np.dtype[Any]) -> Masks:
    """Return masks for one dtype. Integers get all their bits. Raises UsageError for what holds no plain numbers."""
    if dtype.name == "bfloat16":
        return _repeated(*_BFLOAT16, 2)
    if dtype.kind == "f" and dtype.itemsize in _FLOATS:
        return _repeated(*_FLOATS[dtype.itemsize], dtype.itemsize)
    if dtype.kind == "c" and dtype.itemsize // 2 in _FLOATS:
        return _repeated(*_FLOATS[dtype.itemsize // 2], dtype.itemsize // 2)
    if dtype.kind in "iu":
        return Masks(2**64 - 1, 0)
    if dtype.kind == "b":
        return _repeated(*_BOOL, 1)
    raise UsageError(f"random() has no data for dtype {dtype.name}: expected float, complex, integer or bool")


def _repeated(keep: int, fixed: int, item_bytes: int) -> Masks:
    """Return the masks of one item, side by side in a word."""
    copies = sum(1 << (8 * item_bytes * k) for k in range(WORD_BYTES // item_bytes))
    return Masks(keep * copies, fixed * copies)


def checked_array_shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    """Return the shape as a tuple. Raises UsageError for negative or non-integer sizes."""
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 0:
            raise UsageError(f"shape is {shape!r}, expected whole numbers that are not negative")
    return tuple(int(size) for size in sizes)


def words_needed(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Return how many 64-bit words hold an array."""
    return -(-prod(shape) * dtype.itemsize // WORD_BYTES)
