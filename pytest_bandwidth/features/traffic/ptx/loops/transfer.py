"""Look addresses over, move bytes, set flags; carry out atomics, one lane after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from pytest_bandwidth.features.traffic.ptx.loops import (
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


_ATOMIC_TYPES = (types.uint32, types.int32, types.uint64, types.int64, types.float32, types.float64)
AND, OR, XOR, EXCHANGE, ADD, INCREMENT, DECREMENT, MINIMUM, MAXIMUM, COMPARE_AND_SWAP = range(10)
ATOMIC_CODES = dict(zip(("and", "or", "xor", "exch", "add", "inc", "dec", "min", "max", "cas"), range(10), strict=True))


def _signature(kind: Any, *operands: Any) -> Any:
    return types.void(memory(kind), I64, I64, given(I64), given(BOOL), *operands, plane(kind))


@compiled(*(_signature(kind, I64, given(kind), given(kind)) for kind in _ATOMIC_TYPES[:4]))
def atomic_integer(
    data: Any, block_step: Any, thread_step: Any, index: Any, mask: Any, code: Any, value: Any, other: Any, old: Any
) -> None:
    """Read, modify and write lane after lane, blocks and threads in order; `old` gets what was there before."""
    one, zero = data.dtype.type(1), data.dtype.type(0)  # literals would turn uint64 into float64
    for b in range(index.shape[0]):
        for t in range(index.shape[1]):
            if not mask[b, t]:
                continue
            row, place = b * block_step + t * thread_step, index[b, t]
            was, x = data[row, place], value[b, t]
            new = x
            if code == AND:
                new = was & x
            elif code == OR:
                new = was | x
            elif code == XOR:
                new = was ^ x
            elif code == ADD:
                new = was + x
            elif code == INCREMENT:
                new = was + one if was < x else zero
            elif code == DECREMENT:
                new = x if was == zero or was > x else was - one
            elif code == MINIMUM:
                new = min(was, x)
            elif code == MAXIMUM:
                new = max(was, x)
            elif code == COMPARE_AND_SWAP:
                new = other[b, t] if was == x else was
            old[b, t] = was
            data[row, place] = new


@compiled(*(_signature(kind, given(kind)) for kind in _ATOMIC_TYPES[4:]))
def atomic_float(data: Any, block_step: Any, thread_step: Any, index: Any, mask: Any, value: Any, old: Any) -> None:
    """Do as `atomic_integer` does, for add, the only operation that floats have."""
    for b in range(index.shape[0]):
        for t in range(index.shape[1]):
            if mask[b, t]:
                row, place = b * block_step + t * thread_step, index[b, t]
                was = data[row, place]
                old[b, t] = was
                data[row, place] = was + value[b, t]
