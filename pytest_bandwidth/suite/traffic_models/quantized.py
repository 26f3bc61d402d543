"""Model Q4_0: weights of four bits in blocks of 32 with one float16 scale.

A block is 18 bytes: the scale, then 16 bytes of nibbles. Byte j holds element j in its low and element j + 16 in its
high nibble; value = (nibble − 8)·scale. (llama.cpp, ggml-common.h, block_q4_0.)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.traffic import Traffic, bytes_per_element, count, tiles
from pytest_bandwidth.suite.traffic_models.matmul import linear

BLOCK_ELEMENTS = 32
BLOCK_BYTES = 18
SCALE_BYTES = 2


def q4_0_bytes(n: int) -> int:
    """Return the bytes of n quantised weights: 18 a block of 32; a block begun is stored whole."""
    return tiles(count("n", n), BLOCK_ELEMENTS) * BLOCK_BYTES


def q4_0_dequantize(n: int, dtype: Any, *, scale_loads: int = 1) -> Traffic:
    """Model n weights to dtype: n·18/32 bytes read, n·s written, n FLOP.

    scale_loads: threads that share the unpacking of a block, each of which asks for its scale.
    """
    n = count("n", n)
    written = n * bytes_per_element(dtype)
    return Traffic(q4_0_bytes(n), written, n, _requested(n, scale_loads), written)


def q4_0_fused(m: int, n: int, k: int, dtype: Any, *, rows_together: int = 1, scale_loads: int = 1) -> Traffic:
    """Model Y (m×n) = X (m×k) · Wᵀ, W n×k in Q4_0 along k: weights kn·18/32 bytes, X and Y (mk + mn)·s; 2mnk FLOP.

    The FLOP are the multiplication's, so that fused and separate compare; unpacking is not counted. For
    `rows_together` see `linear`, for `scale_loads` `q4_0_dequantize`. Raises UsageError unless k is a multiple of 32,
    as every row begins a block.
    """
    m, n, k, s = count("m", m), count("n", n), _whole_blocks(k), bytes_per_element(dtype)
    weights = q4_0_bytes(n * k) if m else 0
    activations = m * k * s if n else 0
    weight_passes = tiles(m, count("rows_together", rows_together, least=1))
    requested = _requested(n * k, scale_loads) * weight_passes + m * k * n * s
    return Traffic(weights + activations, m * n * s, 2 * m * n * k, requested, m * n * s)


def q4_0_separate(m: int, n: int, k: int, dtype: Any, *, rows_together: int = 1, scale_loads: int = 1) -> Traffic:
    """Return the same product in two launches, dequantise to memory and multiply: weights kn·18/32 + 2·kn·s bytes.

    FLOP, `rows_together`, `scale_loads` and errors as for `q4_0_fused`.
    """
    n, k = count("n", n), _whole_blocks(k)
    unpacked = q4_0_dequantize(n * k, dtype, scale_loads=scale_loads)
    multiplied = linear(m, n, k, dtype, rows_together=rows_together)
    return replace(unpacked, flop=0) + multiplied


def _requested(n: int, scale_loads: int) -> int:
    blocks = tiles(n, BLOCK_ELEMENTS)
    return blocks * (BLOCK_BYTES + SCALE_BYTES * (count("scale_loads", scale_loads, least=1) - 1))


def _whole_blocks(k: int) -> int:
    k = count("k", k)
    if k % BLOCK_ELEMENTS:
        raise UsageError(f"k is {k}, expected a multiple of {BLOCK_ELEMENTS}: every row of Q4_0 weights begins a block")
    return k
