"""Provide the host twins of cuda_src/stream.cu, reductions.cu, pointwise.cu and intensity.cu, on n elements in a row.

Every array moves once; outputs are not read first. The code that probes use as well is in `devices.cpu.simd`, which
describes the division of the work. Halves are computed in float32 and rounded once at the end, also in the intensity
sweep, where the CUDA kernel computes in half precision: a processor of today has no faster half arithmetic to show.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from pytest_bandwidth.devices.cpu.simd import (
    add,
    copy,
    fence,
    get,
    inlined,
    lanes_of,
    load,
    outside,
    parallel,
    put,
    read,
    spread,
    stream,
    sum_of,
    total,
    whole_lines,
    write,
)
from pytest_bandwidth.suite.host_kernels.simd_math import (
    cosine,
    exponential,
    in_place,
    like,
    uniform,
    uniform_of_four,
    where_above,
)

__all__ = ["add", "copy", "dot", "read", "scale", "sum_all", "triad", "write"]
Array = Any


@in_place
def each_line(parts: int, out: Array, n: int, formula: Any, given: Any) -> None:
    """Write out[i] = formula(take, i, given). `take` gets a line of an array, and at the ends a single element."""
    lanes = lanes_of(out)
    head, lines = whole_lines(out, 0, n)
    for part in prange(parts):
        for line in range(lines * part // parts, lines * (part + 1) // parts):
            i = head + line * lanes
            stream(out, i, formula(load, i, given))
        fence()
    for k in range(n - lines * lanes):
        i = outside(k, head, lines * lanes)
        put(out, i, formula(get, i, given))


@in_place
def fill(keep: Any, out: Array, start: int, n: int, formula: Any, given: Any) -> None:
    """Write out[i] = formula(take, i, given) for n elements from `start` on. keep: `stream`, or `store` into caches."""
    lanes = lanes_of(out)
    head, lines = whole_lines(out, start, n)
    for line in range(lines):
        i = start + head + line * lanes
        keep(out, i, formula(load, i, given))
    for k in range(n - lines * lanes):
        i = start + outside(k, head, lines * lanes)
        put(out, i, formula(get, i, given))


@in_place
def fold(x: Array, start: int, stop: int, first: Any, join: Any, across: Any, formula: Any, given: Any) -> Any:
    """Join formula(take, i, given) from start up to stop with `first`. across: joins the lanes of a line.

    x: has as many elements a line as the formula gives. Two lines at once: a single one would wait for its own last
    step instead of for memory.
    """
    lanes = lanes_of(x)
    f0, f1 = spread(first), spread(first)
    i = start
    while i + 2 * lanes <= stop:
        f0 = join(formula(load, i, given), f0)
        f1 = join(formula(load, i + lanes, given), f1)
        i += 2 * lanes
    found = across(join(f0, f1))
    while i < stop:
        found = join(formula(get, i, given), found)
        i += 1
    return found


@in_place
def plus(x: Any, y: Any) -> Any:
    """Join by addition."""
    return x + y


@in_place
def moved(take: Any, i: int, given: Any) -> Any:
    """Return x[i + by]."""
    x, by = given
    return take(x, i + by)


@in_place
def summed(take: Any, i: int, given: Any) -> Any:
    """Return x[i] + y[i]."""
    x, y = given
    return take(x, i) + take(y, i)


@in_place
def scaled(take: Any, i: int, given: Any) -> Any:
    """Return factor · x[i + by]."""
    x, by, factor = given
    return like(take(x, i + by), factor) * take(x, i + by)


@parallel
def scale(parts: int, out: Array, x: Array, scalar: Any, n: int) -> None:
    """Write out[i] = scalar · x[i]."""
    each_line(parts, out, n, scaled, (x, 0, scalar))


@in_place
def _triad(take: Any, i: int, given: Any) -> Any:
    x, y, scalar = given
    return take(x, i) + like(take(y, i), scalar) * take(y, i)


@parallel
def triad(parts: int, out: Array, x: Array, y: Array, scalar: Any, n: int) -> None:
    """Write out[i] = x[i] + scalar · y[i]."""
    each_line(parts, out, n, _triad, (x, y, scalar))


@in_place
def _times(take: Any, i: int, given: Any) -> Any:
    x, x0, y, y0 = given
    return take(x, x0 + i) * take(y, y0 + i)


@inlined
def dot_of(x: Array, x0: int, y: Array, y0: int, n: int, zero: Any) -> Any:
    """Return Σ x[x0 + i] · y[y0 + i] for i < n."""
    return fold(x, 0, n, zero, plus, total, _times, (x, x0, y, y0))


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
        begin, end = n * part // parts, n * (part + 1) // parts
        partial[part] = dot_of(x, begin, y, begin, end - begin, partials.dtype.type(0))
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
    """Return x ÷ (1 − probability), or 0 with that probability, by the number in [0, 1)."""
    kept = x / like(x, 1.0 - probability)
    # x is kept where the number is at least the probability. The number is never NaN, so "not above" is the same.
    return where_above(like(x, probability), number, like(x, 0.0), kept)


@in_place
def _biased(take: Any, i: int, given: Any) -> Any:
    x, bias = given
    return take(x, i) + like(take(x, i), bias)


@parallel
def bias(parts: int, out: Array, x: Array, bias: Any, n: int) -> None:
    """Write out[i] = x[i] + bias."""
    each_line(parts, out, n, _biased, (x, bias))


@in_place
def _relu(take: Any, i: int, x: Array) -> Any:
    return _rectified(take(x, i))


@parallel
def relu(parts: int, out: Array, x: Array, n: int) -> None:
    """Write out[i] = x[i] where that is positive, else 0."""
    each_line(parts, out, n, _relu, x)


@in_place
def _dropout(take: Any, i: int, given: Any) -> Any:
    x, probability, seed = given
    return _dropped_out(take(x, i), probability, uniform(take(x, i), seed, i))


@parallel
def dropout(parts: int, out: Array, x: Array, probability: Any, seed: Any, n: int) -> None:
    """Write out[i] = x[i] ÷ (1 − probability), or 0 with that probability."""
    each_line(parts, out, n, _dropout, (x, probability, seed))


@in_place
def _chain(take: Any, i: int, given: Any) -> Any:
    x, bias, probability, seed = given
    kept = _rectified(take(x, i) + like(take(x, i), bias))
    return _dropped_out(kept, probability, uniform(kept, seed, i))


@parallel
def bias_relu_dropout(parts: int, out: Array, x: Array, bias: Any, probability: Any, seed: Any, n: int) -> None:
    """Do the three above in one pass."""
    each_line(parts, out, n, _chain, (x, bias, probability, seed))


@in_place
def _chain_of_four(take: Any, i: int, given: Any) -> Any:
    x, bias, probability, seed = given
    kept = _rectified(take(x, i) + like(take(x, i), bias))
    return _dropped_out(kept, probability, uniform_of_four(kept, seed, i))


@parallel
def bias_relu_dropout_of_four(parts: int, out: Array, x: Array, bias: Any, probability: Any, seed: Any, n: int) -> None:
    """Do the same with one hash for four neighbours."""
    each_line(parts, out, n, _chain_of_four, (x, bias, probability, seed))


@in_place
def _gated(take: Any, i: int, given: Any) -> Any:
    gate, up = take(given[0], i), take(given[1], i)
    return gate / (like(gate, 1.0) + exponential(like(gate, 0.0) - gate)) * up


@parallel
def swiglu(parts: int, out: Array, gate: Array, up: Array, n: int) -> None:
    """Write out[i] = gate[i] ÷ (1 + exp(−gate[i])) · up[i]."""
    each_line(parts, out, n, _gated, (gate, up))


@in_place
def _cos(take: Any, i: int, x: Array) -> Any:
    return cosine(take(x, i))


@parallel
def cos(parts: int, out: Array, x: Array, n: int) -> None:
    """Write out[i] = cos x[i]."""
    each_line(parts, out, n, _cos, x)


@in_place
def _cos_cos(take: Any, i: int, x: Array) -> Any:
    return cosine(cosine(take(x, i)))


@parallel
def cos_cos(parts: int, out: Array, x: Array, n: int) -> None:
    """Write out[i] = cos cos x[i]."""
    each_line(parts, out, n, _cos_cos, x)


@in_place
def _sweep(parts: int, out: Array, x: Array, repeats: int, n: int, step: Any, given: Any) -> None:
    """Write out[i] = x[i] after `repeats` steps."""
    lanes = lanes_of(out)
    head, lines = whole_lines(out, 0, n)
    fours = lines // 4
    for part in prange(parts):
        for four in range(fours * part // parts, fours * (part + 1) // parts):
            i = head + four * 4 * lanes
            # Four chains at once: each step of one waits for the step before, and others fill that time.
            x0, x1, x2, x3 = load(x, i), load(x, i + lanes), load(x, i + 2 * lanes), load(x, i + 3 * lanes)
            for _ in range(repeats):
                x0, x1, x2, x3 = step(x0, given), step(x1, given), step(x2, given), step(x3, given)
            stream(out, i, x0)
            stream(out, i + lanes, x1)
            stream(out, i + 2 * lanes, x2)
            stream(out, i + 3 * lanes, x3)
        fence()
    for k in range(n - fours * 4 * lanes):
        i = outside(k, head, fours * 4 * lanes)
        one = get(x, i)
        for _ in range(repeats):
            one = step(one, given)
        put(out, i, one)


@in_place
def _multiplied_and_added(x: Any, given: Any) -> Any:
    return x * like(x, given[0]) + like(x, given[1])


@parallel
def intensity_fma(parts: int, out: Array, x: Array, factor: Any, addend: Any, repeats: int, n: int) -> None:
    """Write out[i] = x[i] after `repeats` times x·factor + addend."""
    _sweep(parts, out, x, repeats, n, _multiplied_and_added, (factor, addend))


@in_place
def _added(x: Any, addend: Any) -> Any:
    return x + like(x, addend)


@parallel
def intensity_add(parts: int, out: Array, x: Array, addend: Any, repeats: int, n: int) -> None:
    """Write out[i] = x[i] after `repeats` times x + addend."""
    _sweep(parts, out, x, repeats, n, _added, addend)
