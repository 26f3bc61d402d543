"""Do on the host what cuda_src/stream.cu and reductions.cu do: every array moves once, none is read to be overwritten.

What probes do as well is in `devices.cpu.streams`, which says how the work is shared out.
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
from pytest_bandwidth.devices.cpu.streams import add, copy, read, sum_of, write

__all__ = ["add", "copy", "dot", "read", "scale", "sum_all", "triad", "write"]
Array = Any


@parallel
def scale(parts: int, out: Array, x: Array, scalar: Any, n: int) -> None:
    """Write out[i] = scalar · x[i]."""
    lanes = lanes_of(out)
    head, lines = whole_lines(out, 0, n)
    for part in prange(parts):
        factor = spread(scalar)
        for line in range(lines * part // parts, lines * (part + 1) // parts):
            i = head + line * lanes
            stream(out, i, factor * load(x, i))
        fence()
    for k in range(n - lines * lanes):
        i = outside(k, head, lines * lanes)
        put(out, i, scalar * get(x, i))


@parallel
def triad(parts: int, out: Array, x: Array, y: Array, scalar: Any, n: int) -> None:
    """Write out[i] = x[i] + scalar · y[i]."""
    lanes = lanes_of(out)
    head, lines = whole_lines(out, 0, n)
    for part in prange(parts):
        factor = spread(scalar)
        for line in range(lines * part // parts, lines * (part + 1) // parts):
            i = head + line * lanes
            stream(out, i, load(x, i) + factor * load(y, i))
        fence()
    for k in range(n - lines * lanes):
        i = outside(k, head, lines * lanes)
        put(out, i, get(x, i) + scalar * get(y, i))


@inlined
def dot_of(x: Array, y: Array, start: int, stop: int, zero: Any) -> Any:
    """Return Σ x[i] · y[i] from start up to stop."""
    lanes = lanes_of(x)
    s0, s1, s2, s3 = spread(zero), spread(zero), spread(zero), spread(zero)
    i = start
    while i + 4 * lanes <= stop:
        s0 = s0 + load(x, i) * load(y, i)
        s1 = s1 + load(x, i + lanes) * load(y, i + lanes)
        s2 = s2 + load(x, i + 2 * lanes) * load(y, i + 2 * lanes)
        s3 = s3 + load(x, i + 3 * lanes) * load(y, i + 3 * lanes)
        i += 4 * lanes
    result = total((s0 + s1) + (s2 + s3))
    while i < stop:
        result += get(x, i) * get(y, i)
        i += 1
    return result


@parallel
def sum_all(parts: int, partials: Array, x: Array, blocks: int, n: int) -> None:
    """Leave partial sums in partials[:blocks] that add up to Σ x[i]."""
    partial = np.zeros(parts, partials.dtype)
    for part in prange(parts):
        partial[part] = sum_of(x, n * part // parts, n * (part + 1) // parts, partials.dtype.type(0))
    hand_out(partials, partial, blocks)


@parallel
def dot(parts: int, partials: Array, x: Array, y: Array, blocks: int, n: int) -> None:
    """Leave partial sums in partials[:blocks] that add up to Σ x[i] · y[i]."""
    partial = np.zeros(parts, partials.dtype)
    for part in prange(parts):
        partial[part] = dot_of(x, y, n * part // parts, n * (part + 1) // parts, partials.dtype.type(0))
    hand_out(partials, partial, blocks)


@inlined
def hand_out(partials: Array, partial: Array, blocks: int) -> None:
    """Spread the threads' sums over as many places as the CUDA kernel has blocks, be they fewer or more."""
    partials[:blocks] = 0
    for part in range(partial.size if blocks else 0):
        partials[part * blocks // partial.size] += partial[part]
