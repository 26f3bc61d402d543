"""Walk over rows as several kernels do: a row's maximum and sums, its exponentials written.

Each thread has whole rows. The later passes over a row meet it in a cache; staged versions keep a float32 copy of it
besides, at most STAGED_COLS of it. Halves are computed in float32 and rounded once at the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pytest_bandwidth.devices.cpu.simd import (
    get,
    inlined,
    lanes_of,
    load,
    outside,
    put,
    spread,
    stream,
    total,
    whole_lines,
)
from pytest_bandwidth.suite.host_kernels.simd_math import exponential, larger, largest

Array = Any

# The lowest float32 rather than −∞, as in the CUDA kernels: −∞ − (−∞) would be NaN where there is no element.
LOWEST = np.float32(-3.402823466e38)
ZERO = np.float32(0)
STAGED_COLS = 8192
ONLINE_BLOCK = 2048


@inlined
def row_largest(x: Array, start: int, cols: int) -> Any:
    """Return the largest of `cols` elements; NaN does not count, and nothing is below the lowest float32."""
    lanes = lanes_of(x)
    m0, m1 = spread(LOWEST), spread(LOWEST)
    c = 0
    while c + 2 * lanes <= cols:
        m0 = larger(load(x, start + c), m0)
        m1 = larger(load(x, start + c + lanes), m1)
        c += 2 * lanes
    found = largest(larger(m0, m1))
    while c < cols:
        found = larger(get(x, start + c), found)
        c += 1
    return found


@inlined
def row_sum(x: Array, start: int, cols: int) -> Any:
    """Return Σ x."""
    lanes = lanes_of(x)
    s0, s1 = spread(ZERO), spread(ZERO)
    c = 0
    while c + 2 * lanes <= cols:
        s0 = s0 + load(x, start + c)
        s1 = s1 + load(x, start + c + lanes)
        c += 2 * lanes
    found = total(s0 + s1)
    while c < cols:
        found += get(x, start + c)
        c += 1
    return found


@inlined
def row_sum_of_exponentials(x: Array, start: int, cols: int, shift: Any) -> Any:
    """Return Σ exp(x − shift)."""
    lanes = lanes_of(x)
    by_lane, shifts = spread(ZERO), spread(shift)
    c = 0
    while c + lanes <= cols:
        by_lane = by_lane + exponential(load(x, start + c) - shifts)
        c += lanes
    found = total(by_lane)
    while c < cols:
        found += exponential(get(x, start + c) - shift)
        c += 1
    return found


@inlined
def row_online(x: Array, start: int, cols: int) -> tuple[Any, Any]:
    """Return maximum, and Σ exp(x − maximum), in one pass over memory.

    When the maximum grows, the sum so far shrinks. That is looked at once for each block, which fits the first-level
    cache, so that an element costs one exponential as in two passes.
    """
    high, summed = LOWEST, ZERO
    for begin in range(0, cols, ONLINE_BLOCK):
        block = min(ONLINE_BLOCK, cols - begin)
        new_high = larger(row_largest(x, start + begin, block), high)
        summed = summed * exponential(high - new_high)
        summed += row_sum_of_exponentials(x, start + begin, block, new_high)
        high = new_high
    return high, summed


@inlined
def write_exponentials(out: Array, x: Array, start: int, cols: int, shift: Any, factor: Any) -> None:
    """Write out = exp(x − shift) · factor along a row."""
    lanes = lanes_of(out)
    head, lines = whole_lines(out, start, cols)
    shifts, factors = spread(shift), spread(factor)
    for line in range(lines):
        i = start + head + line * lanes
        stream(out, i, exponential(load(x, i) - shifts) * factors)
    for k in range(cols - lines * lanes):
        i = start + outside(k, head, lines * lanes)
        put(out, i, exponential(get(x, i) - shift) * factor)
