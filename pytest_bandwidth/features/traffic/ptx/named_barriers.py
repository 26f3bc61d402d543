"""Count who arrived at barriers that have a number and a count of threads (bar.sync 1, 128; bar.arrive)."""

from __future__ import annotations

import numpy as np

from pytest_bandwidth.features.traffic.ptx.lanes import WARP, Array, Geometry, spread

BARRIERS = 16  # of a block (PTX ISA, bar)


class NamedBarriers:
    """Hold one batch's. As on a GPU, a whole warp arrives, whichever of its lanes take part.

    waiting: whether a lane waits, bool of shape (rows, lanes).
    """

    def __init__(self, geometry: Geometry) -> None:
        self._shape = (geometry.rows, geometry.lanes)
        self._arrived = np.zeros((geometry.rows, BARRIERS), np.int64)
        self._needed = np.zeros((geometry.rows, BARRIERS), np.int64)
        self._awaited = np.zeros(self._shape, np.int64)
        self.waiting: Array = np.zeros(self._shape, np.bool_)

    def arrive(self, number: Array, count: Array, lanes: Array) -> None:
        """Add the lanes' warps to barrier `number`, which is complete with `count` threads."""
        barrier, needed, active = (
            spread(one, self._shape).reshape(self._shape[0], -1, WARP) for one in (number, count, lanes)
        )
        row, warp = np.nonzero(active.any(axis=2))
        first = active.argmax(axis=2)[row, warp]
        barriers = barrier[row, warp, first] % BARRIERS
        np.add.at(self._arrived, (row, barriers), WARP)
        self._needed[row, barriers] = needed[row, warp, first]

    def wait(self, number: Array, count: Array, lanes: Array) -> None:
        """Let the lanes arrive, and wait until the barrier is complete."""
        self.arrive(number, count, lanes)
        self._awaited = np.where(lanes, number % BARRIERS, self._awaited)
        self.waiting = self.waiting | lanes

    def complete(self) -> Array:
        """Return the lanes that wait at complete barriers, and begin those anew."""
        full = (self._arrived >= self._needed) & (self._needed > 0)
        lanes = self.waiting & np.take_along_axis(full, self._awaited, axis=1)
        self._arrived -= np.where(full, self._needed, 0)
        self.waiting = self.waiting & ~lanes
        return lanes

    def give_up(self, row: int, lane: int) -> str:
        """Return what a lane waits for, and let all lanes go on."""
        barrier = self._awaited[row, lane]
        arrived, needed = self._arrived[row, barrier], self._needed[row, barrier]
        self._arrived[:], self.waiting = 0, np.zeros_like(self.waiting)
        return f"waits at barrier {barrier} for {needed} threads, of which {arrived} arrive"
