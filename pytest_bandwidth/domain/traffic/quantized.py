"""Q4_0: weights of four bits in blocks of 32 with one float16 scale.

A block is 18 bytes: the scale, then 16 bytes of nibbles. Byte j holds element j in its low and element j + 16 in its
high nibble; value = (nibble − 8)·scale. (llama.cpp, ggml-common.h, block_q4_0.)
"""

from __future__ import annotations

from typing import Any

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.traffic.matmul import linear
from pytest_bandwidth.domain.traffic.model import Traffic, bytes_per_element, count, tiles

BLOCK_ELEMENTS = 32
BLOCK_BYTES = 18


def q4_0_bytes(n: int) -> int:
    """Bytes of n quantised weights: 18 a block of 32; a block begun is stored whole."""
    return tiles(count("n", n), BLOCK_ELEMENTS) * BLOCK_BYTES


def q4_0_dequantize(n: int, dtype: Any) -> Traffic:
    """n weights to dtype: n·18/32 bytes read, n·s written, n FLOP."""
    n = count("n", n)
    return Traffic(q4_0_bytes(n), n * bytes_per_element(dtype), n)


def q4_0_fused(m: int, n: int, k: int, dtype: Any, *, rows_together: int = 1) -> Traffic:
    """Y (m×n) = X (m×k) · Wᵀ, W n×k in Q4_0 along k: weights kn·18/32 bytes, X and Y (mk + mn)·s; 2mnk FLOP.

    The FLOP are the multiplication's, so that fused and separate compare; unpacking is not counted. For
    `rows_together` see `linear`. Raises UsageError unless k is a multiple of 32, as every row begins a block.
    """
    m, n, k, s = count("m", m), count("n", n), _whole_blocks(k), bytes_per_element(dtype)
    weights = q4_0_bytes(n * k) if m else 0
    activations = m * k * s if n else 0
    weight_passes = tiles(m, count("rows_together", rows_together, least=1))
    requested = q4_0_bytes(n * k) * weight_passes + m * k * n * s
    return Traffic(weights + activations, m * n * s, 2 * m * n * k, requested, m * n * s)


def q4_0_separate(m: int, n: int, k: int, dtype: Any, *, rows_together: int = 1) -> Traffic:
    """The same product in two launches, dequantise to memory and multiply: weights kn·18/32 + 2·kn·s bytes.

    FLOP, `rows_together` and errors as for `q4_0_fused`.
    """
    n, k = count("n", n), _whole_blocks(k)
    unpacked = q4_0_dequantize(n * k, dtype)
    multiplied = linear(m, n, k, dtype, rows_together=rows_together)
    return Traffic(unpacked.bytes_read, unpacked.bytes_written) + multiplied


def _whole_blocks(k: int) -> int:
    k = count("k", k)
    if k % BLOCK_ELEMENTS:
        raise UsageError(f"k is {k}, expected a multiple of {BLOCK_ELEMENTS}: every row of Q4_0 weights begins a block")
    return k
