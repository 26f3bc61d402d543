"""What .ftz, .sat, .relu and their like change in an opcode, on binary32 and on halves, single and packed."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from exact_floats import (
    WIDTH,
    compare,
    flushed,
    fused,
    picked,
    product,
    quotient,
    saturated,
    sign_bit,
    to_bits,
    total,
)
from opcode_lab import all_pairs, exact_value, interesting_floats, is_nan_bits, rounded_bits, run_opcode

Reference = Callable[..., int | None]
# The types that the ISA flushes and saturates; bf16 has neither.
KINDS = ("f32", "f16")


def summed(x: int, y: int, kind: str, flip: int = 0) -> int | None:
    y ^= flip << (WIDTH[kind] - 1)
    exact = total(exact_value(x, kind), sign_bit(x, kind), exact_value(y, kind), sign_bit(y, kind), "rn")
    return to_bits(*exact, kind, "rn")


def reference_of(name: str, kind: str) -> Reference:
    references: dict[str, Reference] = {
        "add": lambda x, y: summed(x, y, kind),
        "sub": lambda x, y: summed(x, y, kind, 1),
        "mul": lambda x, y: to_bits(*product(x, y, kind), kind, "rn"),
        "fma": lambda x, y, z: fused(x, y, z, kind, "rn"),
        "div": lambda x, y: to_bits(*quotient(x, y, kind), kind, "rn"),
        "rcp": lambda x: to_bits(*quotient(rounded_bits(Fraction(1), kind, "rn", 0), x, kind), kind, "rn"),
        "neg": lambda x: None if is_nan_bits(x, kind) else x ^ 1 << (WIDTH[kind] - 1),
        "abs": lambda x: None if is_nan_bits(x, kind) else x & ~(1 << (WIDTH[kind] - 1)),
    }
    return references["fma" if name == "mad" else name]


def modified(reference: Reference, kind: str, modifiers: str) -> Reference:
    """The reference with its operands and result flushed, and its result clamped, as the modifiers say."""

    def changed(*bits: int) -> int | None:
        given = [flushed(x, kind) for x in bits] if ".ftz" in modifiers else bits
        result = reference(*given)
        if ".ftz" in modifiers and result is not None:
            result = flushed(result, kind)
        if ".relu" in modifiers and result is not None and sign_bit(result, kind):
            result = 0
        return saturated(result, kind) if ".sat" in modifiers else result

    return changed


def operands(kind: str, count: int, limit: int = 400) -> list[np.ndarray]:
    """Special values with each other, then values near 1 (whose sums and products .sat cuts) and random ones."""
    a, b = all_pairs(interesting_floats(kind, 300, 1), interesting_floats(kind, 300, 2), limit, 3)
    even = len(a) // 2 * 2
    c = np.resize(interesting_floats(kind, 301, 4), even)
    return [a[:even], b[:even], c][:count]


def check(opcode: str, kind: str, reference: Reference, given: list[np.ndarray]) -> None:
    """The single opcode, and for halves also the packed one."""
    expected = [reference(*(int(x) for x in row)) for row in zip(*given, strict=True)]
    compare(
        f"{opcode}.{kind}", kind, run_opcode(f"{opcode}.{kind}", kind, (kind,) * len(given), *given), expected, *given
    )
    if WIDTH[kind] == 16:
        words = [np.ascontiguousarray(array).view(np.uint32) for array in given]
        found = run_opcode(f"{opcode}.{kind}x2", "b32", ("b32",) * len(words), *words).view(np.uint16)
        compare(f"{opcode}.{kind}x2", kind, found, expected, *given)


@pytest.mark.parametrize("modifiers", [".ftz", ".sat", ".ftz.sat"])
@pytest.mark.parametrize("name", ["add", "sub", "mul"])
@pytest.mark.parametrize("kind", KINDS)
def test_sums_and_products(kind: str, name: str, modifiers: str) -> None:
    for rounding in ("", ".rn"):
        reference = modified(reference_of(name, kind), kind, modifiers)
        check(f"{name}{rounding}{modifiers}", kind, reference, operands(kind, 2))


@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_the_rounding_of_halves_may_be_spelled(name: str) -> None:
    for kind in ("f16", "bf16"):
        check(f"{name}.rn", kind, reference_of(name, kind), operands(kind, 2))


@pytest.mark.parametrize(
    ("name", "kind", "modifiers"),
    [
        *((name, "f32", modifiers) for name in ("fma", "mad") for modifiers in (".ftz", ".sat", ".ftz.sat")),
        *(("fma", "f16", modifiers) for modifiers in (".ftz", ".sat", ".ftz.sat", ".ftz.relu", ".relu")),
        ("fma", "bf16", ".relu"),
    ],
)
def test_fused_products(name: str, kind: str, modifiers: str) -> None:
    given = operands(kind, 3)
    check(f"{name}.rn{modifiers}", kind, modified(reference_of(name, kind), kind, modifiers), given)


@pytest.mark.parametrize("name", ["div.rn", "rcp.rn"])
def test_quotients_without_subnormals(name: str) -> None:
    base = name.removesuffix(".rn")
    check(
        f"{name}.ftz", "f32", modified(reference_of(base, "f32"), "f32", ".ftz"), operands("f32", 1 + (base == "div"))
    )


def test_square_roots_without_subnormals() -> None:
    a = interesting_floats("f32", 400, 5)
    flat = np.array([flushed(int(x), "f32") for x in a], np.uint32)
    np.testing.assert_array_equal(*without_nan(run_opcode("sqrt.rn.ftz.f32", "f32", ("f32",), a), flat, np.sqrt))


def without_nan(
    found: np.ndarray, operand: np.ndarray, function: Callable[[np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Found and expected bits, all NaNs as one."""
    with np.errstate(all="ignore"):
        expected = function(operand.view(np.float32))
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found.view(np.float32)), nan)
    return np.where(nan, 0, found), np.where(nan, 0, expected.view(np.uint32))


