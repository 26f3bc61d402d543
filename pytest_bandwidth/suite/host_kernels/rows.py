"""Provide the host twins of cuda_src/softmax.cu, layernorm.cu, logsumexp.cu and rope.cu, by rows.

Each thread has whole rows, or tokens. Later passes over a row find it in a cache; staged versions also keep a float32
copy, at most STAGED_COLS of it. Halves are computed in float32 and rounded once at the end. Log-sum-exp
is one launch or three.
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
    parallel,
    put,
    scratch,
    spread,
    store,
    stream,
    sum_of,
    total,
)
from pytest_bandwidth.suite.host_kernels.simd_math import exponential, in_place, larger, largest, like
from pytest_bandwidth.suite.host_kernels.stream import fill, fold, moved, plus, scaled, summed

Array = Any
# The lowest float32 rather than −∞, as in the CUDA kernels: −∞ − (−∞) would be NaN where there is no element.
LOWEST = np.float32(-3.402823466e38)
ZERO, ONE = np.float32(0), np.float32(1)
STAGED_COLS = 8192
ONLINE_BLOCK = 2048


@inlined
def row_largest(x: Array, start: int, cols: int) -> Any:
    """Return the largest of `cols` elements; NaN does not count, and nothing is below the lowest float32."""
    return fold(x, start, start + cols, LOWEST, larger, largest, moved, (x, 0))


@in_place
def _exponential(take: Any, i: int, given: Any) -> Any:
    """Return exp(x[i] − shift) · factor."""
    x, shift, factor = given
    one = take(x, i)
    return exponential(one - like(one, shift)) * like(one, factor)


@inlined
def row_sum_of_exponentials(x: Array, start: int, cols: int, shift: Any) -> Any:
    """Return Σ exp(x − shift)."""
    return fold(x, start, start + cols, ZERO, plus, total, _exponential, (x, shift, ONE))


@inlined
def row_online(x: Array, start: int, cols: int) -> tuple[Any, Any]:
    """Return maximum, and Σ exp(x − maximum), in one pass over memory.

    When the maximum grows, the sum so far shrinks. It is checked once for each block, which fits the first-level
    cache, so that an element costs one exponential as in two passes.
    """
    high, summed_up = LOWEST, ZERO
    for begin in range(0, cols, ONLINE_BLOCK):
        block = min(ONLINE_BLOCK, cols - begin)
        new_high = larger(row_largest(x, start + begin, block), high)
        summed_up = summed_up * exponential(high - new_high)
        summed_up += row_sum_of_exponentials(x, start + begin, block, new_high)
        high = new_high
    return high, summed_up


@inlined
def write_exponentials(out: Array, x: Array, start: int, cols: int, shift: Any, factor: Any) -> None:
    """Write out = exp(x − shift) · factor along a row."""
    fill(stream, out, start, cols, _exponential, (x, shift, factor))


@inlined
def _softmax_row(out: Array, x: Array, start: int, cols: int) -> None:
    high = row_largest(x, start, cols)
    write_exponentials(out, x, start, cols, high, ONE / row_sum_of_exponentials(x, start, cols, high))


@parallel
def softmax_naive(parts: int, out: Array, x: Array, rows: int, cols: int) -> None:
    """Compute maximum, sum and result in one pass each."""
    for part in prange(parts):
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            _softmax_row(out, x, row * cols, cols)
        fence()


@parallel
def softmax_online(parts: int, out: Array, x: Array, rows: int, cols: int) -> None:
    """Compute maximum and sum in one pass, the result in another."""
    for part in prange(parts):
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            high, summed_up = row_online(x, row * cols, cols)
            write_exponentials(out, x, row * cols, cols, high, ONE / summed_up)
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


@parallel
def softmax_staged(parts: int, out: Array, x: Array, rows: int, cols: int) -> None:
    """Compute the exponentials once and keep them in a stage, unless the row is longer than that."""
    for part in prange(parts):
        stage = scratch(STAGED_COLS, np.float32)
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            start = row * cols
            if cols <= STAGED_COLS:
                factor = ONE / _stage_exponentials(stage, x, start, cols, row_largest(x, start, cols))
                fill(stream, out, start, cols, scaled, (stage, -start, factor))
            else:
                _softmax_row(out, x, start, cols)
        fence()


@in_place
def _squared(take: Any, i: int, given: Any) -> Any:
    x, mean = given
    centred = take(x, i) - like(take(x, i), mean)
    return centred * centred


@in_place
def _normalised(take: Any, i: int, given: Any) -> Any:
    x, by, start, mean, factor, gamma, beta = given
    centred = take(x, i + by) - like(take(x, i + by), mean)
    return centred * like(centred, factor) * take(gamma, i - start) + take(beta, i - start)


@inlined
def _inverse_deviation(squares: Any, cols: int, epsilon: Any) -> Any:
    return ONE / np.sqrt(squares / np.float32(cols) + epsilon)


@inlined
def _normalise(
    out: Array, x: Array, at: int, start: int, cols: int, mean: Any, gamma: Array, beta: Array, epsilon: Any
) -> None:
    """Write out = (x − mean) ÷ √(variance + ε)·γ + β along a row, which begins at `at` in x."""
    squares = fold(x, at, at + cols, ZERO, plus, total, _squared, (x, mean))
    factor = _inverse_deviation(squares, cols, epsilon)
    fill(stream, out, start, cols, _normalised, (x, at - start, start, mean, factor, gamma, beta))


@parallel
def layer_norm_naive(
    parts: int, out: Array, x: Array, gamma: Array, beta: Array, epsilon: Any, rows: int, cols: int
) -> None:
    """Compute mean, variance and result in one pass each."""
    for part in prange(parts):
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            start = row * cols
            mean = sum_of(x, start, start + cols, ZERO) / np.float32(cols)
            _normalise(out, x, start, start, cols, mean, gamma, beta, epsilon)
        fence()


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
                fill(store, stage, 0, cols, moved, (x, start))
                _normalise(out, stage, 0, start, cols, mean, gamma, beta, epsilon)
            else:
                _normalise(out, x, start, start, cols, mean, gamma, beta, epsilon)
        fence()


@in_place
def _squared_sum(take: Any, i: int, given: Any) -> Any:
    one = summed(take, i, given)
    return one * one


@in_place
def _scaled_sum(take: Any, i: int, given: Any) -> Any:
    x, residual, gamma, start, factor = given
    one = take(x, i) + take(residual, i)
    return one * like(one, factor) * take(gamma, i - start)


@inlined
def _rms_norm_row(
    out: Array, total_out: Array, x: Array, residual: Array, gamma: Array, epsilon: Any, start: int, cols: int
) -> None:
    squares = fold(x, start, start + cols, ZERO, plus, total, _squared_sum, (x, residual))
    fill(stream, total_out, start, cols, summed, (x, residual))
    factor = _inverse_deviation(squares, cols, epsilon)
    fill(stream, out, start, cols, _scaled_sum, (x, residual, gamma, start, factor))


@parallel
def rms_norm_residual(
    parts: int, out: Array, total_out: Array, x: Array, residual: Array, gamma: Array, epsilon: Any, *shape: int
) -> None:
    """Write total_out = x + residual, and out = total_out · gamma ÷ √(mean of total_out² + ε)."""
    rows, cols = shape
    for part in prange(parts):
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            _rms_norm_row(out, total_out, x, residual, gamma, epsilon, row * cols, cols)
        fence()


@parallel
def logsumexp_fused(parts: int, out: Array, x: Array, rows: int, cols: int) -> None:
    """Write out[row] = max + ln Σ exp(x − max), without an array of the matrix's size."""
    for part in prange(parts):
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            high, summed_up = row_online(x, row * cols, cols)
            put(out, row, high + np.log(summed_up))


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
            write_exponentials(out, x, row * cols, cols, get(shift, row), ONE)
        fence()


