"""Collect faults, and find those of an access's place: out of bounds, misaligned, read-only; these are not carried out.

The first of each kind, line and array is described, the others are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pytest_bandwidth.features.traffic.ptx.counts import AccessFault
from pytest_bandwidth.features.traffic.ptx.lanes import Array, Geometry, spread
from pytest_bandwidth.features.traffic.ptx.memory import Region
from pytest_bandwidth.features.traffic.ptx.program import Site, readable_name

_VERBS = {"load": "reads", "store": "writes", "atomic": "updates"}
_OF_NO_ADDRESS = ("barrier", "trap")


class FaultLog:
    _geometry: Geometry

    def __init__(self, sites: Sequence[Site]) -> None:
        self._sites = sites
        self._found: dict[tuple[str, int, str], AccessFault] = {}

    def begin(self, geometry: Geometry) -> None:
        self._geometry = geometry

    def add(self, code: str, site: int, region: Region | None, hits: Array, offset: Array, sentence: str) -> None:
        """Add a fault. hits: bool, broadcastable to (rows, lanes); offset: bytes in the region. The sentence follows
        the thread's name.
        """
        geometry = self._geometry
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
        block, thread = geometry.block_name(int(geometry.blocks[row])), geometry.thread_name(lane)
        address = place if region is None else region.base + place
        spot = f"{where.file}:{where.line}" if where.line else f"PTX line {where.ptx_line}"
        what = sentence.format(array=array or "no array", place=place)
        at = "" if code in _OF_NO_ADDRESS else f" (address {address:#x})"
        text = f"{spot}: thread {thread} of block {block} {what}{at}"
        self._found[key] = AccessFault(code, text, array, block, thread, address, where.file, where.line, threads)

    def line_of(self, site: int) -> str:
        where = self._sites[site]
        return f"line {where.line}" if where.line else f"PTX line {where.ptx_line}"

    @property
    def faults(self) -> tuple[AccessFault, ...]:
        return tuple(self._found.values())


class BoundsChecker:
    def __init__(self, faults: FaultLog) -> None:
        self._faults = faults

    def check(self, site: int, kind: str, region: Region | None, offset: Array, mask: Array, width: int) -> Array:
        """Return the mask without the lanes whose access is a fault. Called only where some lane's may be."""
        verb = _VERBS[kind]
        if region is None:
            self._report("out-of-bounds", site, None, mask, offset, f"{verb} {width} bytes that belong to no array")
            return np.zeros((1, 1), np.bool_)
        outside = (offset < 0) | (offset > region.nbytes - width)
        if region.kind == "shared" or region.kind == "local":
            outside = outside | ~self._in_a_variable(region, offset, width)
        misaligned = (offset & (width - 1)) != 0
        inside = f"{{array}}, which has {region.nbytes} bytes" if region.kind == "global" else "{array}"
        inside += self._dynamic_shared(region, offset, mask & outside)
        self._report(
            "out-of-bounds", site, region, mask & outside, offset, f"{verb} {width} bytes at byte {{place}} of {inside}"
        )
        self._report(
            "misaligned",
            site,
            region,
            mask & ~outside & misaligned,
            offset,
            f"{verb} {width} bytes at byte {{place}} of {{array}}, which is no multiple of {width}",
        )
        bad = outside | misaligned
        if kind != "load" and not region.writable:
            self._report("read-only", site, region, mask & ~bad, offset, f"{verb} {{array}}, which is read-only")
            return np.zeros((1, 1), np.bool_)
        return mask & ~bad

    def _report(self, code: str, site: int, region: Region | None, hits: Array, offset: Array, sentence: str) -> None:
        if hits.any():
            self._faults.add(code, site, region, hits, offset, sentence)

    @staticmethod
    def _dynamic_shared(region: Region, offset: Array, hits: Array) -> str:
        """Say what the launch gives of dynamic shared memory, where that is what the first of the hits is beyond."""
        dynamic = region.symbols[-1] if region.kind == "shared" else None
        if dynamic is None or not hits.any():
            return ""
        shape = np.broadcast_shapes(hits.shape, offset.shape)
        if spread(offset, shape)[spread(hits, shape)][0] < dynamic.address:
            return ""
        given = f"only {dynamic.size} bytes" if dynamic.size else "none"
        return f": {readable_name(dynamic.name)} is dynamic shared memory, and the launch gives {given} (shared_mem=)"

    @staticmethod
    def _in_a_variable(region: Region, offset: Array, width: int) -> Array:
        inside = np.zeros((1, 1), np.bool_)
        for symbol in region.symbols:
            inside = inside | ((offset >= symbol.address) & (offset + width <= symbol.address + symbol.size))
        return inside
