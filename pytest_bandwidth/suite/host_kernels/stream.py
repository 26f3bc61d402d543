"""Do on the host what cuda_src/stream.cu, reductions.cu, pointwise.cu and intensity.cu do, on n elements in a row.

Every array moves once, none is read to be overwritten. What probes do as well is in `devices.cpu.streams`, which says
how the work is shared out. Halves are computed in float32 and rounded once at the end, in the intensity sweep too,
where the CUDA kernel computes in half precision: a processor of today has no faster half arithmetic to show.
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
from pytest_bandwidth.suite.host_kernels.simd_math import (
    cosine,
    exponential,
    like,
    uniform,
    uniform_of_four,
    where_above,
)

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


# ---- pointwise chains and the intensity sweep ------------------------------------------------------------------------


@inlined
def _rectified(x: Any) -> Any:
    return where_above(x, like(x, 0.0), x, like(x, 0.0))


@inlined
def _dropped_out(x: Any, probability: Any, number: Any) -> Any:
    """Return x ÷ (1 − probability), or 0 with that probability, as the number in [0, 1) will have it."""
    kept = x / like(x, 1.0 - probability)
    # Kept where the number is at least the probability; it is never NaN, so "not above" says so.
    return where_above(like(x, probability), number, like(x, 0.0), kept)


@parallel
def bias(parts: int, out: Array, x: Array, bias: Any, n: int) -> None:
    """Write out[i] = x[i] + bias."""
    lanes = lanes_of(out)
    head, lines = whole_lines(out, 0, n)
    for part in prange(parts):
        added = spread(bias)
        for line in range(lines * part // parts, lines * (part + 1) // parts):
            i = head + line * lanes
            stream(out, i, load(x, i) + added)
        fence()
    for k in range(n - lines * lanes):
        i = outside(k, head, lines * lanes)
        put(out, i, get(x, i) + bias)


@parallel
def relu(parts: int, out: Array, x: Array, n: int) -> None:
    """Write out[i] = x[i] where that is positive, else 0."""
    lanes = lanes_of(out)
    head, lines = whole_lines(out, 0, n)
    for part in prange(parts):
        for line in range(lines * part // parts, lines * (part + 1) // parts):
            i = head + line * lanes
            stream(out, i, _rectified(load(x, i)))
        fence()
    for k in range(n - lines * lanes):
        i = outside(k, head, lines * lanes)
        put(out, i, _rectified(get(x, i)))


@parallel
def dropout(parts: int, out: Array, x: Array, probability: Any, seed: Any, n: int) -> None:
    """Write out[i] = x[i] ÷ (1 − probability), or 0 with that probability."""
    lanes = lanes_of(out)
    head, lines = whole_lines(out, 0, n)
    for part in prange(parts):
        for line in range(lines * part // parts, lines * (part + 1) // parts):
            i = head + line * lanes
            values = load(x, i)
            stream(out, i, _dropped_out(values, probability, uniform(values, seed, i)))
        fence()
    for k in range(n - lines * lanes):
        i = outside(k, head, lines * lanes)
        one = get(x, i)
        put(out, i, _dropped_out(one, probability, uniform(one, seed, i)))


@parallel
def bias_relu_dropout(parts: int, out: Array, x: Array, bias: Any, probability: Any, seed: Any, n: int) -> None:
    """Do the three above in one pass."""
    lanes = lanes_of(out)
    head, lines = whole_lines(out, 0, n)
    for part in prange(parts):
        added = spread(bias)
        for line in range(lines * part // parts, lines * (part + 1) // parts):
            i = head + line * lanes
            kept = _rectified(load(x, i) + added)
            stream(out, i, _dropped_out(kept, probability, uniform(kept, seed, i)))
        fence()
    for k in range(n - lines * lanes):
        i = outside(k, head, lines * lanes)
        one = _rectified(get(x, i) + bias)
        put(out, i, _dropped_out(one, probability, uniform(one, seed, i)))


@parallel
def bias_relu_dropout_of_four(parts: int, out: Array, x: Array, bias: Any, probability: Any, seed: Any, n: int) -> None:
    """Do the same with one hash for four neighbours."""
    lanes = lanes_of(out)
    head, lines = whole_lines(out, 0, n)
    for part in prange(parts):
        added = spread(bias)
        for line in range(lines * part // parts, lines * (part + 1) // parts):
            i = head + line * lanes
            kept = _rectified(load(x, i) + added)
            stream(out, i, _dropped_out(kept, probability, uniform_of_four(kept, seed, i)))
        fence()
    for k in range(n - lines * lanes):
        i = outside(k, head, lines * lanes)
        one = _rectified(get(x, i) + bias)
        put(out, i, _dropped_out(one, probability, uniform_of_four(one, seed, i)))


@inlined
def _gated(gate: Any, up: Any) -> Any:
    return gate / (like(gate, 1.0) + exponential(like(gate, 0.0) - gate)) * up


@parallel
def swiglu(parts: int, out: Array, gate: Array, up: Array, n: int) -> None:
    """Write out[i] = gate[i] ÷ (1 + exp(−gate[i])) · up[i]."""
    lanes = lanes_of(out)
    head, lines = whole_lines(out, 0, n)
    for part in prange(parts):
        for line in range(lines * part // parts, lines * (part + 1) // parts):
            i = head + line * lanes
            stream(out, i, _gated(load(gate, i), load(up, i)))
        fence()
    for k in range(n - lines * lanes):
        i = outside(k, head, lines * lanes)
        put(out, i, _gated(get(gate, i), get(up, i)))


@parallel
def cos(parts: int, out: Array, x: Array, n: int) -> None:
    """Write out[i] = cos x[i]."""
    lanes = lanes_of(out)
    head, lines = whole_lines(out, 0, n)
    for part in prange(parts):
        for line in range(lines * part // parts, lines * (part + 1) // parts):
            i = head + line * lanes
            stream(out, i, cosine(load(x, i)))
        fence()
    for k in range(n - lines * lanes):
        i = outside(k, head, lines * lanes)
        put(out, i, cosine(get(x, i)))


@parallel
def cos_cos(parts: int, out: Array, x: Array, n: int) -> None:
    """Write out[i] = cos cos x[i]."""
    lanes = lanes_of(out)
    head, lines = whole_lines(out, 0, n)
    for part in prange(parts):
        for line in range(lines * part // parts, lines * (part + 1) // parts):
            i = head + line * lanes
            stream(out, i, cosine(cosine(load(x, i))))
        fence()
    for k in range(n - lines * lanes):
        i = outside(k, head, lines * lanes)
        put(out, i, cosine(cosine(get(x, i))))


@parallel
def intensity_fma(parts: int, out: Array, x: Array, factor: Any, addend: Any, repeats: int, n: int) -> None:
    """Write out[i] = x[i] after `repeats` times x·factor + addend."""
    lanes = lanes_of(out)
    head, lines = whole_lines(out, 0, n)
    fours = lines // 4
    for part in prange(parts):
        f, a = spread(factor), spread(addend)
        for four in range(fours * part // parts, fours * (part + 1) // parts):
            i = head + four * 4 * lanes
            # Four chains at once: each step of one waits for the step before, and others fill that time.
            x0, x1, x2, x3 = load(x, i), load(x, i + lanes), load(x, i + 2 * lanes), load(x, i + 3 * lanes)
            for _ in range(repeats):
                x0, x1, x2, x3 = x0 * f + a, x1 * f + a, x2 * f + a, x3 * f + a
            stream(out, i, x0)
            stream(out, i + lanes, x1)
            stream(out, i + 2 * lanes, x2)
            stream(out, i + 3 * lanes, x3)
        fence()
    for k in range(n - fours * 4 * lanes):
        i = outside(k, head, fours * 4 * lanes)
        one = get(x, i)
        for _ in range(repeats):
            one = one * factor + addend
        put(out, i, one)


@parallel
def intensity_add(parts: int, out: Array, x: Array, addend: Any, repeats: int, n: int) -> None:
    """Write out[i] = x[i] after `repeats` times x + addend."""
    lanes = lanes_of(out)
    head, lines = whole_lines(out, 0, n)
    fours = lines // 4
    for part in prange(parts):
        a = spread(addend)
        for four in range(fours * part // parts, fours * (part + 1) // parts):
            i = head + four * 4 * lanes
            x0, x1, x2, x3 = load(x, i), load(x, i + lanes), load(x, i + 2 * lanes), load(x, i + 3 * lanes)
            for _ in range(repeats):
                x0, x1, x2, x3 = x0 + a, x1 + a, x2 + a, x3 + a
            stream(out, i, x0)
            stream(out, i + lanes, x1)
            stream(out, i + 2 * lanes, x2)
            stream(out, i + 3 * lanes, x3)
        fence()
    for k in range(n - fours * 4 * lanes):
        i = outside(k, head, fours * 4 * lanes)
        one = get(x, i)
        for _ in range(repeats):
            one = one + addend
        put(out, i, one)
