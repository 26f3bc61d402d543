"""Every integer opcode against exact arithmetic on Python's integers, wrap, clamping and division by zero included."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from opcode_lab import all_pairs, interesting_integers, run_opcode


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def typed(value: int, kind: str) -> int:
    bits = int(kind[1:])
    return signed(value, bits) if kind[0] == "s" else value


def truncated_quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def clamp(value: int, bits: int) -> int:
    return max(-(1 << (bits - 1)), min((1 << (bits - 1)) - 1, value))


TYPES = ("u16", "s16", "u32", "s32", "u64", "s64")
BINARY: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "min": min,
    "max": max,
}


def check(
    opcode: str, result: str, sources: tuple[str, ...], reference: Callable[..., int], *arrays: np.ndarray
) -> None:
    found = run_opcode(opcode, result, sources, *arrays)
    bits = 8 if result == "pred" else int(result[1:])
    for row, got in zip(zip(*arrays, strict=True), found.tolist(), strict=True):
        values = [typed(int(v), k) if k[0] in "us" else int(v) for v, k in zip(row, sources, strict=True)]
        expected = int(reference(*values)) & ((1 << bits) - 1)
        assert got == expected, f"{opcode}{tuple(map(hex, map(int, row)))} gave {got:#x}, expected {expected:#x}"


def pairs(kind: str, other: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    a = interesting_integers(int(kind[1:]), 150, 1)
    return all_pairs(a, interesting_integers(int((other or kind)[1:]), 150, 2), 300, 3)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", BINARY)
def test_arithmetic_wraps(name: str, kind: str) -> None:
    check(f"{name}.{kind}", kind, (kind, kind), BINARY[name], *pairs(kind))


@pytest.mark.parametrize("kind", TYPES)
def test_division_truncates_and_by_zero_gives_all_ones(kind: str) -> None:
    a, b = pairs(kind)
    check(f"div.{kind}", kind, (kind, kind), lambda x, y: truncated_quotient(x, y) if y else -1, a, b)
    check(f"rem.{kind}", kind, (kind, kind), lambda x, y: x - truncated_quotient(x, y) * y if y else x, a, b)


@pytest.mark.parametrize("kind", TYPES)
def test_products_keep_their_upper_half(kind: str) -> None:
    bits = int(kind[1:])
    check(f"mul.hi.{kind}", kind, (kind, kind), lambda a, b: a * b >> bits, *pairs(kind))


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32"])
def test_wide_products_are_exact(kind: str) -> None:
    wide = f"{kind[0]}{int(kind[1:]) * 2}"
    a, b = pairs(kind)
    c = interesting_integers(int(wide[1:]), len(a), 5)[: len(a)]
    check(f"mul.wide.{kind}", wide, (kind, kind), lambda x, y: x * y, a, b)
    check(f"mad.wide.{kind}", wide, (kind, kind, wide), lambda x, y, z: x * y + z, a, b, c)


@pytest.mark.parametrize("kind", TYPES)
def test_multiply_add_and_absolute_differences(kind: str) -> None:
    bits = int(kind[1:])
    a, b = pairs(kind)
    c = interesting_integers(bits, len(a), 5)[: len(a)]
    check(f"mad.lo.{kind}", kind, (kind,) * 3, lambda x, y, z: x * y + z, a, b, c)
    check(f"mad.hi.{kind}", kind, (kind,) * 3, lambda x, y, z: (x * y >> bits) + z, a, b, c)
    check(f"sad.{kind}", kind, (kind,) * 3, lambda x, y, z: z + abs(x - y), a, b, c)


@pytest.mark.parametrize("kind", ["u32", "s32"])
def test_24_bit_products(kind: str) -> None:
    def low24(value: int) -> int:
        return signed(value & 0xFFFFFF, 24) if kind == "s32" else value & 0xFFFFFF

    a, b = pairs(kind)
    check(f"mul24.lo.{kind}", kind, (kind, kind), lambda x, y: low24(x) * low24(y), a, b)
    check(f"mul24.hi.{kind}", kind, (kind, kind), lambda x, y: low24(x) * low24(y) >> 16, a, b)
    check(f"mad24.lo.{kind}", kind, (kind,) * 3, lambda x, y, z: low24(x) * low24(y) + z, a, b, b)
    check(f"mad24.hi.{kind}", kind, (kind,) * 3, lambda x, y, z: (low24(x) * low24(y) >> 16) + z, a, b, b)


def test_saturating_sums() -> None:
    a, b = pairs("s32")
    check("add.sat.s32", "s32", ("s32", "s32"), lambda x, y: clamp(x + y, 32), a, b)
    check("sub.sat.s32", "s32", ("s32", "s32"), lambda x, y: clamp(x - y, 32), a, b)


def test_minima_and_maxima_without_negative_results() -> None:
    a, b = pairs("s32")
    for name, pick in (("min", min), ("max", max)):
        for opcode in (f"{name}.relu.s32", f"{name}.s32.relu"):
            check(opcode, "s32", ("s32", "s32"), lambda x, y, f=pick: max(0, f(x, y)), a, b)


@pytest.mark.parametrize("kind", ["s16", "s32", "s64"])
def test_signs(kind: str) -> None:
    a, _ = pairs(kind)
    check(f"neg.{kind}", kind, (kind,), lambda x: -x, a)
    check(f"abs.{kind}", kind, (kind,), abs, a)


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_logic(bits: int) -> None:
    kind = f"b{bits}"
    a, b = pairs(kind)
    check(f"and.{kind}", kind, (kind, kind), lambda x, y: x & y, a, b)
    check(f"or.{kind}", kind, (kind, kind), lambda x, y: x | y, a, b)
    check(f"xor.{kind}", kind, (kind, kind), lambda x, y: x ^ y, a, b)
    check(f"not.{kind}", kind, (kind,), lambda x: ~x, a)
    check(f"cnot.{kind}", kind, (kind,), lambda x: int(x == 0), a)


def test_predicate_logic() -> None:
    a, b = (np.array(values, np.uint8) for values in ([0, 0, 1, 1], [0, 1, 0, 1]))
    for name, reference in (("and", lambda x, y: x & y), ("or", lambda x, y: x | y), ("xor", lambda x, y: x ^ y)):
        check(f"{name}.pred", "pred", ("pred", "pred"), reference, a, b)
    check("not.pred", "pred", ("pred",), lambda x: 1 - x, a)


@pytest.mark.parametrize("kind", ["b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64"])
def test_shifts_clamp_their_count(kind: str) -> None:
    bits = int(kind[1:])
    a, count = pairs(kind, "u32")
    if kind[0] == "b":
        check(f"shl.{kind}", kind, (kind, "u32"), lambda x, n: x << min(n, bits), a, count)
    check(f"shr.{kind}", kind, (kind, "u32"), lambda x, n: x >> min(n, bits), a, count)


def test_funnel_shifts() -> None:
    a, b = pairs("b32")
    c = interesting_integers(32, len(a), 7)[: len(a)]
    for mode, limit in (("wrap", lambda n: n & 31), ("clamp", lambda n: min(n, 32))):
        check(
            f"shf.l.{mode}.b32",
            "b32",
            ("b32", "b32", "u32"),
            lambda x, y, n, f=limit: ((y << 32 | x) << f(n)) >> 32,
            a,
            b,
            c,
        )
        check(
            f"shf.r.{mode}.b32", "b32", ("b32", "b32", "u32"), lambda x, y, n, f=limit: (y << 32 | x) >> f(n), a, b, c
        )


@pytest.mark.parametrize("bits", [32, 64])
def test_bit_counts(bits: int) -> None:
    kind = f"b{bits}"
    a = interesting_integers(bits, 500, 1)
    check(f"popc.{kind}", "u32", (kind,), lambda x: x.bit_count() if hasattr(x, "bit_count") else bin(x).count("1"), a)
    check(f"clz.{kind}", "u32", (kind,), lambda x: bits - x.bit_length(), a)
    check(f"brev.{kind}", kind, (kind,), lambda x: int(f"{x:0{bits}b}"[::-1], 2), a)
    for sign in "us":

        def highest(x: int) -> int:
            magnitude = ~x if x < 0 else x
            return magnitude.bit_length() - 1 if magnitude else 0xFFFFFFFF

        check(f"bfind.{sign}{bits}", "u32", (f"{sign}{bits}",), highest, a)
        check(
            f"bfind.shiftamt.{sign}{bits}",
            "u32",
            (f"{sign}{bits}",),
            lambda x: 0xFFFFFFFF if highest(x) == 0xFFFFFFFF else bits - 1 - highest(x),
            a,
        )


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_fields(kind: str) -> None:
    bits = int(kind[1:])
    a, start = pairs(kind, "u32")
    length = interesting_integers(32, len(a), 8)[: len(a)] % 80

    def extracted(x: int, first: int, count: int) -> int:
        """The PTX manual's own pseudo-code for bfe."""
        first, count = first & 0xFF, count & 0xFF
        raw = x & ((1 << bits) - 1)
        top = bits - 1
        sign = 0 if kind[0] == "u" or count == 0 else raw >> min(first + count - 1, top) & 1
        out = 0
        for place in range(bits):
            out |= (raw >> (place + first) & 1 if place < count and place + first <= top else sign) << place
        return out

    def inserted(x: int, y: int, first: int, count: int) -> int:
        first, count = first & 0xFF, count & 0xFF
        out = y
        for place in range(count):
            if place + first < bits and place < bits:
                out = (out & ~(1 << (place + first))) | ((x >> place & 1) << (place + first))
        return out

    check(f"bfe.{kind}", kind, (kind, "u32", "u32"), extracted, a, start, length)
    if kind[0] == "u":
        b = interesting_integers(bits, len(a), 9)[: len(a)]
        check(f"bfi.b{bits}", f"b{bits}", (f"b{bits}", f"b{bits}", "u32", "u32"), inserted, a, b, start, length)


