"""Compute cvt between integers, between floats, and from one to the other, in every rounding mode.

Rules (PTX ISA, cvt): floats clamp to the integer's range; NaN becomes 0, or the top bit alone where a 64-bit type is
involved; integers wrap unless .sat.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pytest_bandwidth.features.traffic.ptx.lanes import Array
from pytest_bandwidth.features.traffic.ptx.opcodes import floats, halves, integers
from pytest_bandwidth.features.traffic.ptx.opcodes.forms import DTYPES, Choice, Meaning, by_choice, chosen

_FLOATS = ("f16", "bf16", "f32", "f64")
_INTEGRAL = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


@by_choice
def convert(choice: Choice, a: Array) -> Array:
    """Compute cvt[.rounding][.ftz][.sat].dst.src."""
    to, of = choice["dst"], choice["src"]
    if of in _FLOATS:
        return _float_to_float(choice, to, of, a) if to in _FLOATS else _float_to_integer(choice, to, of, a)
    if to in _FLOATS:
        return _integer_to_float(choice, to, a)
    if "sat" in choice:
        info, own = np.iinfo(DTYPES[to]), np.iinfo(a.dtype)
        a = np.clip(a, a.dtype.type(max(own.min, info.min)), a.dtype.type(min(own.max, info.max)))
    return a.astype(DTYPES[to])


def _widened(a: Array, of: str) -> Array:
    return halves.widen(a, of) if of in ("f16", "bf16") else a


def _float_to_integer(choice: Choice, to: str, of: str, a: Array) -> Array:
    dtype = DTYPES[to]
    info = np.iinfo(dtype)
    sign_only = of == "f64" or dtype.itemsize == 8
    on_nan = (1 << (dtype.itemsize * 8 - 1)) if dtype.kind == "u" else info.min
    value = _widened(floats.flush(a) if "ftz" in choice and of == "f32" else a, of).astype(np.float64)
    value = _INTEGRAL[choice.get("irnd", "rzi")](value)
    above, below = value >= float(info.max) + 1.0, value < float(info.min)
    inside = np.where(above | below | np.isnan(value), 0.0, value).astype(dtype)
    clamped = np.where(above, dtype.type(info.max), np.where(below, dtype.type(info.min), inside))
    return np.where(np.isnan(value), dtype.type(on_nan if sign_only else 0), clamped)


def _integer_to_float(choice: Choice, to: str, a: Array) -> Array:
    mode, saturate = choice.get("rnd", "rn"), floats.saturate if "sat" in choice else np.asarray
    if to in ("f16", "bf16"):
        return _narrow_directed(saturate(_odd_double(a)), to, mode)
    return saturate(a.astype(DTYPES[to]) if mode == "rn" else _integer_directed(a, DTYPES[to], mode))


def _odd_double(a: Array) -> Array:
    """Convert an integer to binary64, with a sticky last bit where 64-bit integers do not fit."""
    if a.dtype.itemsize < 8:
        return a.astype(np.float64)
    high = (a >> a.dtype.type(11)) << a.dtype.type(11)
    return halves.odd_sum(high.astype(np.float64), (a - high).astype(np.float64))


def _integer_directed(a: Array, dtype: np.dtype[Any], mode: str) -> Array:
    """Truncate the magnitude to the format's digits; step away from zero where bits were lost and the mode asks it."""
    digits = np.finfo(dtype).nmant + 1
    negative = a < 0
    wide = a.astype(np.int64 if a.dtype.kind == "i" else np.uint64)
    magnitude = np.where(negative, np.zeros(1, wide.dtype) - wide, wide).astype(np.uint64)
    length = 64 - integers.count_leading_zeros(magnitude).astype(np.int64)
    shift = np.clip(length - digits, 0, 63).astype(np.uint64)
    kept = (magnitude >> shift) << shift
    value = kept.astype(dtype)
    away = (kept != magnitude) & ((negative & (mode == "rm")) | (~negative & (mode == "rp")))
    value = np.where(away, np.nextafter(value, dtype.type(np.inf)), value)
    return np.where(negative, -value, value).astype(dtype)


