"""Measure what the host reaches at best: floating-point rates, and the cost of calling.

They are published for no virtual machine, so regimes on the host rest on these.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from pytest_bandwidth.devices.base import Call
from pytest_bandwidth.domain.clock import clock

# A product that the caches hold, of 0.27 GFLOP: a few milliseconds, long enough for every thread to join in.
PRODUCT_SIDE = 512
TRIES = 7
EMPTY_CALLS = 64
# Halves are computed with in single precision on the host.
_DTYPES = {"fp64": "float64", "fp32": "float32", "fp16": "float32", "bf16": "float32"}


def attained_flops(precision: str) -> float | None:
    """Return FLOP/s of NumPy's matrix product, the best of a few; None for a precision that it does not have."""
    dtype = _DTYPES.get(precision)
    return None if dtype is None else _product_flops(dtype)


def empty_call_seconds(empty: Call) -> float:
    """Return the least time that a call takes which has nothing to do; busy processors only add to it."""
    empty()  # compiles
    return min(_seconds(empty) for _ in range(EMPTY_CALLS))


@cache
def _product_flops(dtype: str) -> float:
    generator = np.random.default_rng(1)
    a, b = (generator.random((PRODUCT_SIDE, PRODUCT_SIDE)).astype(dtype) for _ in range(2))
    c = np.empty_like(a)
    best = min(_seconds(lambda: np.matmul(a, b, out=c)) for _ in range(TRIES))
    return 2 * PRODUCT_SIDE**3 / best


def _seconds(call: Call) -> float:
    started = clock.perf_counter_ns()
    call()
    return (clock.perf_counter_ns() - started) * 1e-9
