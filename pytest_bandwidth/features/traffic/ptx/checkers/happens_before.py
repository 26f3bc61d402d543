"""Track what orders the accesses of a batch: barriers in blocks and warps, fences and atomics between blocks."""

from __future__ import annotations

import numpy as np

from pytest_bandwidth.features.traffic.ptx.lanes import Array, Geometry, spread, warps_with

NEVER = np.iinfo(np.int64).max


class HappensBefore:
    """Count the barriers that blocks and warps have passed, and what blocks published to each other.

    block_epoch: barriers passed, int64 (1 or rows, 1). warp_epoch: warp barriers passed, int64 (1 or rows, warps).

    Between blocks, a fence followed by an atomic publishes what a block did before; an atomic of another block after
    that receives it. Which address the atomics use is not looked at, so some races through unrelated atomics go unseen.

    State is kept for blocks of batches that met a fence or an atomic, whatever the grid; batches come in rising order.
    """

    def __init__(self) -> None:
        self._count = 0
        self._known = np.zeros(0, np.int64)
        self._published = np.zeros(0, np.int64)
        self._received = np.zeros(0, np.int64)
        self._fenced = np.zeros(0, np.bool_)
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
        slots = self._slots_with(lanes)  # first: it may make room
        self._fenced[slots] = True

    def atomic(self, lanes: Array) -> None:
        """Order the blocks' atomics: each receives what those before it published."""
        slots = self._slots_with(lanes)
        times = self._clock + np.arange(len(slots))
        self._clock += len(slots)
        self._received[slots] = times
        publishing = self._fenced[slots]
        self._published[slots[publishing]] = np.minimum(self._published[slots[publishing]], times[publishing])

    def between(self, earlier: Array, later: Array) -> Array:
        """Tell where what block `earlier` published reached block `later`; False where `earlier` is negative (several
        blocks).
        """
        published = self._look_up(self._published, earlier, NEVER)
        return (published < self._look_up(self._received, later, -1)) & (earlier >= 0)

    def _look_up(self, state: Array, blocks: Array, otherwise: int) -> Array:
        known = self._known[: self._count]
        if not len(known):
            return np.full(blocks.shape, otherwise, np.int64)
        slots = np.minimum(np.searchsorted(known, blocks), len(known) - 1)
        return np.where(known[slots] == blocks, state[slots], otherwise)

    def _slots_with(self, lanes: Array) -> Array:
        """Return where the state of the batch's blocks with any of these lanes is kept."""
        if self._geometry is None:
            return np.zeros(0, np.int64)
        blocks = self._geometry.blocks
        if not self._count or self._known[self._count - 1] < blocks[0]:
            self._make_room(len(blocks))
            self._known[self._count : self._count + len(blocks)] = blocks
            self._count += len(blocks)
        slots = np.arange(self._count - len(blocks), self._count)
        rows = lanes.any(axis=1)
        return slots if len(rows) == 1 and rows[0] else slots[spread(rows, (self._geometry.rows,))]

    def _make_room(self, blocks: int) -> None:
        more = max(0, self._count + blocks - len(self._known))
        if more:
            more = max(more, len(self._known))  # doubled, so that each block is copied twice at most
            self._known = np.concatenate((self._known, np.zeros(more, np.int64)))
            self._published = np.concatenate((self._published, np.full(more, NEVER, np.int64)))
            self._received = np.concatenate((self._received, np.full(more, -1, np.int64)))
            self._fenced = np.concatenate((self._fenced, np.zeros(more, np.bool_)))
