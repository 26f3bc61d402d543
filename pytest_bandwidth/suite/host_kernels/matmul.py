"""Provide the host twins of cuda_src/gemm.cu, gemv.cu and q4_0.cu: matrix products, and weights of four bits.

All products and sums are float32, of halves too, with one rounding at the end. The blocked product is small and plain,
not a BLAS: it is here so that the same test runs on every device.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import prange, types

from pytest_bandwidth.devices.cpu.simd import (
    SimdVector,
    address,
    fence,
    get,
    inlined,
    lanes_of,
    load,
    parallel,
    put,
    scratch,
    spread,
    store,
    stream,
    total,
    typed_intrinsic,
)
from pytest_bandwidth.suite.host_kernels.stream import dot_of

Array = Any

ZERO = np.float32(0)
PANEL = 16  # columns of the result that fill a line
# The offset in a page of a scratch that is written while another one is read.
NOT_BESIDE = 1024
ROWS_AT_ONCE = 4
Q4_ELEMENTS = 32
Q4_BYTES = 18


@parallel
def gemm_naive(parts: int, out: Array, a: Array, b: Array, m: int, n: int, k: int) -> None:
    """Write out (m×n) = a (m×k) · b (k×n), each element by itself, with the operands straight from memory."""
    for part in prange(parts):
        for at in range(m * n * part // parts, m * n * (part + 1) // parts):
            row, col = at // n, at % n
            found = ZERO
            for i in range(k):
                found += get(a, row * k + i) * get(b, i * n + col)
            put(out, at, found)


@inlined
def _pack_panel(panel: Array, b: Array, at: int, n: int, k: int, cols: int) -> None:
    """Pack the `cols` columns of b from element `at` on, row after row and 16 wide; the missing ones as zeros."""
    for i in range(k):
        if cols == PANEL:
            store(panel, i * PANEL, load(b, at + i * n))
        else:
            for c in range(PANEL):
                panel[i * PANEL + c] = get(b, at + i * n + c) if c < cols else ZERO


@inlined
def _put_cols(out: Array, at: int, line: Any, edge: Array, cols: int) -> None:
    """Store the first `cols` lanes of a line in a row of the result."""
    if cols == PANEL:
        store(out, at, line)
        return
    store(edge, 0, line)
    for c in range(cols):
        put(out, at + c, edge[c])


@inlined
def product(
    parts_of_panels: tuple[int, int],
    out: Array,
    out0: int,
    a: Array,
    a0: int,
    b: Array,
    b0: int,
    m: int,
    n: int,
    k: int,
) -> None:
    """Compute out (m×n) = a (m×k) · b (k×n) for a range of 16-column panels.

    Each matrix begins at an element of its array.

    Four rows of a panel stay in registers while k is walked, so that a line of b serves four multiply-adds.
    """
    panel, edge = scratch(k * PANEL, np.float32), scratch(PANEL, np.float32, NOT_BESIDE)
    for number in range(parts_of_panels[0], parts_of_panels[1]):
        col0 = number * PANEL
        cols = min(PANEL, n - col0)
        _pack_panel(panel, b, b0 + col0, n, k, cols)
        row = 0
        while row + ROWS_AT_ONCE <= m:
            s0, s1, s2, s3 = spread(ZERO), spread(ZERO), spread(ZERO), spread(ZERO)
            at = a0 + row * k
            for i in range(k):
                line = load(panel, i * PANEL)
                s0 = s0 + spread(get(a, at + i)) * line
                s1 = s1 + spread(get(a, at + k + i)) * line
                s2 = s2 + spread(get(a, at + 2 * k + i)) * line
                s3 = s3 + spread(get(a, at + 3 * k + i)) * line
            to = out0 + row * n + col0
            _put_cols(out, to, s0, edge, cols)
            _put_cols(out, to + n, s1, edge, cols)
            _put_cols(out, to + 2 * n, s2, edge, cols)
            _put_cols(out, to + 3 * n, s3, edge, cols)
            row += ROWS_AT_ONCE
        while row < m:
            s0 = spread(ZERO)
            for i in range(k):
                s0 = s0 + spread(get(a, a0 + row * k + i)) * load(panel, i * PANEL)
            _put_cols(out, out0 + row * n + col0, s0, edge, cols)
            row += 1


@parallel
def gemm_blocked(parts: int, out: Array, a: Array, b: Array, m: int, n: int, k: int) -> None:
    """Compute as gemm_naive, 4 × 16 elements of the result at a time."""
    panels = (n + PANEL - 1) // PANEL
    for part in prange(parts):
        product((panels * part // parts, panels * (part + 1) // parts), out, 0, a, 0, b, 0, m, n, k)


@parallel
def linear(parts: int, out: Array, x: Array, w: Array, m: int, n: int, k: int) -> None:
    """Write out (m×n) = x (m×k) · wᵀ, w (n×k): a row of w is read once and meets every row of x in a cache."""
    for part in prange(parts):
        for col in range(n * part // parts, n * (part + 1) // parts):
            for row in range(m):
                put(out, row * n + col, dot_of(x, row * k, w, col * k, k, ZERO))


@parallel
def gemv(parts: int, out: Array, w: Array, x: Array, n: int, k: int) -> None:
    """Write out (n) = w (n×k) · x."""
    for part in prange(parts):
        for row in range(n * part // parts, n * (part + 1) // parts):
            put(out, row, dot_of(w, row * k, x, 0, k, ZERO))


@typed_intrinsic
def _half_at(_typing_context: Any, data: Any, _byte: Any) -> Any:
    """Return the float32 value of the float16 whose two bytes begin at a byte of a uint8 array, at any alignment."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.gep(context.make_array(signature.args[0])(context, builder, args[0]).data, [args[1]])
        half = builder.load(builder.bitcast(pointer, ir.HalfType().as_pointer()))
        half.align = 1
        return builder.fpext(half, ir.FloatType())

    return types.float32(data, types.int64), generate


