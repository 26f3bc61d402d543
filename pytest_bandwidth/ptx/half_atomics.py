"""Atomics on 16-bit floats, which hardware and Numba lack as scalars: rounds of one lane per place, each vectorised."""

from __future__ import annotations

import numpy as np

from pytest_bandwidth.ptx.arrays import Array, spread
from pytest_bandwidth.ptx.memory import Region
from pytest_bandwidth.ptx.opcodes import halves
from pytest_bandwidth.ptx.program import Atomic


def atomic_half(
    step: Atomic, region: Region, index: Array, mask: Array, value: Array, other: Array, old: Array
) -> None:
    """Updates `region` and fills `old`; lanes that meet at one place take turns in the order of blocks and threads."""
    data = region.typed(step.dtype)
    rows = spread(np.arange(len(index))[:, None] * region.block_step, index.shape)
    pending = np.flatnonzero(mask)
    keys = rows.reshape(-1) * np.int64(data.shape[1]) + index.reshape(-1)
    while len(pending):
        _, first = np.unique(keys[pending], return_index=True)
        turn = pending[first]
        row, place = np.divmod(keys[turn], data.shape[1])
        was = data[row, place]
        old.reshape(-1)[turn] = was
        data[row, place] = _updated(step, was, value.reshape(-1)[turn], other.reshape(-1)[turn])
        pending = np.delete(pending, first)


def _updated(step: Atomic, was: Array, value: Array, other: Array) -> Array:
    if step.operation == "cas":
        return np.where(was == value, other, was)
    rows = {"add": halves.arithmetic(np.add), "min": halves.minmax("min"), "max": halves.minmax("max")}
    return np.asarray(rows[step.operation]({"half": step.type})(was, value))
