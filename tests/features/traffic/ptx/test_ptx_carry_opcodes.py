"""Opcodes that hand a carry to the next: sums, differences and products of three words, against Python's integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from opcode_lab import interesting_integers, run_body, without_faults

COUNT = 512


def chained(kind: str, lines: str, *arrays: np.ndarray) -> list[np.ndarray]:
    """Runs lines on words %a0, %a1 … of the arrays, and gives the words %d0, %d1 and %d2."""
    bits, inputs = int(kind[1:]), len(arrays)
    outs = [np.zeros(COUNT, f"u{bits // 8}") for _ in range(3)]
    declared = ", ".join([*(f"%a{n}" for n in range(inputs)), "%d0", "%d1", "%d2", "%none"])
    begin = f" .reg .b{bits} {declared};\n mul.wide.u32 %off, %t, {bits // 8};\n"
    loads = "".join(f" add.u64 %x, %p{n}, %off;\n ld.global.b{bits} %a{n}, [%x];\n" for n in range(inputs))
    stores = "".join(f" add.u64 %x, %p{inputs + n}, %off;\n st.global.b{bits} [%x], %d{n};\n" for n in range(3))
    without_faults(run_body(begin + loads + lines + stores, (*arrays, *outs), COUNT))
    return outs


def words(kind: str, count: int) -> list[np.ndarray]:
    """Limits and their neighbours more often than chance has it: they carry."""
    bits = int(kind[1:])
    pool = interesting_integers(bits, 40, 1)
    return [np.random.default_rng(seed).choice(pool, COUNT) for seed in range(count)]


def joined(parts: list[np.ndarray], bits: int, place: int) -> int:
    return sum(int(part[place]) << (bits * n) for n, part in enumerate(parts))


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
@pytest.mark.parametrize(("name", "reference"), [("add", int.__add__), ("sub", int.__sub__)])
def test_sums_and_differences_of_three_words(name: str, reference: Callable[[int, int], int], kind: str) -> None:
    bits, arrays = int(kind[1:]), words(kind, 6)
    lines = f" {name}.cc.{kind} %d0, %a0, %a3;\n {name}c.cc.{kind} %d1, %a1, %a4;\n {name}c.{kind} %d2, %a2, %a5;\n"
    found = chained(kind, lines, *arrays)
    for place in range(COUNT):
        expected = reference(joined(arrays[:3], bits, place), joined(arrays[3:], bits, place)) % (1 << 3 * bits)
        assert joined(found, bits, place) == expected, place


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("name", ["addc", "subc", "madc.lo"])
def test_without_cc_the_carry_stays_what_it_was(name: str, kind: str) -> None:
    """Opcodes between two others of a chain, which themselves would carry or would not."""
    bits, arrays = int(kind[1:]), words(kind, 4)
    more = ", %a3" if name.startswith("mad") else ""
    lines = (
        f" add.cc.{kind} %d0, %a0, %a1;\n {name}.{kind} %none, %a2, %a3{more};\n"
        f" addc.{kind} %d1, 0, 0;\n addc.{kind} %d2, 0, 0;\n"
    )
    low, carry, again = chained(kind, lines, *arrays)
    total = [int(a) + int(b) for a, b in zip(arrays[0], arrays[1], strict=True)]
    assert low.tolist() == [t % (1 << bits) for t in total]
    assert carry.tolist() == again.tolist() == [t >> bits for t in total]
    assert set(carry.tolist()) == {0, 1}


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_a_difference_keeps_the_carry_of_the_adder(kind: str) -> None:
    """a - b is a + ~b + 1: it carries where it does not borrow, which an addition after it sees."""
    bits, arrays = int(kind[1:]), words(kind, 2)
    lines = (
        f" sub.cc.{kind} %d0, %a0, %a1;\n addc.{kind} %d1, 0, 0;\n"
        f" add.cc.{kind} %none, %a0, %a1;\n subc.{kind} %d2, 0, 0;\n"
    )
    difference, carry, below = chained(kind, lines, *arrays)
    pairs = [(int(a), int(b)) for a, b in zip(*arrays, strict=True)]
    assert difference.tolist() == [(a - b) % (1 << bits) for a, b in pairs]
    assert carry.tolist() == [int(a >= b) for a, b in pairs]
    assert below.tolist() == [0 if a + b >> bits else (1 << bits) - 1 for a, b in pairs]


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_products_added_word_by_word(kind: str) -> None:
    """As CUDA's wide multiplications: the low half carries into the high half, and that into the next word."""
    bits, arrays = int(kind[1:]), words(kind, 5)
    a, b, *addend = arrays
    lines = (
        f" mad.lo.cc.{kind} %d0, %a0, %a1, %a2;\n madc.hi.cc.{kind} %d1, %a0, %a1, %a3;\n addc.{kind} %d2, %a4, 0;\n"
    )
    found = chained(kind, lines, *arrays)
    # The high half of a signed product is added as bits, so that its carry is that of unsigned words.
    for place in range(COUNT):
        x, y = (typed(int(array[place]), kind) for array in (a, b))
        product = x * y % (1 << 2 * bits)
        expected = (product + joined(addend, bits, place)) % (1 << 3 * bits)
        assert joined(found, bits, place) == expected, place


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_halves_of_products_with_a_carry(kind: str) -> None:
    bits, arrays = int(kind[1:]), words(kind, 4)
    top = 1 << bits
    for first, second in (("hi", "lo"), ("lo", "hi")):
        lines = (
            f" mad.{first}.cc.{kind} %d0, %a0, %a1, %a2;\n madc.{second}.cc.{kind} %d1, %a0, %a3, %a1;\n"
            f" madc.{second}.{kind} %d2, %a2, %a3, %a0;\n"
        )
        found = chained(kind, lines, *arrays)
        for place in range(COUNT):
            a, b, c, d = (int(array[place]) for array in arrays)

            def half(x: int, y: int, which: str) -> int:
                product = typed(x, kind) * typed(y, kind)
                return (product >> bits if which == "hi" else product) % top

            low = half(a, b, first) + c
            middle = half(a, d, second) + b + (low >> bits)
            last = half(c, d, second) + a + (middle >> bits)
            assert [int(word[place]) for word in found] == [low % top, middle % top, last % top]


def typed(value: int, kind: str) -> int:
    bits = int(kind[1:])
    return value - (1 << bits) if kind[0] == "s" and value >> (bits - 1) else value