def test_byte_permutations() -> None:
    a, b = pairs("b32")
    c = interesting_integers(32, len(a), 10)[: len(a)]

    def permuted(x: int, y: int, selector: int) -> int:
        data = (y << 32 | x).to_bytes(8, "little")
        out = []
        for place in range(4):
            nibble = selector >> (4 * place) & 15
            byte = data[nibble & 7]
            out.append((0xFF if byte & 0x80 else 0) if nibble & 8 else byte)
        return int.from_bytes(bytes(out), "little")

    check("prmt.b32", "b32", ("b32", "b32", "u32"), permuted, a, b, c)
    modes = {
        "f4e": lambda k, i: k + i,
        "b4e": lambda k, i: (k - i) % 8,
        "rc8": lambda k, _: k,
        "ecl": max,
        "ecr": min,
        "rc16": lambda k, i: (k & 1) * 2 + (i & 1),
    }
    for mode, pick in modes.items():

        def moved(x: int, y: int, selector: int, pick: Callable[[int, int], int] = pick) -> int:
            data = (y << 32 | x).to_bytes(8, "little")
            return int.from_bytes(bytes(data[pick(selector & 3, i)] for i in range(4)), "little")

        check(f"prmt.b32.{mode}", "b32", ("b32", "b32", "u32"), moved, a, b, c)


