"""Compute opcodes on bits, comparisons with predicates, and selections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pytest_bandwidth.features.traffic.ptx.lanes import Array
from pytest_bandwidth.features.traffic.ptx.opcodes.floats import flush
from pytest_bandwidth.features.traffic.ptx.opcodes.forms import DTYPES, Choice, Meaning, by_choice


def _bits(a: Array) -> int:
    bits: int = a.dtype.itemsize * 8
    return bits


def shift_left(a: Array, count: Array) -> Array:
    """Compute shl: counts beyond the width give 0 (PTX clamps them; NumPy's shifts, unlike C's, do so too)."""
    return np.left_shift(a, _as_count(a, count))


def shift_right(a: Array, count: Array) -> Array:
    """Compute shr: arithmetic for signed types; counts beyond the width leave the sign or 0."""
    return np.right_shift(a, _as_count(a, count))


def _as_count(a: Array, count: Array) -> Array:
    return (np.minimum(count, 64) if a.dtype.itemsize < count.dtype.itemsize else count).astype(a.dtype, copy=False)


@by_choice
def funnel_shift(choice: Choice, a: Array, b: Array, c: Array) -> Array:
    """Compute shf: the pair (b:a) shifted by c, clamped to 32 or modulo 32; left keeps the upper word."""
    count = _in_word(choice, c).astype(np.uint64)
    pair = (b.astype(np.uint64) << np.uint64(32)) | a
    return ((pair << count) >> np.uint64(32) if choice["leftright"] == "l" else pair >> count).astype(np.uint32)


def _in_word(choice: Choice, count: Array) -> Array:
    """Return a number of bits, clamped to 32 or modulo 32."""
    return count & 31 if choice["clampwrap"] == "wrap" else np.minimum(count, 32)


def population_count(a: Array) -> Array:
    if hasattr(np, "bitwise_count"):  # NumPy 2
        return np.bitwise_count(a).astype(np.uint32)
    return np.unpackbits(np.ascontiguousarray(a)[..., None].view(np.uint8), axis=-1).sum(axis=-1).astype(np.uint32)


def count_leading_zeros(a: Array) -> Array:
    """Compute clz: the width for 0."""
    filled = a
    for shift in (1, 2, 4, 8, 16, 32):
        if shift < _bits(a):
            filled = filled | (filled >> a.dtype.type(shift))
    return (np.uint32(_bits(a)) - population_count(filled)).astype(np.uint32)


def reverse(a: Array) -> Array:
    """Compute brev: bit 0 to the top."""
    masks = ((1, 0x5555555555555555), (2, 0x3333333333333333), (4, 0x0F0F0F0F0F0F0F0F))
    kind = a.dtype.type
    for shift, mask in masks:
        part = kind(mask & ((1 << _bits(a)) - 1))
        a = ((a >> kind(shift)) & part) | ((a & part) << kind(shift))
    return a.byteswap()


@by_choice
def find_leading(choice: Choice, a: Array) -> Array:
    """Compute bfind: position of the highest bit that differs from the sign (0xFFFFFFFF where none); with .shiftamt its
    distance from the top.
    """
    magnitude = np.where(a < 0, ~a, a).view(f"u{a.dtype.itemsize}") if a.dtype.kind == "i" else a
    leading = count_leading_zeros(magnitude)
    found = leading if "shiftamt" in choice else np.uint32(_bits(a) - 1) - leading
    return np.where(magnitude == 0, np.uint32(0xFFFFFFFF), found).astype(np.uint32)


def extract_field(a: Array, start: Array, length: Array) -> Array:
    """Compute bfe: `length` bits of `a` from bit `start`, sign-extended for signed types (also from the top bit beyond
    the word).
    """
    width = _bits(a)
    start, length = (start & 255).astype(np.int64), (length & 255).astype(np.int64)
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    shifted = shift_right(a.view(unsigned), start.astype(np.uint32))
    field = shifted & _low_mask(length, width, unsigned)
    if a.dtype.kind == "u":
        return field
    sign_at = np.minimum(start + length - 1, width - 1).astype(np.uint32)
    negative = ((shift_right(a.view(unsigned), sign_at) & 1) != 0) & (length > 0)
    return np.where(
        negative, field | ~_low_mask(np.clip(np.minimum(length, width - start), 0, width), width, unsigned), field
    ).view(a.dtype)


def insert_field(a: Array, b: Array, start: Array, length: Array) -> Array:
    """Compute bfi: the low `length` bits of a, put into b from bit `start`."""
    width = _bits(a)
    start, length = start & 255, (length & 255).astype(np.int64)
    mask = shift_left(_low_mask(length, width, a.dtype), start)
    return (b & ~mask) | (shift_left(a, start) & mask)


def _low_mask(length: Array, width: int, dtype: np.dtype[Any]) -> Array:
    one = np.ones(1, dtype)
    return np.where(
        length >= width, ~np.zeros(1, dtype), shift_left(one, np.minimum(length, width - 1).astype(np.uint32)) - one
    )


@by_choice
def permute_bytes(choice: Choice, a: Array, b: Array, selector: Array) -> Array:
    """Compute prmt: each result byte picked from the eight of (b:a); the selector's top bit replicates the sign. Modes
    as in the PTX manual.
    """
    pair = (b.astype(np.uint64) << np.uint64(32)) | a
    result = np.zeros(1, np.uint32)
    for byte in range(4):
        pick, sign = _picked(choice.get("pmode"), byte, selector)
        value = ((pair >> (pick.astype(np.uint64) * np.uint64(8))) & np.uint64(0xFF)).astype(np.uint32)
        value = np.where(sign, np.where(value & 0x80, np.uint32(0xFF), np.uint32(0)), value)
        result = result | (value << np.uint32(8 * byte))
    return result


def _picked(mode: str | None, byte: int, selector: Array) -> tuple[Array, Any]:
    if mode is None:
        nibble = (selector >> np.uint32(4 * byte)) & np.uint32(0xF)
        return nibble & 7, (nibble & 8) != 0
    low = selector & 3
    table = {
        "f4e": low + byte,
        "b4e": (low - byte) & 7,
        "rc8": low,
        "ecl": np.maximum(low, byte),
        "ecr": np.minimum(low, byte),
        "rc16": ((low & 1) * 2) + (byte & 1),
    }
    return table[mode], False


def logic3(a: Array, b: Array, c: Array, table: Array) -> Array:
    """Compute lop3: bit i of the result is bit (a_i·4 + b_i·2 + c_i) of the immediate truth table."""
    result = np.zeros(1, np.uint32)
    for index in range(8):
        chosen = ((table >> np.uint32(index)) & 1) != 0
        term = (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
        result = result | np.where(chosen, term, np.uint32(0))
    return result


@by_choice
def bit_mask(choice: Choice, a: Array, b: Array) -> Array:
    """Compute bmsk: `b` ones from bit `a`, both clamped to 32 or modulo 32."""
    start, length = _in_word(choice, a), _in_word(choice, b)
    return shift_left(_low_mask(length.astype(np.int64), 32, np.dtype(np.uint32)), start)


@by_choice
def sign_extend(choice: Choice, a: Array, b: Array) -> Array:
    """Compute szext: the low `b` bits of a, extended to the word by sign or zero."""
    return extract_field(a, np.zeros(1, np.uint32), _in_word(choice, b.view(np.uint32)))


# ---- predicates and selections ---------------------------------------------------------------------------------------

_COMBINE: dict[str, Meaning] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def setp(compare: Callable[[Choice], Meaning]) -> Callable[[Choice], Meaning]:
    """Compute setp p|q, a, b, c: p = (a cmp b) op c and q = !(a cmp b) op c;
    without an op they are the test and its opposite.

    The decoder adds ``pair`` to the choice where q is asked for.
    """

    def meaning(choice: Choice) -> Meaning:
        test, combine = compare(choice), _COMBINE.get(choice.get("bool", ""))
        if "pair" not in choice:
            return test if combine is None else lambda a, b, c: combine(test(a, b), c)

        def both(a: Array, b: Array, c: Array = None) -> Any:
            truth = test(a, b)
            return tuple(one if combine is None else combine(one, c) for one in (truth, ~truth))

        return both

    return meaning


def set_word(compare: Callable[[Choice], Meaning]) -> Callable[[Choice], Meaning]:
    """Compute set: all ones or 0 for integer results, 1.0 or 0.0 for f32."""

    def meaning(choice: Choice) -> Meaning:
        test = compare(choice)
        dtype = DTYPES[choice["settype"]]
        true = np.ones(1, dtype) if dtype.kind == "f" else ~np.zeros(1, dtype)
        return lambda a, b: np.where(test(a, b), true, np.zeros(1, dtype))

    return meaning


def select_by_sign(choice: Choice) -> Meaning:
    """Compute slct: a where c is not negative, which −0 is not, nor with .ftz a subnormal;
    b elsewhere, and where c is NaN.
    """
    if "ftz" in choice:
        return lambda a, b, c: np.where(flush(c) >= 0, a, b)
    return lambda a, b, c: np.where(c >= 0, a, b)
