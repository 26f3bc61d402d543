"""Compute the expected results of operations in NumPy and float64: slow, plain, and independent of the kernels.

A reference that is one call of NumPy is written in the operation's declaration.

Arguments are NumPy arrays of any float dtype and are widened first; results are float64 unless stated otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Float64 = NDArray[np.float64]


def wide(a: Array) -> Float64:
    return np.asarray(a, np.float64)


# ---- element by element ----------------------------------------------------------------------------------------------


def uniform(seed: int, n: int) -> Float64:
    """Draw numbers in [0, 1) for elements 0 … n − 1 as the dropout kernels do: 24 bits of MurmurHash3's finaliser."""
    return wide(_hash(seed, np.arange(n, dtype=np.uint64)) >> np.uint32(8)) / 2**24


def _hash(seed: int, index: NDArray[np.uint64]) -> NDArray[np.uint32]:
    h = index.astype(np.uint32) ^ np.uint32(seed)
    h ^= (index >> np.uint64(32)).astype(np.uint32) * np.uint32(0x9E3779B9)
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    hashed: NDArray[np.uint32] = h ^ (h >> np.uint32(16))
    return hashed


def bias_relu_dropout(
    a: Array, bias: float, probability: float, seed: int, numbers: Callable[[int, int], Float64] = uniform
) -> Float64:
    """Return dropout(max(a + bias, 0)): an element survives where its uniform number is at least `probability`."""
    kept = numbers(seed, a.size).reshape(a.shape) >= probability
    return np.where(kept, np.maximum(wide(a) + bias, 0.0) / (1.0 - probability), 0.0)


