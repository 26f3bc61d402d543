"""Model attention and its key-value cache.

Letters: B batch, H heads (Hq of the queries, Hkv of keys and values), N positions, D elements of a head, S tokens.
"""

from __future__ import annotations

from typing import Any

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.traffic import Traffic, bytes_per_element, count, tiles
from pytest_bandwidth.suite.traffic_models.matmul import gemm
from pytest_bandwidth.suite.traffic_models.rows import softmax


def attention_standard(
    batch: int, heads: int, n: int, d: int, dtype: Any, *, tile: int | None = None, row_reads: int = 1
) -> Traffic:
    """Model softmax(Q·Kᵀ)·V with the N×N scores in memory: 4·B·H·N·D·s + 4·B·H·N²·s bytes, 4·B·H·N²·D FLOP.

    Three launches: the scores S are written, read and rewritten by the softmax, and read once more to weigh V. The
    FLOP are the two products'; the softmax's ~5·B·H·N² are left out, as is usual. (FlashAttention, Dao et al.,
    https://arxiv.org/abs/2205.14135, section 2.2.)

    tile: as for `gemm`, for both products; row_reads: as for `softmax`. They change what is requested.
    """
    matrices, n, d = count("batch", batch) * count("heads", heads), count("n", n), count("d", d)
    scores = _repeat(gemm(n, n, d, dtype, tile=tile), matrices)
    weighted = _repeat(gemm(n, d, n, dtype, tile=tile), matrices)
    normalised = softmax(matrices * n, n, dtype, row_reads=row_reads)
    unpriced = Traffic(
        normalised.bytes_read, normalised.bytes_written, 0, normalised.requested_read, normalised.requested_written
    )
    return scores + unpriced + weighted


def attention_flash(batch: int, heads: int, n: int, d: int, dtype: Any, *, query_tile: int | None = None) -> Traffic:
    """Return the same result without N×N scores in memory: 4·B·H·N·D·s bytes, 4·B·H·N²·D FLOP.

    query_tile: queries that one block answers together; K and V are then asked for once per query tile,
    (2 + 2·⌈N/query_tile⌉)·B·H·N·D·s in all, most of it met by caches.
    """
    matrices, n, d, s = (
        count("batch", batch) * count("heads", heads),
        count("n", n),
        count("d", d),
        bytes_per_element(dtype),
    )
    tensor = matrices * n * d * s
    flop = 4 * matrices * n * n * d
    if query_tile is None:
        return Traffic(3 * tensor, tensor, flop)
    passes = tiles(n, count("query_tile", query_tile, least=1))
    return Traffic(3 * tensor, tensor, flop, tensor + 2 * passes * tensor, tensor)


def kv_cache_append(batch: int, tokens: int, kv_heads: int, d: int, dtype: Any) -> Traffic:
    """Model `tokens` new keys and values copied into the cache: 4·B·S·Hkv·D·s bytes, half read, half written."""
    elements = count("batch", batch) * count("tokens", tokens) * count("kv_heads", kv_heads) * count("d", d)
    half = 2 * elements * bytes_per_element(dtype)
    return Traffic(half, half)


def kv_cache_read(
    batch: int, tokens: int, query_heads: int, kv_heads: int, d: int, dtype: Any, *, query_loads: int | None = None
) -> Traffic:
    """Model attention of one new token to `tokens` cached ones: 2·B·S·Hkv·D·s + 2·B·Hq·D·s bytes, 4·B·S·Hq·D FLOP.

    The first term is the keys and values, the second the query and its result.

    query_loads: how often a kernel that walks the cache once per query head asks for the query itself; then
    2·B·S·Hq·D·s bytes of the cache are requested. Raises UsageError unless query_heads is a multiple of kv_heads.
    """
    batch, tokens, d, s = count("batch", batch), count("tokens", tokens), count("d", d), bytes_per_element(dtype)
    query_heads, kv_heads = count("query_heads", query_heads, least=1), count("kv_heads", kv_heads, least=1)
    if query_heads % kv_heads:
        raise UsageError(f"query_heads is {query_heads}, expected a multiple of the {kv_heads} kv_heads")
    cache = 2 * batch * tokens * kv_heads * d * s
    query = batch * query_heads * d * s
    flop = 4 * batch * tokens * query_heads * d
    if query_loads is None:
        return Traffic(cache + query, query, flop)
    requested = cache * (query_heads // kv_heads) + count("query_loads", query_loads, least=1) * query
    return Traffic(cache + query, query, flop, requested, query)


def _repeat(once: Traffic, times: int) -> Traffic:
    def scaled(value: int | None) -> int | None:
        return None if value is None else times * value

    return Traffic(
        times * once.bytes_read,
        times * once.bytes_written,
        times * once.flop,
        scaled(once.requested_read),
        scaled(once.requested_written),
    )
