"""Every floating-point opcode against exact rational arithmetic rounded once, as IEEE 754 asks, in every rounding
mode.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from exact_floats import (
    MODES,
    WIDTH,
    compare,
    fused,
    picked,
    product,
    quotient,
    sign_bit,
    to_bits,
    total,
)
from opcode_lab import (
    all_pairs,
    exact_value,
    interesting_floats,
    interesting_integers,
    is_nan_bits,
    rounded_bits,
    run_opcode,
)


def pairs(kind: str, count: int = 600) -> tuple[np.ndarray, np.ndarray]:
    return all_pairs(interesting_floats(kind, 300, 1), interesting_floats(kind, 300, 2), count, 3)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_sums_and_differences(kind: str, mode: str) -> None:
    a, b = pairs(kind)

    def added(x: int, y: int, flip: int) -> int | None:
        y ^= flip << (WIDTH[kind] - 1)
        return to_bits(
            *total(exact_value(x, kind), sign_bit(x, kind), exact_value(y, kind), sign_bit(y, kind), mode), kind, mode
        )

    for name, flip in (("add", 0), ("sub", 1)):
        expected = [added(int(x), int(y), flip) for x, y in zip(a, b, strict=True)]
        compare(
            f"{name}.{mode}.{kind}", kind, run_opcode(f"{name}.{mode}.{kind}", kind, (kind, kind), a, b), expected, a, b
        )


@pytest.mark.parametrize("mode", MODES)
def test_products(mode: str) -> None:
    a, b = pairs("f32")
    expected = [to_bits(*product(int(x), int(y), "f32"), "f32", mode) for x, y in zip(a, b, strict=True)]
    compare(f"mul.{mode}.f32", "f32", run_opcode(f"mul.{mode}.f32", "f32", ("f32", "f32"), a, b), expected, a, b)


def away_from_limits(bits: np.ndarray) -> np.ndarray:
    """Binary64 values whose products and remainders neither over- nor underflow: directed rounding is exact there."""
    exponent = (bits >> np.uint64(52)) & np.uint64(0x7FF)
    return (exponent > 600) & (exponent < 1400)


@pytest.mark.parametrize("mode", MODES)
def test_double_products(mode: str) -> None:
    a, b = pairs("f64", 1500)
    if mode != "rn":
        keep = away_from_limits(a) & away_from_limits(b)
        a, b = a[keep], b[keep]
    expected = [to_bits(*product(int(x), int(y), "f64"), "f64", mode) for x, y in zip(a, b, strict=True)]
    compare(f"mul.{mode}.f64", "f64", run_opcode(f"mul.{mode}.f64", "f64", ("f64", "f64"), a, b), expected, a, b)


def addends(kind: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Some random, some near −a·b, so that sums cancel."""
    c = np.resize(interesting_floats(kind, 300, 4), len(a))
    for place in range(0, len(a), 2):
        value, _ = product(int(a[place]), int(b[place]), kind)
        if not isinstance(value, float):
            c[place] = rounded_bits(-value, kind, "rn", 0)
    return c


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_fused_multiply_add_rounds_once(kind: str, mode: str) -> None:
    a, b = pairs(kind, 1500)
    if kind == "f64" and mode != "rn":
        keep = away_from_limits(a) & away_from_limits(b)
        a, b = a[keep], b[keep]
    c = addends(kind, a, b)
    if kind == "f64" and mode != "rn":
        keep = away_from_limits(c)
        a, b, c = a[keep], b[keep], c[keep]
    expected = [fused(int(x), int(y), int(z), kind, mode) for x, y, z in zip(a, b, c, strict=True)]
    for name in ("fma", "mad"):  # one operation since sm_20
        opcode = f"{name}.{mode}.{kind}"
        compare(opcode, kind, run_opcode(opcode, kind, (kind,) * 3, a, b, c), expected, a, b, c)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_quotients_and_reciprocals(kind: str, mode: str) -> None:
    a, b = pairs(kind, 1500)
    if kind == "f64" and mode != "rn":
        keep = away_from_limits(a) & away_from_limits(b)
        a, b = a[keep], b[keep]
    expected = [to_bits(*quotient(int(x), int(y), kind), kind, mode) for x, y in zip(a, b, strict=True)]
    compare(f"div.{mode}.{kind}", kind, run_opcode(f"div.{mode}.{kind}", kind, (kind, kind), a, b), expected, a, b)
    one = rounded_bits(Fraction(1), kind, "rn", 0)
    expected = [to_bits(*quotient(one, int(y), kind), kind, mode) for y in b]
    compare(f"rcp.{mode}.{kind}", kind, run_opcode(f"rcp.{mode}.{kind}", kind, (kind,), b), expected, b)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_square_roots(kind: str, mode: str) -> None:
    a = interesting_floats(kind, 600, 5)
    a = np.concatenate([a, a & np.array((1 << (WIDTH[kind] - 1)) - 1, a.dtype)])
    if kind == "f64" and mode != "rn":
        a = a[away_from_limits(a)]

    def root(x: int) -> int | None:
        value = exact_value(x, kind)
        if isinstance(value, float):
            return x if value == math.inf else None
        if value == 0:
            return x
        if value < 0:
            return None
        # A root with far more digits than the format has, and a sticky last one where it is not exact.
        scale = 4**700
        whole = math.isqrt(value.numerator * scale // value.denominator)
        exact = Fraction(whole * whole, scale) == value
        return rounded_bits(Fraction(whole * 2 + (not exact), 2 * 2**700), kind, mode, 0)

    compare(
        f"sqrt.{mode}.{kind}", kind, run_opcode(f"sqrt.{mode}.{kind}", kind, (kind,), a), [root(int(x)) for x in a], a
    )


@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma"])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_halves_round_once(kind: str, name: str) -> None:
    a, b = pairs(kind, 1500)
    c = addends(kind, a, b)
    operands = (a, b, c) if name == "fma" else (a, b)
    opcode = f"{name}.rn.{kind}" if name == "fma" else f"{name}.{kind}"
    flip = 1 << 15 if name == "sub" else 0

    def reference(x: int, y: int, z: int) -> int | None:
        if name == "mul":
            return to_bits(*product(x, y, kind), kind, "rn")
        if name == "fma":
            return fused(x, y, z, kind, "rn")
        y ^= flip
        return to_bits(
            *total(exact_value(x, kind), sign_bit(x, kind), exact_value(y, kind), sign_bit(y, kind), "rn"), kind, "rn"
        )

    expected = [reference(int(x), int(y), int(z)) for x, y, z in zip(a, b, c, strict=True)]
    compare(opcode, kind, run_opcode(opcode, kind, (kind,) * len(operands), *operands), expected, *operands)
    packed = [np.stack([operand, operand[::-1]], axis=1).copy().view(np.uint32)[:, 0] for operand in operands]
    both = run_opcode(opcode + "x2", "b32", ("b32",) * len(operands), *packed).view(np.uint16).reshape(-1, 2)
    compare(opcode + "x2 low", kind, both[:, 0], expected, *operands)
    compare(opcode + "x2 high", kind, both[::-1, 1], expected, *operands)


@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("name", ["min", "max"])
def test_min_and_max_prefer_numbers_and_order_zeros(name: str, kind: str) -> None:
    a, b = pairs(kind)

    expected = [picked(name, int(x), int(y), kind, "") for x, y in zip(a, b, strict=True)]
    compare(f"{name}.{kind}", kind, run_opcode(f"{name}.{kind}", kind, (kind, kind), a, b), expected, a, b)
    if kind != "f64":
        propagated = [
            None if is_nan_bits(int(x), kind) or is_nan_bits(int(y), kind) else e
            for x, y, e in zip(a, b, expected, strict=True)
        ]
        compare(f"{name}.NaN", kind, run_opcode(f"{name}.NaN.{kind}", kind, (kind, kind), a, b), propagated, a, b)


@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16"])
def test_signs(kind: str) -> None:
    a = interesting_floats(kind, 300, 1)
    top = 1 << (WIDTH[kind] - 1)
    compare(
        "neg",
        kind,
        run_opcode(f"neg.{kind}", kind, (kind,), a),
        [None if is_nan_bits(int(x), kind) else int(x) ^ top for x in a],
        a,
    )
    compare(
        "abs",
        kind,
        run_opcode(f"abs.{kind}", kind, (kind,), a),
        [None if is_nan_bits(int(x), kind) else int(x) & ~top for x in a],
        a,
    )


def test_flushing_subnormals() -> None:
    a, b = pairs("f32")

    def flushed(bits: int) -> int:
        return bits & 0x80000000 if (bits >> 23 & 0xFF) == 0 else bits

    def reference(x: int, y: int) -> int | None:
        result = to_bits(*product(flushed(x), flushed(y), "f32"), "f32", "rn")
        return None if result is None else flushed(result)

    expected = [reference(int(x), int(y)) for x, y in zip(a, b, strict=True)]
    compare("mul.ftz.f32", "f32", run_opcode("mul.ftz.f32", "f32", ("f32", "f32"), a, b), expected, a, b)


def test_saturation() -> None:
    a, b = pairs("f32")
    values = run_opcode("add.sat.f32", "f32", ("f32", "f32"), a, b).view(np.float32)
    with np.errstate(all="ignore"):
        plain = a.view(np.float32) + b.view(np.float32)
    expected = np.where(np.isnan(plain), 0, np.clip(plain, 0, 1))
    np.testing.assert_array_equal(values, expected)
    assert not np.signbit(values).any()


def ulps(found: np.ndarray, exact: np.ndarray) -> float:
    """Largest distance from a binary64 reference in units of the last binary32 place, where both are normal numbers."""
    fine = np.isfinite(exact) & (np.abs(exact) > 1.2e-38) & (np.abs(exact) < 3.4e38)
    return float(
        np.max(
            np.abs(found[fine].astype(np.float64) - exact[fine]) / np.spacing(np.abs(exact[fine]).astype(np.float32)),
            initial=0,
        )
    )


@pytest.mark.parametrize(
    ("opcode", "reference"),
    [
        ("ex2.approx.f32", np.exp2),
        ("lg2.approx.f32", np.log2),
        ("sin.approx.f32", np.sin),
        ("cos.approx.f32", np.cos),
        ("tanh.approx.f32", np.tanh),
        ("sqrt.approx.f32", np.sqrt),
        ("rsqrt.approx.f32", lambda x: 1 / np.sqrt(x)),
        ("rcp.approx.f32", lambda x: 1 / x),
    ],
)
def test_approximations_are_within_one_place(opcode: str, reference: Callable[[np.ndarray], np.ndarray]) -> None:
    a = interesting_floats("f32", 2000, 6)
    with np.errstate(all="ignore"):
        x = a.view(np.float32).astype(np.float64)
        exact = reference(x)
    found = run_opcode(opcode, "f32", ("f32",), a).view(np.float32)
    assert ulps(found, exact) <= 1
    np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))


