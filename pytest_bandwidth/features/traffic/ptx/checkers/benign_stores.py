"""Let conflicting stores pass that make no difference: all write the same value, or the place holds it already."""

from __future__ import annotations

import numpy as np

from pytest_bandwidth.features.traffic.ptx.arrays import Array, spread
from pytest_bandwidth.features.traffic.ptx.memory import Access


def benign(access: Access, hits: Array) -> Array:
    """Return which of a store's `hits` (bool of all (rows, lanes)) no reader could tell from a store that is ordered.

    Lanes that store to one place have to agree on the value; and if the first of them conflicts, that is with an access
    before this instruction, the place has to hold the value already.
    """
    shape, region = hits.shape, access.region
    mask, offset = spread(access.mask, shape), spread(access.offset, shape)
    rows = spread(np.arange(shape[0])[:, None] * region.block_step, shape)[mask]
    places = offset[mask]
    keys = rows * np.int64(region.nbytes) + places
    order = np.argsort(keys, kind="stable")
    starts = np.concatenate(([True], np.diff(keys[order]) != 0))
    heads, group = np.flatnonzero(starts), np.cumsum(starts) - 1
    fine = np.ones(len(heads), np.bool_)
    width = access.width // max(1, len(access.values))
    held = region.typed(np.dtype(f"u{width}"))
    conflict_before = hits[mask][order][heads]
    for element, value in enumerate(access.values):
        stored = np.ascontiguousarray(spread(value, shape)).view(f"u{width}")[mask][order]
        agreed = np.logical_and.reduceat(stored == stored[heads][group], heads)
        now = held[rows[order][heads], places[order][heads] // width + element]
        fine &= agreed & (~conflict_before | (now == stored[heads]))
    result = np.zeros(shape, np.bool_)
    flat = np.empty(len(keys), np.bool_)
    flat[order] = fine[group]
    result[mask] = flat
    return result & hits
