"""setp, set, selp and slct in every spelling: each comparison, each way to join it, each type of operand and result."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from exact_floats import COMPARISONS, FLOAT_TESTS, WIDTH, flushed, holds
from opcode_lab import all_pairs, interesting_floats, interesting_integers, run_opcode

JOINED = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}
# Unsigned numbers have names of their own for the order.
UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
WHOLE = COMPARISONS | {own: COMPARISONS[name] for own, name in UNSIGNED.items()}
# Which comparisons a type has: bits are equal or not.
TESTS_OF = {
    **dict.fromkeys(("s16", "s32", "s64"), tuple(COMPARISONS)),
    **dict.fromkeys(("u16", "u32", "u64"), tuple(WHOLE)),
    **dict.fromkeys(("b16", "b32", "b64"), ("eq", "ne")),
}
MANY = {"pred": 1, "u32": 0xFFFFFFFF, "s32": 0xFFFFFFFF, "f32": 0x3F800000, "u16": 0xFFFF, "s16": 0xFFFF}


def float_pairs(kind: str) -> tuple[np.ndarray, np.ndarray]:
    a, b = all_pairs(interesting_floats(kind, 60, 1), interesting_floats(kind, 60, 2), 100, 3)
    return a[: len(a) // 2 * 2], b[: len(b) // 2 * 2]


def truths(name: str, kind: str, a: np.ndarray, b: np.ndarray, *, ftz: bool = False) -> np.ndarray:
    given = [[flushed(int(x), kind) if ftz else int(x) for x in array] for array in (a, b)]
    return np.array([holds(name, x, y, kind) for x, y in zip(*given, strict=True)])


def thirds(count: int) -> np.ndarray:
    return (np.arange(count) // 2 % 2).astype(np.uint8)


@pytest.mark.parametrize("name", FLOAT_TESTS)
@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16"])
def test_floats(kind: str, name: str) -> None:
    a, b = float_pairs(kind)
    third = thirds(len(a))
    for flush in ("", ".ftz") if kind in ("f32", "f16") else ("",):
        truth = truths(name, kind, a, b, ftz=bool(flush))
        found = run_opcode(f"setp.{name}{flush}.{kind}", "pred", (kind, kind), a, b)
        np.testing.assert_array_equal(found, truth)
        for join, joined in JOINED.items() if kind != "bf16" else ():
            found = run_opcode(f"setp.{name}.{join}{flush}.{kind}", "pred", (kind, kind, "pred"), a, b, third)
            np.testing.assert_array_equal(found, joined(truth, third.astype(bool)), err_msg=join)


@pytest.mark.parametrize("name", FLOAT_TESTS)
@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16"])
def test_words_of_floats(kind: str, name: str) -> None:
    """set: all ones, or 1.0 where the result is a float."""
    a, b = float_pairs(kind)
    results = ("u32", "s32", "f32") if WIDTH[kind] > 16 else ("u16", "s16", "u32", "s32")
    for flush in ("", ".ftz") if kind in ("f32", "f16") else ("",):
        truth = truths(name, kind, a, b, ftz=bool(flush))
        for result in results:
            found = run_opcode(f"set.{name}{flush}.{result}.{kind}", result, (kind, kind), a, b)
            np.testing.assert_array_equal(found, np.where(truth, MANY[result], 0), err_msg=result)


@pytest.mark.parametrize("name", FLOAT_TESTS)
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_words_of_halves(kind: str, name: str) -> None:
    a, b = float_pairs(kind)
    one = 0x3C00 if kind == "f16" else 0x3F80
    words = [array.view(np.uint32) for array in (a, b)]
    for flush in ("", ".ftz") if kind == "f16" else ("",):
        truth = truths(name, kind, a, b, ftz=bool(flush))
        ones = run_opcode(f"set.{name}{flush}.{kind}.{kind}", kind, (kind, kind), a, b)
        np.testing.assert_array_equal(ones, np.where(truth, one, 0))
        for result, many in ((f"{kind}x2", one), ("u32", 0xFFFF), ("s32", 0xFFFF)):
            found = run_opcode(f"set.{name}{flush}.{result}.{kind}x2", "b32", ("b32", "b32"), *words)
            np.testing.assert_array_equal(found.view(np.uint16), np.where(truth, many, 0), err_msg=result)


@pytest.mark.parametrize("kind", TESTS_OF)
def test_whole_numbers(kind: str) -> None:
    bits = int(kind[1:])
    values = interesting_integers(bits, 100, 1)
    a, b = all_pairs(values, interesting_integers(bits, 100, 2), 200, 3)
    x, y = (array.view(f"i{bits // 8}") if kind[0] == "s" else array for array in (a, b))
    third = thirds(len(a))
    for name in TESTS_OF[kind]:
        truth = WHOLE[name](x, y)
        found = run_opcode(f"setp.{name}.{kind}", "pred", (kind, kind), a, b)
        np.testing.assert_array_equal(found, truth, err_msg=name)
        for join, joined in JOINED.items():
            found = run_opcode(f"setp.{name}.{join}.{kind}", "pred", (kind, kind, "pred"), a, b, third)
            np.testing.assert_array_equal(found, joined(truth, third.astype(bool)), err_msg=f"{name}.{join}")
        for result in ("u32", "s32", "f32"):
            found = run_opcode(f"set.{name}.{result}.{kind}", result, (kind, kind), a, b)
            np.testing.assert_array_equal(found, np.where(truth, MANY[result], 0), err_msg=f"{name}.{result}")


@pytest.mark.parametrize("kind", [*TESTS_OF, "f32", "f64"])
def test_selections(kind: str) -> None:
    bits = int(kind[1:])
    a, b = all_pairs(interesting_integers(bits, 60, 4), interesting_integers(bits, 60, 5), 60, 6)
    third = thirds(len(a))
    found = run_opcode(f"selp.{kind}", kind, (kind, kind, "pred"), a, b, third)
    np.testing.assert_array_equal(found, np.where(third, a, b))
    found = run_opcode(f"mov.{kind}", kind, (kind,), a)
    np.testing.assert_array_equal(found, a)
    sign = np.resize(interesting_integers(32, 60, 7), len(a))
    found = run_opcode(f"slct.{kind}.s32", kind, (kind, kind, "s32"), a, b, sign)
    np.testing.assert_array_equal(found, np.where(sign.view(np.int32) >= 0, a, b))
    sign = np.resize(interesting_floats("f32", 60, 8), len(a))
    flat = np.array([flushed(int(x), "f32") for x in sign], np.uint32)
    for flush, bits_of in (("", sign), (".ftz", flat)):
        with np.errstate(invalid="ignore"):
            chosen = bits_of.view(np.float32) >= 0  # also −0; not NaN
        found = run_opcode(f"slct{flush}.{kind}.f32", kind, (kind, kind, "f32"), a, b, sign)
        np.testing.assert_array_equal(found, np.where(chosen, a, b), err_msg=flush)
