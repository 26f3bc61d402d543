"""Quantise rows to 8 bits on the host, and back: twins of cuda_src/quantize.cu.

Each thread has whole rows. The second pass over a row meets it in a cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from pytest_bandwidth.devices.cpu.simd import get, inlined, parallel, put
from pytest_bandwidth.suite.host_kernels.simd_math import in_place, larger

Array = Any
MOST_OF_INT8, MOST_OF_FP8 = np.float32(127), np.float32(448)
LARGEST_FLOAT = np.float32(3.402823466e38)
# From here on floats are 2⁻⁹ apart, as FP8's smallest numbers are, so that an addition rounds to them.
STEPS, BITS_OF_STEPS = np.float32(2**14), 0x46800000
SMALLEST_NORMAL = np.float32(2**-6)
MX_ELEMENTS = 32
TOO_SMALL = np.float32(2.0**120)


@inlined
def int8_code(x: Any) -> Any:
    """Round to a whole number; NaN becomes 0."""
    return np.int8(np.rint(x)) if x == x else np.int8(0)


@inlined
def fp8_code(x: Any) -> Any:
    """Round to e4m3 as the kernels for GPUs without an instruction for it do."""
    if x != x:
        return np.uint8(0x7F)
    size = min(abs(x), MOST_OF_FP8)
    if size < SMALLEST_NORMAL:
        code = np.float32(size + STEPS).view(np.int32) - BITS_OF_STEPS
    else:
        bits = np.float32(size).view(np.int32)
        code = (bits + 0x7FFFF + (bits >> 20 & 1) - (120 << 23)) >> 20
    return np.uint8(code | (np.float32(x).view(np.int32) >> 24 & 0x80))


@inlined
def fp8_value(code: Any) -> Any:
    """Return e4m3's number: its bits in the places of a float's are 2¹²⁰ times too small."""
    if code & 0x7F == 0x7F:
        return np.float32(np.nan)
    size = np.int32((code & 0x7F) << 20).view(np.float32) * TOO_SMALL
    return -size if code & 0x80 else size


@inlined
def scale_of_row(x: Array, start: int, cols: int, most: Any) -> tuple[Any, Any]:
    """Return a row's scale, and its reciprocal. The row's largest element becomes `most`."""
    high = np.float32(0)
    for c in range(cols):
        high = larger(abs(get(x, start + c)), high)
    return high / most, min(most / high, LARGEST_FLOAT)


@in_place
def _quantized(parts: int, codes: Array, scales: Array, x: Array, rows: int, cols: int, most: Any, code: Any) -> None:
    for part in prange(parts):
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            scales[row], factor = scale_of_row(x, row * cols, cols, most)
            for i in range(row * cols, (row + 1) * cols):
                codes[i] = code(get(x, i) * factor)


@parallel
def quantize_int8(parts: int, codes: Array, scales: Array, x: Array, rows: int, cols: int) -> None:
    """Write codes of −127 to 127, and a scale for each row."""
    _quantized(parts, codes, scales, x, rows, cols, MOST_OF_INT8, int8_code)


@parallel
def quantize_fp8(parts: int, codes: Array, scales: Array, x: Array, rows: int, cols: int) -> None:
    """Write codes of e4m3, and a scale for each row."""
    _quantized(parts, codes, scales, x, rows, cols, MOST_OF_FP8, fp8_code)


@inlined
def mx_scale(high: Any) -> Any:
    """Return the scale of a block whose largest is `high`: that number's exponent less the 8 of e4m3's largest."""
    field = np.float32(high).view(np.int32) >> 23
    return 255 if field == 255 else max(field - 8, 0)


@parallel
def quantize_mxfp8(parts: int, codes: Array, scales: Array, x: Array, blocks: int) -> None:
    """Write codes of e4m3, and for each 32 an exponent of two as scale."""
    for part in prange(parts):
        for block in range(blocks * part // parts, blocks * (part + 1) // parts):
            start = block * MX_ELEMENTS
            high = np.float32(0)
            for i in range(start, start + MX_ELEMENTS):
                high = larger(abs(get(x, i)), high)
            scale = mx_scale(high)
            scales[block] = scale
            factor = np.float32(np.nan) if scale == 255 else np.int32((254 - scale) << 23).view(np.float32)
            for i in range(start, start + MX_ELEMENTS):
                codes[i] = fp8_code(get(x, i) * factor)


@in_place
def _dequantized(parts: int, out: Array, codes: Array, scales: Array, rows: int, cols: int, value: Any) -> None:
    for part in prange(parts):
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            for i in range(row * cols, (row + 1) * cols):
                put(out, i, value(codes[i]) * scales[row])


@parallel
def dequantize_int8(parts: int, out: Array, codes: Array, scales: Array, rows: int, cols: int) -> None:
    """Write out = code·scale."""
    _dequantized(parts, out, codes, scales, rows, cols, np.float32)


@parallel
def dequantize_fp8(parts: int, out: Array, codes: Array, scales: Array, rows: int, cols: int) -> None:
    """Write out = code's number·scale."""
    _dequantized(parts, out, codes, scales, rows, cols, fp8_value)
