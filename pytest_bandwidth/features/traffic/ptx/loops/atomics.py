"""Carry out atomics: read, modify, write, one lane after the other."""

from __future__ import annotations

from typing import Any

from numba import types

from pytest_bandwidth.features.traffic.ptx.loops.numba_cache import BOOL, I64, compiled, given, memory, plane

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
