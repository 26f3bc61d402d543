"""Look on while a kernel runs: count what it does and find what it does wrong. Each checker sees every access inside
its bounds, before it happens.
"""

from __future__ import annotations

from typing import Protocol

from pytest_bandwidth.features.traffic.ptx.checkers.happens_before import HappensBefore
from pytest_bandwidth.features.traffic.ptx.lanes import Geometry
from pytest_bandwidth.features.traffic.ptx.memory import Access


class Checker(Protocol):
    def begin(self, geometry: Geometry, order: HappensBefore, /) -> None:
        """Begin a new batch of blocks: shared and local memory are fresh."""

    def see(self, access: Access) -> None: ...
