"""Compute binary32 and binary64 opcodes.

Correctly rounded operations are exact in every rounding mode (see `rounding`). The ``.approx`` ones, which hardware
computes to a few units in the last place, are computed here to within one: results may differ from a GPU's by its own
error. NaNs are NaNs; their payloads are not modelled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pytest_bandwidth.features.traffic.ptx.lanes import Array
from pytest_bandwidth.features.traffic.ptx.opcodes import rounding
from pytest_bandwidth.features.traffic.ptx.opcodes.forms import Choice, Meaning
from pytest_bandwidth.features.traffic.ptx.opcodes.rounding import MODES


def flush(a: Array) -> Array:
    """Flush subnormal binary32 values to zero of the same sign (.ftz)."""
    return np.where(np.abs(a) < np.finfo(a.dtype).tiny, np.copysign(a.dtype.type(0), a), a)


def saturate(a: Array) -> Array:
    """Clamp to [0, 1]; NaN becomes 0 (.sat)."""
    return np.fmin(np.fmax(a, a.dtype.type(0)), a.dtype.type(1)) + a.dtype.type(0)  # + 0: −0 becomes +0


def modified(choice: Choice, compute: Callable[..., Any]) -> Meaning:
    """Apply the opcode's .ftz to operands and result of `compute`, and its .sat to the result."""
    ftz, sat = "ftz" in choice and ("f32" in choice.values()), "sat" in choice
    if not ftz and not sat:
        return compute

    def wrapped(*sources: Array) -> Any:
        result = compute(*(flush(s) for s in sources)) if ftz else compute(*sources)
        result = flush(result) if ftz else result
        return saturate(result) if sat else result

    return wrapped


def arithmetic(name: str) -> Callable[[Choice], Meaning]:
    """Compute add, sub, mul, div and sqrt in the opcode's rounding mode, nearest unless it says otherwise."""
    nearest: Meaning = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "sqrt": np.sqrt}[name]

    def meaning(choice: Choice) -> Meaning:
        mode = MODES[choice.get("rnd", "rn")]
        return modified(choice, nearest if mode == rounding.NEAREST else _directed(name, mode))

    return meaning


def _directed(name: str, mode: int) -> Meaning:
    def compute(a: Array, b: Array | None = None) -> Array:
        single = a.dtype == np.float32
        wide = np.float64
        x = a.astype(wide)
        y = None if b is None else b.astype(wide)
        if name == "sqrt":
            return _narrow_root(x, mode) if single else rounding.sqrt64_directed(a, mode)
        if y is None or b is None:
            raise TypeError(f"{name} takes two operands")
        if name == "sub":
            y = -y
        if name in ("add", "sub"):
            if single:
                return rounding.fma32_directed(a, np.float32(1), y.astype(np.float32), mode)
            return rounding.add64_directed(x, y, mode)
        if name == "mul":
            # The addend is a zero of the product's sign, so that the sign of an exact zero stays.
            zero = np.copysign(a.dtype.type(0), np.copysign(a.dtype.type(1), a) * np.copysign(a.dtype.type(1), b))
            return (rounding.fma32_directed if single else rounding.fma64_directed)(a, b, zero, mode)
        if single:
            quotient = x / y
            remainder = rounding.fused_multiply_add(-quotient, y, x)
            error = np.where(np.isfinite(remainder), np.sign(remainder) * np.sign(y), 0.0)
            return rounding.narrow_directed(quotient, error, mode)
        return rounding.divide64_directed(x, y, mode)

    return compute


def _narrow_root(x: Array, mode: int) -> Array:
    root = np.sqrt(x)
    remainder = rounding.fused_multiply_add(-root, root, x)
    return rounding.narrow_directed(root, np.where(np.isfinite(remainder), np.sign(remainder), 0.0), mode)


def fused(choice: Choice) -> Meaning:
    """Compute fma and mad: one rounding."""
    mode = MODES[choice.get("rnd", "rn")]
    if mode == rounding.NEAREST:
        return modified(choice, rounding.fused_multiply_add)
    single = "f32" in choice.values()
    directed = rounding.fma32_directed if single else rounding.fma64_directed
    return modified(choice, lambda a, b, c: directed(a, b, c, mode))


