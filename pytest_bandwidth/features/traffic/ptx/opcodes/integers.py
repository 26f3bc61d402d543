"""Compute opcodes on integers and their bits, comparisons with predicates, and selections.

Arithmetic wraps around in two's complement; arrays may have any broadcastable shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pytest_bandwidth.features.traffic.ptx.lanes import Array
from pytest_bandwidth.features.traffic.ptx.opcodes.floats import flush
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
    """Compute sub.cc, subc and subc.cc: a + ~b + 1 with the carry of that sum, which is set where there is no borrow.

    The ISA calls it the borrow and does not define its encoding. Only chains that add after they subtract depend on it,
    and those of NVRTC's own 128-bit division need the adder's carry.
    """
    return add_with_carry(a, ~b, carry)


@by_choice
def multiply_add_with_carry(choice: Choice, a: Array, b: Array, c: Array, carry: Array | None = None) -> Any:
    """Compute mad.cc, madc and madc.cc on u32, s32, u64 and s64, with the carry of the unsigned addition."""
    return add_with_carry(multiply_high(a, b) if choice["lohi"] == "hi" else a * b, c, carry)


@by_choice
def dot_product(choice: Choice, a: Array, b: Array, c: Array) -> Array:
    """Compute dp4a: c + Σ over the four bytes of a·b; and dp2a: c + Σ over the two 16-bit halves of a, times the low or
    high bytes of b.

    The type of each word decides whether its parts are signed.
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

    @by_choice
    def compute(choice: Choice, a: Array, b: Array) -> Array:
        half = np.int16 if "s16x2" in choice.values() else np.uint16
        x, y = (np.ascontiguousarray(word)[..., None].view(half) for word in (a, b))
        result = operation(x, y)
        return np.ascontiguousarray(np.maximum(result, 0) if "relu" in choice else result).view(np.uint32)[..., 0]

    return compute


@by_choice
def byte_differences(choice: Choice, a: Array, b: Array, c: Array) -> Array:
    """Compute vabsdiff4: |a − b| of each byte, packed; with .add their sum, plus c."""
    x, y = (np.ascontiguousarray(word)[..., None].view(np.uint8) for word in np.broadcast_arrays(a, b))
    difference = np.where(x > y, x - y, y - x)
    if "add" in choice:
        return c + difference.sum(axis=-1, dtype=np.uint32)
    return np.ascontiguousarray(difference).view(np.uint32)[..., 0]


# ---- bits ------------------------------------------------------------------------------------------------------------


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
    """Compute setp p|q, a, b, c: p = (a cmp b) op c and q = !(a cmp b) op c; without op the test and its opposite.

    The decoder adds ``pair`` to the choice where the instruction has q.
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
    """Compute slct: a where c ≥ 0, including −0 and, with .ftz, negative subnormals; b elsewhere and for NaN."""
    if "ftz" in choice:
        return lambda a, b, c: np.where(flush(c) >= 0, a, b)
    return lambda a, b, c: np.where(c >= 0, a, b)
