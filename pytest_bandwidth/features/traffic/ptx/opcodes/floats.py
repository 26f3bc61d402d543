"""Compute binary32 and binary64 opcodes, in every rounding mode.

Hardware computes ``.approx`` opcodes to a few units in the last place. Here they are accurate to one unit: results may
differ from a GPU's by the GPU's error. NaN payloads are not modelled.

Neither NumPy nor Python 3.10 has directed rounding and fused multiply-add: Numba compiles them as NumPy ufuncs. A
directed result is the nearest one, moved by one unit if its exact rounding error shows that it is on the wrong side.
That error comes from error-free transformations: Dekker 1971, Knuth; for fma Boldo and Muller 2011, "Exact and
approximated error of the FMA". They are exact without under- or overflow in binary64, so directed binary64 results near
its limits may be off by one unit.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

from pytest_bandwidth.features.traffic.ptx.lanes import Array
from pytest_bandwidth.features.traffic.ptx.loops import compiled
from pytest_bandwidth.features.traffic.ptx.opcodes.forms import Choice, Meaning, by_choice

NEAREST, ZERO, DOWN, UP = 0, 1, 2, 3
MODES = {"rn": NEAREST, "rz": ZERO, "rm": DOWN, "rp": UP}


def _generate_fma(_typing: Any, a: Any, b: Any, c: Any) -> Any:
    """Emit LLVM's fma: the host's instruction where it has one, else the C library's exact routine."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return a(a, b, c), generate


# Numba has few type hints; these names are used as it documents them.
_fma: Any = intrinsic(_generate_fma)
_inline: Callable[[Callable[..., Any]], Any] = numba.njit(inline="always")
_ufunc = functools.partial(compiled, by=numba.vectorize)
f32, f64, i64 = types.float32, types.float64, types.int64


@_ufunc(f32(f32, f32, f32), f64(f64, f64, f64))
def fused_multiply_add(a: Any, b: Any, c: Any) -> Any:
    return _fma(a, b, c)


@_inline
def _two_sum_error(a: Any, b: Any, total: Any) -> Any:
    """Compute the error of Knuth's TwoSum: total + error = a + b exactly."""
    virtual = total - a
    return (a - (total - virtual)) + (b - virtual)


@_inline
def _zero(a: Any, b: Any, mode: Any) -> Any:
    """Return a + b where it is exactly 0: for unlike signs −0 when rounding down, else +0 (IEEE 754, §6.3)."""
    if math.copysign(1.0, a) == math.copysign(1.0, b):
        return math.copysign(0.0, a)
    return -0.0 if mode == DOWN else 0.0


@_inline
def _directed(nearest: Any, error: Any, mode: Any, infinity: Any) -> Any:
    """Move `nearest` by one unit where `error` = exact − nearest shows that it is on the wrong side for the mode.

    infinity: in the type of `nearest`.
    """
    if error < 0 and (mode == DOWN or (mode == ZERO and nearest > 0)):
        return np.nextafter(nearest, -infinity)
    if error > 0 and (mode == UP or (mode == ZERO and nearest < 0)):
        return np.nextafter(nearest, infinity)
    return nearest


@_ufunc(f32(f64, f64, i64))
def narrow_directed(value: Any, error: Any, mode: Any) -> Any:
    """Narrow value + error (|error| ≤ ulp(value) ÷ 2, both binary64) to binary32 in the given direction."""
    nearest = np.float32(value)
    if value != value or np.isinf(value):
        return nearest
    difference = value - np.float64(nearest) if not np.isinf(nearest) else -np.float64(nearest)
    if difference == 0:
        difference = error
    return _directed(nearest, difference, mode, np.float32(np.inf))


@_ufunc(f32(f32, f32, f32, i64))
def fma32_directed(a: Any, b: Any, c: Any, mode: Any) -> Any:
    product = np.float64(a) * np.float64(b)  # 24 + 24 bits: exact
    addend = np.float64(c)
    total = product + addend
    nearest = np.float32(total)
    if total != total or np.isinf(total):
        return nearest
    difference = total - np.float64(nearest) if not np.isinf(nearest) else -np.float64(nearest)
    if difference == 0:
        difference = _two_sum_error(product, addend, total)
    if total == 0 and difference == 0:
        return np.float32(_zero(product, addend, mode))
    return _directed(nearest, difference, mode, np.float32(np.inf))


