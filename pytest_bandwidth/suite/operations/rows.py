"""Declare what works on rows: softmax, layer normalisation and log-sum-exp, attention and its key-value cache."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pytest_bandwidth.domain.traffic import Traffic, bytes_per_element
from pytest_bandwidth.suite import traffic_models as traffic
from pytest_bandwidth.suite.operations import references
from pytest_bandwidth.suite.operations.model import (
    FLOATS,
    ROUNDING,
    SUFFIX,
    Arrays,
    Case,
    KernelStep,
    Operation,
    Sizes,
    Tolerance,
    blocks,
    case_of,
    centred,
    launch,
    line,
    one_launch,
    rounding,
    scalar,
    shapes_by,
    sizes_of,
    tiled,
)

THREADS = 256
COLS = 4096
EPSILON = 1e-5
# The range of the inputs to exp: exp(−8 … 8) differ by a factor of nine million, so that a wrong maximum shows.
SPREAD = 16
SMALL = sizes_of("rows cols", (0, 7), (3, 0), (1, 1), (3, 33), (2, 257), (5, 1000))
STAGED_SMALL = (*SMALL, {"rows": 2, "cols": 8195})
STAGED_COLS = 8192
LOADS_OF_EACH_ELEMENT = {"naive": 3, "online": 2, "staged": 1}
TWO_PASSES = shapes_by("rows", lambda dtype: 2 * bytes_per_element(dtype) * COLS, cols=COLS)


def _softmax(version: str) -> Operation:
    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        rows, cols = sizes["rows"], sizes["cols"]
        source, out = centred(arrays, (rows, cols), dtype, SPREAD), arrays.empty((rows, cols), dtype)
        moved = traffic.softmax(rows, cols, dtype, row_reads=LOADS_OF_EACH_ELEMENT[version])
        if version == "staged":
            moved = _read_again(moved, rows, cols, dtype, times=1)
        # exp of a float at −16 has a relative error of 16 roundings, and the sum about as many again.
        tolerance = rounding(dtype, absolute=1e-7, roundings=64 if dtype == "float32" else 2)
        name, geometry = f"softmax_{version}_{SUFFIX[dtype]}", blocks(rows, THREADS)
        given = ({"out": out}, (source,), (rows, cols))
        return one_launch("softmax.cu", name, geometry, *given, moved, references.softmax, tolerance)

    return Operation("softmax", version, FLOATS, prepare, TWO_PASSES, STAGED_SMALL if version == "staged" else SMALL)


def _layer_norm(version: str) -> Operation:
    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        rows, cols = sizes["rows"], sizes["cols"]
        source, out = centred(arrays, (rows, cols), dtype), arrays.empty((rows, cols), dtype)
        inputs = (source, arrays.random(cols, dtype), centred(arrays, cols, dtype))
        moved = traffic.layer_norm(rows, cols, dtype, row_reads=LOADS_OF_EACH_ELEMENT[version])
        if version == "staged":
            moved = _read_again(moved, rows, cols, dtype, times=2)

        def reference(a: Any, gamma: Any, beta: Any) -> Any:
            return references.layer_norm(a, gamma, beta, EPSILON)

        name, geometry = f"layer_norm_{version}_{SUFFIX[dtype]}", blocks(rows, THREADS)
        given, tolerance = ({"out": out}, inputs, (np.float32(EPSILON), rows, cols)), rounding(dtype, absolute=1e-5)
        return one_launch("layernorm.cu", name, geometry, *given, moved, reference, tolerance)

    small = STAGED_SMALL if version == "staged" else SMALL
    return Operation("layer_norm", version, FLOATS, prepare, TWO_PASSES, small)


def _logsumexp(*, fused: bool) -> Operation:
    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        rows, cols = sizes["rows"], sizes["cols"]
        source, out = centred(arrays, (rows, cols), dtype, SPREAD), arrays.empty(rows, dtype)

        def step(kernel: str, result: Any, *inputs: Any) -> KernelStep:
            args, geometry = (result, *inputs, rows, cols), blocks(rows, THREADS)
            return launch("logsumexp.cu", f"{kernel}_{SUFFIX[dtype]}", geometry, args, inputs, (result,))

        steps: Sequence[KernelStep]
        if fused:
            steps = (step("logsumexp_fused", out, source),)
        else:
            top, exps = arrays.empty(rows, dtype), arrays.empty((rows, cols), dtype)
            steps = (
                step("row_max", top, source),
                step("exp_shifted", exps, source, top),
                step("row_log_sum", out, exps, top),
            )
        # Unfused, every exponential is rounded to dtype, which moves their sum, and so its logarithm, by as much.
        tolerance = rounding(dtype, absolute=4e-6 + (0.0 if fused else ROUNDING[dtype]))
        moved = traffic.logsumexp(rows, cols, dtype, fused=fused)
        return case_of(steps, moved, {"out": out}, (source,), references.logsumexp, tolerance)

    # As many rows fused or not: then what they take can be compared, and no cache keeps the unfused one's exponentials.
    shapes = shapes_by("rows", lambda dtype: traffic.logsumexp(1, COLS, dtype, fused=True).bytes_moved, cols=COLS)
    return Operation("logsumexp", "fused" if fused else "unfused", FLOATS, prepare, shapes, SMALL)


def _read_again(moved: Traffic, rows: int, cols: int, dtype: str, times: int) -> Traffic:
    """Return what the staged kernels ask for once more: the columns that do not fit the stage."""
    again = times * rows * max(cols - STAGED_COLS, 0) * bytes_per_element(dtype)
    return replace(moved, requested_read=(moved.requested_read or 0) + again)


OPERATIONS: tuple[Operation, ...] = (
    *(_softmax(version) for version in ("naive", "online", "staged")),
    *(_layer_norm(version) for version in ("naive", "staged")),
    _logsumexp(fused=True),
    _logsumexp(fused=False),
)

# ---- attention, with and without scores in memory, and the cache of a decoder ----------------------------------------

TILE = 32
BLOCK = (32, 8)
DECODE_THREADS = 128
# Queries and keys in [−2, 2): scores spread enough for the maximum and the rescaling to matter.
SCORES_SPREAD = 4
ATTENTION_SHAPES = sizes_of("batch heads n d", (1, 14, 1024, 64))
ATTENTION_SMALL = sizes_of(
    "batch heads n d", (0, 1, 3, 8), (1, 2, 0, 8), (1, 1, 1, 1), (2, 1, 33, 7), (1, 2, 70, 64), (1, 1, 40, 128)
)


def _tolerance(dtype: str, *, rounded_weights: bool) -> Tolerance:
    """Allow for rounding: exp carries that of scores up to about 8; means of values below 0.5 keep that share."""
    score_rounding = 8 * ROUNDING[dtype if rounded_weights else "float32"]
    return rounding(dtype, absolute=4e-6 + 2 * score_rounding)


def _inverse_root(d: int) -> Any:
    return scalar(1 / math.sqrt(max(d, 1)), "float32")


def _attention(*, flash: bool) -> Operation:
    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        batch, heads, n, d = shape = tuple(sizes[name] for name in ("batch", "heads", "n", "d"))
        matrices, suffix, o = batch * heads, SUFFIX[dtype], arrays.empty(shape, dtype)
        q, k = (centred(arrays, shape, dtype, SCORES_SPREAD) for _ in range(2))
        v, extents = centred(arrays, shape, dtype), (matrices, n, d)
        steps: Sequence[KernelStep]
        if flash:
            # A block per query tile (x) and head (y).
            args, geometry = (o, q, k, v, _inverse_root(d), *extents), tiled(matrices, n, (1, TILE), BLOCK)
            steps = (launch("attention.cu", f"attention_flash_{suffix}", geometry, args, (q, k, v), (o,)),)
            moved = traffic.attention_flash(batch, heads, n, d, dtype, query_tile=TILE)
        else:
            s, p = (arrays.empty((batch, heads, n, n), dtype) for _ in range(2))
            of_scores, of_output = (tiled(n, cols, (TILE, TILE), BLOCK, layers=matrices) for cols in (n, d))
            scores, output = f"attention_scores_{suffix}", f"attention_output_{suffix}"
            softmax, rows = f"softmax_online_{suffix}", blocks(matrices * n, THREADS)
            steps = (
                launch("attention.cu", scores, of_scores, (s, q, k, _inverse_root(d), *extents), (q, k), (s,)),
                launch("softmax.cu", softmax, rows, (p, s, matrices * n, n), (s,), (p,)),
                launch("attention.cu", output, of_output, (o, p, v, *extents), (p, v), (o,)),
            )
            moved = traffic.attention_standard(batch, heads, n, d, dtype, tile=TILE, row_reads=2)
        tolerance = _tolerance(dtype, rounded_weights=not flash)
        return case_of(steps, moved, {"o": o}, (q, k, v), references.attention, tolerance)

    version = "flash" if flash else "standard"
    return Operation("attention", version, FLOATS, prepare, lambda *_: ATTENTION_SHAPES, ATTENTION_SMALL)


def _append() -> Operation:
    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        batch, heads, tokens, d = (sizes[name] for name in ("batch", "kv_heads", "tokens", "d"))
        position, capacity = sizes["position"], sizes["position"] + tokens + 1
        new = tuple(centred(arrays, (batch, heads, tokens, d), dtype) for _ in range(2))
        caches = {name: arrays.empty((batch, heads, capacity, d), dtype) for name in ("k_cache", "v_cache")}
        moved = traffic.kv_cache_append(batch, tokens, heads, d, dtype)

        def reference(*added: Any) -> Any:
            # The caches' other tokens have to stay what they were: poisoned.
            untouched = np.full((batch, heads, capacity, d), np.nan)
            return tuple(references.kv_append(untouched, one, position) for one in added)

        name, geometry = f"kv_append_{SUFFIX[dtype]}", line(batch * heads * tokens * d)
        given, written = (caches, new, (position, batch, heads, tokens, d, capacity)), (moved.bytes_written,)
        return one_launch("kvcache.cu", name, geometry, *given, moved, reference, writes=written)

    one_token = {"batch": 1, "kv_heads": 8, "d": 128}
    shapes = shapes_by(
        "tokens", lambda dtype: traffic.kv_cache_append(1, 1, 8, 128, dtype).bytes_moved, **one_token, position=17
    )
    small = sizes_of(
        "batch kv_heads tokens d position", (0, 1, 1, 8, 0), (1, 1, 0, 8, 3), (1, 1, 1, 1, 0), (2, 3, 5, 33, 7)
    )
    return Operation("kv_append", "plain", FLOATS, prepare, shapes, small)


def _decode(*, split: bool) -> Operation:
    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        names = ("batch", "query_heads", "kv_heads", "d", "tokens")
        batch, query_heads, kv_heads, d, tokens = (sizes[name] for name in names)
        capacity, heads, suffix = tokens + 3, batch * query_heads, SUFFIX[dtype]
        q, out = (
            centred(arrays, (batch, query_heads, d), dtype, SCORES_SPREAD),
            arrays.empty((batch, query_heads, d), dtype),
        )
        k_cache = centred(arrays, (batch, kv_heads, capacity, d), dtype, SCORES_SPREAD)
        v_cache = centred(arrays, (batch, kv_heads, capacity, d), dtype)
        inputs = (q, k_cache, v_cache)
        given = (*inputs, _inverse_root(d), *(sizes[name] for name in names), capacity)
        # Each of a block's four warps loads the query. What the merging of splits asks for is not modelled.
        loads = None if split else 4
        moved = traffic.kv_cache_read(batch, tokens, query_heads, kv_heads, d, dtype, query_loads=loads)
        reads = (moved.bytes_read,)  # not the arrays: the caches have room for more tokens than are read
        steps: Sequence[KernelStep]
        if not split:
            kernel, geometry = f"kv_decode_{suffix}", blocks(heads, DECODE_THREADS)
            steps = (launch("kvcache.cu", kernel, geometry, (out, *given), reads, (out,)),)
        else:
            splits = sizes["splits"]
            partials = tuple(arrays.empty((heads, splits, *more), "float32") for more in ((d,), (), ()))
            kernel, merge = f"kv_decode_split_{suffix}", f"kv_decode_combine_{suffix}"
            geometry, merge_args = blocks(heads * splits, DECODE_THREADS), (out, *partials, heads, d, splits)
            steps = (
                launch("kvcache.cu", kernel, geometry, (*partials, *given, splits), reads, partials),
                launch("kvcache.cu", merge, line(heads * d), merge_args, partials, (out,)),
            )
            handed_over = sum(array.nbytes for array in partials)
            moved = moved + Traffic(handed_over, handed_over)

        def reference(of_q: Any, keys: Any, values: Any) -> Any:
            return references.kv_decode(of_q, keys, values, tokens)

        return case_of(steps, moved, {"out": out}, inputs, reference, _tolerance(dtype, rounded_weights=False))

    shapes = shapes_by(
        "tokens",
        lambda dtype: traffic.kv_cache_read(1, 1, 32, 8, 128, dtype).bytes_read,
        **{"batch": 1, "query_heads": 32, "kv_heads": 8, "d": 128, **({"splits": 32} if split else {})},
    )
    small = sizes_of(
        "batch query_heads kv_heads d tokens splits",
        *((0, 2, 1, 8, 5, 2), (1, 2, 1, 8, 0, 2), (1, 1, 1, 1, 1, 1)),
        *((2, 6, 2, 64, 37, 3), (1, 2, 2, 128, 9, 5), (1, 3, 1, 33, 2, 4)),
    )
    if not split:
        small = tuple({name: size for name, size in sizes.items() if name != "splits"} for sizes in small)
    return Operation("kv_decode", "split" if split else "plain", FLOATS, prepare, shapes, small)


ATTENTION: tuple[Operation, ...] = (
    _attention(flash=False),
    _attention(flash=True),
    _append(),
    _decode(split=False),
    _decode(split=True),
)
