"""Track what orders the accesses of a batch: barriers in blocks and warps, fences and atomics between blocks."""

from __future__ import annotations

import numpy as np

from pytest_bandwidth.ptx.arrays import Array, spread
from pytest_bandwidth.ptx.lanes import Geometry, warps_with

NEVER = np.iinfo(np.int64).max


class HappensBefore:
    """Count the barriers that blocks and warps have passed, and what blocks published to each other.

    block_epoch: barriers passed, int64 (1 or rows, 1). warp_epoch: warp barriers passed, int64 (1 or rows, warps).

    Between blocks, a fence followed by an atomic publishes what a block did before; an atomic of another block after
    that receives it. Which address the atomics use is not looked at, so some races through unrelated atomics go unseen.
    """

    def __init__(self, total_blocks: int) -> None:
        self._published = np.full(total_blocks, NEVER, np.int64)
        self._received = np.full(total_blocks, -1, np.int64)
        self._fenced = np.zeros(total_blocks, np.bool_)
        self._clock = 0
        self._geometry: Geometry | None = None
        self.block_epoch: Array = np.zeros((1, 1), np.int64)
        self.warp_epoch: Array = np.zeros((1, 1), np.int64)

    def begin(self, geometry: Geometry) -> None:
        self._geometry = geometry
        self.block_epoch = np.zeros((1, 1), np.int64)
        self.warp_epoch = np.zeros((1, geometry.lanes // 32), np.int64)

    def block_barrier(self, rows: Array) -> None:
        """Pass a block barrier. rows: bool (1 or rows, 1), the blocks whose threads all passed."""
        self.block_epoch = self.block_epoch + (1 if rows.all() else rows)

    def warp_barrier(self, lanes: Array) -> None:
        self.warp_epoch = self.warp_epoch + warps_with(lanes)

    def fence(self, lanes: Array) -> None:
        self._fenced[self._blocks_with(lanes)] = True

    def atomic(self, lanes: Array) -> None:
        """Order the blocks' atomics: each receives what those before it published."""
        blocks = self._blocks_with(lanes)
        times = self._clock + np.arange(len(blocks))
        self._clock += len(blocks)
        self._received[blocks] = times
        publishing = self._fenced[blocks]
        self._published[blocks[publishing]] = np.minimum(self._published[blocks[publishing]], times[publishing])

    def between(self, earlier: Array, later: Array) -> Array:
        """Tell where what block `earlier` published reached block `later`; False where `earlier` is negative (several
        blocks).
        """
        published: Array = self._published[np.maximum(earlier, 0)]
        return (published < self._received[later]) & (earlier >= 0)

    def _blocks_with(self, lanes: Array) -> Array:
        if self._geometry is None:
            return np.zeros(0, np.int64)
        rows = lanes.any(axis=1)
        return (
            self._geometry.blocks
            if len(rows) == 1 and rows[0]
            else self._geometry.blocks[spread(rows, (self._geometry.rows,))]
        )
