"""Provide the host twins of cuda_src/attention.cu and kvcache.cu: attention to a sequence, and to a cache.

Products, sums and partial results are float32; halves are rounded once, where a result is stored.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from pytest_bandwidth.devices.cpu.simd import (
    fence,
    get,
    inlined,
    load,
    parallel,
    put,
    scratch,
    spread,
    store,
)
from pytest_bandwidth.suite.host_kernels.access import copy_row
from pytest_bandwidth.suite.host_kernels.matmul import NOT_BESIDE, PANEL, product
from pytest_bandwidth.suite.host_kernels.rows import MOST_OF_FP8, fp8_code, fp8_value, scale_of_row
from pytest_bandwidth.suite.host_kernels.simd_math import exponential, in_place
from pytest_bandwidth.suite.host_kernels.stream import dot_of

Array = Any

LOWEST = np.float32(-3.402823466e38)
ZERO = np.float32(0)
NAN = np.float32(np.nan)
MOST_COLUMNS = 128  # of a head: the CUDA kernels have registers for no more, and give NaN
KEYS = 32  # that are weighted at a time
PAGE = 16  # tokens
WORK = MOST_COLUMNS + KEYS


@parallel
def attention_scores(parts: int, s: Array, q: Array, k: Array, scale: Any, heads: int, n: int, d: int) -> None:
    """Write s = scale · q · kᵀ for each head."""
    for part in prange(parts):
        for at in range(heads * n * part // parts, heads * n * (part + 1) // parts):
            keys = at // n * n * d
            for key in range(n):
                put(s, at * n + key, scale * dot_of(q, at * d, k, keys + key * d, d, ZERO))


@parallel
def attention_output(parts: int, o: Array, p: Array, v: Array, heads: int, n: int, d: int) -> None:
    """Write o = p · v for each head."""
    panels = (d + PANEL - 1) // PANEL
    for part in prange(parts):
        for at in range(heads * panels * part // parts, heads * panels * (part + 1) // parts):
            head, panel = at // panels, at % panels
            product((panel, panel + 1), o, head * n * d, p, head * n * n, v, head * n * d, n, d, n, n)


@inlined
def _block_weights(weights: Array, q: Array, q0: int, k: Array, at: int, scale: Any, d: int, count: int) -> Any:
    """Leave the scores of `count` keys from element `at` on in weights; return the largest."""
    high = LOWEST
    for key in range(count):
        score = scale * dot_of(q, q0, k, at + key * d, d, ZERO)
        weights[key] = score
        if score > high:
            high = score
    return high


@inlined
def _add_weighted(result: Array, weights: Array, v: Array, at: int, d: int, count: int, shrink: Any) -> None:
    """Compute result = shrink · result + Σ weights[key] · v[key], for `count` values from element `at` on.

    A line of the result stays in a register for the whole block. Stored and loaded again for every key, it takes 1.5
    times as long in one process as in the next, depending on where buffers and code happen to lie.
    """
    c = 0
    while c + PANEL <= d:
        line = load(result, c) * spread(shrink)
        for key in range(count):
            line = line + spread(weights[key]) * load(v, at + key * d + c)
        store(result, c, line)
        c += PANEL
    while c < d:
        value = result[c] * shrink
        for key in range(count):
            value += weights[key] * get(v, at + key * d + c)
        result[c] = value
        c += 1


@inlined
def _attend_block(
    work: Array, q: Array, q0: int, k: Array, v: Array, at: int, scale: Any, d: int, count: int, high: Any, summed: Any
) -> tuple[Any, Any]:
    """Attend to `count` more keys from element `at` on, at most KEYS; work, high and summed hold the result so far."""
    result, weights = work[:MOST_COLUMNS], work[MOST_COLUMNS:]
    of_block = _block_weights(weights, q, q0, k, at, scale, d, count)
    shrink = np.float32(1)
    if of_block > high:
        shrink = exponential(high - of_block)
        high = of_block
    summed *= shrink
    for key in range(count):
        weights[key] = exponential(weights[key] - high)
        summed += weights[key]
    _add_weighted(result, weights, v, at, d, count, shrink)
    return high, summed


@inlined
def _attend(
    work: Array, q: Array, q0: int, k: Array, v: Array, cache: int, scale: Any, d: int, begin: int, end: int
) -> tuple[Any, Any]:
    """Attend to some keys, a block of them at a time; return the largest score and Σ exp(score − largest).

    work: WORK elements; the first d become Σ exp(score − largest) · value, not divided. When the largest score grows,
    the sums so far shrink.
    """
    work[:d] = ZERO
    high, summed = LOWEST, ZERO
    for token in range(begin, end, KEYS):
        count = min(KEYS, end - token)
        high, summed = _attend_block(work, q, q0, k, v, cache + token * d, scale, d, count, high, summed)
    return high, summed


@parallel
def attention_flash(parts: int, o: Array, q: Array, k: Array, v: Array, scale: Any, heads: int, n: int, d: int) -> None:
    """Write o = softmax(scale · q · kᵀ) · v for each head, without the n × n scores; NaN for d above 128."""
    for part in prange(parts):
        result = scratch(WORK, np.float32)
        for at in range(heads * n * part // parts, heads * n * (part + 1) // parts):
            summed = ZERO
            if d <= MOST_COLUMNS:
                _, summed = _attend(result, q, at * d, k, v, at // n * n * d, scale, d, 0, n)
            for c in range(d):
                put(o, at * d + c, result[c] / summed if d <= MOST_COLUMNS else NAN)


@parallel
def kv_append(parts: int, k_cache: Array, v_cache: Array, k_new: Array, v_new: Array, *sizes: int) -> None:
    """Copy new keys and values behind those that the cache holds; those past the capacity are left out.

    sizes: position, batch, kv_heads, tokens, d, capacity.
    """
    position, batch, kv_heads, tokens, d, capacity = sizes
    rows = batch * kv_heads * tokens
    for part in prange(parts):
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            matrix, token = row // tokens, row % tokens
            if position + token < capacity:
                at = (matrix * capacity + position + token) * d
                copy_row(k_cache, at, k_new, row * d, d)
                copy_row(v_cache, at, v_new, row * d, d)
        fence()


@inlined
def _quantize_row(codes: Array, scales: Array, to: int, x: Array, row: int, d: int) -> None:
    scales[to], factor = scale_of_row(x, row * d, d, MOST_OF_FP8)
    for c in range(d):
        codes[to * d + c] = fp8_code(get(x, row * d + c) * factor)


@parallel
def kv_append_fp8(
    parts: int,
    k_cache: Array,
    v_cache: Array,
    k_scales: Array,
    v_scales: Array,
    k_new: Array,
    v_new: Array,
    *sizes: int,
) -> None:
    """Append as kv_append, to a cache of e4m3's codes with a scale for each token and head."""
    position, batch, kv_heads, tokens, d, capacity = sizes
    rows = batch * kv_heads * tokens
    for part in prange(parts):
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            token = position + row % tokens
            if token < capacity:
                to = row // tokens * capacity + token
                _quantize_row(k_cache, k_scales, to, k_new, row, d)
                _quantize_row(v_cache, v_scales, to, v_new, row, d)


