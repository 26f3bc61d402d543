"""Measure what the host reaches at best, once a process: floating-point rates, and the cost of calling.

They are published for no virtual machine, so regimes on the host rest on these.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pytest_bandwidth.devices.base import Call
from pytest_bandwidth.domain.clock import clock

# A product that the caches hold, of 0.27 GFLOP: a few milliseconds, long enough for every thread to join in.
PRODUCT_SIDE = 512
TRIES = 7
EMPTY_CALLS = 64
# With caches made cold before each: 3 ms for 8 MiB of cache, a twentieth of a second at most.
COLD_CALLS = 16
# Halves are computed with in single precision on the host.
_DTYPES = {"fp64": "float64", "fp32": "float32", "fp16": "float32", "bf16": "float32"}


class HostCeilings:
    """Measure the rates that the host attains. empty: calls a kernel that has nothing to do."""

    def __init__(self, empty: Call) -> None:
        self._empty = empty
        self._flops: dict[str, float] = {}
        self._dispatch_seconds: float | None = None
        self._call_seconds: float | None = None

    def flops(self, precision: str) -> float | None:
        """Return FLOP/s of NumPy's matrix product, the best of a few; None for a precision that it does not have."""
        dtype = _DTYPES.get(precision)
        if dtype is None:
            return None
        if dtype not in self._flops:
            self._flops[dtype] = _product_flops(dtype)
        return self._flops[dtype]

    def dispatch_seconds(self) -> float:
        """Return the least time that calling a kernel takes; busy processors only add to it."""
        if self._dispatch_seconds is None:
            self._empty()  # compiles
            self._dispatch_seconds = min(_seconds(self._empty) for _ in range(EMPTY_CALLS))
        return self._dispatch_seconds

    def call_seconds(self, nothing: Call, sample: Callable[[Call], float]) -> float:
        """Return the least time that a call of a function takes which does nothing. sample: times one call."""
        if self._call_seconds is None:
            nothing()
            self._call_seconds = min(sample(nothing) for _ in range(COLD_CALLS))
        return self._call_seconds


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
