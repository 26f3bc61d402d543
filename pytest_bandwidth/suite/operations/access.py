"""Declare access patterns and transposes: the same useful bytes in different orders."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pytest_bandwidth.domain.traffic import bytes_per_element
from pytest_bandwidth.suite import traffic_models as traffic
from pytest_bandwidth.suite.operations.model import (
    SUFFIX,
    Arrays,
    Case,
    KernelStep,
    Operation,
    Sizes,
    centred,
    line,
    n64,
    on_host,
    tiled,
)

FLOATS = ("float32", "float16")
STRIDES = (2, 8, 32)
LENGTHS = (0, 1, 33, 1000)


def _strided_prepare(side: str, arrays: Arrays, dtype: str, n: int, stride: int) -> Case:
    """Read every stride-th element (strided_read), or write it (strided_write).

    The rest of `out` keeps its poison.
    """
    spread, packed = (n - 1) * stride + 1 if n else 0, n
    lengths = (spread, packed) if side == "read" else (packed, spread)
    source, out = centred(arrays, lengths[0], dtype), arrays.empty(lengths[1], dtype)
    moved = traffic.broadcast(n, dtype) if stride == 0 else traffic.strided(n, dtype)
    args = (out, source, n64(stride), n64(n))
    name = f"strided_{side}_{SUFFIX[dtype]}"
    # Bytes, not arrays: of one of the two only some are touched.
    step = KernelStep("access.cu", name, *line(n), args, (moved.bytes_read,), (moved.bytes_written,))

    def expected() -> dict[str, Any]:
        host = on_host(source)
        if side == "read":
            return {"out": host[np.arange(n) * stride]}
        result = np.full(spread, np.nan)
        result[np.arange(n) * stride] = host
        return {"out": result}

    return Case((step,), moved, {"out": out}, expected)


def _strided(side: str) -> Operation:
    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        return _strided_prepare(side, arrays, dtype, sizes["n"], sizes["stride"])

    def shapes(target_bytes: int, dtype: str) -> tuple[Sizes, ...]:
        per_element = bytes_per_element(dtype)
        return tuple(
            {"n": max(target_bytes // (per_element * (stride + 1)), 1), "stride": stride} for stride in STRIDES
        )

    small = tuple({"n": n, "stride": stride} for n in LENGTHS for stride in (1, 2, 33))
    return Operation(f"strided_{side}", "plain", FLOATS, prepare, shapes, small)


def _broadcast() -> Operation:
    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        return _strided_prepare("read", arrays, dtype, sizes["n"], 0)

    def shapes(target_bytes: int, dtype: str) -> tuple[Sizes, ...]:
        return ({"n": max(target_bytes // bytes_per_element(dtype), 1)},)

    return Operation("broadcast", "plain", FLOATS, prepare, shapes, tuple({"n": n} for n in LENGTHS))


def _misaligned() -> Operation:
    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        n, offset = sizes["n"], sizes["offset"]
        source, out = centred(arrays, n + offset, dtype), arrays.empty(n, dtype)
        moved = traffic.misaligned(n, dtype)
        name = f"misaligned_{SUFFIX[dtype]}"
        args = (out, source, n64(offset), n64(n))
        step = KernelStep("access.cu", name, *line(n), args, (moved.bytes_read,), (out,))
        return Case((step,), moved, {"out": out}, lambda: {"out": on_host(source)[offset:]})

    def shapes(target_bytes: int, dtype: str) -> tuple[Sizes, ...]:
        return ({"n": max(target_bytes // (2 * bytes_per_element(dtype)), 1), "offset": 1},)

    small = tuple({"n": n, "offset": offset} for n in LENGTHS for offset in (0, 1, 31))
    return Operation("misaligned", "plain", FLOATS, prepare, shapes, small)


def _gather(index_dtype: str) -> Operation:
    """Return every element once, in random order: a permutation, so that the distinct bytes are known."""

    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        n = sizes["n"]
        source, out = centred(arrays, n, dtype), arrays.empty(n, dtype)
        index = arrays.xp.argsort(arrays.random(n, "uint32")).astype(index_dtype)
        moved = traffic.gather(n, dtype, index_dtype)
        name = f"gather_{SUFFIX[dtype]}_{'i32' if index_dtype == 'int32' else 'i64'}"
        args = (out, source, index, n64(n), n64(n))
        step = KernelStep("access.cu", name, *line(n), args, (source, index), (out,))
        return Case((step,), moved, {"out": out}, lambda: {"out": on_host(source)[on_host(index)]})

    def shapes(target_bytes: int, dtype: str) -> tuple[Sizes, ...]:
        return ({"n": max(target_bytes // traffic.gather(1, dtype, index_dtype).bytes_moved, 1)},)

    return Operation("gather", index_dtype, FLOATS, prepare, shapes, tuple({"n": n} for n in LENGTHS))


def _transpose(version: str) -> Operation:
    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        rows, cols = sizes["rows"], sizes["cols"]
        source, out = centred(arrays, (rows, cols), dtype), arrays.empty((cols, rows), dtype)
        moved = traffic.transpose(rows, cols, dtype)
        grid, block = tiled(rows, cols, (8 if version == "naive" else 32, 32), (32, 8))
        name = f"transpose_{version}_{SUFFIX[dtype]}"
        step = KernelStep("transpose.cu", name, grid, block, (out, source, n64(rows), n64(cols)), (source,), (out,))
        return Case((step,), moved, {"out": out}, lambda: {"out": on_host(source).T})

    def shapes(target_bytes: int, dtype: str) -> tuple[Sizes, ...]:
        side = max(math.isqrt(target_bytes // (2 * bytes_per_element(dtype))) // 32, 1) * 32
        return ({"rows": side, "cols": side},)

    small = tuple({"rows": rows, "cols": cols} for rows, cols in ((0, 5), (5, 0), (1, 1), (33, 31), (64, 96), (7, 100)))
    return Operation("transpose", version, FLOATS, prepare, shapes, small)


OPERATIONS: tuple[Operation, ...] = (
    _strided("read"),
    _strided("write"),
    _misaligned(),
    _broadcast(),
    _gather("int32"),
    _gather("int64"),
    _transpose("naive"),
    _transpose("tiled"),
)