@pytest.mark.parametrize("name", ["neg", "abs"])
def test_signs_without_subnormals(name: str) -> None:
    for kind in KINDS:
        check(f"{name}.ftz", kind, modified(reference_of(name, kind), kind, ".ftz"), operands(kind, 1))


@pytest.mark.parametrize("modifiers", [".ftz", ".ftz.NaN", ".xorsign.abs", ".NaN.xorsign.abs", ".ftz.xorsign.abs"])
@pytest.mark.parametrize("name", ["min", "max"])
@pytest.mark.parametrize("kind", KINDS)
def test_minima_and_maxima(kind: str, name: str, modifiers: str) -> None:
    reference = modified(lambda x, y: picked(name, x, y, kind, modifiers), kind, modifiers)
    check(f"{name}{modifiers}", kind, reference, operands(kind, 2))


@pytest.mark.parametrize("modifiers", ["", ".NaN", ".abs", ".ftz.NaN.abs"])
@pytest.mark.parametrize("name", ["min", "max"])
def test_minima_and_maxima_of_three(name: str, modifiers: str) -> None:
    def of_three(x: int, y: int, z: int) -> int | None:
        first = picked(name, x, y, "f32", modifiers)
        if first is None:  # NaN: any will do, and with .NaN it stays
            return None if ".NaN" in modifiers else picked(name, z, z, "f32", modifiers)
        return picked(name, first, z, "f32", modifiers)

    check(f"{name}{modifiers}", "f32", modified(of_three, "f32", modifiers), operands("f32", 3))


@pytest.mark.parametrize(
    ("opcode", "function"),
    [
        ("rsqrt.approx.ftz.f32", lambda x: 1 / np.sqrt(x)),
        ("rcp.approx.ftz.f32", lambda x: 1 / x),
        ("sqrt.approx.ftz.f32", np.sqrt),
        ("ex2.approx.ftz.f32", np.exp2),
        ("lg2.approx.ftz.f32", np.log2),
        ("sin.approx.ftz.f32", np.sin),
        ("cos.approx.ftz.f32", np.cos),
    ],
)
def test_approximations_without_subnormals(opcode: str, function: Callable[[np.ndarray], np.ndarray]) -> None:
    a = interesting_floats("f32", 1000, 6)
    found = run_opcode(opcode, "f32", ("f32",), a).view(np.float32)
    near(found, flat_doubles(a), function)


@pytest.mark.parametrize("name", ["div.full", "div.approx"])
def test_quick_quotients(name: str) -> None:
    a, b = operands("f32", 2, 1500)
    fine = [flushed(int(x), "f32") == x and flushed(int(y), "f32") == y for x, y in zip(a, b, strict=True)]
    a, b = a[fine], b[fine]
    found = run_opcode(f"{name}.f32", "f32", ("f32", "f32"), a, b).view(np.float32)
    with np.errstate(all="ignore"):
        exact = flat_doubles(a) / flat_doubles(b)
    near(
        np.where(np.abs(exact) < np.finfo(np.float32).tiny, np.copysign(0, exact), found),
        flat_doubles(a),
        lambda _: exact,
    )