@_ufunc(f64(f64, f64, f64, i64))
def fma64_directed(a: Any, b: Any, c: Any, mode: Any) -> Any:
    nearest = _fma(a, b, c)
    if nearest != nearest or math.isinf(a) or math.isinf(b) or math.isinf(c):
        return nearest
    if math.isinf(nearest):
        error = -nearest
    else:
        product = a * b
        low = _fma(a, b, -product)
        alpha1 = c + low
        alpha2 = _two_sum_error(c, low, alpha1)
        beta1 = product + alpha1
        beta2 = _two_sum_error(product, alpha1, beta1)
        gamma = (beta1 - nearest) + beta2
        error = gamma + alpha2
        if nearest == 0 and error == 0:
            return _zero(product, c, mode)
    return _directed(nearest, error, mode, np.inf)


@_ufunc(f64(f64, f64, i64))
def divide64_directed(a: Any, b: Any, mode: Any) -> Any:
    nearest = a / b if b != 0 else (np.nan if a == 0 or a != a else math.copysign(np.inf, a) * math.copysign(1.0, b))
    if nearest != nearest or math.isinf(a) or math.isinf(b) or b == 0:
        return nearest
    # One fma gives the exact remainder a − q·b; its sign, times the sign of b, is the sign of the error.
    error = -nearest if math.isinf(nearest) else _fma(-nearest, b, a) * math.copysign(1.0, b)
    return _directed(nearest, error, mode, np.inf)


@_ufunc(f64(f64, i64))
def sqrt64_directed(a: Any, mode: Any) -> Any:
    nearest = math.sqrt(a) if a >= 0 else np.nan
    if not nearest > 0 or math.isinf(nearest):
        return a if a == 0 else nearest
    error = _fma(-nearest, nearest, a)
    return _directed(nearest, error, mode, np.inf)


# ---- opcodes ---------------------------------------------------------------------------------------------------------


def flush(a: Array) -> Array:
    """Flush subnormal binary32 values to zero of the same sign (.ftz)."""
    return np.where(np.abs(a) < np.finfo(a.dtype).tiny, np.copysign(a.dtype.type(0), a), a)


def saturate(a: Array) -> Array:
    """Clamp to [0, 1]; NaN becomes 0 (.sat)."""
    return np.fmin(np.fmax(a, a.dtype.type(0)), a.dtype.type(1)) + a.dtype.type(0)  # + 0: −0 becomes +0


def modified(choice: Choice, compute: Callable[..., Any]) -> Meaning:
    """Apply .ftz, if the opcode has it, to operands and result of `compute`, and .sat to the result."""
    ftz, sat = "ftz" in choice and ("f32" in choice.values()), "sat" in choice
    if not ftz and not sat:
        return compute

    def wrapped(*sources: Array) -> Any:
        result = compute(*(flush(s) for s in sources)) if ftz else compute(*sources)
        result = flush(result) if ftz else result
        return saturate(result) if sat else result

    return wrapped


OPERATIONS: dict[str, Meaning] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "sqrt": np.sqrt,
}


def arithmetic(name: str) -> Callable[[Choice], Meaning]:
    """Compute add, sub, mul, div and sqrt in the opcode's rounding mode, by default to the nearest."""
    nearest = OPERATIONS[name]

    def meaning(choice: Choice) -> Meaning:
        mode = MODES[choice.get("rnd", "rn")]
        return modified(choice, nearest if mode == NEAREST else functools.partial(_in_direction, name, mode))

    return meaning


def _in_direction(name: str, mode: int, a: Array, b: Array = None) -> Array:
    one, single = a.dtype.type(1), a.dtype == np.float32
    fma = fma32_directed if single else fma64_directed
    if name in ("add", "sub"):
        return fma(a, one, b if name == "add" else -b, mode)
    if name == "mul":
        # The addend is a zero with the product's sign, to keep the sign of an exact zero.
        return fma(a, b, np.copysign(a.dtype.type(0), np.copysign(one, a) * np.copysign(one, b)), mode)
    if not single:
        return sqrt64_directed(a, mode) if name == "sqrt" else divide64_directed(a, b, mode)
    x = a.astype(np.float64)
    result = np.sqrt(x) if name == "sqrt" else x / b.astype(np.float64)
    divisor = result if name == "sqrt" else b.astype(np.float64)
    remainder = fused_multiply_add(-result, divisor, x)
    error = np.where(np.isfinite(remainder), np.sign(remainder) * np.sign(divisor), 0.0)
    return narrow_directed(result, error, mode)


