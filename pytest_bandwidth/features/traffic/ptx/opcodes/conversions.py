"""Compute cvt: between integers, between floats, and from one to the other, in every rounding mode.

Rules (PTX ISA, cvt): floats clamp to the integer's range; NaN becomes 0, or the top bit alone where a 64-bit type is
involved; integers wrap unless .sat.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pytest_bandwidth.features.traffic.ptx.lanes import Array
from pytest_bandwidth.features.traffic.ptx.opcodes import floats, halves, logic
from pytest_bandwidth.features.traffic.ptx.opcodes.forms import DTYPES, Choice, Meaning, chosen

_FLOATS = ("f16", "bf16", "f32", "f64")
_INTEGRAL = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def convert(choice: Choice) -> Meaning:
    """Compute cvt[.rounding][.ftz][.sat].dst.src."""
    to, of = choice["dst"], choice["src"]
    if to in _FLOATS and of in _FLOATS:
        return _float_to_float(choice, to, of)
    if to in _FLOATS:
        return _integer_to_float(choice, to)
    if of in _FLOATS:
        return _float_to_integer(choice, to, of)
    return _integer_to_integer(choice, to)


def _integer_to_integer(choice: Choice, to: str) -> Meaning:
    dtype = DTYPES[to]
    if "sat" not in choice:
        return lambda a: a.astype(dtype)
    info = np.iinfo(dtype)

    def saturated(a: Array) -> Array:
        own = np.iinfo(a.dtype)
        return np.clip(a, a.dtype.type(max(own.min, info.min)), a.dtype.type(min(own.max, info.max))).astype(dtype)

    return saturated


def _widened(a: Array, of: str) -> Array:
    return halves.widen(a, of) if of in ("f16", "bf16") else a


def _float_to_integer(choice: Choice, to: str, of: str) -> Meaning:
    dtype = DTYPES[to]
    info = np.iinfo(dtype)
    integral = _INTEGRAL[choice.get("irnd", "rzi")]
    sign_only = of == "f64" or dtype.itemsize == 8
    on_nan = (1 << (dtype.itemsize * 8 - 1)) if dtype.kind == "u" else info.min
    flush = "ftz" in choice and of == "f32"

    def compute(a: Array) -> Array:
        value = _widened(a, of).astype(np.float64)
        if flush:
            value = np.where(np.abs(value) < np.finfo(np.float32).tiny, 0.0, value)
        value = integral(value)
        above, below = value >= float(info.max) + 1.0, value < float(info.min)
        inside = np.where(above | below | np.isnan(value), 0.0, value).astype(dtype)
        clamped = np.where(above, dtype.type(info.max), np.where(below, dtype.type(info.min), inside))
        return np.where(np.isnan(value), dtype.type(on_nan if sign_only else 0), clamped)

    return compute


def _integer_to_float(choice: Choice, to: str) -> Meaning:
    mode, sat = choice.get("rnd", "rn"), "sat" in choice

    def compute(a: Array) -> Array:
        if to in ("f16", "bf16"):
            wide = _odd_double(a)
            return _narrow_directed(floats.saturate(wide) if sat else wide, to, mode)
        value = a.astype(DTYPES[to]) if mode == "rn" else _integer_directed(a, DTYPES[to], mode)
        return floats.saturate(value) if sat else value

    return compute


def _odd_double(a: Array) -> Array:
    """Convert an integer to binary64, with a sticky last bit where 64-bit integers do not fit."""
    if a.dtype.itemsize < 8:
        return a.astype(np.float64)
    high = (a >> a.dtype.type(11)) << a.dtype.type(11)
    return halves._odd_sum(high.astype(np.float64), (a - high).astype(np.float64))


def _integer_directed(a: Array, dtype: np.dtype[Any], mode: str) -> Array:
    """Truncate the magnitude to the format's digits; step away from zero where bits were lost and the mode says so."""
    digits = np.finfo(dtype).nmant + 1
    negative = a < 0
    wide = a.astype(np.int64 if a.dtype.kind == "i" else np.uint64)
    magnitude = np.where(negative, np.zeros(1, wide.dtype) - wide, wide).astype(np.uint64)
    length = 64 - logic.count_leading_zeros(magnitude).astype(np.int64)
    shift = np.clip(length - digits, 0, 63).astype(np.uint64)
    kept = (magnitude >> shift) << shift
    value = kept.astype(dtype)
    away = (kept != magnitude) & ((negative & (mode == "rm")) | (~negative & (mode == "rp")))
    value = np.where(away, np.nextafter(value, dtype.type(np.inf)), value)
    return np.where(negative, -value, value).astype(dtype)