def test_three_input_logic() -> None:
    a, b = pairs("b32")
    c, table = interesting_integers(32, len(a), 11)[: len(a)], interesting_integers(32, len(a), 12)[: len(a)] & 255

    def looked_up(x: int, y: int, z: int, truth: int) -> int:
        return sum((truth >> ((x >> i & 1) * 4 + (y >> i & 1) * 2 + (z >> i & 1)) & 1) << i for i in range(32))

    check("lop3.b32", "b32", ("b32", "b32", "b32", "u32"), looked_up, a, b, c, table)


def test_masks_and_sign_extension() -> None:
    a, b = pairs("u32")
    for mode, limit in (("wrap", lambda n: n & 31), ("clamp", lambda n: min(n, 32))):
        check(f"bmsk.{mode}.b32", "b32", ("u32", "u32"), lambda x, y, f=limit: ((1 << f(y)) - 1) << f(x), a, b)

        def extended(x: int, y: int, f: Callable[[int], int] = limit) -> int:
            bits = f(y)
            return 0 if bits == 0 else signed(x & ((1 << bits) - 1), bits)

        check(f"szext.{mode}.s32", "s32", ("s32", "u32"), extended, a, b)
        check(f"szext.{mode}.u32", "u32", ("u32", "u32"), lambda x, y, f=limit: x & ((1 << f(y)) - 1), a, b)


@pytest.mark.parametrize("to", ["u8", "s8", *TYPES])
@pytest.mark.parametrize("of", ["u8", "s8", *TYPES])
def test_conversions_between_integers(to: str, of: str) -> None:
    a = interesting_integers(int(of[1:]), 300, 1)
    check(f"cvt.{to}.{of}", to, (of,), lambda x: x, a)
    low, high = (
        (0, (1 << int(to[1:])) - 1) if to[0] == "u" else (-(1 << (int(to[1:]) - 1)), (1 << (int(to[1:]) - 1)) - 1)
    )
    check(f"cvt.sat.{to}.{of}", to, (of,), lambda x: max(low, min(high, x)), a)
