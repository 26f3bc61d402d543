"""Declare attention, with and without scores in memory, and the key-value cache of a decoder."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.suite import traffic_models as traffic
from pytest_bandwidth.suite.operations import references
from pytest_bandwidth.suite.operations.model import (
    ROUNDING,
    SUFFIX,
    Arrays,
    Case,
    Dim,
    KernelStep,
    Operation,
    Sizes,
    Tolerance,
    centred,
    line,
    n64,
    on_host,
    rounding,
    scalar,
    tiled,
)

FLOATS = ("float32", "float16")
TILE = 32
BLOCK = (32, 8)
ROW_BLOCK: Dim = (256, 1, 1)
DECODE_BLOCK: Dim = (128, 1, 1)
# Queries and keys in [−2, 2): scores spread enough for the maximum and the rescaling to matter.
SPREAD = 4
ATTENTION_SHAPES: tuple[Sizes, ...] = ({"batch": 1, "heads": 14, "n": 1024, "d": 64},)
SMALL: tuple[Sizes, ...] = tuple(
    {"batch": batch, "heads": heads, "n": n, "d": d}
    for batch, heads, n, d in ((0, 1, 3, 8), (1, 2, 0, 8), (1, 1, 1, 1), (2, 1, 33, 7), (1, 2, 70, 64), (1, 1, 40, 128))
)


def _tolerance(dtype: str, *, rounded_weights: bool) -> Tolerance:
    """Allow for rounding: exp carries that of scores up to about 8; means of values below 0.5 keep that share."""
    score_rounding = 8 * ROUNDING[dtype if rounded_weights else "float32"]
    return rounding(dtype, absolute=4e-6 + 2 * score_rounding)


def _spread(arrays: Arrays, shape: tuple[int, ...], dtype: str) -> Any:
    values = centred(arrays, shape, dtype)
    values *= values.dtype.type(SPREAD)
    return values


def _inverse_root(d: int) -> Any:
    return scalar(1 / math.sqrt(max(d, 1)), "float32")


def _attention(*, flash: bool) -> Operation:
    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        batch, heads, n, d = (sizes[name] for name in ("batch", "heads", "n", "d"))
        shape, matrices, suffix = (batch, heads, n, d), batch * heads, SUFFIX[dtype]
        q, k, v = _spread(arrays, shape, dtype), _spread(arrays, shape, dtype), centred(arrays, shape, dtype)
        o, extents = arrays.empty(shape, dtype), (n64(matrices), n64(n), n64(d))
        steps: tuple[KernelStep, ...]
        if flash:
            # A block per query tile (x) and head (y).
            grid, block = tiled(matrices, n, (1, TILE), BLOCK)
            args = (o, q, k, v, _inverse_root(d), *extents)
            steps = (KernelStep("attention.cu", f"attention_flash_{suffix}", grid, block, args, (q, k, v), (o,)),)
            moved = traffic.attention_flash(batch, heads, n, d, dtype, query_tile=TILE)
        else:
            s, p = arrays.empty((batch, heads, n, n), dtype), arrays.empty((batch, heads, n, n), dtype)
            score_args = (s, q, k, _inverse_root(d), *extents)
            softmax_args, output_args = (p, s, n64(matrices * n), n64(n)), (o, p, v, *extents)
            score_grid, output_grid = (tiled(n, cols, (TILE, TILE), BLOCK, layers=matrices) for cols in (n, d))
            rows: Dim = (max(matrices * n, 1), 1, 1)
            steps = (
                KernelStep("attention.cu", f"attention_scores_{suffix}", *score_grid, score_args, (q, k), (s,)),
                KernelStep("softmax.cu", f"softmax_online_{suffix}", rows, ROW_BLOCK, softmax_args, (s,), (p,)),
                KernelStep("attention.cu", f"attention_output_{suffix}", *output_grid, output_args, (p, v), (o,)),
            )
            moved = traffic.attention_standard(batch, heads, n, d, dtype, tile=TILE, row_reads=2)

        def expected() -> dict[str, Any]:
            return {"o": references.attention(on_host(q), on_host(k), on_host(v))}

        return Case(steps, moved, {"o": o}, expected, _tolerance(dtype, rounded_weights=not flash))

    version = "flash" if flash else "standard"
    return Operation("attention", version, FLOATS, prepare, lambda *_: ATTENTION_SHAPES, SMALL)


def _append() -> Operation:
    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        batch, heads, tokens, d = (sizes[name] for name in ("batch", "kv_heads", "tokens", "d"))
        position, capacity = sizes["position"], sizes["position"] + tokens + 1
        new = [centred(arrays, (batch, heads, tokens, d), dtype) for _ in range(2)]
        caches = [arrays.empty((batch, heads, capacity, d), dtype) for _ in range(2)]
        args = (*caches, *new, n64(position), n64(batch), n64(heads), n64(tokens), n64(d), n64(capacity))
        moved = traffic.kv_cache_append(batch, tokens, heads, d, dtype)
        threads = batch * heads * tokens * d
        name = f"kv_append_{SUFFIX[dtype]}"
        step = KernelStep("kvcache.cu", name, *line(threads), args, tuple(new), (moved.bytes_written,))

        def expected() -> dict[str, Any]:
            # The caches' other tokens have to stay what they were: poisoned.
            untouched = np.full((batch, heads, capacity, d), np.nan)
            keys, values = (references.kv_append(untouched, on_host(added), position) for added in new)
            return {"k_cache": keys, "v_cache": values}

        results = {"k_cache": caches[0], "v_cache": caches[1]}
        return Case((step,), moved, results, expected)

    def shapes(target_bytes: int, dtype: str) -> tuple[Sizes, ...]:
        one_token = traffic.kv_cache_append(1, 1, 8, 128, dtype).bytes_moved
        return ({"batch": 1, "kv_heads": 8, "tokens": max(target_bytes // one_token, 1), "d": 128, "position": 17},)

    small = tuple(
        {"batch": b, "kv_heads": h, "tokens": t, "d": d, "position": p}
        for b, h, t, d, p in ((0, 1, 1, 8, 0), (1, 1, 0, 8, 3), (1, 1, 1, 1, 0), (2, 3, 5, 33, 7))
    )
    return Operation("kv_append", "plain", FLOATS, prepare, shapes, small)


def _decode(*, split: bool) -> Operation:
    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        names = ("batch", "query_heads", "kv_heads", "d", "tokens")
        batch, query_heads, kv_heads, d, tokens = (sizes[name] for name in names)
        capacity, heads, suffix = tokens + 3, batch * query_heads, SUFFIX[dtype]
        q, out = _spread(arrays, (batch, query_heads, d), dtype), arrays.empty((batch, query_heads, d), dtype)
        k_cache = _spread(arrays, (batch, kv_heads, capacity, d), dtype)
        v_cache = centred(arrays, (batch, kv_heads, capacity, d), dtype)
        extents = (*(n64(sizes[name]) for name in names), n64(capacity))
        inputs = (q, k_cache, v_cache)
        # Each of a block's four warps loads the query. What the merging of splits asks for is not modelled.
        loads = None if split else 4
        moved = traffic.kv_cache_read(batch, tokens, query_heads, kv_heads, d, dtype, query_loads=loads)
        steps: tuple[KernelStep, ...]
        if not split:
            args = (out, *inputs, _inverse_root(d), *extents)
            # Bytes, not arrays: the caches have room for more tokens than are read.
            reads: tuple[Any, ...] = (moved.bytes_read,)
            grid, kernel = _blocks(heads), f"kv_decode_{suffix}"
            steps = (KernelStep("kvcache.cu", kernel, grid, DECODE_BLOCK, args, reads, (out,)),)
        else:
            splits = sizes["splits"]
            result = arrays.empty((heads, splits, d), "float32")
            top, total = arrays.empty((heads, splits), "float32"), arrays.empty((heads, splits), "float32")
            partials = (result, top, total)
            args = (*partials, *inputs, _inverse_root(d), *extents, n64(splits))
            merge_args = (out, *partials, n64(heads), n64(d), n64(splits))
            grid, merge = _blocks(heads * splits), f"kv_decode_combine_{suffix}"
            reads = (moved.bytes_read,)
            steps = (
                KernelStep("kvcache.cu", f"kv_decode_split_{suffix}", grid, DECODE_BLOCK, args, reads, partials),
                KernelStep("kvcache.cu", merge, *line(heads * d), merge_args, partials, (out,)),
            )
            handed_over = sum(array.nbytes for array in partials)
            moved = moved + Traffic(handed_over, handed_over)

        def expected() -> dict[str, Any]:
            return {"out": references.kv_decode(on_host(q), on_host(k_cache), on_host(v_cache), tokens)}

        return Case(steps, moved, {"out": out}, expected, _tolerance(dtype, rounded_weights=False))

    def shapes(target_bytes: int, dtype: str) -> tuple[Sizes, ...]:
        model = {"batch": 1, "query_heads": 32, "kv_heads": 8, "d": 128, **({"splits": 32} if split else {})}
        one_token = traffic.kv_cache_read(1, 1, 32, 8, 128, dtype).bytes_read
        return ({**model, "tokens": max(target_bytes // one_token, 1)},)

    small = tuple(
        {"batch": b, "query_heads": q, "kv_heads": kv, "d": d, "tokens": t, **({"splits": s} if split else {})}
        for b, q, kv, d, t, s in (
            (0, 2, 1, 8, 5, 2),
            (1, 2, 1, 8, 0, 2),
            (1, 1, 1, 1, 1, 1),
            (2, 6, 2, 64, 37, 3),
            (1, 2, 2, 128, 9, 5),
            (1, 3, 1, 33, 2, 4),
        )
    )
    return Operation("kv_decode", "split" if split else "plain", FLOATS, prepare, shapes, small)


def _blocks(count: int) -> Dim:
    return max(count, 1), 1, 1


OPERATIONS: tuple[Operation, ...] = (
    _attention(flash=False),
    _attention(flash=True),
    _append(),
    _decode(split=False),
    _decode(split=True),
)