def _float_to_float(choice: Choice, to: str, of: str) -> Meaning:
    mode = chosen(choice, "rnd", "nearzero") or "rn"

    def compute(a: Array) -> Array:
        value = a
        if "ftz" in choice and of == "f32":
            value = floats.flush(value)
        value = _widened(value, of)
        if "irnd" in choice:
            value = _INTEGRAL[choice["irnd"]](value)
        if "relu" in choice:
            value = halves.floored(value)
        if "sat" in choice:
            value = floats.saturate(value)
        result = (
            _narrow_directed(value, to, mode)
            if value.dtype.itemsize > DTYPES[to].itemsize
            else value.astype(DTYPES[to])
        )
        return floats.flush(result) if "ftz" in choice and to == "f32" else result

    return compute


def to_tf32(a: Array) -> Array:
    """Compute cvt.rna.tf32.f32: ten mantissa bits, ties away from zero."""
    bits = a.view(np.uint32)
    rounded = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(a), rounded, bits)


def _narrow_directed(value: Array, to: str, mode: str) -> Array:
    """Convert binary64 or binary32 to a narrower float: to the nearest, then one place over where the mode asks."""
    if to == "bf16":
        return _narrow_bf16_directed(value, mode)
    nearest = value.astype(DTYPES[to])
    if mode == "rn":
        return nearest
    back = nearest.astype(value.dtype)
    too_high = (back > value) & ((mode == "rm") | ((mode == "rz") & (value > 0)))
    too_low = (back < value) & ((mode == "rp") | ((mode == "rz") & (value < 0)))
    infinity = nearest.dtype.type(np.inf)
    stepped = np.where(
        too_high, np.nextafter(nearest, -infinity), np.where(too_low, np.nextafter(nearest, infinity), nearest)
    )
    return stepped.astype(nearest.dtype)


def _narrow_bf16_directed(value: Array, mode: str) -> Array:
    single = halves._to_odd_single(value) if value.dtype == np.float64 else value
    if mode in ("rn", "rz"):
        return halves.narrow_bf16(single, mode)
    truncated = single.view(np.uint32) >> np.uint32(16)
    lost = (single.view(np.uint32) & np.uint32(0xFFFF)) != 0
    away = lost & (np.signbit(single) == (mode == "rm")) & np.isfinite(single)
    return np.where(np.isnan(single), np.uint32(0x7FFF), truncated + away).astype(np.uint16)


def convert_half(choice: Choice) -> Meaning:
    """Compute cvt.rn.relu.f16.f32 and its like."""
    return _float_to_float(choice, choice["dst16"], "f32")


def convert_pair(choice: Choice) -> Meaning:
    """Compute cvt.rn.f16x2.f32 d, a, b: a to the upper half, b to the lower."""
    kind = choice["packed"]
    to = kind[:-2]
    single = _float_to_float(choice, to, "f32")

    def compute(upper: Array, lower: Array) -> Array:
        high, low = np.broadcast_arrays(single(upper).view(np.uint16), single(lower).view(np.uint16))
        return (high.astype(np.uint32) << np.uint32(16)) | low

    return compute


