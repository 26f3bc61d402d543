"""Compute integer opcodes: wrap-around two's complement arithmetic on NumPy arrays of any broadcastable shapes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from pytest_bandwidth.features.traffic.ptx.lanes import Array
from pytest_bandwidth.features.traffic.ptx.opcodes.forms import DTYPES, Choice, Meaning, by_choice, chosen


def wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the integer type of twice the width."""
    return np.dtype(f"{dtype.kind}{dtype.itemsize * 2}")


def saturating(operation: Meaning) -> Callable[[Choice], Meaning]:
    """Compute add.sat and sub.sat of s32: clamped to the type's range instead of wrapped."""
    whole = np.iinfo(np.int32)
    return lambda _: (
        lambda a, b: np.clip(operation(a.astype(np.int64), b.astype(np.int64)), whole.min, whole.max).astype(np.int32)
    )


def multiply_wide(a: Array, b: Array) -> Array:
    return np.multiply(a.astype(wide(a.dtype)), b.astype(wide(b.dtype)))


def multiply_high(a: Array, b: Array) -> Array:
    """Compute the upper half of the double-width product."""
    if a.dtype.itemsize < 8:
        return (multiply_wide(a, b) >> (a.dtype.itemsize * 8)).astype(a.dtype)
    # Schoolbook on 32-bit halves; for signed types the correction of Hacker's Delight (2nd ed., §8-2) follows.
    unsigned_a, unsigned_b = a.view(np.uint64), b.view(np.uint64)
    shift, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a_low, a_high, b_low, b_high = unsigned_a & low, unsigned_a >> shift, unsigned_b & low, unsigned_b >> shift
    middle = a_high * b_low + (a_low * b_low >> shift)
    cross = a_low * b_high + (middle & low)
    high = a_high * b_high + (middle >> shift) + (cross >> shift)
    if a.dtype.kind == "u":
        return high
    high = high - np.where(a < 0, unsigned_b, np.uint64(0)) - np.where(b < 0, unsigned_a, np.uint64(0))
    return high.view(a.dtype)


def multiply_add(choice: Choice) -> Meaning:
    """Compute mad.lo, mad.hi and mad.wide."""
    if "wide" in choice:
        return lambda a, b, c: multiply_wide(a, b) + c
    if choice["lohi"] == "hi":
        return lambda a, b, c: multiply_high(a, b) + c
    return lambda a, b, c: a * b + c


@by_choice
def multiply24(choice: Choice, a: Array, b: Array, c: Array | int = 0) -> Array:
    """Compute mul24 and mad24: the product of the low 24 bits, its low (bits 31..0) or high (bits 47..16) word."""
    wide_a, wide_b = (
        (x.astype(np.int64) << 40 >> 40) if x.dtype.kind == "i" else (x & 0xFFFFFF).astype(np.int64) for x in (a, b)
    )
    product = wide_a * wide_b
    return (product >> 16 if choice["lohi"] == "hi" else product).astype(a.dtype) + c


def divide(a: Array, b: Array) -> Array:
    """Divide, truncating towards zero; by zero gives all ones, as GPUs do (PTX leaves it open)."""
    zero = b == 0
    safe = np.where(zero, b.dtype.type(1), b)
    quotient = a // safe if a.dtype.kind == "u" else (a - np.fmod(a, safe)) // safe
    return np.where(zero, ~np.zeros(1, a.dtype), quotient)


def remainder(a: Array, b: Array) -> Array:
    """Compute the remainder with the dividend's sign; by zero gives the dividend."""
    zero = b == 0
    return np.where(zero, a, np.fmod(a, np.where(zero, b.dtype.type(1), b)))


def compare(choice: Choice) -> Meaning:
    """Compute the comparison of a setp or set on integers."""
    return COMPARISONS[chosen(choice, "cmp", "ucmp", "same")]


COMPARISONS: dict[str, Meaning] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}


def add_with_carry(a: Array, b: Array, carry: Any = None) -> Any:
    """Compute add.cc, addc and addc.cc: the sum, and the carry out of the top bit (compared unsigned)."""
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    total = a + b
    overflow = total.view(unsigned) < a.view(unsigned)
    if carry is None:
        return total, overflow
    with_carry = total + carry.astype(total.dtype)
    return with_carry, overflow | (with_carry.view(unsigned) < total.view(unsigned))


def subtract_with_borrow(a: Array, b: Array, carry: Any = np.True_) -> Any:
    """Compute sub.cc, subc and subc.cc: a + ~b + 1 with the carry of that sum, which is set where nothing was borrowed.

    The ISA calls it the borrow and leaves open how it is kept. Only chains that add after they subtract can tell, and
    those of NVRTC's own 128-bit division count on the adder's carry.
    """
    return add_with_carry(a, ~b, carry)


@by_choice
def multiply_add_with_carry(choice: Choice, a: Array, b: Array, c: Array, carry: Array | None = None) -> Any:
    """Compute mad.cc, madc and madc.cc on u32, s32, u64 and s64: the carry is that of the unsigned addition."""
    return add_with_carry(multiply_high(a, b) if choice["lohi"] == "hi" else a * b, c, carry)


@by_choice
def dot_product(choice: Choice, a: Array, b: Array, c: Array) -> Array:
    """Compute dp4a: c + Σ over the four bytes of a·b; and dp2a: c + Σ over the two 16-bit halves of a, times the low or
    high bytes of b.

    The parts of each word are signed or not as its type says.
    """
    left_bits = 16 if "lohi" in choice else 8
    first_byte = 2 if choice.get("lohi") == "hi" else 0
    left, right = f"{DTYPES[choice['atype']].kind}{left_bits // 8}", f"{DTYPES[choice['btype4']].kind}1"
    total = c.astype(np.int64)
    for part in range(32 // left_bits):
        x = (a >> (left_bits * part)).astype(left).astype(np.int64)
        y = (b >> (8 * (part + first_byte))).astype(right).astype(np.int64)
        total = total + x * y
    return total.astype(c.dtype)


def with_floor(operation: Meaning) -> Callable[[Choice], Meaning]:
    """Compute min and max with .relu: negative results become 0."""
    return lambda _: lambda a, b: np.maximum(operation(a, b), 0)


def on_pairs(operation: Meaning) -> Callable[[Choice], Meaning]:
    """Apply an operation to both 16-bit halves of a word."""
    return by_choice(partial(_on_pairs, operation))


def _on_pairs(operation: Meaning, choice: Choice, a: Array, b: Array) -> Array:
    half = np.int16 if "s16x2" in choice.values() else np.uint16
    x, y = (np.ascontiguousarray(word)[..., None].view(half) for word in (a, b))
    result = operation(x, y)
    return np.ascontiguousarray(np.maximum(result, 0) if "relu" in choice else result).view(np.uint32)[..., 0]


@by_choice
def byte_differences(choice: Choice, a: Array, b: Array, c: Array) -> Array:
    """Compute vabsdiff4: |a − b| of each byte, packed; with .add their sum, plus c."""
    x, y = (np.ascontiguousarray(word)[..., None].view(np.uint8) for word in np.broadcast_arrays(a, b))
    difference = np.where(x > y, x - y, y - x)
    if "add" in choice:
        return c + difference.sum(axis=-1, dtype=np.uint32)
    return np.ascontiguousarray(difference).view(np.uint32)[..., 0]
