"""Declare access patterns, transposes and copies: the same useful bytes in different orders, and over links.

Of the copies, which the array library does, only the one within one memory runs on the host. The others need CuPy, the
last one two GPUs.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from pytest_bandwidth.domain.errors import NotOnThisDevice
from pytest_bandwidth.domain.traffic import bytes_per_element, tiles
from pytest_bandwidth.suite.operations.model import (
    FLOATS,
    SUFFIX,
    WIDE_SUFFIX,
    Arrays,
    Case,
    Operation,
    Sizes,
    case_of,
    centred,
    line,
    on_host,
    one_launch,
    shapes_by,
    sizes_of,
    tiled,
    vector_shapes,
)
from pytest_bandwidth.suite.traffic_models import formula_of

STRIDES = (2, 8, 32)
LENGTHS = (0, 1, 33, 1000)
EMBEDDED = (64, 128, 256)
# The rows that a thread of the wide embedding loads at a time; see cuda_src/access.cu.
ROWS_AHEAD, WARP = 4, 32


def _strided_case(side: str, arrays: Arrays, dtype: str, n: int, stride: int = 0) -> Case:
    """Read every stride-th element (a broadcast where it is 0), or write it: by the side, "read" or "write".

    The rest of `out` keeps its poison.
    """
    spread, packed, name = (n - 1) * stride + 1 if n else 0, n, f"strided_{side}" if stride else "broadcast"
    lengths = (spread, packed) if side == "read" else (packed, spread)
    source, out = centred(arrays, lengths[0], dtype), arrays.empty(lengths[1], dtype)
    moved = formula_of(name, "plain").at({"n": n}, dtype, None if stride else {})

    def reference(host: Any) -> Any:
        if side == "read":
            return host[np.arange(n) * stride]
        result = np.full(spread, np.nan)
        result[np.arange(n) * stride] = host
        return result

    # Bytes, not arrays: of one of the two only some are touched.
    touched: dict[str, Any] = {"reads": (moved.bytes_read,), "writes": (moved.bytes_written,)}
    kernel = f"strided_{side}_{SUFFIX[dtype]}"
    return one_launch("access.cu", kernel, line(n), {"out": out}, (source,), (stride, n), moved, reference, **touched)


def _strided(name: str, strides: tuple[int, ...]) -> Operation:
    make = partial(_strided_case, "write" if name == "strided_write" else "read")

    def shapes(target_bytes: int, dtype: str) -> tuple[Sizes, ...]:
        of_each = (target_bytes // (bytes_per_element(dtype) * (stride + 1)) for stride in strides)
        return sizes_of("n stride", *((max(n, 1), stride) for n, stride in zip(of_each, strides, strict=True)))

    small = sizes_of("n stride", *((n, stride) for n in LENGTHS for stride in (1, 2, 33)))
    if not strides:  # every element is the first one
        return Operation(name, "plain", FLOATS, make, shapes_by("n", bytes_per_element), sizes_of("n", *LENGTHS))
    return Operation(name, "plain", FLOATS, make, shapes, small)


def _misaligned() -> Operation:
    def make(arrays: Arrays, dtype: str, n: int, offset: int) -> Case:
        source, results = centred(arrays, n + offset, dtype), {"out": arrays.empty(n, dtype)}
        moved, name = formula_of("misaligned", "plain").at({"n": n}, dtype), f"misaligned_{SUFFIX[dtype]}"
        given, read = (line(n), results, (source,), (offset, n), moved), (moved.bytes_read,)  # some are not touched
        return one_launch("access.cu", name, *given, lambda host: host[offset:], reads=read)

    small = sizes_of("n offset", *((n, offset) for n in LENGTHS for offset in (0, 1, 31)))
    shapes = shapes_by("n", lambda dtype: 2 * bytes_per_element(dtype), offset=1)
    return Operation("misaligned", "plain", FLOATS, make, shapes, small)


def _gather(index_dtype: str) -> Operation:
    """Return every element once, in random order: a permutation, so that the distinct bytes are known."""
    formula, of_index = formula_of("gather", index_dtype), {"i": bytes_per_element(index_dtype)}

    def make(arrays: Arrays, dtype: str, n: int) -> Case:
        source, results = centred(arrays, n, dtype), {"out": arrays.empty(n, dtype)}
        index = arrays.xp.argsort(arrays.random(n, "uint32")).astype(index_dtype)
        name = f"gather_{SUFFIX[dtype]}_{'i32' if index_dtype == 'int32' else 'i64'}"
        moved = formula.at({"n": n, **of_index}, dtype)
        return one_launch(
            "access.cu", name, line(n), results, (source, index), (n, n), moved, lambda host, at: host[at]
        )

    shapes = shapes_by("n", lambda dtype: formula.at({"n": 1, **of_index}, dtype).bytes_moved)
    return Operation("gather", index_dtype, FLOATS, make, shapes, sizes_of("n", *LENGTHS))


def _embedding(version: str) -> Operation:
    """Return every row of the table once, in random order, as a gather does with elements."""
    formula = formula_of("embedding", version)

    def make(arrays: Arrays, dtype: str, rows: int, cols: int) -> Case:
        shape = (rows, cols)
        source, results = centred(arrays, shape, dtype), {"out": arrays.empty(shape, dtype)}
        index = arrays.xp.argsort(arrays.random(rows, "uint32")).astype("int32")
        name, geometry = f"embedding_{SUFFIX[dtype]}", line(rows * cols)
        if version == "wide":
            # As many lanes a row as it has 16 bytes, to the next power of two; a warp at most.
            lanes = min(1 << max(tiles(cols * bytes_per_element(dtype), 16) - 1, 0).bit_length(), WARP)
            together = 256 // lanes
            (grid, _), name = line(rows, together * ROWS_AHEAD), f"embedding_{WIDE_SUFFIX[dtype]}"
            geometry = grid, (lanes, together, 1)
        moved = formula.at({"rows": rows, "cols": cols}, dtype)
        given = (geometry, results, (source, index), (rows, *shape), moved)
        return one_launch("access.cu", name, *given, lambda host, at: host[at])

    def shapes(target_bytes: int, dtype: str) -> tuple[Sizes, ...]:
        # Rows of 128, 256 and 512 bytes in halves.
        of_each = (target_bytes // formula.at({"rows": 1, "cols": cols}, dtype).bytes_moved for cols in EMBEDDED)
        return sizes_of("rows cols", *((max(rows, 1), cols) for rows, cols in zip(of_each, EMBEDDED, strict=True)))

    small = sizes_of("rows cols", (0, 8), (3, 0), (1, 1), (5, 33), (300, 64), (33, 8), (7, 256), (3, 1032))
    return Operation("embedding", version, FLOATS, make, shapes, small)


def _transpose_tile(version: str, dtype: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the tile that a block passes (rows, columns), and the block."""
    side = 256 // bytes_per_element(dtype)
    return {"naive": ((8, 32), (32, 8)), "tiled": ((32, 32), (32, 8)), "wide": ((side, side), (16, 16))}[version]


