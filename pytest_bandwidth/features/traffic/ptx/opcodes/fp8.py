"""Convert 8-bit floats, two in a 16-bit word: e4m3 and e5m2 (OCP 8-bit Floating Point Specification 1.0)."""

from __future__ import annotations

from typing import Any

import numpy as np

from pytest_bandwidth.features.traffic.ptx.lanes import Array
from pytest_bandwidth.features.traffic.ptx.opcodes import halves
from pytest_bandwidth.features.traffic.ptx.opcodes.forms import Choice, Meaning

_MANTISSA_BITS = {"e4m3x2": 3, "e5m2x2": 2}
_LARGEST = {"e4m3x2": 448.0, "e5m2x2": 57344.0}
_SMALLEST_NORMAL_EXPONENT = {"e4m3x2": -6, "e5m2x2": -14}
# What the two formats have for NaN; e4m3 has no infinity.
_NAN = 0x7F


def to_halves(choice: Choice) -> Meaning:
    """Compute cvt.rn.f16x2.e4m3x2 and e5m2x2: exact, since halves hold every value of both."""
    kind, relu = choice["fp8"], "relu" in choice

    def compute(word: Array) -> Array:
        values = _TABLES[kind][np.ascontiguousarray(word)[..., None].view(np.uint8)]
        if relu:
            values = halves.floored(values)
        return halves.pack(values)

    return compute


def from_halves(choice: Choice) -> Meaning:
    """Compute cvt.rn.satfinite.e4m3x2.f16x2."""

    def compute(word: Array) -> Array:
        both = _narrow(halves.unpack(word, "f16x2"), choice)
        return np.ascontiguousarray(both).view(np.uint16)[..., 0]

    return compute


def from_singles(choice: Choice) -> Meaning:
    """Compute cvt.rn.satfinite.e4m3x2.f32 d, a, b: a to the upper byte, b to the lower."""

    def compute(upper: Array, lower: Array) -> Array:
        high, low = np.broadcast_arrays(_narrow(upper, choice), _narrow(lower, choice))
        return (high.astype(np.uint16) << np.uint16(8)) | low

    return compute


def _narrow(value: Array, choice: Choice) -> Array:
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


def _values(kind: str) -> Any:
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


_TABLES = {kind: _values(kind) for kind in _MANTISSA_BITS}
