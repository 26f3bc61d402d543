"""Opcodes on several values in one word (bytes, 16-bit integers, halves), against exact arithmetic on each of them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from exact_floats import infinity_bits, picked
from opcode_lab import (
    all_pairs,
    exact_value,
    interesting_floats,
    interesting_integers,
    is_nan_bits,
    run_opcode,
)

KINDS = ("f16", "bf16")
LEAST_NORMAL = {"f16": 0x0400, "bf16": 0x0080}


def integer(bits: int, width: int, kind: str) -> int:
    """The low `width` bits as a number of u32's or s32's signedness."""
    bits &= (1 << width) - 1
    return bits - (1 << width) if kind[0] == "s" and bits >> (width - 1) else bits


def words(seed: int, count: int = 400) -> np.ndarray:
    """Words whose bytes and halves are at their limits more often than chance has it."""
    parts = interesting_integers(16, 4 * count, seed).astype(np.uint32)
    generator = np.random.default_rng(seed)
    low, high = generator.choice(parts, count), generator.choice(parts, count)
    edges = generator.choice(np.array([0, 1, 0x7F, 0x80, 0x81, 0xFF], np.uint32), (4, count))
    by_bytes = edges[0] | edges[1] << 8 | edges[2] << 16 | edges[3] << 24
    return np.concatenate([low | high << np.uint32(16), by_bytes]).astype(np.uint32)


def check(opcode: str, reference: Callable[..., int], sources: tuple[str, ...], *arrays: np.ndarray) -> None:
    found = run_opcode(opcode, "b32", sources, *arrays)
    for row, got in zip(zip(*arrays, strict=True), found.tolist(), strict=True):
        expected = reference(*(int(value) for value in row)) & 0xFFFFFFFF
        assert got == expected, f"{opcode}{tuple(map(hex, map(int, row)))} gave {got:#x}, expected {expected:#x}"


@pytest.mark.parametrize("half", ["lo", "hi"])
@pytest.mark.parametrize("right", ["u32", "s32"])
@pytest.mark.parametrize("left", ["u32", "s32"])
def test_dot_products_of_halves_with_bytes(left: str, right: str, half: str) -> None:
    def dotted(a: int, b: int, c: int) -> int:
        first = 2 if half == "hi" else 0
        return c + sum(
            integer(a >> 16 * part, 16, left) * integer(b >> 8 * (first + part), 8, right) for part in range(2)
        )

    check(f"dp2a.{half}.{left}.{right}", dotted, (left, right, left), words(1), words(2), words(3))


@pytest.mark.parametrize("right", ["u32", "s32"])
@pytest.mark.parametrize("left", ["u32", "s32"])
def test_dot_products_of_four_bytes(left: str, right: str) -> None:
    def dotted(a: int, b: int, c: int) -> int:
        return c + sum(integer(a >> 8 * p, 8, left) * integer(b >> 8 * p, 8, right) for p in range(4))

    check(f"dp4a.{left}.{right}", dotted, (left, right, left), words(4), words(5), words(6))


def test_absolute_differences_of_bytes_and_their_sum() -> None:
    def differences(a: int, b: int) -> list[int]:
        return [abs((a >> 8 * p & 255) - (b >> 8 * p & 255)) for p in range(4)]

    a, b, c = words(7), words(8), words(9)
    sources = ("u32", "u32", "u32")
    check(
        "vabsdiff4.u32.u32.u32",
        lambda x, y, _: sum(d << 8 * p for p, d in enumerate(differences(x, y))),
        sources,
        a,
        b,
        c,
    )
    check("vabsdiff4.u32.u32.u32.add", lambda x, y, z: z + sum(differences(x, y)), sources, a, b, c)


@pytest.mark.parametrize("kind", ["u16x2", "s16x2"])
def test_pairs_of_16_bit_integers(kind: str) -> None:
    def of_pairs(operation: Callable[[int, int], int]) -> Callable[[int, int], int]:
        return lambda a, b: sum(
            (operation(integer(a >> s, 16, kind), integer(b >> s, 16, kind)) & 0xFFFF) << s for s in (0, 16)
        )

    a, b = words(10), words(11)
    for name, operation in (("add", int.__add__), ("min", min), ("max", max)):
        check(f"{name}.{kind}", of_pairs(operation), ("b32", "b32"), a, b)
        if name != "add" and kind == "s16x2":
            floored = of_pairs(lambda x, y, f=operation: max(0, f(x, y)))
            check(f"{name}.relu.{kind}", floored, ("b32", "b32"), a, b)
            check(f"{name}.{kind}.relu", floored, ("b32", "b32"), a, b)


def halves(kind: str, count: int = 500) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of halves: each special one with each, then random ones. An even number of them."""
    a, b = all_pairs(interesting_floats(kind, 300, 1), interesting_floats(kind, 300, 2), count, 3)
    even = len(a) // 2 * 2
    return a[:even], b[:even]