def test_reciprocals_on_the_upper_word() -> None:
    a = interesting_floats("f64", 500, 7)
    x = (a & np.uint64(0xFFFFFFFF00000000)).view(np.float64)
    x = np.where(np.abs(x) < np.finfo(np.float64).tiny, np.copysign(0.0, x), x)
    with np.errstate(all="ignore"):
        for opcode, exact in (("rcp", 1 / x), ("rsqrt", 1 / np.sqrt(x))):
            bits = run_opcode(f"{opcode}.approx.ftz.f64", "f64", ("f64",), a)
            found, fine = bits.view(np.float64), np.isfinite(exact) & (np.abs(exact) > 1e-300)
            assert np.all(np.abs(found[fine] / exact[fine] - 1) < 2.0**-19)
            assert not (bits & np.uint64(0xFFFFFFFF)).any()


@pytest.mark.parametrize("of", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("to", ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"])
def test_floats_to_integers(to: str, of: str) -> None:
    a = interesting_floats(of, 400, 8)
    bits = int(to[1:])
    low, high = (0, (1 << bits) - 1) if to[0] == "u" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    rounders: dict[str, Callable[[Fraction], int]] = {
        "rni": round,
        "rzi": math.trunc,
        "rmi": math.floor,
        "rpi": math.ceil,
    }

    def reference(x: int, mode: str) -> int:
        value = exact_value(x, of)
        if isinstance(value, float):
            if math.isnan(value):
                return 1 << (bits - 1) if of == "f64" or bits == 64 else 0
            whole = low if value < 0 else high
        else:
            whole = max(low, min(high, rounders[mode](value)))
        return whole & ((1 << bits) - 1)

    for mode in rounders:
        found = run_opcode(f"cvt.{mode}.{to}.{of}", to, (of,), a)
        assert found.tolist() == [reference(int(x), mode) for x in a], mode


@pytest.mark.parametrize("to", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("of", ["u8", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("mode", MODES)
def test_integers_to_floats(mode: str, of: str, to: str) -> None:
    bits = int(of[1:])
    a = interesting_integers(bits, 500, 9)

    def value(x: int) -> int:
        return x - (1 << bits) if of[0] == "s" and x >> (bits - 1) else x

    found = run_opcode(f"cvt.{mode}.{to}.{of}", to, (of,), a)
    compare(f"cvt.{mode}.{to}.{of}", to, found, [rounded_bits(Fraction(value(int(x))), to, mode, 0) for x in a], a)


@pytest.mark.parametrize("to", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("of", ["u8", "s16", "u32", "s64"])
def test_integers_to_saturated_floats(of: str, to: str) -> None:
    bits = int(of[1:])
    a = interesting_integers(bits, 100, 9)

    def reference(x: int) -> int:
        value = x - (1 << bits) if of[0] == "s" and x >> (bits - 1) else x
        return rounded_bits(Fraction(min(max(value, 0), 1)), to, "rn", 0)

    for mode in MODES:
        opcode = f"cvt.{mode}.sat.{to}.{of}"
        compare(opcode, to, run_opcode(opcode, to, (of,), a), [reference(int(x)) for x in a], a)


@pytest.mark.parametrize(
    ("to", "of"), [("f32", "f64"), ("f16", "f32"), ("f16", "f64"), ("bf16", "f32"), ("bf16", "f64")]
)
@pytest.mark.parametrize("mode", MODES)
def test_narrower_floats(mode: str, to: str, of: str) -> None:
    a = interesting_floats(of, 800, 10)
    # Values near the narrow format's own, halfway cases among them.
    generator = np.random.default_rng(11)
    near = interesting_floats(to, 500, 12)
    wide = np.array(
        [rounded_bits(v, of, "rn", 0) for v in (exact_value(int(x), to) for x in near) if not isinstance(v, float)],
        a.dtype,
    )
    a = np.concatenate([a, wide, wide + generator.integers(0, 3, len(wide)).astype(a.dtype)])

    def reference(x: int) -> int | None:
        return to_bits(exact_value(x, of), sign_bit(x, of), to, mode)

    compare(
        f"cvt.{mode}.{to}.{of}",
        to,
        run_opcode(f"cvt.{mode}.{to}.{of}", to, (of,), a),
        [reference(int(x)) for x in a],
        a,
    )


@pytest.mark.parametrize(
    ("to", "of"), [("f64", "f32"), ("f32", "f16"), ("f64", "f16"), ("f32", "bf16"), ("f32", "f32")]
)
def test_wider_floats_are_exact(to: str, of: str) -> None:
    a = interesting_floats(of, 600, 13)
    found = run_opcode(f"cvt.{to}.{of}", to, (of,), a)
    compare("cvt", to, found, [to_bits(exact_value(int(x), of), sign_bit(int(x), of), to, "rn") for x in a], a)


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_rounding_to_whole_numbers(kind: str) -> None:
    a = interesting_floats(kind, 600, 14)
    values = a.view(np.float32 if kind == "f32" else np.float64)
    for mode, rounder in (("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil)):
        found = run_opcode(f"cvt.{mode}.{kind}.{kind}", kind, (kind,), a).view(values.dtype)
        with np.errstate(invalid="ignore"):  # signalling NaNs among the random bits
            expected = rounder(values)
        np.testing.assert_array_equal(found, expected)
        fine = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found[fine]), np.signbit(expected[fine]))


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_properties_of_floats(kind: str) -> None:
    a = interesting_floats(kind, 300, 15)
    x = a.view(f"f{WIDTH[kind] // 8}")
    normal = np.isfinite(x) & (np.abs(x) >= np.finfo(x.dtype).tiny)
    expected = {
        "finite": np.isfinite(x),
        "infinite": np.isinf(x),
        "number": ~np.isnan(x),
        "notanumber": np.isnan(x),
        "normal": normal,
        "subnormal": np.isfinite(x) & ~normal & (x != 0),
    }
    for name, truth in expected.items():
        assert run_opcode(f"testp.{name}.{kind}", "pred", (kind,), a).tolist() == truth.tolist(), name


@pytest.mark.parametrize("name", ["add", "sub", "mul"])
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_rounding_to_the_nearest_may_be_left_unsaid(kind: str, name: str) -> None:
    a, b = pairs(kind)
    found, spelled = (run_opcode(f"{name}{mode}.{kind}", kind, (kind, kind), a, b) for mode in ("", ".rn"))
    np.testing.assert_array_equal(found, spelled)


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_copysign(kind: str) -> None:
    a, b = pairs(kind, 100)
    top = a.dtype.type(1 << (WIDTH[kind] - 1))
    np.testing.assert_array_equal(run_opcode(f"copysign.{kind}", kind, (kind, kind), a, b), (a & top) | (b & ~top))


def test_full_range_division_keeps_the_stated_error() -> None:
    a, b = pairs("f32", 1500)
    with np.errstate(all="ignore"):
        x, y = (v.view(np.float32).astype(np.float64) for v in (a, b))
        exact = x / y
    found = run_opcode("div.full.f32", "f32", ("f32", "f32"), a, b).view(np.float32)
    assert ulps(found, exact) <= 2


def test_reciprocal_roots_of_doubles() -> None:
    a = interesting_floats("f64", 500, 16)
    found = run_opcode("rsqrt.approx.f64", "f64", ("f64",), a).view(np.float64)
    with np.errstate(all="ignore"):
        exact = 1 / np.sqrt(a.view(np.float64))
    np.testing.assert_allclose(found, exact, rtol=2.0**-50)


def test_tf32_rounds_ties_away_from_zero() -> None:
    a, _ = pairs("f32", 300)
    a = np.concatenate([a, a & np.uint32(0xFFFFE000) | np.uint32(0x1000)])  # ties
    for bits, got in zip(a.tolist(), run_opcode("cvt.rna.tf32.f32", "b32", ("f32",), a).tolist(), strict=True):
        if is_nan_bits(bits, "f32"):
            assert is_nan_bits(got, "f32")
            continue
        magnitude = bits & 0x7FFFFFFF
        rounded = magnitude if magnitude == 0x7F800000 else (magnitude + 0x1000) & 0x7FFFE000
        assert got & 0xFFFFE000 == bits & 0x80000000 | rounded, hex(bits)
