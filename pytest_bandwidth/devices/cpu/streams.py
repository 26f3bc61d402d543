"""Read, write, copy and add on the host, as cuda_src/stream.cu does: the probes, and twins of those kernels.

All arrays are 1-d. Each of `parts` threads has one contiguous part of the output's whole 64-byte lines; the elements
before the first line and after the last are done one by one. `parts` is an argument because a function that asks Numba
for the number of threads cannot be cached on disk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from pytest_bandwidth.devices.cpu.simd import (
    fence,
    get,
    inlined,
    lanes_of,
    load,
    outside,
    parallel,
    put,
    spread,
    stream,
    total,
    whole_lines,
)

Array = Any


@parallel
def write(parts: int, out: Array, value: Any, n: int) -> None:
    """Write out[i] = value."""
    lanes = lanes_of(out)
    head, lines = whole_lines(out, 0, n)
    for part in prange(parts):
        filled = spread(value)
        for line in range(lines * part // parts, lines * (part + 1) // parts):
            stream(out, head + line * lanes, filled)
        fence()
    for k in range(n - lines * lanes):
        put(out, outside(k, head, lines * lanes), value)


@parallel
def copy(parts: int, out: Array, x: Array, n: int) -> None:
    """Write out[i] = x[i]."""
    lanes = lanes_of(out)
    head, lines = whole_lines(out, 0, n)
    for part in prange(parts):
        for line in range(lines * part // parts, lines * (part + 1) // parts):
            i = head + line * lanes
            stream(out, i, load(x, i))
        fence()
    for k in range(n - lines * lanes):
        i = outside(k, head, lines * lanes)
        put(out, i, get(x, i))


@parallel
def add(parts: int, out: Array, x: Array, y: Array, n: int) -> None:
    """Write out[i] = x[i] + y[i]."""
    lanes = lanes_of(out)
    head, lines = whole_lines(out, 0, n)
    for part in prange(parts):
        for line in range(lines * part // parts, lines * (part + 1) // parts):
            i = head + line * lanes
            stream(out, i, load(x, i) + load(y, i))
        fence()
    for k in range(n - lines * lanes):
        i = outside(k, head, lines * lanes)
        put(out, i, get(x, i) + get(y, i))


@inlined
def sum_of(x: Array, start: int, stop: int, zero: Any) -> Any:
    """Return Σ x[i] from start up to stop."""
    lanes = lanes_of(x)
    # Four sums at once: a single one would wait for its own last addition instead of for memory.
    s0, s1, s2, s3 = spread(zero), spread(zero), spread(zero), spread(zero)
    i = start
    while i + 4 * lanes <= stop:
        s0 = s0 + load(x, i)
        s1 = s1 + load(x, i + lanes)
        s2 = s2 + load(x, i + 2 * lanes)
        s3 = s3 + load(x, i + 3 * lanes)
        i += 4 * lanes
    result = total((s0 + s1) + (s2 + s3))
    while i < stop:
        result += get(x, i)
        i += 1
    return result


@parallel
def read(parts: int, sink: Array, x: Array, never: Any, n: int) -> None:
    """Read every element; store the sum to sink[0] only if it equals `never`. NaN equals nothing."""
    partial = np.zeros(parts, sink.dtype)
    for part in prange(parts):
        partial[part] = sum_of(x, n * part // parts, n * (part + 1) // parts, sink.dtype.type(0))
    result = partial.sum()
    if result == never:
        sink[0] = result
