"""Find out-of-bounds and misaligned accesses, and stores to read-only memory. They are reported and not carried out."""

from __future__ import annotations

import numpy as np

from pytest_bandwidth.features.traffic.ptx.checkers.faults import FaultLog
from pytest_bandwidth.features.traffic.ptx.lanes import Array, spread
from pytest_bandwidth.features.traffic.ptx.memory import Region
from pytest_bandwidth.features.traffic.ptx.program import readable_name

_VERBS = {"load": "reads", "store": "writes", "atomic": "updates"}


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
