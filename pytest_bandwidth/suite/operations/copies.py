"""Declare copies by the array library: within a memory, between host and device, and between two devices.

Only the copy within one memory runs on the host. The others need CuPy, the last one two GPUs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pytest_bandwidth.domain.errors import NotOnThisDevice
from pytest_bandwidth.domain.traffic import bytes_per_element
from pytest_bandwidth.suite import traffic_models as traffic
from pytest_bandwidth.suite.operations.model import (
    Arrays,
    CallStep,
    Case,
    Operation,
    Sizes,
    centred,
    on_host,
    vector_shapes,
)

SMALL: tuple[Sizes, ...] = tuple({"n": n} for n in (1, 1001))
DTYPES = ("float32", "float16")
CUDA_ONLY: frozenset[str] = frozenset({"cuda"})


def _within() -> Operation:
    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        source, out = centred(arrays, sizes["n"], dtype), arrays.empty(sizes["n"], dtype)
        xp = arrays.xp  # by itself: it tells what the copy does
        step = CallStep(lambda: xp.copyto(out, source), (source,), (out,))
        moved = traffic.device_to_device(sizes["n"], dtype)
        return Case((step,), moved, {"out": out}, lambda: {"out": on_host(source)})

    shapes = vector_shapes(lambda dtype: 2 * bytes_per_element(dtype))
    return Operation("device_to_device", "library", DTYPES, prepare, shapes, SMALL, frozenset({"cuda", "cpu"}))


def _host_array(xp: Any, n: int, dtype: str, *, pinned: bool) -> Any:
    """Return n elements of host memory; pinned: locked in place, so that the device can copy it by itself."""
    if not pinned:
        return np.empty(n, dtype)
    memory = xp.cuda.alloc_pinned_memory(n * np.dtype(dtype).itemsize)
    return np.frombuffer(memory, dtype, n)


def _host_to_device(*, pinned: bool) -> Operation:
    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        n, xp = sizes["n"], arrays.xp
        host, out = _host_array(xp, n, dtype, pinned=pinned), arrays.empty(n, dtype)
        host[...] = on_host(centred(arrays, n, dtype))

        def call() -> None:
            out.set(host, stream=xp.cuda.get_current_stream())

        moved = traffic.host_to_device(n, dtype)
        return Case((CallStep(call, (), (out,)),), moved, {"out": out}, lambda: {"out": host})

    return _link("host_to_device", "pinned" if pinned else "pageable", prepare)


def _device_to_host(*, pinned: bool) -> Operation:
    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        n, xp = sizes["n"], arrays.xp
        source, host = centred(arrays, n, dtype), _host_array(xp, n, dtype, pinned=pinned)

        def call() -> None:
            source.get(out=host, stream=xp.cuda.get_current_stream(), blocking=False)

        moved = traffic.device_to_host(n, dtype)
        return Case((CallStep(call, (source,), ()),), moved, {"host": host}, lambda: {"host": on_host(source)})

    return _link("device_to_host", "pinned" if pinned else "pageable", prepare)


def _peer_to_peer() -> Operation:
    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        n, xp = sizes["n"], arrays.xp
        runtime = xp.cuda.runtime
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

        moved = traffic.peer_to_peer(n, dtype)
        return Case((CallStep(call, (source,), ()),), moved, {"out": out}, lambda: {"out": on_host(source)})

    return _link("peer_to_peer", "library", prepare)


def _link(name: str, version: str, prepare: Any) -> Operation:
    shapes = vector_shapes(bytes_per_element)
    return Operation(name, version, DTYPES, prepare, shapes, SMALL, CUDA_ONLY)


OPERATIONS: tuple[Operation, ...] = (
    _within(),
    *(_host_to_device(pinned=pinned) for pinned in (True, False)),
    *(_device_to_host(pinned=pinned) for pinned in (True, False)),
    _peer_to_peer(),
)