@parallel
def row_log_sum(parts: int, out: Array, exps: Array, shift: Array, rows: int, cols: int) -> None:
    """Write out[row] = shift[row] + ln Σ exps."""
    for part in prange(parts):
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            put(out, row, get(shift, row) + np.log(sum_of(exps, row * cols, (row + 1) * cols, ZERO)))


# ---- pairs of elements turned by angles ------------------------------------------------------------------------------
# The angles of a token stay in the first-level cache while its heads pass.


@parallel
def rope(parts: int, out: Array, x: Array, cosines: Array, sines: Array, tokens: int, heads: int, d: int) -> None:
    """Write x[j]·cos − x[j + d/2]·sin, and x[j + d/2]·cos + x[j]·sin, for j < d/2 of each head."""
    half, lanes = d // 2, lanes_of(out)
    for part in prange(parts):
        for token in range(tokens * part // parts, tokens * (part + 1) // parts):
            for head in range(heads):
                low, angle, j = (token * heads + head) * d, token * half, 0
                while j + lanes <= half:
                    a, b = load(x, low + j), load(x, low + half + j)
                    cosine, sine = load(cosines, angle + j), load(sines, angle + j)
                    store(out, low + j, a * cosine - b * sine)
                    store(out, low + half + j, b * cosine + a * sine)
                    j += lanes
                while j < half:
                    c, e = get(x, low + j), get(x, low + half + j)
                    put(out, low + j, c * get(cosines, angle + j) - e * get(sines, angle + j))
                    put(out, low + half + j, e * get(cosines, angle + j) + c * get(sines, angle + j))
                    j += 1