def _float_to_float(choice: Choice, to: str, of: str, a: Array) -> Array:
    value = _widened(floats.flush(a) if "ftz" in choice and of == "f32" else a, of)
    if "irnd" in choice:
        value = _INTEGRAL[choice["irnd"]](value)
    if "relu" in choice:
        value = halves.floored(value)
    if "sat" in choice:
        value = floats.saturate(value)
    if value.dtype.itemsize > DTYPES[to].itemsize:
        result = _narrow_directed(value, to, chosen(choice, "rnd", "nearzero") or "rn")
    else:
        result = value.astype(DTYPES[to])
    return floats.flush(result) if "ftz" in choice and to == "f32" else result


def to_tf32(a: Array) -> Array:
    """Compute cvt.rna.tf32.f32: ten mantissa bits, ties away from zero."""
    bits = a.view(np.uint32)
    rounded = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(a), rounded, bits)


def _narrow_directed(value: Array, to: str, mode: str) -> Array:
    """Convert binary64 or binary32 to a narrower float: to the nearest, then one step where the mode asks it."""
    if to == "bf16":
        return halves.narrow_bf16(value, mode)
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


@by_choice
def convert_half(choice: Choice, a: Array) -> Array:
    """Compute cvt.rn.relu.f16.f32 and similar opcodes."""
    return _float_to_float(choice, choice["dst16"], "f32", a)


@by_choice
def convert_pair(choice: Choice, *both: Array) -> Array:
    """Compute cvt.rn.f16x2.f32 d, a, b: a to the upper half, b to the lower."""
    to = choice["packed"][:-2]
    upper, lower = (_float_to_float(choice, to, "f32", a).view(np.uint16) for a in both)
    return _pair(upper, lower, np.uint32, 16)


def _pair(upper: Array, lower: Array, word: Any, bits: int) -> Array:
    """Return words of two values, the upper one shifted by so many bits."""
    high, low = np.broadcast_arrays(upper, lower)
    return (high.astype(word) << word(bits)) | low


class _Small(NamedTuple):
    """Describe a float of at most 8 bits: its width, its mantissa's width, its largest value, and the code for NaN."""

    bits: int
    mantissa: int
    largest: float
    nan: int

    @property
    def lowest(self) -> int:
        """Return the exponent of the smallest normal value."""
        return 2 - (1 << (self.bits - self.mantissa - 2))

    @property
    def step(self) -> int:
        """Return by how many bits the upper one of a pair is shifted: values of 6 bits use a byte each."""
        return 4 if self.bits == 4 else 8


# OCP 8-bit Floating Point Specification 1.0, and Microscaling Formats Specification 1.0. Formats of fewer than 8 bits
# have no NaN: it becomes the largest value (PTX ISA, .satfinite).
_SMALL = {
    "e4m3x2": _Small(8, 3, 448.0, 0x7F),
    "e5m2x2": _Small(8, 2, 57344.0, 0x7F),
    "e2m3x2": _Small(6, 3, 7.5, 0x1F),
    "e3m2x2": _Small(6, 2, 28.0, 0x1F),
    "e2m1x2": _Small(4, 1, 6.0, 0x7),
}


def _kind(choice: Choice) -> str:
    return chosen(choice, "small", "e2m1x2")


@by_choice
def small_to_halves(choice: Choice, word: Array) -> Array:
    """Compute cvt.rn.f16x2.e4m3x2 and similar opcodes: exact, since halves represent all values."""
    kind = _kind(choice)
    step, whole = _SMALL[kind].step, word.dtype.type
    codes = np.stack([word & whole((1 << step) - 1), word >> whole(step)], axis=-1)
    values = _SMALL_VALUES[kind][codes]
    return halves.pack(halves.floored(values) if "relu" in choice else values)


@by_choice
def small_from_singles(choice: Choice, upper: Array, lower: Array) -> Array:
    """Compute cvt.rn.satfinite.e4m3x2.f32 d, a, b and similar: a to the upper part, b to the lower."""
    step = _SMALL[_kind(choice)].step
    word = np.uint8 if step == 4 else np.uint16
    return _pair(_narrow_small(upper, choice), _narrow_small(lower, choice), word, step)


