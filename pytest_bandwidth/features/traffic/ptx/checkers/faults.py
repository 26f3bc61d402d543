"""Collect faults as they are found: the first of each kind, line and array is described, the others are counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pytest_bandwidth.features.traffic.ptx.counts import AccessFault
from pytest_bandwidth.features.traffic.ptx.lanes import Array, Geometry, spread
from pytest_bandwidth.features.traffic.ptx.memory import Region
from pytest_bandwidth.features.traffic.ptx.program import Site

_OF_NO_ADDRESS = ("barrier", "trap")


class FaultLog:
    def __init__(self, sites: Sequence[Site]) -> None:
        self._sites = sites
        self._found: dict[tuple[str, int, str], AccessFault] = {}
        self._geometry: Geometry | None = None

    def begin(self, geometry: Geometry) -> None:
        self._geometry = geometry

    def add(self, code: str, site: int, region: Region | None, hits: Array, offset: Array, sentence: str) -> None:
        """Add a fault. hits: bool, broadcastable to (rows, lanes); offset: bytes in the region. The sentence follows
        the thread's name.
        """
        geometry = self._geometry
        assert geometry is not None
        shape = np.broadcast_shapes(hits.shape, offset.shape)
        everywhere = spread(hits, shape)
        row, lane = (int(place) for place in np.argwhere(everywhere)[0])
        place = int(spread(offset, shape)[row, lane])
        array = "" if region is None else region.describe(place)
        where = self._sites[site]
        threads = (
            int(np.count_nonzero(everywhere)) * (geometry.rows // shape[0]) * (1 if shape[1] > 1 else geometry.threads)
        )
        key = (code, where.line or -where.ptx_line, array)
        if key in self._found:
            self._found[key] = replace(self._found[key], threads=self._found[key].threads + threads)
            return
        block, thread = geometry.block_name(row), geometry.thread_name(lane)
        address = place if region is None else region.base + place
        spot = f"{where.file}:{where.line}" if where.line else f"PTX line {where.ptx_line}"
        what = sentence.format(array=array or "no array", place=place)
        at = "" if code in _OF_NO_ADDRESS else f" (address {address:#x})"
        text = f"{spot}: thread {thread} of block {block} {what}{at}"
        self._found[key] = AccessFault(code, text, array, block, thread, address, where.file, where.line, threads)

    def line_of(self, site: int) -> str:
        where = self._sites[site]
        return f"line {where.line}" if where.line else f"PTX line {where.ptx_line}"

    def thread_name(self, lane: int) -> str:
        assert self._geometry is not None
        return self._geometry.thread_name(lane)

    @property
    def faults(self) -> tuple[AccessFault, ...]:
        return tuple(self._found.values())
