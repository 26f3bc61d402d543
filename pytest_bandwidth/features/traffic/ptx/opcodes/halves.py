"""Compute 16-bit floating-point opcodes: f16, bf16 and their packed pairs.

Each operation is computed in a wider format, in which the second rounding makes no error. binary32 has at least
2·11 + 2 bits, so add, sub and mul of halves round correctly through it (Figueroa 1995); fma goes through binary64 with
round-to-odd (Boldo and Melquiond 2008).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from pytest_bandwidth.features.traffic.ptx.lanes import Array
from pytest_bandwidth.features.traffic.ptx.opcodes import floats
from pytest_bandwidth.features.traffic.ptx.opcodes.forms import Choice, Meaning, chosen


def half_kind(choice: Choice) -> str:
    return next(value for value in choice.values() if value in ("f16", "f16x2", "bf16", "bf16x2"))


def widen_bf16(bits: Array) -> Array:
    """Convert bf16 bits to binary32, exactly."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def narrow_bf16(value: Array, mode: str = "rn") -> Array:
    """Convert binary32 or binary64 to bf16 bits, in any rounding mode."""
    single = to_odd_single(value) if value.dtype == np.float64 else value
    bits = single.view(np.uint32)
    if mode == "rn":  # ties to even
        bits = bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))
    elif mode != "rz":
        away = (np.signbit(single) == (mode == "rm")) & np.isfinite(single)
        bits = bits + np.where(away, np.uint32(0xFFFF), np.uint32(0))
    return np.where(np.isnan(single), np.uint32(0x7FFF), bits >> np.uint32(16)).astype(np.uint16)


def widen(a: Array, kind: str) -> Array:
    """Convert halves (float16, or bf16 bits) to binary32."""
    return widen_bf16(a) if kind.startswith("bf16") else a.astype(np.float32)


def narrow(value: Array, kind: str) -> Array:
    """Convert binary32 or binary64 to halves, to the nearest."""
    return narrow_bf16(value) if kind.startswith("bf16") else value.astype(np.float16)


def unpack(word: Array, kind: str) -> Array:
    """Return packed pairs with another axis of two halves, the low half first."""
    return np.ascontiguousarray(word)[..., None].view(np.uint16 if kind == "bf16x2" else np.float16)


def pack(halves: Array) -> Array:
    return np.ascontiguousarray(halves).view(np.uint32)[..., 0]


def _on_halves(function: Callable[..., Array]) -> Callable[[Choice], Meaning]:
    """Return a row's meaning from a function of halves; for packed types it computes both halves of the words.

    function: takes the chosen modifiers and the type, then the operands.
    """

    def meaning(choice: Choice) -> Meaning:
        kind = half_kind(choice)
        compute = partial(function, choice, kind)
        if not kind.endswith("x2"):
            return compute
        return lambda *words: pack(compute(*(unpack(word, kind) for word in words)))

    return meaning


def floored(value: Array) -> Array:
    """Apply .relu: negative values and −0 become +0; NaN stays."""
    return np.where((value > 0) | np.isnan(value), value, value.dtype.type(0))


def _finished(choice: Choice, value: Array) -> Array:
    """Apply .sat and .relu to a binary32 or binary64 result that will be narrowed."""
    if "sat" in choice:
        return floats.saturate(value)
    if "relu" in choice:
        return floored(value)
    return value


def _flushed(choice: Choice, value: Array, kind: str) -> Array:
    """Apply .ftz: subnormal f16 values (below 2⁻¹⁴) to zero; the ISA defines it for f16 only."""
    if "ftz" not in choice or kind.startswith("bf16"):
        return value
    return np.where(np.abs(value) < 2.0**-14, np.copysign(value.dtype.type(0), value), value)


def _opened(choice: Choice, kind: str, *sources: Array) -> list[Array]:
    """Convert operands to binary32, after .ftz."""
    return [_flushed(choice, widen(source, kind), kind) for source in sources]


def arithmetic(operation: Meaning) -> Callable[[Choice], Meaning]:
    """Compute an operation with one rounding on halves, through binary32."""

    @_on_halves
    def compute(choice: Choice, kind: str, *sources: Array) -> Array:
        result = _finished(choice, operation(*_opened(choice, kind, *sources)))
        return _flushed(choice, narrow(result, kind), kind)

    return compute


# Compute fma: the exact a·b + c, rounded once.
fused = arithmetic(lambda x, y, z: odd_sum(x.astype(np.float64) * y.astype(np.float64), z.astype(np.float64)))


def odd_sum(a: Array, b: Array) -> Array:
    """Compute a + b rounded to odd in binary64: where inexact, the last bit is set on the side of the exact value."""
    total = a + b
    virtual = total - a
    error = (a - (total - virtual)) + (b - virtual)
    inexact = np.isfinite(total) & (error != 0)
    if not inexact.any():
        return total
    even = (total.view(np.uint64) & np.uint64(1)) == 0
    towards = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    return np.where(inexact & even, towards, total)


def to_odd_single(value: Array) -> Array:
    """Convert binary64 to binary32, rounded to odd."""
    nearest = value.astype(np.float32)
    back = nearest.astype(np.float64)
    inexact = np.isfinite(value) & (back != value)
    truncated = np.where(np.abs(back) > np.abs(value), np.nextafter(nearest, np.float32(0)), nearest)
    odd = (truncated.view(np.uint32) | np.uint32(1)).view(np.float32)
    return np.where(inexact, odd, nearest)


def sign_operation(name: str) -> Callable[[Choice], Meaning]:
    """Compute neg and abs, which change only the sign bit; .ftz flushes subnormals first."""

    @_on_halves
    def compute(choice: Choice, kind: str, a: Array) -> Array:
        bits = _flushed(choice, a, kind).view(np.uint16)
        return (bits ^ np.uint16(0x8000) if name == "neg" else bits & np.uint16(0x7FFF)).view(a.dtype)

    return compute


def minmax(name: str) -> Callable[[Choice], Meaning]:
    """Compute min and max as for binary32 (see `floats.minmax`); exact, so nothing rounds."""
    pick = floats.minmax(name)
    return _on_halves(lambda choice, kind, *sources: narrow(pick(choice)(*_opened(choice, kind, *sources)), kind))


def compare(choice: Choice) -> Meaning:
    """Compute a setp on halves; packed ones give two predicates, the low half's first."""
    kind = half_kind(choice)
    test = floats.FLOAT_COMPARISONS[choice["fcmp"]]

    def single(a: Array, b: Array) -> Array:
        return test(*_opened(choice, kind, a, b))

    if not kind.endswith("x2"):
        return single

    def packed(a: Array, b: Array) -> Any:
        both = single(unpack(a, kind), unpack(b, kind))
        return both[..., 0], both[..., 1]

    return packed


@_on_halves
def set_halves(choice: Choice, kind: str, a: Array, b: Array) -> Array:
    """Compute set.cmp.f16x2.f16x2 and similar: 1.0 or 0.0 per half; with an integer result all ones or 0 per half."""
    truth = floats.FLOAT_COMPARISONS[choice["fcmp"]](*_opened(choice, kind, a, b))
    integer = chosen(choice, "word", "i32")
    if not integer:
        return narrow(truth.astype(np.float32), kind)
    ones = np.uint16(0xFFFF) if kind.endswith("x2") or integer.endswith("16") else np.uint32(0xFFFFFFFF)
    return np.where(truth, ones, ones.dtype.type(0)).astype(ones.dtype)
