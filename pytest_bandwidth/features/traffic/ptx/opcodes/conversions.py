"""Compute cvt: between integers, between floats, and from one to the other, in every rounding mode.

Rules (PTX ISA, cvt): floats clamp to the integer's range; NaN becomes 0, or the top bit alone where a 64-bit type is
involved; integers wrap unless .sat.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pytest_bandwidth.features.traffic.ptx.lanes import Array
from pytest_bandwidth.features.traffic.ptx.opcodes import bits, floats, halves
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
    length = 64 - bits.count_leading_zeros(magnitude).astype(np.int64)
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