def _transpose(version: str) -> Operation:
    def make(arrays: Arrays, dtype: str, rows: int, cols: int) -> Case:
        source, results = centred(arrays, (rows, cols), dtype), {"out": arrays.empty((cols, rows), dtype)}
        geometry = tiled(rows, cols, *_transpose_tile(version, dtype))
        name = f"transpose_{version}_{SUFFIX[dtype]}"
        moved = formula_of("transpose", version).at({"rows": rows, "cols": cols}, dtype)
        return one_launch("transpose.cu", name, geometry, results, (source,), (rows, cols), moved, lambda host: host.T)

    def shapes(target_bytes: int, dtype: str) -> tuple[Sizes, ...]:
        side = max(math.isqrt(target_bytes // (2 * bytes_per_element(dtype))) // 32, 1) * 32
        return ({"rows": side, "cols": side},)

    small = sizes_of("rows cols", (0, 5), (5, 0), (1, 1), (33, 31), (64, 96), (7, 100))
    if version == "wide":
        small += sizes_of("rows cols", (136, 72), (130, 136), (65, 129))
    return Operation("transpose", version, FLOATS, make, shapes, small)


def _layout(name: str, version: str) -> Operation:
    """Move the channels of images behind their pixels, or back: a transpose of each image."""

    def make(arrays: Arrays, dtype: str, batch: int, channels: int, pixels: int) -> Case:
        rows, cols = (channels, pixels) if name == "nchw_to_nhwc" else (pixels, channels)
        source = centred(arrays, (batch, rows, cols), dtype)
        results = {"out": arrays.empty((batch, cols, rows), dtype)}
        geometry = tiled(rows, cols, *_transpose_tile(version, dtype), layers=batch)
        kernel, sizes = f"transpose_batch_{version}_{SUFFIX[dtype]}", {"channels": channels, "pixels": pixels}
        moved = formula_of(name, version).at({"batch": batch, **sizes}, dtype)
        given = (geometry, results, (source,), (batch, rows, cols), moved)
        return one_launch("transpose.cu", kernel, *given, lambda host: host.swapaxes(1, 2))

    # Activations of 28×28 pixels, as in the middle of a ResNet.
    image = {"channels": 128, "pixels": 28 * 28}
    shapes = shapes_by("batch", lambda dtype: 2 * bytes_per_element(dtype) * math.prod(image.values()), **image)
    small = sizes_of("batch channels pixels", (0, 3, 4), (2, 0, 4), (1, 1, 1), (2, 3, 49), (3, 72, 136), (2, 130, 65))
    return Operation(name, version, FLOATS, make, shapes, small)


def _within() -> Operation:
    def make(arrays: Arrays, dtype: str, n: int) -> Case:
        source, out = centred(arrays, n, dtype), arrays.empty(n, dtype)
        xp = arrays.xp  # a variable for the closure, whose hash identifies the copy
        calls = (lambda: xp.copyto(out, source),)
        moved = formula_of("device_to_device", "library").at({"n": n}, dtype)
        return case_of(calls, moved, {"out": out}, (source,), lambda host: host)

    shapes = vector_shapes(lambda dtype: 2 * bytes_per_element(dtype))
    small, devices = sizes_of("n", 1, 1001), frozenset({"cuda", "cpu"})
    return Operation("device_to_device", "library", FLOATS, make, shapes, small, devices)


def _with_host(name: str, *, pinned: bool) -> Operation:
    """Copy from the host, or to it, and count the traffic of the device's memory only.

    pinned: locked in place, so that the device can copy it by itself.
    """

    def make(arrays: Arrays, dtype: str, n: int) -> Case:
        xp, moved = arrays.xp, formula_of(name, "pinned").at({"n": n}, dtype)
        source, size = centred(arrays, n, dtype), n * bytes_per_element(dtype)
        host = np.frombuffer(xp.cuda.alloc_pinned_memory(size), dtype, n) if pinned else np.empty(n, dtype)
        if name == "device_to_host":

            def copy_back() -> None:
                source.get(out=host, stream=xp.cuda.get_current_stream(), blocking=False)

            return case_of((copy_back,), moved, {"host": host}, (source,), lambda sent: sent)
        host[...], out = on_host(source), arrays.empty(n, dtype)

        def copy_over() -> None:
            out.set(host, stream=xp.cuda.get_current_stream())

        return case_of((copy_over,), moved, {"out": out}, (host,), lambda sent: sent)

    return _link(name, "pinned" if pinned else "pageable", make)


def _peer_to_peer() -> Operation:
    def make(arrays: Arrays, dtype: str, n: int) -> Case:
        xp, runtime = arrays.xp, arrays.xp.cuda.runtime
        source_device = xp.cuda.Device().id
        others = [d for d in range(runtime.getDeviceCount()) if d != source_device]
        if not others:
            raise NotOnThisDevice("a peer copy needs two GPUs, this machine shows one")
        source = centred(arrays, n, dtype)
        with xp.cuda.Device(others[0]):
            out = xp.empty(n, dtype)
            out.fill(np.nan)

        def call() -> None:
            stream = xp.cuda.get_current_stream()
            runtime.memcpyPeerAsync(out.data.ptr, others[0], source.data.ptr, source_device, source.nbytes, stream.ptr)

        moved = formula_of("peer_to_peer", "library").at({"n": n}, dtype)  # over the link, counted once
        return case_of((call,), moved, {"out": out}, (source,), lambda sent: sent)

    return _link("peer_to_peer", "library", make)


def _link(name: str, version: str, make: Any) -> Operation:
    shapes, devices = vector_shapes(bytes_per_element), frozenset({"cuda"})
    return Operation(name, version, FLOATS, make, shapes, sizes_of("n", 1, 1001), devices)


OPERATIONS: tuple[Operation, ...] = (
    _strided("strided_read", STRIDES),
    _strided("strided_write", STRIDES),
    _misaligned(),
    _strided("broadcast", ()),
    _gather("int32"),
    _gather("int64"),
    _embedding("wide"),
    _embedding("plain"),
    _transpose("wide"),
    _transpose("naive"),
    _transpose("tiled"),
    *(_layout(name, version) for name in ("nchw_to_nhwc", "nhwc_to_nchw") for version in ("wide", "naive")),
)
COPIES: tuple[Operation, ...] = (
    _within(),
    *(_with_host(way, pinned=pinned) for way in ("host_to_device", "device_to_host") for pinned in (True, False)),
    _peer_to_peer(),
)
