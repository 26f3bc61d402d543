"""Host twins of cuda_src/layernorm.cu: a row for a row. Rows, parts and stages as in host_rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from pytest_bandwidth.devices.cpu.kernels.rows import STAGED_COLS, ZERO, row_sum
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
from pytest_bandwidth.devices.cpu.kernels.simd_math import total

Array = Any


@inlined
def _row_squares(x: Array, start: int, cols: int, mean: Any) -> Any:
    """Σ (x − mean)²."""
    lanes = lanes_of(x)
    squares, means = spread(ZERO), spread(mean)
    c = 0
    while c + lanes <= cols:
        centred = load(x, start + c) - means
        squares = squares + centred * centred
        c += lanes
    found = total(squares)
    while c < cols:
        one = get(x, start + c) - mean
        found += one * one
        c += 1
    return found


@inlined
def _write_normalised(
    out: Array, x: Array, at: int, start: int, cols: int, mean: Any, factor: Any, gamma: Array, beta: Array
) -> None:
    """out = (x − mean)·factor·γ + β along a row, which begins at `at` in x."""
    lanes = lanes_of(out)
    head, lines = whole_lines(out, start, cols)
    means, factors = spread(mean), spread(factor)
    for line in range(lines):
        c = head + line * lanes
        stream(out, start + c, (load(x, at + c) - means) * factors * load(gamma, c) + load(beta, c))
    for k in range(cols - lines * lanes):
        c = outside(k, head, lines * lanes)
        put(out, start + c, (get(x, at + c) - mean) * factor * get(gamma, c) + get(beta, c))


@inlined
def _inverse_deviation(squares: Any, cols: int, epsilon: Any) -> Any:
    return np.float32(1) / np.sqrt(squares / np.float32(cols) + epsilon)


@parallel
def layer_norm_naive(
    parts: int, out: Array, x: Array, gamma: Array, beta: Array, epsilon: Any, rows: int, cols: int
) -> None:
    """Mean, then variance, then result: one pass each."""
    for part in prange(parts):
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            start = row * cols
            mean = row_sum(x, start, cols) / np.float32(cols)
            factor = _inverse_deviation(_row_squares(x, start, cols, mean), cols, epsilon)
            _write_normalised(out, x, start, start, cols, mean, factor, gamma, beta)
        fence()


@inlined
def _stage(stage: Array, x: Array, start: int, cols: int) -> None:
    lanes = lanes_of(x)
    c = 0
    while c + lanes <= cols:
        store(stage, c, load(x, start + c))
        c += lanes
    while c < cols:
        stage[c] = get(x, start + c)
        c += 1


@parallel
def layer_norm_staged(
    parts: int, out: Array, x: Array, gamma: Array, beta: Array, epsilon: Any, rows: int, cols: int
) -> None:
    """The row waits in a stage as float32, unless it is longer than that."""
    for part in prange(parts):
        stage = scratch(STAGED_COLS, np.float32)
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            start = row * cols
            mean = row_sum(x, start, cols) / np.float32(cols)
            if cols <= STAGED_COLS:
                _stage(stage, x, start, cols)
                factor = _inverse_deviation(_row_squares(stage, 0, cols, mean), cols, epsilon)
                _write_normalised(out, stage, 0, start, cols, mean, factor, gamma, beta)
            else:
                factor = _inverse_deviation(_row_squares(x, start, cols, mean), cols, epsilon)
                _write_normalised(out, x, start, start, cols, mean, factor, gamma, beta)
        fence()