@pytest.mark.parametrize("name", ["div.full", "div.approx"])
def test_quick_quotients_without_subnormals(name: str) -> None:
    a, b = operands("f32", 2, 1500)
    found = run_opcode(f"{name}.ftz.f32", "f32", ("f32", "f32"), a, b).view(np.float32)
    y = flat_doubles(b)
    near(found, flat_doubles(a), lambda x: x / y)


def flat_doubles(bits: np.ndarray) -> np.ndarray:
    """Binary32 values without subnormals, as binary64."""
    flat = np.array([flushed(int(x), "f32") for x in bits], np.uint32).view(np.float32)
    with np.errstate(invalid="ignore"):  # signalling NaNs among the random bits
        return flat.astype(np.float64)


def near(found: np.ndarray, x: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> None:
    """Within a unit in the last place of the exact value; subnormal results are zeros of its sign."""
    tiny = float(np.finfo(np.float32).tiny)
    with np.errstate(all="ignore"):
        exact = function(x)
        rounded = exact.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))
    special = np.isnan(exact) | np.isinf(rounded) | (rounded == 0)
    small = ~special & (np.abs(exact) < tiny * (1 - 2.0**-23))
    normal = ~special & (np.abs(exact) > tiny * (1 + 2.0**-22)) & (np.abs(exact) < 2.0**127)
    infinite = np.isinf(exact)
    np.testing.assert_array_equal(found[infinite], rounded[infinite])
    assert (found[small] == 0).all()
    np.testing.assert_array_equal(np.signbit(found[small]), np.signbit(exact[small]))
    error = np.abs(found[normal].astype(np.float64) - exact[normal])
    assert (error <= np.spacing(np.abs(rounded[normal])).astype(np.float64)).all()
    assert normal.sum() > 100


def test_conversions_without_subnormals() -> None:
    a = interesting_floats("f32", 600, 7)
    flat = [flushed(int(x), "f32") for x in a]
    for mode, rounder in (("rni", np.rint), ("rpi", np.ceil), ("rmi", np.floor), ("rzi", np.trunc)):
        found = run_opcode(f"cvt.{mode}.ftz.f32.f32", "f32", ("f32",), a)
        np.testing.assert_array_equal(*without_nan(found, np.array(flat, np.uint32), rounder))
    up = run_opcode("cvt.rpi.ftz.s32.f32", "s32", ("f32",), a).view(np.int32)
    tiny = np.array([x != int(bits) for x, bits in zip(flat, a, strict=True)])
    assert tiny.any()
    assert (up[tiny] == 0).all(), "a subnormal would be rounded up to 1"
    wide = run_opcode("cvt.ftz.f64.f32", "f64", ("f32",), a)
    compare("cvt", "f64", wide, [to_bits(exact_value(x, "f32"), sign_bit(x, "f32"), "f64", "rn") for x in flat], a)
    doubles = interesting_floats("f64", 600, 8)
    narrow = run_opcode("cvt.rn.ftz.f32.f64", "f32", ("f64",), doubles)
    nearest = [to_bits(exact_value(int(x), "f64"), sign_bit(int(x), "f64"), "f32", "rn") for x in doubles]
    compare("cvt", "f32", narrow, [None if x is None else flushed(x, "f32") for x in nearest], doubles)


@pytest.mark.parametrize("mode", ["rn", "rz"])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_conversions_to_halves_without_negative_results(kind: str, mode: str) -> None:
    a, b = operands("f32", 2)

    def reference(x: int, relu: bool) -> int | None:
        result = to_bits(exact_value(x, "f32"), sign_bit(x, "f32"), kind, mode)
        return 0 if relu and result is not None and sign_bit(result, kind) else result

    compare(
        kind,
        kind,
        run_opcode(f"cvt.{mode}.relu.{kind}.f32", kind, ("f32",), a),
        [reference(int(x), True) for x in a],
        a,
    )
    for relu in (False, True):
        opcode = f"cvt.{mode}{'.relu' if relu else ''}.{kind}x2.f32"
        words = run_opcode(opcode, "b32", ("f32", "f32"), a, b)
        for half, operand in ((words >> 16, a), (words & 0xFFFF, b)):
            compare(opcode, kind, half.astype(np.uint16), [reference(int(x), relu) for x in operand], operand)
