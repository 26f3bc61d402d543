"""Compute floating-point operations on bits, rounded once, NaN, infinities and the signs of zeros included."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from opcode_lab import FORMATS, exact_value, is_nan_bits, rounded_bits

MODES = ("rn", "rz", "rm", "rp")
WIDTH = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}
Value = Fraction | float


def is_nan(value: Value) -> bool:
    return isinstance(value, float) and math.isnan(value)


def sign_bit(bits: int, kind: str) -> int:
    return bits >> (WIDTH[kind] - 1)


def infinity_bits(kind: str, negative: bool) -> int:
    digits, width = FORMATS[kind][0], WIDTH[kind]
    return negative << (width - 1) | ((1 << (width - digits)) - 1) << (digits - 1)


def product(a: int, b: int, kind: str) -> tuple[Value, int]:
    """Return the exact a·b, and the sign bit it would have as a zero."""
    x, y = exact_value(a, kind), exact_value(b, kind)
    sign = sign_bit(a, kind) ^ sign_bit(b, kind)
    if isinstance(x, float) or isinstance(y, float):
        if is_nan(x) or is_nan(y) or x == 0 or y == 0:
            return math.nan, sign
        return -math.inf if sign else math.inf, sign
    return x * y, sign


def total(x: Value, x_sign: int, y: Value, y_sign: int, mode: str) -> tuple[Value, int]:
    """Return the exact x + y, and the sign bit it would have as a zero (IEEE 754 §6.3)."""
    zero_sign = x_sign if x_sign == y_sign else int(mode == "rm")
    if isinstance(x, float) or isinstance(y, float):
        if is_nan(x) or is_nan(y) or (isinstance(x, float) and isinstance(y, float) and x != y):
            return math.nan, 0
        return (x if isinstance(x, float) else y), zero_sign
    if x + y == 0 and (x != 0 or y != 0):
        zero_sign = int(mode == "rm")
    return x + y, zero_sign


def to_bits(value: Value, zero_sign: int, kind: str, mode: str) -> int | None:
    """Return the number's bits; None for NaN."""
    if isinstance(value, float):
        return None if math.isnan(value) else infinity_bits(kind, value < 0)
    return rounded_bits(value, kind, mode, zero_sign)


def compare(opcode: str, kind: str, found: np.ndarray, expected: list[int | None], *operands: np.ndarray) -> None:
    for place, (got, want) in enumerate(zip(found.tolist(), expected, strict=True)):
        given = [hex(int(operand[place])) for operand in operands]
        if want is None:
            assert is_nan_bits(got, kind), f"{opcode}{given} gave {got:#x}, expected NaN"
        else:
            assert got == want, f"{opcode}{given} gave {got:#x}, expected {want:#x}"


def fused(x: int, y: int, z: int, kind: str, mode: str) -> int | None:
    value, sign = product(x, y, kind)
    return to_bits(*total(value, sign, exact_value(z, kind), sign_bit(z, kind), mode), kind, mode)


def quotient(x: int, y: int, kind: str) -> tuple[Value, int]:
    a, b = exact_value(x, kind), exact_value(y, kind)
    sign = sign_bit(x, kind) ^ sign_bit(y, kind)
    infinite = [isinstance(v, float) and math.isinf(v) for v in (a, b)]
    if any(isinstance(v, float) and math.isnan(v) for v in (a, b)) or all(infinite) or (a == 0 and b == 0):
        return math.nan, sign
    if infinite[0] or b == 0:
        return -math.inf if sign else math.inf, sign
    if infinite[1]:
        return Fraction(0), sign
    return Fraction(a) / Fraction(b), sign


COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


FLOAT_TESTS = (*COMPARISONS, *(f"{name}u" for name in COMPARISONS), "num", "nan")


def holds(name: str, x: int, y: int, kind: str) -> bool:
    """Return whether a comparison of the 14 on floats is true of these bits."""
    nan = is_nan_bits(x, kind) or is_nan_bits(y, kind)
    if name in ("num", "nan"):
        return nan == (name == "nan")
    if nan:
        return name.endswith("u")
    return COMPARISONS[name.removesuffix("u")](exact_value(x, kind), exact_value(y, kind))


def flushed(bits: int, kind: str) -> int:
    """Flush a subnormal to a zero of its sign (.ftz)."""
    value = exact_value(bits, kind)
    if isinstance(value, float) or abs(value) >= Fraction(2) ** FORMATS[kind][1]:
        return bits
    return sign_bit(bits, kind) << (WIDTH[kind] - 1)


def saturated(bits: int | None, kind: str) -> int:
    """Clamp to [0, 1] (.sat); NaN and −0 become +0."""
    if bits is None:
        return 0
    value = exact_value(bits, kind)
    return 0 if value <= 0 else rounded_bits(Fraction(1), kind, "rn", 0) if value >= 1 else bits


def picked(name: str, x: int, y: int, kind: str, modifiers: str) -> int | None:
    """Return min or max of bits: −0 below +0, a number before NaN unless .NaN; .abs and .xorsign as in the opcode."""
    top = 1 << (WIDTH[kind] - 1)
    sign = (x ^ y) & top
    if ".abs" in modifiers:
        x, y = x & ~top, y & ~top
    nan = is_nan_bits(x, kind), is_nan_bits(y, kind)
    if all(nan) or (any(nan) and ".NaN" in modifiers):
        return None
    choose = min if name == "min" else max
    result = y if nan[0] else x if nan[1] else choose(x, y, key=lambda v: (exact_value(v, kind), -sign_bit(v, kind)))
    return (result & ~top) | sign if ".xorsign" in modifiers else result