def packed(a: np.ndarray) -> np.ndarray:
    """Neighbours in one word, the first in its low half."""
    return np.ascontiguousarray(a, np.uint16).view(np.uint32)


def check_halves(
    opcode: str, kind: str, reference: Callable[..., int | None], *operands: np.ndarray, packed_too: bool = True
) -> None:
    """Of single halves and of packed ones; a reference of None is NaN."""
    sources = (kind,) * len(operands)
    found = [run_opcode(f"{opcode}.{kind}", kind, sources, *operands)]
    if packed_too:
        pairs = run_opcode(f"{opcode}.{kind}x2", "b32", ("b32",) * len(operands), *map(packed, operands))
        found.append(pairs.view(np.uint16))
    for bits in found:
        for row, got in zip(zip(*operands, strict=True), bits.tolist(), strict=True):
            expected = reference(*(int(value) for value in row))
            shown = f"{opcode}.{kind}{tuple(map(hex, map(int, row)))} gave {got:#x}"
            assert is_nan_bits(got, kind) if expected is None else got == expected, f"{shown}, expected {expected}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["min", "max"])
def test_minima_and_maxima_of_halves(name: str, kind: str) -> None:
    a, b = halves(kind)
    for modifiers in ("", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs"):
        check_halves(f"{name}{modifiers}", kind, lambda x, y, m=modifiers: picked(name, x, y, kind, m), a, b)


@pytest.mark.parametrize("kind", KINDS)
def test_signs_of_packed_halves(kind: str) -> None:
    a, _ = halves(kind)
    for name, change in (("neg", lambda x: x ^ 0x8000), ("abs", lambda x: x & 0x7FFF)):
        check_halves(name, kind, lambda x, f=change: None if is_nan_bits(x, kind) else f(x), a)


# Largest relative errors that the PTX ISA states for ex2.approx and tanh.approx of halves, by type.
STATED = {"ex2": {"f16": 2.0**-9.9, "bf16": 2.0**-7}, "tanh": {"f16": 2.0**-10.987, "bf16": 2.0**-8}}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["ex2", "tanh"])
def test_approximations_on_halves_keep_the_stated_error(name: str, kind: str) -> None:
    a, _ = halves(kind)
    function = math.tanh if name == "tanh" else lambda x: 2.0**x
    flush = ".ftz" if name == "ex2" and kind == "bf16" else ""  # the one spelling that the ISA has for it
    found = run_opcode(f"{name}.approx{flush}.{kind}x2", "b32", ("b32",), packed(a)).view(np.uint16)
    single = run_opcode(f"{name}.approx{flush}.{kind}", kind, (kind,), a)
    np.testing.assert_array_equal(single, found)
    least = float(exact_value(LEAST_NORMAL[kind], kind))
    seen = 0
    for bits, got in zip(a.tolist(), found.tolist(), strict=True):
        x, y = exact_value(bits, kind), exact_value(got, kind)
        if isinstance(x, float) and math.isnan(x):
            assert math.isnan(y)
            continue
        exact = function(min(max(float(x), -1000.0), 1000.0))
        if least <= abs(exact) < float(exact_value(infinity_bits(kind, False) - 1, kind)):
            assert abs(float(y) / exact - 1) <= STATED[name][kind] + 2.0**-13, (hex(bits), hex(got))
            seen += 1
        elif abs(exact) >= 1:
            assert y == math.inf
    assert seen > 300