# Floats of 8 bits, two in a word of 16: e4m3 and e5m2 (OCP 8-bit Floating Point Specification 1.0).
_MANTISSA_BITS = {"e4m3x2": 3, "e5m2x2": 2}
_LARGEST = {"e4m3x2": 448.0, "e5m2x2": 57344.0}
_SMALLEST_NORMAL_EXPONENT = {"e4m3x2": -6, "e5m2x2": -14}
# What the two formats have for NaN; e4m3 has no infinity.
_NAN = 0x7F


def fp8_to_halves(choice: Choice) -> Meaning:
    """Compute cvt.rn.f16x2.e4m3x2 and e5m2x2: exact, since halves hold every value of both."""
    kind, relu = choice["fp8"], "relu" in choice

    def compute(word: Array) -> Array:
        values = _FP8_VALUES[kind][np.ascontiguousarray(word)[..., None].view(np.uint8)]
        if relu:
            values = halves.floored(values)
        return halves.pack(values)

    return compute


def fp8_from_halves(choice: Choice) -> Meaning:
    """Compute cvt.rn.satfinite.e4m3x2.f16x2."""

    def compute(word: Array) -> Array:
        both = _narrow_fp8(halves.unpack(word, "f16x2"), choice)
        return np.ascontiguousarray(both).view(np.uint16)[..., 0]

    return compute


def fp8_from_singles(choice: Choice) -> Meaning:
    """Compute cvt.rn.satfinite.e4m3x2.f32 d, a, b: a to the upper byte, b to the lower."""

    def compute(upper: Array, lower: Array) -> Array:
        high, low = np.broadcast_arrays(_narrow_fp8(upper, choice), _narrow_fp8(lower, choice))
        return (high.astype(np.uint16) << np.uint16(8)) | low

    return compute


def _narrow_fp8(value: Array, choice: Choice) -> Array:
    """Round to the nearest, ties to even; what is too large becomes the largest finite value."""
    kind = choice["fp8"]
    bits, lowest = _MANTISSA_BITS[kind], _SMALLEST_NORMAL_EXPONENT[kind]
    wide = value.astype(np.float64)
    magnitude = np.minimum(np.abs(wide), _LARGEST[kind])
    exponent = np.where(magnitude > 0, np.frexp(magnitude)[1], lowest)
    place = np.maximum(exponent - 1, lowest) - bits
    units = np.rint(np.ldexp(magnitude, -place))
    # A binade has 2^bits codes; the subnormal one begins at 0, and a carry moves on to the next by itself.
    nan = np.isnan(wide)
    code = np.where(nan, _NAN, units + (place + bits - lowest) * 2.0**bits).astype(np.uint8)
    negative = np.signbit(wide) & ~nan
    if "relu" in choice:
        return np.where(negative, np.uint8(0), code)
    return code | np.where(negative, np.uint8(0x80), np.uint8(0))


def _fp8_values(kind: str) -> Any:
    """Return the 256 values of a format, as halves."""
    codes = np.arange(256)
    bits, lowest = _MANTISSA_BITS[kind], _SMALLEST_NORMAL_EXPONENT[kind]
    biased, mantissa = codes >> bits & (0x7F >> bits), codes & ((1 << bits) - 1)
    normal = np.where(biased > 0, 1 << bits, 0)
    values = np.ldexp((mantissa + normal).astype(np.float64), np.maximum(biased, 1) - 1 + lowest - bits)
    if kind == "e5m2x2":
        values = np.where(biased == 31, np.where(mantissa == 0, np.inf, np.nan), values)
    else:
        values = np.where(codes & 0x7F == _NAN, np.nan, values)
    return np.where(codes & 0x80, -values, values).astype(np.float16)


_FP8_VALUES = {kind: _fp8_values(kind) for kind in _MANTISSA_BITS}


def fp8_values(kind: str) -> Any:
    """Return the values of ``e4m3`` or ``e5m2`` by their code, as halves."""
    return _FP8_VALUES[f"{kind}x2"]