def from_halves(kind: str, of_two: Callable[[Choice], Meaning]) -> Callable[[Choice], Meaning]:
    """Apply a conversion of two binary32 values to the upper and the lower half of packed words."""

    def compute(choice: Choice, word: Array) -> Array:
        both = halves.unpack(word, kind)
        return of_two(choice)(*(halves.widen(both[..., place], kind) for place in (1, 0)))

    return by_choice(compute)


def _narrow_small(value: Array, choice: Choice) -> Array:
    """Round to the nearest, ties to even; too large values become the largest finite value."""
    of = _SMALL[_kind(choice)]
    bits, lowest = of.mantissa, of.lowest
    wide = value.astype(np.float64)
    magnitude = np.minimum(np.abs(wide), of.largest)
    exponent = np.where(magnitude > 0, np.frexp(magnitude)[1], lowest)
    place = np.maximum(exponent - 1, lowest) - bits
    units = np.rint(np.ldexp(magnitude, -place))
    # A binade has 2^bits codes; the subnormal binade begins at 0, and a carry leads to the next binade.
    nan = np.isnan(wide)
    code = np.where(nan, of.nan, units + (place + bits - lowest) * 2.0**bits).astype(np.uint8)
    negative = np.signbit(wide) & ~nan
    if "relu" in choice:
        return np.where(negative, np.uint8(0), code)
    return code | np.where(negative, np.uint8(1 << (of.bits - 1)), np.uint8(0))


def _small_values(kind: str) -> Any:
    """Return a format's values by their code in a byte, as halves: higher bits of the byte are ignored."""
    of, codes = _SMALL[kind], np.arange(256)
    bits, sign = of.mantissa, 1 << (of.bits - 1)
    size = codes & (sign - 1)
    biased, mantissa = size >> bits, size & ((1 << bits) - 1)
    normal = np.where(biased > 0, 1 << bits, 0)
    values = np.ldexp((mantissa + normal).astype(np.float64), np.maximum(biased, 1) - 1 + of.lowest - bits)
    if kind == "e5m2x2":
        values = np.where(biased == 31, np.where(mantissa == 0, np.inf, np.nan), values)
    elif kind == "e4m3x2":
        values = np.where(size == of.nan, np.nan, values)
    return np.where(codes & sign, -values, values).astype(np.float16)


_SMALL_VALUES = {kind: _small_values(kind) for kind in _SMALL}


def fp8_values(kind: str) -> Any:
    """Return the values of ``e4m3`` or ``e5m2`` by their code, as halves."""
    return _SMALL_VALUES[f"{kind}x2"]


@by_choice
def scale_from_singles(choice: Choice, upper: Array, lower: Array) -> Array:
    """Compute cvt.rp.satfinite.ue8m0x2.f32 d, a, b and similar: a to the upper byte, b to the lower."""
    return _pair(_scale(upper, choice), _scale(lower, choice), np.uint16, 8)


def _scale(value: Array, choice: Choice) -> Array:
    """Return the code of a power of two, 2^(code − 127), that is at most (rz) or at least (rp) the magnitude.

    255 is NaN, and also infinity unless .satfinite.
    """
    bits = value.view(np.uint32) & np.uint32(0x7FFFFFFF)
    code = bits >> np.uint32(23)
    if "rp" in choice.values():
        above = (bits & np.uint32(0x7FFFFF) != 0) & (bits > 0x00400000) & (bits < 0x7F800000)
        code = code + above
    if "satfinite" in choice:
        code = np.where((code == 255) & ~np.isnan(value), 254, code)
    return code.astype(np.uint16)


def scale_to_halves(word: Array) -> Array:
    """Compute cvt.rn.bf16x2.ue8m0x2, exactly: code 0 is a subnormal of bf16."""
    codes = np.stack([word & np.uint16(0xFF), word >> np.uint16(8)], axis=-1)
    bits = np.where(codes == 0, 0x0040, np.where(codes == 0xFF, 0x7FFF, codes << np.uint16(7)))
    return halves.pack(bits.astype(np.uint16))
