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
from pytest_bandwidth.suite.host_kernels.matmul import PANEL, product
from pytest_bandwidth.suite.host_kernels.simd_math import exponential
from pytest_bandwidth.suite.host_kernels.stream import dot_of

Array = Any

LOWEST = np.float32(-3.402823466e38)
ZERO = np.float32(0)
NAN = np.float32(np.nan)
MOST_COLUMNS = 128  # of a head: the CUDA kernels have registers for no more, and give NaN
KEYS = 32  # that are weighted at a time
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
            product((panel, panel + 1), o, head * n * d, p, head * n * n, v, head * n * d, n, d, n)


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


@parallel
def kv_decode(parts: int, out: Array, q: Array, k: Array, v: Array, scale: Any, *sizes: int) -> None:
    """Write one query token's attention to `tokens` cached ones, for each head; 0 without tokens, NaN for d above 128.

    sizes: batch, query_heads, kv_heads, d, tokens, capacity. Several query heads may share a head of the cache.
    """
    batch, query_heads, kv_heads, d, tokens, capacity = sizes
    heads, end = batch * query_heads, min(tokens, capacity)
    for part in prange(parts):
        work = scratch(WORK, np.float32)
        for head in range(heads * part // parts, heads * (part + 1) // parts):
            summed = ZERO
            if d <= MOST_COLUMNS:
                cached = head // query_heads * kv_heads + head % query_heads // (query_heads // kv_heads)
                _, summed = _attend(work, q, head * d, k, v, cached * capacity * d, scale, d, 0, end)
            for c in range(d):
                value = work[c] / summed if summed > ZERO else ZERO
                put(out, head * d + c, value if d <= MOST_COLUMNS else NAN)
