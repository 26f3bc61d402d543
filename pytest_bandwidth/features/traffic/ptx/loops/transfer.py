"""Look addresses over, move bytes, set flags."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from pytest_bandwidth.features.traffic.ptx.loops.numba_cache import (
    BOOL,
    I64,
    U8,
    U64,
    compiled,
    four,
    given,
    memory,
    plane,
    row,
    seen,
)


@compiled(four(U64)(given(U64), given(BOOL)))
def span(address: Any, mask: Any) -> Any:
    """Return the lowest and the highest address of the lanes that take part, the OR of all, and how many they are."""
    low, high, together, lanes = np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0), np.uint64(0), 0
    for b in range(address.shape[0]):
        for t in range(address.shape[1]):
            if mask[b, t]:
                value = address[b, t]
                low, high = min(low, value), max(high, value)
                together |= value
                lanes += 1
    return low, high, together, np.uint64(lanes)


_UNSIGNED = (types.uint8, types.uint16, types.uint32, types.uint64)


@compiled(*(types.void(seen(k), I64, I64, given(I64), given(BOOL), I64, plane(k)) for k in _UNSIGNED))
def gather(data: Any, block_step: Any, thread_step: Any, index: Any, mask: Any, plus: Any, out: Any) -> None:
    """Set out[b, t] = data[b·block_step + t·thread_step, index + plus]; 0 where a lane takes no part."""
    for b in range(out.shape[0]):
        for t in range(out.shape[1]):
            # Not as one expression: Numba would unify uint64 and the literal's int64 to float64.
            if mask[b, t]:
                out[b, t] = data[b * block_step + t * thread_step, index[b, t] + plus]
            else:
                out[b, t] = 0


@compiled(*(types.void(memory(k), I64, I64, given(I64), given(BOOL), I64, given(k)) for k in _UNSIGNED))
def scatter(data: Any, block_step: Any, thread_step: Any, index: Any, mask: Any, plus: Any, values: Any) -> None:
    """Set data[…] = values; of lanes that store to one place the last wins."""
    for b in range(index.shape[0]):
        for t in range(index.shape[1]):
            if mask[b, t]:
                data[b * block_step + t * thread_step, index[b, t] + plus] = values[b, t]


@compiled(types.void(plane(U8), I64, I64, given(I64), given(BOOL), I64, U8))
def mark(flags: Any, block_step: Any, thread_step: Any, granule: Any, mask: Any, count: Any, bits: Any) -> None:
    """Set `bits` in `count` flags from each lane's granule on."""
    for b in range(granule.shape[0]):
        for t in range(granule.shape[1]):
            if mask[b, t]:
                row, first = b * block_step + t * thread_step, granule[b, t]
                for place in range(count):
                    flags[row, first + place] |= bits


@compiled(I64(plane(U8), I64, I64, given(I64), given(BOOL), I64, plane(BOOL)))
def find_unmarked(flags: Any, block_step: Any, thread_step: Any, granule: Any, mask: Any, count: Any, hit: Any) -> int:
    """Count the lanes that touch a granule whose flag is not set, and set `hit` for them."""
    found = 0
    for b in range(granule.shape[0]):
        for t in range(granule.shape[1]):
            hit[b, t] = False
            if mask[b, t]:
                row, first = b * block_step + t * thread_step, granule[b, t]
                for place in range(count):
                    if flags[row, first + place] == 0:
                        hit[b, t] = True
                if hit[b, t]:
                    found += 1
    return found


@compiled(row(I64)(row(U8)))
def histogram(values: Any) -> Any:
    """Count how often each of the 256 values occurs."""
    counts = np.zeros(256, np.int64)
    for place in range(values.shape[0]):
        counts[values[place]] += 1
    return counts
