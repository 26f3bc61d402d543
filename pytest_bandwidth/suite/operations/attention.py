"""Declare attention, with and without scores in memory, and the key-value cache of a decoder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from pytest_bandwidth.domain.traffic import Traffic, bytes_per_element, tiles
from pytest_bandwidth.suite.operations import references
from pytest_bandwidth.suite.operations.model import (
    FLOATS,
    ON_TENSOR_CORES,
    ROUNDING,
    RUN_KERNELS,
    SUFFIX,
    WITHOUT_TWIN,
    Arrays,
    Case,
    KernelStep,
    Operation,
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
    shapes_of,
    sizes_of,
    suffix_of,
    tiled,
    versions,
)
from pytest_bandwidth.suite.traffic_models import formula_of

TILE = 32
BLOCK = (32, 8)
ROW_THREADS, DECODE_THREADS = 256, 128
# Queries and keys in [−2, 2): scores spread enough for the maximum and the rescaling to matter.
SPREAD = 4
ATTENTION_SHAPES = sizes_of("batch heads n d", (1, 14, 1024, 64))
SMALL = sizes_of(
    "batch heads n d", (0, 1, 3, 8), (1, 2, 0, 8), (1, 1, 1, 1), (2, 1, 33, 7), (1, 2, 70, 64), (1, 1, 40, 128)
)


def _tolerance(dtype: str, *, rounded_weights: bool) -> Tolerance:
    """Allow for rounding: exp carries that of scores up to about 8; means of values below 0.5 keep that share."""
    score_rounding = 8 * ROUNDING[dtype if rounded_weights else "float32"]
    return rounding(dtype, absolute=4e-6 + 2 * score_rounding)


def _inverse_root(d: int) -> Any:
    return scalar(1 / math.sqrt(max(d, 1)), "float32")


def _standard(arrays: Arrays, dtype: str, batch: int, heads: int, n: int, d: int) -> Case:
    shape = (batch, heads, n, d)
    matrices, suffix, o = batch * heads, SUFFIX[dtype], arrays.empty(shape, dtype)
    (q, k, v), extents = _queries_keys_values(arrays, dtype, shape), (matrices, n, d)
    s, p = (arrays.empty((batch, heads, n, n), dtype) for _ in range(2))
    of_scores, of_output = (tiled(n, cols, (TILE, TILE), BLOCK, layers=matrices) for cols in (n, d))
    scores, output = f"attention_scores_{suffix}", f"attention_output_{suffix}"
    softmax, rows = f"softmax_online_{suffix}", blocks(matrices * n, ROW_THREADS)
    steps = (
        launch("attention.cu", scores, of_scores, (s, q, k, _inverse_root(d), *extents), (q, k), (s,)),
        launch("softmax.cu", softmax, rows, (p, s, matrices * n, n), (s,), (p,)),
        launch("attention.cu", output, of_output, (o, p, v, *extents), (p, v), (o,)),
    )
    sizes, asked = {"batch": batch, "heads": heads, "n": n, "d": d}, {"rows": tiles(n, TILE), "columns": tiles(d, TILE)}
    moved = formula_of("attention", "standard").at(sizes, dtype, asked)
    tolerance = _tolerance(dtype, rounded_weights=True)
    return case_of(steps, moved, {"o": o}, (q, k, v), references.attention, tolerance)


def _flash(arrays: Arrays, dtype: str, batch: int, heads: int, n: int, d: int, *, second: bool = False) -> Case:
    """Return the case of one launch: a block for each tile of so many queries (x) and each head (y)."""
    shape = (batch, heads, n, d)
    kernel, queries, block, rounded = "attention_flash", TILE, BLOCK, False
    if second:
        head = 64 if d <= 64 else 128
        # Halves: their weights are halves for the second product, which is about what rounded scores do.
        queries, block, rounded = (128, BLOCK, True) if dtype != "float32" else (64 * 64 // head, (32, 2), False)
        kernel = f"attention_flash2_{head}"
    inputs, o = _queries_keys_values(arrays, dtype, shape), arrays.empty(shape, dtype)
    scalars, geometry = (_inverse_root(d), batch * heads, n, d), tiled(batch * heads, n, (1, queries), block)
    sizes = {"batch": batch, "heads": heads, "n": n, "d": d}
    moved = formula_of("attention", "flash").at(sizes, dtype, {"passes": tiles(n, queries)})
    given = (f"{kernel}_{SUFFIX[dtype]}", geometry, {"o": o}, inputs, scalars, moved, references.attention)
    return one_launch("attention.cu", *given, _tolerance(dtype, rounded_weights=rounded))


def _queries_keys_values(arrays: Arrays, dtype: str, shape: tuple[int, ...]) -> tuple[Any, Any, Any]:
    q, k = (centred(arrays, shape, dtype, SPREAD) for _ in range(2))
    return q, k, centred(arrays, shape, dtype)


def _attention(version: str) -> Operation:
    make = _standard if version == "standard" else partial(_flash, second=version == "flash2")
    # Past a tile of queries and two of keys, with rows of whole 16 bytes and without.
    more = sizes_of("batch heads n d", (1, 1, 140, 40), (1, 1, 67, 100), (1, 2, 130, 128))
    small, computes = (SMALL + more, ON_TENSOR_CORES) if version == "flash2" else (SMALL, {})
    return Operation("attention", version, FLOATS, make, lambda *_: ATTENTION_SHAPES, small, computes=computes)


def _append(version: str, *, in_8_bits: bool = False) -> Operation:
    """Copy new keys and values behind those of a cache, or quantise them to its codes of 8 bits."""
    name = "kv_append_fp8" if in_8_bits else "kv_append"
    formula = formula_of(name, version)

    def make(arrays: Arrays, dtype: str, batch: int, kv_heads: int, tokens: int, d: int, position: int) -> Case:
        heads, capacity = kv_heads, position + tokens + 1
        new = tuple(centred(arrays, (batch, heads, tokens, d), dtype, SPREAD if in_8_bits else 1) for _ in range(2))
        cache, held = (batch, heads, capacity, d), "uint8" if in_8_bits else dtype
        results = {f"{one}_cache": arrays.empty(cache, held) for one in "kv"}
        of_head_bytes, asked = d * bytes_per_element(dtype), None
        if in_8_bits:
            results |= {f"{one}_scales": arrays.empty(cache[:-1], "float32") for one in "kv"}
            in_registers = version == "wide" and of_head_bytes % 16 == 0 and of_head_bytes <= 512
            asked = {"loads": 1 if in_registers else 2}
            # Along x the lanes of a head's new tokens, a power of two each.
            along_x, threads = max(tokens << max(tiles(of_head_bytes, 16) - 1, 0).bit_length(), 1), 32
        else:
            # Along x 16 bytes of a head's new tokens.
            along_x, threads = tiles(tokens * of_head_bytes, 16), d
        moved = formula.at({"batch": batch, "tokens": tokens, "kv_heads": heads, "d": d}, dtype, asked)

        def reference(*added: Any) -> Any:
            # The caches' other tokens have to stay what they were: poisoned.
            codes = np.full((2, *cache), 255, np.uint8) if in_8_bits else np.full((2, *cache), np.nan)
            factors = np.full((2, *cache[:-1]), np.nan)
            for i, one in enumerate(added):
                found = references.quantize_rows(one.reshape(-1, d), "fp8") if in_8_bits else (one,)
                for whole, part in zip((codes, factors), found, strict=False):
                    within = whole[i, :, :, position : position + tokens]
                    within[...] = part.reshape(within.shape)
            return (*codes, *factors) if in_8_bits else (*codes,)

        kernel, geometry = f"{name}_{suffix_of(version, dtype)}", line(batch * heads * tokens * threads)
        if version == "wide":
            # Along y heads: of one token there is little along x.
            of_head = 16 if along_x <= 16 else 32 if in_8_bits and along_x <= 32 else 256
            geometry = tiled(batch * heads, along_x, (256 // of_head, of_head), (of_head, 256 // of_head))
        given, written = (results, new, (position, batch, heads, tokens, d, capacity)), (moved.bytes_written,)
        return one_launch("kvcache.cu", kernel, geometry, *given, moved, reference, writes=written)

    shapes = shapes_of(formula, "tokens", batch=1, kv_heads=8, d=128, position=17)
    small = [(0, 1, 1, 8, 0), (1, 1, 0, 8, 3), (1, 1, 1, 1, 0), (2, 3, 5, 33, 7)]
    if in_8_bits or version == "wide":
        small += [(3, 7, 1, 128, 5), (1, 3, 37, 72, 1)]
    devices = WITHOUT_TWIN if in_8_bits else RUN_KERNELS
    return Operation(name, version, FLOATS, make, shapes, sizes_of("batch kv_heads tokens d position", *small), devices)


# By version: blocks for each head, or for each group of heads, that share keys and values.
PAGE_TOKENS = 16
DEFAULT_SPLITS = {"split": 32, "grouped": 48}
GROUP = 4


def _decode(version: str, *, paged: bool = False, in_8_bits: bool = False) -> Operation:
    name = "kv_decode_paged" if paged else "kv_decode_fp8" if in_8_bits else "kv_decode"
    formula = formula_of(name, version)

    def make(
        arrays: Arrays, dtype: str, batch: int, query_heads: int, kv_heads: int, d: int, tokens: int, splits: int = 0
    ) -> Case:
        heads, suffix, pages = batch * query_heads, SUFFIX[dtype], tiles(tokens, PAGE_TOKENS) + 1
        # Room for more tokens than there are.
        room = pages if paged else tokens + 3
        cache = (batch * pages, kv_heads, PAGE_TOKENS, d) if paged else (batch, kv_heads, room, d)
        q, out = centred(arrays, (batch, query_heads, d), dtype, SPREAD), arrays.empty((batch, query_heads, d), dtype)
        inputs: tuple[Any, ...]
        if in_8_bits:
            inputs = (q, *_codes_and_scales(arrays, cache))
        else:
            inputs = (q, centred(arrays, cache, dtype, SPREAD), centred(arrays, cache, dtype))
        # Each of a block's four warps loads the query. The loads of the splits' merging are not modelled.
        asked = {"loads": 4} if name == "kv_decode" and version == "plain" else None
        sizes = {"batch": batch, "tokens": tokens, "query_heads": query_heads, "kv_heads": kv_heads, "d": d}
        moved = formula.at(sizes, dtype, asked)
        if paged:
            # As after a day of serving: a sequence's pages lie anywhere.
            numbers = arrays.xp.argsort(arrays.random(batch * pages, "uint32")).astype("int32")
            inputs = (*inputs, numbers.reshape(batch, pages))
            moved = moved + Traffic(4 * batch * tiles(tokens, PAGE_TOKENS), 0)
        given = (*inputs, _inverse_root(d), batch, query_heads, kv_heads, d, tokens, room)
        reads = (moved.bytes_read,)  # not the arrays: the caches have room for more tokens than are read
        steps: Sequence[KernelStep]
        if version == "plain":
            kernel, geometry = f"{name}_{suffix}", blocks(heads, DECODE_THREADS)
            steps = (launch("kvcache.cu", kernel, geometry, (out, *given), reads, (out,)),)
        else:
            groups = tiles(query_heads // kv_heads, GROUP)
            partials = tuple(arrays.empty((heads, splits, *more), "float32") for more in ((d,), (), ()))
            kernel, merge = f"{name}_{version}_{suffix}", f"kv_decode_combine_{suffix}"
            walking = batch * kv_heads * groups if version == "grouped" else heads
            geometry, merge_args = blocks(walking * splits, DECODE_THREADS), (out, *partials, heads, d, splits)
            steps = (
                launch("kvcache.cu", kernel, geometry, (*partials, *given, splits), reads, partials),
                launch("kvcache.cu", merge, line(heads * d), merge_args, partials, (out,)),
            )
            handed_over = sum(array.nbytes for array in partials)
            moved = moved + Traffic(handed_over, handed_over)

        def reference(of_q: Any, keys: Any, values: Any, *others: Any) -> Any:
            if in_8_bits:
                keys, values = (
                    references.e4m3_values(codes) * scales[..., None]
                    for codes, scales in zip((keys, values), others, strict=True)
                )
            elif paged:
                keys, values = (references.in_pages(one, *others) for one in (keys, values))
            return references.kv_decode(of_q, keys, values, tokens)

        return case_of(steps, moved, {"out": out}, inputs, reference, _tolerance(dtype, rounded_weights=False))

    in_splits = {"splits": DEFAULT_SPLITS[version]} if version in DEFAULT_SPLITS else {}
    of_token = {"batch": 1, "query_heads": 32, "kv_heads": 8, "d": 128}
    bytes_of_token = partial(formula.at, {"tokens": 1, **of_token})
    shapes = shapes_by("tokens", lambda dtype: bytes_of_token(dtype).bytes_read, **of_token, **in_splits)
    small = sizes_of(
        "batch query_heads kv_heads d tokens splits",
        *((0, 2, 1, 8, 5, 2), (1, 2, 1, 8, 0, 2), (1, 1, 1, 1, 1, 1)),
        *((2, 6, 2, 64, 37, 3), (1, 2, 2, 128, 9, 5), (1, 3, 1, 33, 2, 4)),
    )
    if version == "grouped":  # more heads share one than a block serves; more tokens than a step has
        small += sizes_of("batch query_heads kv_heads d tokens splits", (1, 10, 2, 128, 150, 2), (2, 4, 1, 40, 130, 1))
        if paged:  # more pages than a warp has lanes; the last page is not full
            small += sizes_of("batch query_heads kv_heads d tokens splits", (2, 3, 1, 16, 1100, 2))
    if not in_splits:
        small = tuple({name: size for name, size in sizes.items() if name != "splits"} for sizes in small)
    devices = RUN_KERNELS if name == "kv_decode" and version == "plain" else WITHOUT_TWIN
    return Operation(name, version, FLOATS, make, shapes, small, devices)


def _codes_and_scales(arrays: Arrays, cache: tuple[int, ...]) -> tuple[Any, Any, Any, Any]:
    """Make FP8 keys and values, all codes but the two of NaN, and scales: of keys to ±2, of values to ±0.5."""
    codes = [arrays.random(cache, "uint8") for _ in range(2)]
    scales = [arrays.random(cache[:-1], "float32") for _ in range(2)]
    for one, of_token, most in zip(codes, scales, (2, 0.5), strict=True):
        one -= (one & 127) == 127
        of_token *= np.float32(most / 2 / 448)
    return codes[0], codes[1], scales[0], scales[1]


OPERATIONS: tuple[Operation, ...] = (
    *versions(_attention, "flash2", "standard", "flash"),
    _append("wide"),
    _append("plain"),
    *versions(_decode, "grouped", "plain", "split"),
    *versions(_append, "wide", "plain", in_8_bits=True),
    *versions(_decode, "grouped", "plain", in_8_bits=True),
    *versions(_decode, "grouped", "plain", paged=True),
)
