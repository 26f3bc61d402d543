"""Normalise rows on the host: twins of cuda_src/softmax.cu, layernorm.cu, logsumexp.cu and topk.cu.

Each thread has whole rows. The later passes over a row meet it in a cache; staged versions keep a float32 copy of it
besides, at most STAGED_COLS of it. Halves are computed in float32 and rounded once at the end. Log-sum-exp is one
launch or three.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from pytest_bandwidth.devices.cpu.simd import (
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
    total,
    whole_lines,
)
from pytest_bandwidth.devices.cpu.streams import sum_of
from pytest_bandwidth.suite.host_kernels.simd_math import exponential, larger, largest

Array = Any
# The lowest float32 rather than −∞, as in the CUDA kernels: −∞ − (−∞) would be NaN where there is no element.
LOWEST = np.float32(-3.402823466e38)
ZERO, LOWER_THAN_ALL = np.float32(0), np.float32(-np.inf)
STAGED_COLS = 8192
ONLINE_BLOCK = 2048


@inlined
def row_largest(x: Array, start: int, cols: int) -> Any:
    """Return the largest of `cols` elements; NaN does not count, and nothing is below the lowest float32."""
    lanes = lanes_of(x)
    m0, m1 = spread(LOWEST), spread(LOWEST)
    c = 0
    while c + 2 * lanes <= cols:
        m0 = larger(load(x, start + c), m0)
        m1 = larger(load(x, start + c + lanes), m1)
        c += 2 * lanes
    found = largest(larger(m0, m1))
    while c < cols:
        found = larger(get(x, start + c), found)
        c += 1
    return found


@inlined
def row_sum_of_exponentials(x: Array, start: int, cols: int, shift: Any) -> Any:
    """Return Σ exp(x − shift)."""
    lanes = lanes_of(x)
    by_lane, shifts = spread(ZERO), spread(shift)
    c = 0
    while c + lanes <= cols:
        by_lane = by_lane + exponential(load(x, start + c) - shifts)
        c += lanes
    found = total(by_lane)
    while c < cols:
        found += exponential(get(x, start + c) - shift)
        c += 1
    return found


@inlined
def row_online(x: Array, start: int, cols: int) -> tuple[Any, Any]:
    """Return maximum, and Σ exp(x − maximum), in one pass over memory.

    When the maximum grows, the sum so far shrinks. That is looked at once for each block, which fits the first-level
    cache, so that an element costs one exponential as in two passes.
    """
    high, summed = LOWEST, ZERO
    for begin in range(0, cols, ONLINE_BLOCK):
        block = min(ONLINE_BLOCK, cols - begin)
        new_high = larger(row_largest(x, start + begin, block), high)
        summed = summed * exponential(high - new_high)
        summed += row_sum_of_exponentials(x, start + begin, block, new_high)
        high = new_high
    return high, summed


@inlined
def write_exponentials(out: Array, x: Array, start: int, cols: int, shift: Any, factor: Any) -> None:
    """Write out = exp(x − shift) · factor along a row."""
    lanes = lanes_of(out)
    head, lines = whole_lines(out, start, cols)
    shifts, factors = spread(shift), spread(factor)
    for line in range(lines):
        i = start + head + line * lanes
        stream(out, i, exponential(load(x, i) - shifts) * factors)
    for k in range(cols - lines * lanes):
        i = start + outside(k, head, lines * lanes)
        put(out, i, exponential(get(x, i) - shift) * factor)


@parallel
def softmax_naive(parts: int, out: Array, x: Array, rows: int, cols: int) -> None:
    """Compute maximum, sum and result in one pass each."""
    for part in prange(parts):
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            high = row_largest(x, row * cols, cols)
            factor = np.float32(1) / row_sum_of_exponentials(x, row * cols, cols, high)
            write_exponentials(out, x, row * cols, cols, high, factor)
        fence()


@parallel
def softmax_online(parts: int, out: Array, x: Array, rows: int, cols: int) -> None:
    """Compute maximum and sum in one pass, the result in another."""
    for part in prange(parts):
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            high, summed = row_online(x, row * cols, cols)
            write_exponentials(out, x, row * cols, cols, high, np.float32(1) / summed)
        fence()


@inlined
def _stage_exponentials(stage: Array, x: Array, start: int, cols: int, shift: Any) -> Any:
    """Stage exp(x − shift), and return the sum."""
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
    """Compute the exponentials once and keep them in a stage, unless the row is longer than that."""
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


@inlined
def _row_squares(x: Array, start: int, cols: int, mean: Any) -> Any:
    """Return Σ (x − mean)²."""
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
    """Write out = (x − mean)·factor·γ + β along a row, which begins at `at` in x."""
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
    """Compute mean, variance and result in one pass each."""
    for part in prange(parts):
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            start = row * cols
            mean = sum_of(x, start, start + cols, ZERO) / np.float32(cols)
            factor = _inverse_deviation(_row_squares(x, start, cols, mean), cols, epsilon)
            _write_normalised(out, x, start, start, cols, mean, factor, gamma, beta)
        fence()


@inlined
def _stage_row(stage: Array, x: Array, start: int, cols: int) -> None:
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
    """Keep the row in a stage as float32, unless it is longer than that."""
    for part in prange(parts):
        stage = scratch(STAGED_COLS, np.float32)
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            start = row * cols
            mean = sum_of(x, start, start + cols, ZERO) / np.float32(cols)
            if cols <= STAGED_COLS:
                _stage_row(stage, x, start, cols)
                factor = _inverse_deviation(_row_squares(stage, 0, cols, mean), cols, epsilon)
                _write_normalised(out, stage, 0, start, cols, mean, factor, gamma, beta)
            else:
                factor = _inverse_deviation(_row_squares(x, start, cols, mean), cols, epsilon)
                _write_normalised(out, x, start, start, cols, mean, factor, gamma, beta)
        fence()


@inlined
def _row_squares_of_sum(x: Array, residual: Array, start: int, cols: int) -> Any:
    """Return Σ (x + residual)²."""
    lanes = lanes_of(x)
    squares = spread(ZERO)
    c = 0
    while c + lanes <= cols:
        line = load(x, start + c) + load(residual, start + c)
        squares = squares + line * line
        c += lanes
    found = total(squares)
    while c < cols:
        one = get(x, start + c) + get(residual, start + c)
        found += one * one
        c += 1
    return found


@parallel
def rms_norm_residual(
    parts: int,
    out: Array,
    summed: Array,
    x: Array,
    residual: Array,
    gamma: Array,
    epsilon: Any,
    rows: int,
    cols: int,
) -> None:
    """Write summed = x + residual, and out = summed · gamma ÷ √(mean of summed² + ε)."""
    lanes = lanes_of(out)
    for part in prange(parts):
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            start = row * cols
            factor = _inverse_deviation(_row_squares_of_sum(x, residual, start, cols), cols, epsilon)
            factors = spread(factor)
            head, lines = whole_lines(summed, start, cols)
            for line in range(lines):
                i = start + head + line * lanes
                stream(summed, i, load(x, i) + load(residual, i))
            for k in range(cols - lines * lanes):
                i = start + outside(k, head, lines * lanes)
                put(summed, i, get(x, i) + get(residual, i))
            head, lines = whole_lines(out, start, cols)
            for line in range(lines):
                c = head + line * lanes
                stream(out, start + c, (load(x, start + c) + load(residual, start + c)) * factors * load(gamma, c))
            for k in range(cols - lines * lanes):
                c = outside(k, head, lines * lanes)
                put(out, start + c, (get(x, start + c) + get(residual, start + c)) * factor * get(gamma, c))
        fence()


@parallel
def logsumexp_fused(parts: int, out: Array, x: Array, rows: int, cols: int) -> None:
    """Write out[row] = max + ln Σ exp(x − max), and nothing of the matrix's size."""
    for part in prange(parts):
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            high, summed = row_online(x, row * cols, cols)
            put(out, row, high + np.log(summed))