def fused(choice: Choice) -> Meaning:
    """Compute fma and mad: the exact a·b + c, rounded once."""
    mode = MODES[choice.get("rnd", "rn")]
    if mode == NEAREST:
        return modified(choice, fused_multiply_add)
    single = "f32" in choice.values()
    directed = fma32_directed if single else fma64_directed
    return modified(choice, lambda a, b, c: directed(a, b, c, mode))


def on_pairs(meaning: Callable[[Choice], Meaning]) -> Callable[[Choice], Meaning]:
    """Compute an opcode of binary32 on both halves of 64-bit words (.f32x2)."""

    def packed(choice: Choice) -> Meaning:
        compute = meaning({**choice, "f32x2": "f32"})
        return lambda *words: np.ascontiguousarray(
            compute(*(np.ascontiguousarray(word)[..., None].view(np.float32) for word in words))
        ).view(np.uint64)[..., 0]

    return packed


def reciprocal(choice: Choice) -> Meaning:
    divide = arithmetic("div")(choice)
    return lambda a: divide(np.ones(1, a.dtype), a)


def reciprocal_root(choice: Choice) -> Meaning:
    return modified(choice, lambda a: (1.0 / np.sqrt(a.astype(np.float64))).astype(a.dtype))


def approximate(function: Callable[[Array], Array]) -> Callable[[Choice], Meaning]:
    """Compute a binary32 transcendental through binary64: within one unit in the last place."""
    return lambda choice: modified(choice, lambda a: function(a.astype(np.float64)).astype(a.dtype))


def approximate_double(function: Callable[[Array], Array]) -> Callable[[Choice], Meaning]:
    """Compute rcp and rsqrt.approx.ftz.f64 on the upper word only; the lower word of operand and result is 0."""

    def upper(a: Array) -> Array:
        return (a.view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)

    return lambda _: lambda a: upper(flush(function(flush(upper(a)))))


def elementwise(function: Callable[[Array], Array]) -> Callable[[Choice], Meaning]:
    """Compute abs, neg and ex2 in their own format."""
    return lambda choice: modified(choice, function)


def minmax(name: str) -> Callable[[Choice], Meaning]:
    """Compute min and max: a number wins over NaN unless .NaN; −0 is less than +0; newer ones have three operands."""
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


@by_choice
def has_property(choice: Choice, a: Array) -> Array:
    tiny = np.finfo(a.dtype).tiny
    tests: dict[str, Meaning] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda a: ~np.isnan(a),
        "notanumber": np.isnan,
        "normal": lambda a: np.isfinite(a) & (np.abs(a) >= tiny),
        "subnormal": lambda a: (np.abs(a) < tiny) & (a != 0),
    }
    return tests[choice["property"]](a)


def compare(choice: Choice) -> Meaning:
    """Compare: ordered comparisons are false for NaN, those ending in u are true; num and nan test for numbers."""
    test = FLOAT_COMPARISONS[choice["fcmp"]]
    return (lambda a, b: test(flush(a), flush(b))) if "ftz" in choice else test


FLOAT_COMPARISONS: dict[str, Meaning] = {
    "eq": np.equal,
    "ne": lambda a, b: (a != b) & ~np.isnan(a) & ~np.isnan(b),
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "equ": lambda a, b: (a == b) | np.isnan(a) | np.isnan(b),
    "neu": np.not_equal,
    "ltu": lambda a, b: ~np.greater_equal(a, b),
    "leu": lambda a, b: ~np.greater(a, b),
    "gtu": lambda a, b: ~np.less_equal(a, b),
    "geu": lambda a, b: ~np.less(a, b),
    "num": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "nan": lambda a, b: np.isnan(a) | np.isnan(b),
}