def _nibbles(shift: int) -> Any:
    @typed_intrinsic
    def unpack(_typing_context: Any, data: Any, _byte: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            narrow, wide = ir.VectorType(ir.IntType(8), PANEL), ir.VectorType(ir.IntType(32), PANEL)
            pointer = builder.gep(context.make_array(signature.args[0])(context, builder, args[0]).data, [args[1]])
            packed = builder.load(builder.bitcast(pointer, narrow.as_pointer()))
            packed.align = 1
            whole = builder.lshr(builder.zext(packed, wide), ir.Constant(wide, [shift] * PANEL))
            whole = builder.and_(whole, ir.Constant(wide, [15] * PANEL))
            whole = builder.sub(whole, ir.Constant(wide, [8] * PANEL))
            return builder.sitofp(whole, context.get_value_type(signature.return_type))

        return SimdVector(types.float32)(data, types.int64), generate

    return unpack


# 16 bytes of nibbles as two lines of whole numbers, −8 to 7: elements 0 … 15 and 16 … 31 of a block.
_low_nibbles = _nibbles(0)
_high_nibbles = _nibbles(4)


@parallel
def q4_0_dequantize(parts: int, out: Array, blocks: Array, n: int) -> None:
    """Write out[i] = (nibble − 8) · scale."""
    whole = n // Q4_ELEMENTS
    streamable = address(out) % (lanes_of(out) * out.itemsize) == 0
    for part in prange(parts):
        for block in range(whole * part // parts, whole * (part + 1) // parts):
            at = block * Q4_BYTES
            scale = spread(_half_at(blocks, at))
            low, high = _low_nibbles(blocks, at + 2) * scale, _high_nibbles(blocks, at + 2) * scale
            if streamable:
                stream(out, block * Q4_ELEMENTS, low)
                stream(out, block * Q4_ELEMENTS + PANEL, high)
            else:
                store(out, block * Q4_ELEMENTS, low)
                store(out, block * Q4_ELEMENTS + PANEL, high)
        fence()
    for i in range(whole * Q4_ELEMENTS, n):
        put(out, i, _q4_value(blocks, whole * Q4_BYTES + 2, blocks, whole * Q4_BYTES, i - whole * Q4_ELEMENTS))


@inlined
def _q4_value(nibbles: Array, byte: int, scales: Array, of_scale: int, i: int) -> Any:
    """Return element i of the block whose nibbles and scale begin at these bytes."""
    nibble = (int(nibbles[byte + i % PANEL]) >> (4 * (i // PANEL))) & 15
    return np.float32(nibble - 8) * _half_at(scales, of_scale)


@inlined
def _q4_dot(
    x: Array, x0: int, nibbles: Array, scales: Array, at: tuple[int, int], pitch: tuple[int, int], k: int
) -> Any:
    """Return Σ x[x0 + i] · weight i of a row of blocks.

    at, pitch: where nibbles and scales begin, in bytes, and how far those of two neighbours lie apart.
    """
    sums = spread(ZERO)
    whole = k // Q4_ELEMENTS
    for block in range(whole):
        byte, i = at[0] + block * pitch[0], x0 + block * Q4_ELEMENTS
        products = _low_nibbles(nibbles, byte) * load(x, i) + _high_nibbles(nibbles, byte) * load(x, i + PANEL)
        sums = sums + spread(_half_at(scales, at[1] + block * pitch[1])) * products
    found = total(sums)
    for i in range(k - whole * Q4_ELEMENTS):
        weight = _q4_value(nibbles, at[0] + whole * pitch[0], scales, at[1] + whole * pitch[1], i)
        found += get(x, x0 + whole * Q4_ELEMENTS + i) * weight
    return found


@parallel
def q4_0_product(parts: int, out: Array, x: Array, blocks: Array, m: int, n: int, k: int) -> None:
    """Write out (m×n) = x (m×k) · wᵀ, w (n×k) in blocks that are unpacked in registers."""
    row_bytes = (k + Q4_ELEMENTS - 1) // Q4_ELEMENTS * Q4_BYTES
    for part in prange(parts):
        for col in range(n * part // parts, n * (part + 1) // parts):
            at = (col * row_bytes + 2, col * row_bytes)
            for row in range(m):
                put(out, row * n + col, _q4_dot(x, row * k, blocks, blocks, at, (Q4_BYTES, Q4_BYTES), k))


@parallel
def q4_0_planar(parts: int, out: Array, x: Array, nibbles: Array, scales: Array, m: int, n: int, k: int) -> None:
    """Compute as q4_0_product, of nibbles and scales in arrays of their own."""
    row_blocks = (k + Q4_ELEMENTS - 1) // Q4_ELEMENTS
    for part in prange(parts):
        for col in range(n * part // parts, n * (part + 1) // parts):
            at = (col * row_blocks * PANEL, col * row_blocks * 2)
            for row in range(m):
                put(out, row * n + col, _q4_dot(x, row * k, nibbles, scales, at, (PANEL, 2), k))
