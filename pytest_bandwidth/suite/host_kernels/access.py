"""Provide the host twins of cuda_src/access.cu and transpose.cu: the same bytes in other orders.

These move elements and never compute, so halves come as 16-bit integers. Loops and parts as in stream.py.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import prange, types

from pytest_bandwidth.devices.cpu.simd import (
    SimdVector,
    address,
    fence,
    inlined,
    lanes_of,
    load,
    outside,
    parallel,
    scratch,
    store,
    stream,
    typed_intrinsic,
    whole_lines,
)
from pytest_bandwidth.suite.host_kernels.stream import each_line, fill, moved

Array = Any


@typed_intrinsic
def _load_strided(_typing_context: Any, array: Any, _index: Any, _stride: Any) -> Any:
    """Load a line of the elements index, index + stride, index + 2·stride …"""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        line = ir.Constant(context.get_value_type(signature.return_type), ir.Undefined)
        at = args[1]
        for lane in range(signature.return_type.lanes):
            element = builder.load(builder.gep(data, [at]))
            line = builder.insert_element(line, element, ir.Constant(ir.IntType(32), lane))
            at = builder.add(at, args[2])
        return line

    return SimdVector(array.dtype)(array, types.int64, types.int64), generate


@typed_intrinsic
def _load_gathered(_typing_context: Any, array: Any, indices: Any, index: Any, length: Any) -> Any:
    """Load a line of array[indices[index]], array[indices[index + 1]] …; 0 for an index outside 0 … length − 1."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        sources = context.make_array(signature.args[1])(context, builder, args[1]).data
        element_type = context.get_value_type(signature.args[0].dtype)
        line = ir.Constant(context.get_value_type(signature.return_type), ir.Undefined)
        zero = ir.Constant(ir.IntType(64), 0)
        for lane in range(signature.return_type.lanes):
            source = builder.load(builder.gep(sources, [builder.add(args[2], ir.Constant(ir.IntType(64), lane))]))
            source = source if signature.args[1].dtype.bitwidth == 64 else builder.sext(source, ir.IntType(64))
            # Compared without sign, a negative index is larger than any length.
            inside = builder.icmp_unsigned("<", source, args[3])
            element = builder.load(builder.gep(data, [builder.select(inside, source, zero)]))
            element = builder.select(inside, element, ir.Constant(element_type, 0))
            line = builder.insert_element(line, element, ir.Constant(ir.IntType(32), lane))
        return line

    return SimdVector(array.dtype)(array, indices, index, length), generate


@parallel
def strided_read(parts: int, out: Array, x: Array, stride: int, n: int) -> None:
    """Write out[i] = x[i·stride]."""
    lanes = lanes_of(out)
    head, lines = whole_lines(out, 0, n)
    for part in prange(parts):
        for line in range(lines * part // parts, lines * (part + 1) // parts):
            i = head + line * lanes
            stream(out, i, _load_strided(x, i * stride, stride))
        fence()
    for k in range(n - lines * lanes):
        i = outside(k, head, lines * lanes)
        out[i] = x[i * stride]


@parallel
def strided_write(parts: int, out: Array, x: Array, stride: int, n: int) -> None:
    """Write out[i·stride] = x[i]. No line is written whole, so each has to be read first."""
    for part in prange(parts):
        for i in range(n * part // parts, n * (part + 1) // parts):
            out[i * stride] = x[i]


@parallel
def misaligned(parts: int, out: Array, x: Array, offset: int, n: int) -> None:
    """Write out[i] = x[i + offset]."""
    each_line(parts, out, n, moved, (x, offset))


@parallel
def gather(parts: int, out: Array, x: Array, index: Array, length: int, n: int) -> None:
    """Write out[i] = x[index[i]]; 0 for an index outside 0 … length − 1."""
    lanes = lanes_of(out)
    head, lines = whole_lines(out, 0, n)
    if length == 0:
        lines = 0  # there is no element to load in place of those outside
    for part in prange(parts):
        for line in range(lines * part // parts, lines * (part + 1) // parts):
            i = head + line * lanes
            stream(out, i, _load_gathered(x, index, i, length))
        fence()
    for k in range(n - lines * lanes):
        i = outside(k, head, lines * lanes)
        source = index[i]
        out[i] = x[source] if 0 <= source < length else 0


@inlined
def copy_row(out: Array, out0: int, x: Array, x0: int, d: int) -> None:
    """Copy d elements past the caches, except those that fill no line."""
    fill(stream, out, out0, d, moved, (x, x0 - out0))


@parallel
def embedding(parts: int, out: Array, table: Array, index: Array, length: int, rows: int, cols: int) -> None:
    """Write out's rows table[index[row]]; zeros for an index outside 0 … length − 1."""
    for part in prange(parts):
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            source = index[row]
            if 0 <= source < length:
                copy_row(out, row * cols, table, source * cols, cols)
            else:
                out[row * cols : (row + 1) * cols] = 0
        fence()


@parallel
def transpose_naive(parts: int, out: Array, x: Array, rows: int, cols: int) -> None:
    """Write out[col·rows + row] = x[row·cols + col], along the rows of x."""
    for part in prange(parts):
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            for col in range(cols):
                out[col * rows + row] = x[row * cols + col]


@parallel
def transpose_tiled(parts: int, out: Array, x: Array, rows: int, cols: int) -> None:
    """Transpose by tiles that are a cache line wide and as high: every line is read and written whole."""
    side = lanes_of(out)
    bands, tiles = rows // side, cols // side
    streamable = address(out) % 64 == 0 and rows % side == 0
    for part in prange(parts):
        tile = scratch(side * side, out.dtype)
        for band in range(bands * part // parts, bands * (part + 1) // parts):
            row0 = band * side
            for t in range(tiles):
                col0 = t * side
                for r in range(side):
                    at = (row0 + r) * cols + col0
                    for c in range(side):
                        tile[c * side + r] = x[at + c]
                for c in range(side):
                    at = (col0 + c) * rows + row0
                    if streamable:
                        stream(out, at, load(tile, c * side))
                    else:
                        store(out, at, load(tile, c * side))
            for col in range(tiles * side, cols):
                for row in range(row0, row0 + side):
                    out[col * rows + row] = x[row * cols + col]
        fence()
    for row in range(bands * side, rows):
        for col in range(cols):
            out[col * rows + row] = x[row * cols + col]


@inlined
def transpose_batch_naive(parts: int, out: Array, x: Array, batch: int, rows: int, cols: int) -> None:
    """Transpose each of `batch` matrices."""
    size = rows * cols
    for at in range(0, batch * size, max(size, 1)):
        transpose_naive(parts, out[at : at + size], x[at : at + size], rows, cols)


@inlined
def transpose_batch_tiled(parts: int, out: Array, x: Array, batch: int, rows: int, cols: int) -> None:
    """Transpose each of `batch` matrices by tiles."""
    size = rows * cols
    for at in range(0, batch * size, max(size, 1)):
        transpose_tiled(parts, out[at : at + size], x[at : at + size], rows, cols)
