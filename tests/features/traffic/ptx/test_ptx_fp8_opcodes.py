"""Conversions of 8-bit floats against exact values: every code, and every half, tie, limit and sign."""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from exact_floats import is_nan, sign_bit
from opcode_lab import exact_value, interesting_floats, is_nan_bits, rounded_bits, run_opcode

# Bits of the mantissa, the exponent's bias, and the code of the largest finite value.
FORMS = {"e4m3x2": (3, 7, 0x7E), "e5m2x2": (2, 15, 0x7B)}


def value_of(code: int, kind: str) -> Fraction | float:
    bits, bias, largest = FORMS[kind]
    sign, code = (-1 if code & 0x80 else 1), code & 0x7F
    if code > largest:
        return sign * math.inf if kind == "e5m2x2" and code == 0x7C else math.nan
    exponent, mantissa = code >> bits, code & ((1 << bits) - 1)
    if exponent:
        mantissa |= 1 << bits
    return sign * Fraction(mantissa) * Fraction(2) ** (max(exponent, 1) - bias - bits)


@functools.cache
def magnitudes(kind: str) -> list[Fraction | float]:
    """The finite values that are not negative, by their codes, which is also their order."""
    return [value_of(code, kind) for code in range(FORMS[kind][2] + 1)]


def nearest(value: Fraction | float, sign: int, kind: str) -> int:
    """The code of the nearest value, ties to the even code, saturated; NaN is 0x7f."""
    if is_nan(value):
        return 0x7F
    finite = magnitudes(kind)
    above = bisect.bisect_left(finite, abs(value))
    beside = [code for code in (above - 1, above) if 0 <= code < len(finite)]
    if len(beside) < 2:
        return beside[0] | sign << 7
    return min(beside, key=lambda code: (abs(finite[code] - abs(value)), code & 1)) | sign << 7


def floored(code: int, relu: str) -> int:
    return 0 if relu and code & 0x80 else code


@pytest.mark.parametrize("relu", ["", ".relu"])
@pytest.mark.parametrize("kind", FORMS)
def test_every_code_is_a_half(kind: str, relu: str) -> None:
    codes = np.arange(256, dtype=np.uint8)
    words = np.stack([codes, codes[::-1]], axis=1).copy().view(np.uint16)[:, 0]
    found = run_opcode(f"cvt.rn{relu}.f16x2.{kind}", "b32", ("b16",), words).view(np.uint16).reshape(-1, 2)
    for column, order in ((0, codes), (1, codes[::-1])):
        for code, got in zip(order.tolist(), found[:, column].tolist(), strict=True):
            value = value_of(code, kind)
            if is_nan(value):
                assert is_nan_bits(got, "f16")
            elif isinstance(value, float):
                assert got == floored_half(0x7C00 | (code & 0x80) << 8, relu)
            else:
                assert got == floored_half(rounded_bits(value, "f16", "rn", code >> 7), relu), hex(code)


def floored_half(bits: int, relu: str) -> int:
    return 0 if relu and bits & 0x8000 else bits


@pytest.mark.parametrize("relu", ["", ".relu"])
@pytest.mark.parametrize("kind", FORMS)
def test_halves_and_singles_are_rounded_once(kind: str, relu: str) -> None:
    every = np.arange(0, 1 << 16, 13, dtype=np.uint16)
    # Halfway between neighbours, and a place to either side.
    ties = [
        exact_value(int(x), "f16")
        for x in run_opcode(f"cvt.rn.f16x2.{kind}", "b32", ("b16",), _words()).view(np.uint16)
    ]
    finite = sorted({v for v in ties if not isinstance(v, float)})
    middle = [rounded_bits((low + high) / 2, "f16", "rn", 0) for low, high in itertools.pairwise(finite)]
    around = [bits + step for bits in middle for step in (-1, 0, 1)]
    halves = np.concatenate([every, interesting_floats("f16", 0, 0), np.array(around, np.uint16)])
    halves = halves[: len(halves) // 2 * 2]
    expected = [floored(nearest(exact_value(int(x), "f16"), sign_bit(int(x), "f16"), kind), relu) for x in halves]
    found = run_opcode(f"cvt.rn.satfinite{relu}.{kind}.f16x2", "b16", ("b32",), halves.view(np.uint32))
    assert found.view(np.uint8).tolist() == expected

    singles = interesting_floats("f32", 500, 1)
    near = np.random.default_rng(2).normal(0, 8, 500).astype(np.float32).view(np.uint32)
    singles = np.concatenate([singles, near])
    expected = [floored(nearest(exact_value(int(x), "f32"), sign_bit(int(x), "f32"), kind), relu) for x in singles]
    words = run_opcode(f"cvt.rn.satfinite{relu}.{kind}.f32", "b16", ("f32", "f32"), singles, singles[::-1].copy())
    assert (words >> 8).tolist() == expected
    assert (words & 0xFF).tolist() == expected[::-1]


def _words() -> np.ndarray:
    return np.arange(256, dtype=np.uint8).view(np.uint16)