def uniform_of_four(seed: int, n: int) -> Float64:
    """Draw numbers as the wide dropout kernels do: one hash for four neighbours, and a multiple of it for each."""
    hashes = np.repeat(_hash(seed, np.arange(-(-n // 4), dtype=np.uint64)), 4)[:n]
    multipliers = np.resize(np.array([1, 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D], np.uint32), n)
    return wide(hashes * multipliers >> np.uint32(8)) / 2**24


def swiglu(gate: Array, up: Array) -> Float64:
    """Return gate ÷ (1 + exp(−gate))·up."""
    return wide(gate) / (1.0 + np.exp(-wide(gate))) * wide(up)


def rope(x: Array, cosines: Array, sines: Array) -> Float64:
    """Rotate the pairs (x[j], x[j + d/2]) of x (tokens, heads, d) by angles; cosines and sines are (tokens, d/2)."""
    low, high = np.split(wide(x), 2, axis=-1)
    cosine, sine = wide(cosines)[:, None], wide(sines)[:, None]
    return np.concatenate([low * cosine - high * sine, high * cosine + low * sine], axis=-1)


def fma_chain(a: Array, factor: float, addend: float, repeats: int) -> Array:
    """Compute x = x·factor + addend, `repeats` times, rounded to a's dtype after each step as the hardware does.

    The result has a's dtype.
    """
    factor, addend = float(a.dtype.type(factor)), float(a.dtype.type(addend))
    for _ in range(repeats):
        a = (wide(a) * factor + addend).astype(a.dtype)
    return a


# ---- by row ----------------------------------------------------------------------------------------------------------


def softmax(a: Array) -> Float64:
    """Return exp(x − max) ÷ Σ exp(x − max) along the last axis; an empty axis gives an empty result."""
    x = wide(a)
    if not x.size:
        return x
    exps = np.exp(x - x.max(axis=-1, keepdims=True))
    normalised: Float64 = exps / exps.sum(axis=-1, keepdims=True)
    return normalised


def layer_norm(a: Array, gamma: Array, beta: Array, epsilon: float) -> Float64:
    """Return (x − mean) ÷ √(variance + ε)·γ + β along the last axis, with the variance of the whole population."""
    x = wide(a)
    if not x.size:
        return x
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    return np.asarray(centred / np.sqrt(variance + epsilon) * wide(gamma) + wide(beta), np.float64)


def rms_norm_residual(a: Array, residual: Array, gamma: Array, epsilon: float) -> tuple[Float64, Float64]:
    """Return sum ÷ √(mean of sum² + ε)·γ along the last axis, and the sum, which is a + residual."""
    total = wide(a) + wide(residual)
    if not total.size:
        return total, total
    mean = (total**2).mean(axis=-1, keepdims=True)
    return np.asarray(total / np.sqrt(mean + epsilon) * wide(gamma), np.float64), total


def logsumexp(a: Array) -> Float64:
    """Return ln Σ exp(x) along the last axis; −∞ where that axis is empty."""
    x = wide(a)
    if not x.shape[-1]:
        return np.full(x.shape[:-1], -np.inf)
    top = x.max(axis=-1)
    return np.asarray(top + np.log(np.exp(x - top[..., None]).sum(axis=-1)), np.float64)


def topk(a: Array, k: int) -> tuple[Array, NDArray[np.int32]]:
    """Return the k largest of each row, and their columns; of equal ones the first comes first.

    NaN is never taken. Missing elements are −∞ of column −1.
    """
    x, cols = np.where(np.isnan(a), -np.inf, a), a.shape[1]
    # Stable: equal keys keep their order. NaN sorts last, after −∞, and then has the value −∞.
    order = np.lexsort((np.isnan(a), -x), axis=-1)[:, :k].astype(np.int32)
    values = np.take_along_axis(x, order, -1)
    order[np.isnan(np.take_along_axis(a, order, -1))] = -1
    missing = ((0, 0), (0, k - min(k, cols)))
    return np.pad(values, missing, constant_values=-np.inf), np.pad(order, missing, constant_values=-1)


# The values of FP8's codes 0 … 126 (e4m3): 4 bits of exponent with a bias of 7, then 3 of mantissa.
E4M3 = np.array([(code % 8 + 8 * (code > 7)) / 8 * 2.0 ** (max(code // 8, 1) - 7) for code in range(127)])


def e4m3_codes(a: Array) -> NDArray[np.uint8]:
    """Round to the nearest of E4M3, ties to the even code; larger numbers become the last one, NaN 0x7f."""
    # Between neighbours lies the middle: on it, the places to its left and right differ.
    sizes, middles = np.abs(a), (E4M3[1:] + E4M3[:-1]) / 2
    left, right = (np.searchsorted(middles, sizes, side) for side in ("left", "right"))
    codes = np.where(left % 2 == 0, left, right) | np.where(np.signbit(a), 0x80, 0)
    return np.where(np.isnan(a), 0x7F, codes).astype(np.uint8)


def e4m3_values(codes: NDArray[np.uint8]) -> Float64:
    """Return the numbers of codes, NaN of 0x7f and 0xff."""
    return wide(np.append(E4M3, np.nan)[codes & 0x7F] * np.where(codes & 0x80, -1.0, 1.0))


def quantize_rows(a: Array, kind: str) -> tuple[Array, Array]:
    """Return codes ("int8" or "fp8") and a scale of each row: as float32 computes, since codes are exact or wrong."""
    x, most = np.asarray(a, np.float32), np.float32(127 if kind == "int8" else 448)
    largest = np.fmax.reduce(np.abs(x), axis=-1, initial=0)
    with np.errstate(all="ignore"):
        scaled = x * np.minimum(most / largest, np.finfo(np.float32).max)[:, None]
    if kind == "fp8":
        return e4m3_codes(scaled), largest / most
    return np.where(np.isnan(scaled), 0, np.rint(scaled)).astype(np.int8), largest / most


def quantize_mxfp8(a: Array) -> tuple[Array, Array]:
    """Return FP8 codes, and for each 32 elements of a row a scale: an exponent of two, 127 more than it is."""
    x = np.asarray(a, np.float32).reshape(*a.shape[:-1], a.shape[-1] // 32, 32)
    largest = np.fmax.reduce(np.abs(x), axis=-1, initial=0)
    # frexp's mantissas are in [0.5, 1): its exponent is one more than that of the largest power of two.
    scales = np.where(np.isinf(largest), 255, np.clip(np.frexp(largest)[1] - 1 - 8 + 127, 0, 254))
    scales = np.where(largest == 0, 0, scales)
    factor = np.where(scales == 255, np.nan, 2.0 ** (127 - scales))[..., None]
    return e4m3_codes(wide(x) * factor).reshape(a.shape), scales.astype(np.uint8)


def dequantize_rows(codes: Array, scales: Array) -> Float64:
    """Return code·scale; codes of int8, or those of FP8 in uint8."""
    values = e4m3_values(codes) if codes.dtype == np.uint8 else wide(codes)
    return wide(values * wide(scales)[:, None])


# ---- products --------------------------------------------------------------------------------------------------------


def gemm(a: Array, b: Array) -> Float64:
    """Return A (m×k) · B (k×n)."""
    return np.asarray(wide(a) @ wide(b), np.float64)


def linear(x: Array, w: Array) -> Float64:
    """Return X (m×k) · Wᵀ, W n×k."""
    return gemm(x, w.T)


def gemm_int8(x: Array, w: Array, x_scales: Array, w_scales: Array) -> Float64:
    """Return X (m×k) · Wᵀ, W n×k, times a scale of each row of X and of W."""
    return linear(x, w) * wide(x_scales)[:, None] * wide(w_scales)


def attention(q: Array, k: Array, v: Array) -> Float64:
    """Return softmax(Q·Kᵀ ÷ √d)·V over the last two axes, n×d."""
    scores = wide(q) @ np.swapaxes(wide(k), -1, -2) / math.sqrt(max(q.shape[-1], 1))
    return np.asarray(softmax(scores) @ wide(v), np.float64)


def kv_decode(q: Array, k_cache: Array, v_cache: Array, tokens: int) -> Float64:
    """Return q's (batch, query_heads, d) attention to `tokens` of the caches (batch, kv_heads, capacity, d).

    Consecutive query heads share a head of the cache. Without tokens the result is 0.
    """
    if not tokens:
        return np.zeros(q.shape)
    shared_by = q.shape[1] // k_cache.shape[1]
    keys, values = (np.repeat(cache[:, :, :tokens], shared_by, axis=1) for cache in (k_cache, v_cache))
    attended: Float64 = attention(q[:, :, None, :], keys, values).reshape(q.shape)
    return attended


def in_pages(cache: Array, table: Array) -> Array:
    """Return the cache (batch, kv_heads, tokens, d) that lies in pages (pages, kv_heads, tokens of a page, d).

    table (batch, pages of a sequence): the numbers of each sequence's pages, in order.
    """
    (batch, pages), (_, heads, tokens, d) = table.shape, cache.shape
    in_order: Array = np.moveaxis(cache[table], 2, 1).reshape(batch, heads, pages * tokens, d)
    return in_order


def q4_0_dequantize(blocks: Array, n: int) -> Float64:
    """Return the first n weights of Q4_0 blocks, uint8 of shape (blocks, 18): float16 scale, then 16 bytes of nibbles.

    Low nibbles are elements 0–15 of a block, high nibbles 16–31; value = (nibble − 8)·scale.
    """
    scales = wide(np.ascontiguousarray(blocks[:, :2]).view(np.float16))
    nibbles = np.concatenate([blocks[:, 2:] & 15, blocks[:, 2:] >> 4], axis=1)
    values: Float64 = (wide(nibbles) - 8.0) * scales
    return values.reshape(-1)[:n]