@parallel
def row_max(parts: int, out: Array, x: Array, rows: int, cols: int) -> None:
    """Write out[row] = the row's maximum."""
    for part in prange(parts):
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            put(out, row, row_largest(x, row * cols, cols))


@parallel
def exp_shifted(parts: int, out: Array, x: Array, shift: Array, rows: int, cols: int) -> None:
    """Write out = exp(x − shift[row])."""
    for part in prange(parts):
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            write_exponentials(out, x, row * cols, cols, get(shift, row), np.float32(1))
        fence()


@parallel
def row_log_sum(parts: int, out: Array, exps: Array, shift: Array, rows: int, cols: int) -> None:
    """Write out[row] = shift[row] + ln Σ exps."""
    for part in prange(parts):
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            put(out, row, get(shift, row) + np.log(sum_of(exps, row * cols, (row + 1) * cols, ZERO)))


@parallel
def topk(parts: int, values: Array, columns: Array, x: Array, rows: int, cols: int, k: int) -> None:
    """Write the k largest of each row and their columns; of equal ones the first comes first, NaN never."""
    for part in prange(parts):
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            start = row * k
            for i in range(start, start + k):
                put(values, i, LOWER_THAN_ALL)
                columns[i] = -1
            for c in range(cols):
                value, at = get(x, row * cols + c), start + k
                # Behind a place that is free comes nothing.
                while at > start and (value > get(values, at - 1) or (value == value and columns[at - 1] < 0)):
                    at -= 1
                if at == start + k:
                    continue
                for i in range(start + k - 1, at, -1):
                    values[i], columns[i] = values[i - 1], columns[i - 1]
                put(values, at, value)
                columns[at] = c