# ---- decoding: of every query head, its attention to the cached tokens, whole or in ranges ---------------------------
# sizes: batch, query_heads, kv_heads, d, tokens, and what a cache has room for: tokens, or pages of a sequence.


@in_place
def _each_head(parts: int, out: Array, sizes: tuple[int, ...], room: int, attend: Any, given: Any) -> None:
    """Write each head's attention to as many tokens as there are; 0 without tokens, NaN for d above 128.

    attend: as `_attend_cached`, is given the scratch, the head, a range of tokens, the sizes and `given`.
    """
    batch, query_heads, _, d, tokens, _ = sizes
    heads, end = batch * query_heads, min(tokens, room)
    for part in prange(parts):
        work = scratch(WORK, np.float32)
        for head in range(heads * part // parts, heads * (part + 1) // parts):
            summed = ZERO
            if d <= MOST_COLUMNS:
                _, summed = attend(work, head, 0, end, sizes, given)
            for c in range(d):
                value = work[c] / summed if summed > ZERO else ZERO
                put(out, head * d + c, value if d <= MOST_COLUMNS else NAN)


@in_place
def _each_range(
    parts: int, partials: Any, sizes: tuple[int, ...], room: int, step: int, attend: Any, given: Any
) -> None:
    """Leave each head's attention to its tokens in `splits` ranges of whole steps, which kv_decode_combine merges."""
    partial_result, partial_max, partial_sum = partials
    batch, query_heads, _, d, tokens, _, splits = sizes
    ranges, visible = batch * query_heads * splits, min(tokens, room)
    for part in prange(parts):
        work = scratch(WORK, np.float32)
        for at in range(ranges * part // parts, ranges * (part + 1) // parts):
            each = (visible + splits * step - 1) // (splits * step) * step
            begin = at % splits * each
            end = min(begin + each, visible)
            if d <= MOST_COLUMNS:
                high, summed = attend(work, at // splits, begin, end, sizes, given)
                partial_max[at], partial_sum[at] = high, summed
                partial_result[at * d : at * d + d] = work[:d]
            else:
                partial_max[at], partial_sum[at] = NAN, NAN
                partial_result[at * d : at * d + d] = ZERO


@inlined
def _cached_head(head: int, sizes: tuple[int, ...]) -> int:
    """Return which head of the cache holds a query head's keys: several query heads may share one."""
    query_heads, kv_heads = sizes[1], sizes[2]
    return head // query_heads * kv_heads + head % query_heads // (query_heads // kv_heads)


@inlined
def _attend_cached(work: Array, head: int, begin: int, end: int, sizes: tuple[int, ...], given: Any) -> Any:
    q, k, v, scale = given
    d, capacity = sizes[3], sizes[5]
    return _attend(work, q, head * d, k, v, _cached_head(head, sizes) * capacity * d, scale, d, begin, end)


@parallel
def kv_decode(parts: int, out: Array, *given: Any) -> None:
    """Write one query token's attention to `tokens` cached ones, for each head."""
    _each_head(parts, out, given[4:], given[9], _attend_cached, given[:4])


@parallel
def kv_decode_split(parts: int, result: Array, high: Array, summed: Array, *given: Any) -> None:
    """Decode as kv_decode, in ranges. Their number is the last of the sizes, here and below."""
    _each_range(parts, (result, high, summed), given[4:], given[9], 1, _attend_cached, given[:4])


@inlined
def _dequantize(out: Array, codes: Array, scales: Array, first: int, count: int, d: int) -> None:
    for token in range(count):
        for c in range(d):
            out[token * d + c] = fp8_value(codes[(first + token) * d + c]) * scales[first + token]


@inlined
def _attend_fp8(work: Array, head: int, begin: int, end: int, sizes: tuple[int, ...], given: Any) -> Any:
    """Attend as _attend, to keys and values of 8 bits, which become floats a block at a time."""
    q, k, v, k_scales, v_scales, scale = given
    d, cache = sizes[3], _cached_head(head, sizes) * sizes[5]
    keys, values = scratch(KEYS * d, np.float32), scratch(KEYS * d, np.float32, NOT_BESIDE)
    work[:d] = ZERO
    high, summed = LOWEST, ZERO
    for token in range(begin, end, KEYS):
        count = min(KEYS, end - token)
        _dequantize(keys, k, k_scales, cache + token, count, d)
        _dequantize(values, v, v_scales, cache + token, count, d)
        high, summed = _attend_block(work, q, head * d, keys, values, 0, scale, d, count, high, summed)
    return high, summed


@parallel
def kv_decode_fp8(parts: int, out: Array, *given: Any) -> None:
    """Decode as kv_decode, from a cache that kv_append_fp8 fills."""
    _each_head(parts, out, given[6:], given[11], _attend_fp8, given[:6])


@parallel
def kv_decode_fp8_split(parts: int, result: Array, high: Array, summed: Array, *given: Any) -> None:
    """Decode as kv_decode_fp8, in ranges."""
    _each_range(parts, (result, high, summed), given[6:], given[11], 1, _attend_fp8, given[:6])


@inlined
def _attend_pages(work: Array, head: int, begin: int, end: int, sizes: tuple[int, ...], given: Any) -> Any:
    """Attend as _attend, from a page's first token on. The table names the pages of each sequence."""
    q, k, v, table, scale = given
    query_heads, kv_heads, d, pages = sizes[1], sizes[2], sizes[3], sizes[5]
    kv_head = head % query_heads // (query_heads // kv_heads)
    work[:d] = ZERO
    high, summed = LOWEST, ZERO
    for token in range(begin, end, PAGE):
        page = np.int64(table[head // query_heads * pages + token // PAGE])
        at = (page * kv_heads + kv_head) * PAGE * d
        high, summed = _attend_block(work, q, head * d, k, v, at, scale, d, min(PAGE, end - token), high, summed)
    return high, summed


@parallel
def kv_decode_paged(parts: int, out: Array, *given: Any) -> None:
    """Decode as kv_decode, keys and values lying in pages that the table names."""
    _each_head(parts, out, given[5:], given[10] * PAGE, _attend_pages, given[:5])


@parallel
def kv_decode_paged_split(parts: int, result: Array, high: Array, summed: Array, *given: Any) -> None:
    """Decode as kv_decode_paged, in ranges of whole pages."""
    _each_range(parts, (result, high, summed), given[5:], given[10] * PAGE, PAGE, _attend_pages, given[:5])


@parallel
def kv_decode_combine(
    parts: int,
    out: Array,
    partial_result: Array,
    partial_max: Array,
    partial_sum: Array,
    heads: int,
    d: int,
    splits: int,
) -> None:
    """Merge the ranges of kv_decode_split; 0 where there were no tokens."""
    for part in prange(parts):
        for head in range(heads * part // parts, heads * (part + 1) // parts):
            high = LOWEST
            for at in range(head * splits, (head + 1) * splits):
                high = partial_max[at] if partial_max[at] > high else high
            for c in range(d):
                summed, result = ZERO, ZERO
                for at in range(head * splits, (head + 1) * splits):
                    shrink = exponential(partial_max[at] - high)
                    summed += partial_sum[at] * shrink
                    result += partial_result[at * d + c] * shrink
                put(out, head * d + c, ZERO if summed == ZERO else result / summed)
