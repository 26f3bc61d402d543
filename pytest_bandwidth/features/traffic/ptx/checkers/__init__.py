"""Look on while a kernel runs: count what it does and find what it does wrong. Each checker sees every access inside
its bounds, before it happens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from pytest_bandwidth.features.traffic.ptx.checkers.happens_before import HappensBefore
from pytest_bandwidth.features.traffic.ptx.lanes import Geometry
from pytest_bandwidth.features.traffic.ptx.memory import Access


class Checker(ABC):
    """Hold the batch of blocks that runs, and what orders its accesses."""

    geometry: Geometry
    order: HappensBefore

    def begin(self, geometry: Geometry, order: HappensBefore) -> None:
        """Begin a new batch of blocks: shared and local memory are fresh."""
        self.geometry, self.order = geometry, order

    @abstractmethod
    def see(self, access: Access) -> None: ...
