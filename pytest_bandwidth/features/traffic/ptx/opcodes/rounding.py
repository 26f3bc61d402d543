"""Round exactly and in a direction: fused multiply-add in one rounding, every operation towards zero, −∞ or +∞.

Compiled by Numba as NumPy ufuncs, because neither NumPy nor Python 3.10 has a fused multiply-add. A directed result is
the nearest one, moved by one place where the exact rounding error (by error-free transformations: Dekker 1971, Knuth;
for fma Boldo and Muller 2011, "Exact and approximated error of the FMA") says that it lies on the wrong side. Those are
exact as long as nothing under- or overflows in binary64, so directed binary64 results near its limits may be off by one
place.
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

from pytest_bandwidth.features.traffic.ptx.loops import cached

NEAREST, ZERO, DOWN, UP = 0, 1, 2, 3
MODES = {"rn": NEAREST, "rz": ZERO, "rm": DOWN, "rp": UP}


def _generate_fma(_typing: Any, a: Any, b: Any, c: Any) -> Any:
    """Emit LLVM's fma: the host's instruction where it has one, else the C library's exact routine."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return a(a, b, c), generate


# Numba types little of itself; these names are used as it documents them.
_fma: Any = intrinsic(_generate_fma)
_vectorize: Any = numba.vectorize
_njit: Any = numba.njit


def _ufunc(*signatures: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile at the first call, then take Numba's cache on disk."""

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.cache
        def compiled() -> Any:
            return cached(_vectorize, signatures, function)

        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            return compiled()(*arguments)

        return call

    return wrap


f32, f64, i64 = types.float32, types.float64, types.int64


@_ufunc(f32(f32, f32, f32), f64(f64, f64, f64))
def fused_multiply_add(a: Any, b: Any, c: Any) -> Any:
    return _fma(a, b, c)


def _inline(function: Callable[..., Any]) -> Any:
    return _njit(function, inline="always")


@_inline
def _two_sum_error(a: Any, b: Any, total: Any) -> Any:
    """Compute the error of Knuth's TwoSum: total + error = a + b exactly."""
    virtual = total - a
    return (a - (total - virtual)) + (b - virtual)


@_inline
def _zero(a: Any, b: Any, mode: Any) -> Any:
    """Return the sum of a and b where it is exactly 0: of unlike signs it is −0 downwards and +0 otherwise (IEEE 754,
    §6.3).
    """
    if math.copysign(1.0, a) == math.copysign(1.0, b):
        return math.copysign(0.0, a)
    return -0.0 if mode == DOWN else 0.0


@_inline
def _directed(nearest: Any, error: Any, mode: Any, infinity: Any) -> Any:
    """Move `nearest` one place where `error` = exact − nearest shows it on the wrong side for the mode.

    infinity: of the type of `nearest`.
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
def add64_directed(a: Any, b: Any, mode: Any) -> Any:
    nearest = a + b
    if nearest != nearest or math.isinf(a) or math.isinf(b):
        return nearest
    if nearest == 0:
        return _zero(a, b, mode)
    error = -nearest if math.isinf(nearest) else _two_sum_error(a, b, nearest)
    return _directed(nearest, error, mode, np.inf)


@_ufunc(f64(f64, f64, i64))
def divide64_directed(a: Any, b: Any, mode: Any) -> Any:
    nearest = a / b if b != 0 else (np.nan if a == 0 or a != a else math.copysign(np.inf, a) * math.copysign(1.0, b))
    if nearest != nearest or math.isinf(a) or math.isinf(b) or b == 0:
        return nearest
    # The remainder a − q·b is exact in one fma; its sign over b's is the error's.
    error = -nearest if math.isinf(nearest) else _fma(-nearest, b, a) * math.copysign(1.0, b)
    return _directed(nearest, error, mode, np.inf)


@_ufunc(f64(f64, i64))
def sqrt64_directed(a: Any, mode: Any) -> Any:
    nearest = math.sqrt(a) if a >= 0 else np.nan
    if not nearest > 0 or math.isinf(nearest):
        return a if a == 0 else nearest
    error = _fma(-nearest, nearest, a)
    return _directed(nearest, error, mode, np.inf)
