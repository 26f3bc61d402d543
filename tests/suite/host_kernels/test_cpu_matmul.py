"""Matrix products and 4-bit weights on the host, against NumPy in double precision."""

import numpy as np
import pytest
from host_launch import STORED, SUFFIXES, Guarded, numbers, run

from pytest_bandwidth.suite.operations import references

SHAPES = ((0, 3, 2), (2, 3, 0), (1, 1, 1), (4, 16, 8), (5, 17, 33), (33, 40, 70), (1, 64, 130), (70, 5, 3))


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("version", ["naive", "tiled", "blocked"])
def test_gemm(suffix, version):
    for m, n, k in SHAPES:
        a, b = numbers(m * k, STORED[suffix], 1, offset=1), numbers(k * n, STORED[suffix], 2, offset=3)
        out = Guarded(m * n, STORED[suffix], 1)
        run("gemm.cu", f"gemm_{version}_{suffix}", out.array, a, b, m, n, k)
        check(out, a.reshape(m, k), b.reshape(k, n), suffix)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", ["linear_gemv", "linear_gemm"])
def test_linear(suffix, name):
    for m, n, k in SHAPES:
        x, w = numbers(m * k, STORED[suffix], 1, offset=1), numbers(n * k, STORED[suffix], 2, offset=3)
        out = Guarded(m * n, STORED[suffix], 1)
        run("q4_0.cu", f"{name}_{suffix}", out.array, x, w, m, n, k)
        check(out, x.reshape(m, k), w.reshape(n, k).T, suffix)


def check(out, a, b, suffix):
    wanted = references.gemm(a, b)
    atol = 2e-6 * max(a.shape[1], 1) if suffix == "f32" else 1e-3 * np.abs(wanted).max(initial=1.0)
    np.testing.assert_allclose(out.check().reshape(wanted.shape), wanted, rtol=0, atol=atol)


def packed(rows, k, seed=5):
    """Random blocks for `rows` rows of k weights, and the weights they stand for."""
    blocks_per_row = -(-k // 32)
    generator = np.random.default_rng(seed)
    blocks = generator.integers(0, 256, (rows, blocks_per_row, 18), np.uint8)
    scales = generator.uniform(-0.2, 0.2, (rows, blocks_per_row)).astype(np.float16)
    blocks[:, :, :2] = scales[:, :, None].view(np.uint8)
    weights = references.q4_0_dequantize(blocks.reshape(-1, 18), 2 * blocks.size)
    return blocks.reshape(-1), weights.reshape(rows, blocks_per_row * 32)[:, :k]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("offset", [0, 1])
def test_dequantize(suffix, offset):
    for n in (0, 1, 16, 31, 32, 33, 64, 100, 4096 + 7):
        blocks, weights = packed(1, n)
        out = Guarded(n, STORED[suffix], offset)
        run("q4_0.cu", f"q4_0_dequantize_{suffix}", out.array, blocks, n)
        np.testing.assert_allclose(out.check(), weights[0], rtol=1e-3 if suffix == "f16" else 1e-7)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", ["q4_0_gemv", "q4_0_gemm"])
def test_product_with_packed_weights(suffix, name):
    for m, n, k in SHAPES:
        x = numbers(m * k, STORED[suffix], 1, offset=1)
        blocks, weights = packed(n, k)
        out = Guarded(m * n, STORED[suffix], 1)
        run("q4_0.cu", f"{name}_{suffix}", out.array, x, blocks, m, n, k)
        check(out, x.reshape(m, k), weights.T, suffix)
