"""Host twins of cuda_src/softmax.cu: a row for a row. Rows, parts and stages as in host_rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from pytest_bandwidth.devices.cpu.kernels.rows import (
    STAGED_COLS,
    ZERO,
    row_largest,
    row_online,
    row_sum_of_exponentials,
    write_exponentials,
)
from pytest_bandwidth.devices.cpu.kernels.simd import (
    fence,
    get,
    inlined,
    lanes_of,
    load,
    outside,
    parallel,
    put,
    scratch,
    spread,
    store,
    stream,
    whole_lines,
)
from pytest_bandwidth.devices.cpu.kernels.simd_math import exponential, total

Array = Any


@parallel
def softmax_naive(parts: int, out: Array, x: Array, rows: int, cols: int) -> None:
    """Maximum, then sum, then result: one pass each."""
    for part in prange(parts):
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            high = row_largest(x, row * cols, cols)
            factor = np.float32(1) / row_sum_of_exponentials(x, row * cols, cols, high)
            write_exponentials(out, x, row * cols, cols, high, factor)
        fence()


@parallel
def softmax_online(parts: int, out: Array, x: Array, rows: int, cols: int) -> None:
    """Maximum and sum in one pass, then the result."""
    for part in prange(parts):
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            high, summed = row_online(x, row * cols, cols)
            write_exponentials(out, x, row * cols, cols, high, np.float32(1) / summed)
        fence()


@inlined
def _stage_exponentials(stage: Array, x: Array, start: int, cols: int, shift: Any) -> Any:
    """stage = exp(x − shift); returns the sum."""
    lanes = lanes_of(x)
    by_lane, shifts = spread(ZERO), spread(shift)
    c = 0
    while c + lanes <= cols:
        value = exponential(load(x, start + c) - shifts)
        by_lane = by_lane + value
        store(stage, c, value)
        c += lanes
    found = total(by_lane)
    while c < cols:
        one = exponential(get(x, start + c) - shift)
        found += one
        stage[c] = one
        c += 1
    return found


@inlined
def _write_scaled(out: Array, stage: Array, start: int, cols: int, factor: Any) -> None:
    """out = stage · factor along a row."""
    lanes = lanes_of(out)
    head, lines = whole_lines(out, start, cols)
    factors = spread(factor)
    for line in range(lines):
        c = head + line * lanes
        stream(out, start + c, load(stage, c) * factors)
    for k in range(cols - lines * lanes):
        c = outside(k, head, lines * lanes)
        put(out, start + c, stage[c] * factor)


@parallel
def softmax_staged(parts: int, out: Array, x: Array, rows: int, cols: int) -> None:
    """The exponentials are computed once and wait in a stage, unless the row is longer than that."""
    for part in prange(parts):
        stage = scratch(STAGED_COLS, np.float32)
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            high = row_largest(x, row * cols, cols)
            if cols <= STAGED_COLS:
                factor = np.float32(1) / _stage_exponentials(stage, x, row * cols, cols, high)
                _write_scaled(out, stage, row * cols, cols, factor)
            else:
                factor = np.float32(1) / row_sum_of_exponentials(x, row * cols, cols, high)
                write_exponentials(out, x, row * cols, cols, high, factor)
        fence()
