"""Provide the host twins of cuda_src/softmax.cu, layernorm.cu, logsumexp.cu, topk.cu, rope.cu and quantize.cu, by rows.

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
ZERO, ONE, LOWER_THAN_ALL = np.float32(0), np.float32(1), np.float32(-np.inf)
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
                # All places behind a free one are free.
                while at > start and (value > get(values, at - 1) or (value == value and columns[at - 1] < 0)):
                    at -= 1
                if at == start + k:
                    continue
                for i in range(start + k - 1, at, -1):
                    values[i], columns[i] = values[i - 1], columns[i - 1]
                put(values, at, value)
                columns[at] = c


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


# ---- 8 bits, and back ------------------------------------------------------------------------------------------------

MOST_OF_INT8, MOST_OF_FP8 = np.float32(127), np.float32(448)
LARGEST_FLOAT = np.float32(3.402823466e38)
# From here on floats are 2⁻⁹ apart, as FP8's smallest numbers are, so that an addition rounds to them.
STEPS, BITS_OF_STEPS = np.float32(2**14), 0x46800000
SMALLEST_NORMAL = np.float32(2**-6)
MX_ELEMENTS = 32
TOO_SMALL = np.float32(2.0**120)


@inlined
def int8_code(x: Any) -> Any:
    """Round to a whole number; NaN becomes 0."""
    return np.int8(np.rint(x)) if x == x else np.int8(0)


@inlined
def fp8_code(x: Any) -> Any:
    """Round to e4m3 as the kernels for GPUs without an instruction for it do."""
    if x != x:
        return np.uint8(0x7F)
    size = min(abs(x), MOST_OF_FP8)
    if size < SMALLEST_NORMAL:
        code = np.float32(size + STEPS).view(np.int32) - BITS_OF_STEPS
    else:
        bits = np.float32(size).view(np.int32)
        code = (bits + 0x7FFFF + (bits >> 20 & 1) - (120 << 23)) >> 20
    return np.uint8(code | (np.float32(x).view(np.int32) >> 24 & 0x80))


@inlined
def fp8_value(code: Any) -> Any:
    """Return e4m3's number: its bits in the places of a float's are 2¹²⁰ times too small."""
    if code & 0x7F == 0x7F:
        return np.float32(np.nan)
    size = np.int32((code & 0x7F) << 20).view(np.float32) * TOO_SMALL
    return -size if code & 0x80 else size


@inlined
def scale_of_row(x: Array, start: int, cols: int, most: Any) -> tuple[Any, Any]:
    """Return a row's scale, and its reciprocal. The row's largest element becomes `most`."""
    high = np.float32(0)
    for c in range(cols):
        high = larger(abs(get(x, start + c)), high)
    return high / most, min(most / high, LARGEST_FLOAT)


@in_place
def _quantized(parts: int, codes: Array, scales: Array, x: Array, rows: int, cols: int, most: Any, code: Any) -> None:
    for part in prange(parts):
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            scales[row], factor = scale_of_row(x, row * cols, cols, most)
            for i in range(row * cols, (row + 1) * cols):
                codes[i] = code(get(x, i) * factor)


@parallel
def quantize_int8(parts: int, codes: Array, scales: Array, x: Array, rows: int, cols: int) -> None:
    """Write codes of −127 to 127, and a scale for each row."""
    _quantized(parts, codes, scales, x, rows, cols, MOST_OF_INT8, int8_code)


@parallel
def quantize_fp8(parts: int, codes: Array, scales: Array, x: Array, rows: int, cols: int) -> None:
    """Write codes of e4m3, and a scale for each row."""
    _quantized(parts, codes, scales, x, rows, cols, MOST_OF_FP8, fp8_code)


@inlined
def mx_scale(high: Any) -> Any:
    """Return the scale of a block whose largest is `high`: that number's exponent less the 8 of e4m3's largest."""
    field = np.float32(high).view(np.int32) >> 23
    return 255 if field == 255 else max(field - 8, 0)


@parallel
def quantize_mxfp8(parts: int, codes: Array, scales: Array, x: Array, blocks: int) -> None:
    """Write codes of e4m3, and for each 32 an exponent of two as scale."""
    for part in prange(parts):
        for block in range(blocks * part // parts, blocks * (part + 1) // parts):
            start = block * MX_ELEMENTS
            high = np.float32(0)
            for i in range(start, start + MX_ELEMENTS):
                high = larger(abs(get(x, i)), high)
            scale = mx_scale(high)
            scales[block] = scale
            factor = np.float32(np.nan) if scale == 255 else np.int32((254 - scale) << 23).view(np.float32)
            for i in range(start, start + MX_ELEMENTS):
                codes[i] = fp8_code(get(x, i) * factor)


@in_place
def _dequantized(parts: int, out: Array, codes: Array, scales: Array, rows: int, cols: int, value: Any) -> None:
    for part in prange(parts):
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            for i in range(row * cols, (row + 1) * cols):
                put(out, i, value(codes[i]) * scales[row])


@parallel
def dequantize_int8(parts: int, out: Array, codes: Array, scales: Array, rows: int, cols: int) -> None:
    """Write out = code·scale."""
    _dequantized(parts, out, codes, scales, rows, cols, np.float32)


@parallel
def dequantize_fp8(parts: int, out: Array, codes: Array, scales: Array, rows: int, cols: int) -> None:
    """Write out = code's number·scale."""
    _dequantized(parts, out, codes, scales, rows, cols, fp8_value)
