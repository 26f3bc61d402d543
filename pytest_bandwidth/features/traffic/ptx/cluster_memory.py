"""Carry out memory instructions of blocks that reach into each other's shared memory.

An access to another block's memory is carried out, checked and named as one of that block's same thread.
"""

from __future__ import annotations

import numpy as np

from pytest_bandwidth.domain.errors import NotOnThisDevice
from pytest_bandwidth.features.traffic.ptx.lanes import Array, spread
from pytest_bandwidth.features.traffic.ptx.memory import RANK_AT, REGION_SHIFT, SHARED_REGION, region_base
from pytest_bandwidth.features.traffic.ptx.memory_unit import MemoryUnit
from pytest_bandwidth.features.traffic.ptx.program import BarrierStep, BulkCopy, Memory


class ClusterMemory(MemoryUnit):
    _arrives = False

    def bulk_copy(self, step: BulkCopy, to: Array, start: Array, nbytes: Array, lanes: Array) -> None:
        places = ((to, step.writes), (start, step.reads))
        if any((self._targets(at, part) * lanes).any() for at, part in places if part.space == "shared"):
            raise NotOnThisDevice("cp.async.bulk into another block's shared memory is not modelled")
        super().bulk_copy(step, to, start, nbytes, lanes)

    def _targets(self, address: Array, step: Memory) -> Array:
        """Return the rank, plus one, of the block whose shared memory each lane addresses; 0 for any other place.

        The offset counts: compilers add to a place before a block's memory what leads back into it.
        """
        address = spread(address, self._shape)
        if step.space == "shared":
            place = address.view(f"i{address.dtype.itemsize}").astype(np.int64) + step.offset
            return np.maximum(place, 0) >> RANK_AT
        inside = address >> np.uint64(REGION_SHIFT) == SHARED_REGION
        place = (address - np.uint64(region_base(SHARED_REGION))).view(np.int64) + step.offset
        return np.where(inside, np.maximum(place, 0) >> RANK_AT, 0)

    def access(self, step: Memory, address: Array, operands: tuple[Array, ...], lanes: Array) -> list[Array]:
        """Do so for the lanes of each pair of ranks, in the rows of the block that is reached."""
        targets = np.zeros((1, 1), np.int64)
        if step.space in ("shared", "generic"):
            targets = self._targets(address, step) * spread(lanes, self._shape)
        if not targets.any():
            return super().access(step, address, operands, lanes)
        peers, ranks = self._geometry.peers, self._geometry.cluster_ranks[:, 0]
        own = super().access(step, address, operands, lanes & (targets == 0))
        results = [spread(result, self._shape).copy() for result in own]
        for target in map(int, np.unique(targets[targets > 0])):
            for source in range(peers.shape[1]):
                here = np.flatnonzero(ranks == source)
                mine = targets[here] == target
                if not mine.any():
                    continue
                if target > peers.shape[1]:
                    raise NotOnThisDevice(f"mapa of rank {target - 1} in a cluster of {peers.shape[1]} blocks")
                there = peers[here, target - 1]
                address_there, who, *given = (
                    self._moved(a, here, there) for a in (address, targets == target, *operands)
                )
                address_there -= address_there.dtype.type(target << RANK_AT) * who
                # Who arrived at another block's mbarrier is not known by that block's clocks.
                self._arrives = self._arrives or isinstance(step, BarrierStep)
                self.is_remote = self._arrives
                reached = super().access(step, address_there, tuple(given), who)
                self.is_remote = False
                for result, found in zip(results, reached, strict=True):
                    result[here] = np.where(mine, spread(found, self._shape)[there], result[here])
        return results

    def _moved(self, array: Array, here: Array, there: Array) -> Array:
        moved = np.zeros(self._shape, array.dtype)
        moved[there] = spread(array, self._shape)[here]
        return moved
