"""Attention and the key-value cache on the host, against NumPy in double precision."""

import numpy as np
import pytest
from host_launch import STORED, SUFFIXES, Guarded, numbers, run

from pytest_bandwidth.suite.operations import references

TOLERANCE = {"f32": 5e-6, "f16": 4e-3}
SHAPES = ((1, 1, 1), (2, 5, 16), (3, 33, 40), (1, 70, 128), (0, 4, 8), (2, 0, 8))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_standard_and_flash_attention(suffix):
    for heads, n, d in SHAPES:
        q, k, v = (numbers(heads * n * d, STORED[suffix], seed, offset=1) for seed in (1, 2, 3))
        scale = np.float32(1 / np.sqrt(d))
        scores, output, flash = (
            Guarded(size, STORED[suffix], 1) for size in (heads * n * n, heads * n * d, heads * n * d)
        )
        wide = [references.wide(x).reshape(heads, n, d) for x in (q, k, v)]
        wanted_scores = float(scale) * wide[0] @ wide[1].transpose(0, 2, 1)

        run("attention.cu", f"attention_scores_{suffix}", scores.array, q, k, scale, heads, n, d)
        found = scores.check().reshape(heads, n, n)
        np.testing.assert_allclose(found, wanted_scores, rtol=0, atol=TOLERANCE[suffix] * 16)

        weights = references.softmax(wanted_scores).astype(STORED[suffix])
        run("attention.cu", f"attention_output_{suffix}", output.array, weights.reshape(-1), v, heads, n, d)
        run("attention.cu", f"attention_flash_{suffix}", flash.array, q, k, v, scale, heads, n, d)
        wanted = references.attention(*wide)
        for result in (output.check(), flash.check()):
            np.testing.assert_allclose(result.reshape(heads, n, d), wanted, rtol=0, atol=TOLERANCE[suffix])


def test_flash_attention_gives_nan_where_the_cuda_kernel_has_no_room():
    q = numbers(3 * 129, np.float32)
    out = np.zeros_like(q)
    run("attention.cu", "attention_flash_f32", out, q, q, q, np.float32(1), 1, 3, 129)
    assert np.isnan(out).all()


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("position", [0, 3, 8, 20])
def test_append_leaves_out_what_falls_past_the_capacity(suffix, position):
    for batch, heads, tokens, d, capacity in ((2, 3, 4, 40, 10), (1, 1, 0, 8, 4), (2, 2, 5, 128, 12)):
        matrices = batch * heads
        k_new, v_new = (numbers(matrices * tokens * d, STORED[suffix], seed) for seed in (1, 2))
        k_cache, v_cache = (Guarded(matrices * capacity * d, STORED[suffix], 1) for _ in range(2))
        before = k_cache.array.copy()
        run(
            "kvcache.cu",
            f"kv_append_{suffix}",
            *(k_cache.array, v_cache.array, k_new, v_new),
            *(position, batch, heads, tokens, d, capacity),
        )
        fitting = max(0, min(tokens, capacity - position))
        for cache, new in ((k_cache, k_new), (v_cache, v_new)):
            wanted = before.reshape(matrices, capacity, d).copy()
            wanted[:, position : position + fitting] = new.reshape(matrices, tokens, d)[:, :fitting]
            assert cache.check().tobytes() == wanted.tobytes()


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("tokens", [0, 1, 7, 20, 25])
def test_decode_whole_and_split(suffix, tokens):
    batch, query_heads, kv_heads, d, capacity, splits = 2, 6, 2, 72, 20, 3
    q = numbers(batch * query_heads * d, STORED[suffix], 1)
    k, v = (numbers(batch * kv_heads * capacity * d, STORED[suffix], seed, offset=1) for seed in (2, 3))
    scale, sizes = np.float32(1 / np.sqrt(d)), (batch, query_heads, kv_heads, d, tokens, capacity)
    whole, combined = (Guarded(q.size, STORED[suffix], 1) for _ in range(2))
    heads = batch * query_heads
    partial = [Guarded(size, np.float32, 1) for size in (heads * splits * d, heads * splits, heads * splits)]

    run("kvcache.cu", f"kv_decode_{suffix}", whole.array, q, k, v, scale, *sizes)
    run("kvcache.cu", f"kv_decode_split_{suffix}", *(p.array for p in partial), q, k, v, scale, *sizes, splits)
    results = [p.check() for p in partial]
    run("kvcache.cu", f"kv_decode_combine_{suffix}", combined.array, *results, heads, d, splits)

    caches = (x.reshape(batch, kv_heads, capacity, d) for x in (k, v))
    wanted = references.kv_decode(q.reshape(batch, query_heads, d), *caches, min(tokens, capacity))
    for found in (whole.check(), combined.check()):
        np.testing.assert_allclose(found.reshape(wanted.shape), wanted, rtol=0, atol=TOLERANCE[suffix])


def test_decode_gives_nan_where_the_cuda_kernel_has_no_room():
    q, cache = numbers(2 * 129, np.float32), numbers(2 * 4 * 129, np.float32)
    out = np.zeros_like(q)
    run("kvcache.cu", "kv_decode_f32", out, q, cache, cache, np.float32(1), 1, 2, 2, 129, 4, 4)
    assert np.isnan(out).all()