def reciprocal(choice: Choice) -> Meaning:
    divide = arithmetic("div")(choice)
    return lambda a: divide(np.ones(1, a.dtype), a)


def reciprocal_root(choice: Choice) -> Meaning:
    return modified(choice, lambda a: (1.0 / np.sqrt(a.astype(np.float64))).astype(a.dtype))


def approximate(function: Callable[[Array], Array]) -> Callable[[Choice], Meaning]:
    """Compute a binary32 transcendental through binary64: within one unit in the last place."""
    return lambda choice: modified(choice, lambda a: function(a.astype(np.float64)).astype(a.dtype))


def exponential(choice: Choice) -> Meaning:
    return modified(choice, lambda a: np.exp2(a))


def approximate_double(function: Callable[[Array], Array]) -> Callable[[Choice], Meaning]:
    """Compute rcp and rsqrt.approx.ftz.f64 on the upper word only; the lower word of operand and result is 0."""

    def compute(a: Array) -> Array:
        upper = (np.asarray(a).view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)
        result = function(flush(upper))
        return (flush(result).view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)

    return lambda _: compute


def absolute(choice: Choice) -> Meaning:
    return modified(choice, np.abs)


def negative(choice: Choice) -> Meaning:
    return modified(choice, np.negative)


def minmax(name: str) -> Callable[[Choice], Meaning]:
    """Compute min and max: a number beats a NaN unless .NaN; −0 is less than +0; newer ones take three operands."""
    smaller = name == "min"

    def meaning(choice: Choice) -> Meaning:
        propagate, xorsign, magnitude = "NaN" in choice, "xorsign" in choice, "abs" in choice
        pick: Any = (np.minimum if smaller else np.maximum) if propagate else (np.fmin if smaller else np.fmax)

        def two(a: Array, b: Array) -> Array:
            x, y = (np.abs(a), np.abs(b)) if magnitude else (a, b)
            result = pick(x, y)
            zeros = (x == 0) & (y == 0)
            if zeros.any():
                negative_zero = (np.signbit(x) | np.signbit(y)) if smaller else (np.signbit(x) & np.signbit(y))
                result = np.where(zeros, np.where(negative_zero, a.dtype.type(-0.0), a.dtype.type(0.0)), result)
            if xorsign:
                result = np.where(np.signbit(a) != np.signbit(b), -np.abs(result), np.abs(result))
            return result

        return modified(choice, lambda a, b, c=None: two(a, b) if c is None else two(two(a, b), c))

    return meaning


def copysign(a: Array, b: Array) -> Array:
    """Combine the magnitude of b with the sign of a."""
    return np.copysign(b, a)


def has_property(choice: Choice) -> Meaning:
    tiny = np.finfo(np.float32 if "f32" in choice.values() else np.float64).tiny
    tests: dict[str, Meaning] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda a: ~np.isnan(a),
        "notanumber": np.isnan,
        "normal": lambda a: np.isfinite(a) & (np.abs(a) >= tiny),
        "subnormal": lambda a: (np.abs(a) < tiny) & (a != 0),
    }
    return tests[choice["property"]]


def compare(choice: Choice) -> Meaning:
    """Compare: the ordered comparisons are false on NaN, those ending in u true; num and nan test for numbers."""
    ftz = "ftz" in choice
    test = FLOAT_COMPARISONS[choice["fcmp"]]
    return (lambda a, b: test(flush(a), flush(b))) if ftz else test


def _unordered(test: Meaning) -> Meaning:
    return lambda a, b: test(a, b) | np.isnan(a) | np.isnan(b)


FLOAT_COMPARISONS: dict[str, Meaning] = {
    "eq": np.equal,
    "ne": lambda a, b: (a != b) & ~np.isnan(a) & ~np.isnan(b),
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "equ": _unordered(np.equal),
    "neu": np.not_equal,
    "ltu": lambda a, b: ~np.greater_equal(a, b),
    "leu": lambda a, b: ~np.greater(a, b),
    "gtu": lambda a, b: ~np.less_equal(a, b),
    "geu": lambda a, b: ~np.less(a, b),
    "num": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "nan": lambda a, b: np.isnan(a) | np.isnan(b),
}
