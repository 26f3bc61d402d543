"""Which bytes were touched at all, and by which lines: each counts once, however often it is touched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from pytest_bandwidth.ptx.arrays import Array
from pytest_bandwidth.ptx.lanes import least
from pytest_bandwidth.ptx.loops import transfer
from pytest_bandwidth.ptx.memory import Access, Region
from pytest_bandwidth.ptx.program import Site

Place = tuple[str, int]
Toucher = tuple[Place, str]
_BITS = 8


class DistinctBytes:
    """One bit per region, per granule, and per source line and kind of access, in planes of eight bits.

    granule_bytes: the narrowest global access of the kernel; aligned accesses touch whole granules, so counts are
    exact.
    """

    def __init__(self, granule_bytes: int, sites: Sequence[Site]) -> None:
        self._granule = granule_bytes
        self._places: list[Place] = [(site.file, site.line) for site in sites]
        self._bits: dict[Region, dict[Toucher, int]] = {}
        self._planes: dict[Region, list[Array]] = {}

    def mark(self, access: Access) -> None:
        bits = self._bits.setdefault(access.region, {})
        planes = self._planes.setdefault(access.region, [])
        bit = bits.setdefault((self._places[access.site], access.kind), len(bits))
        if bit // _BITS == len(planes):
            planes.append(np.zeros((1, -(-access.region.nbytes // self._granule)), np.uint8))
        offset, mask = least(access.offset, access.mask)
        count = max(1, access.width // self._granule)
        transfer.mark(planes[bit // _BITS], 0, 0, offset // self._granule, mask, count, 1 << bit % _BITS)

    def read(self, region: Region, start: int, nbytes: int) -> int:
        """Bytes of a part of a region that were loaded or updated."""
        return self._count(region, lambda toucher: toucher[1] != "store", start, nbytes)

    def written(self, region: Region, start: int, nbytes: int) -> int:
        """Bytes of a part of a region that were stored or updated."""
        return self._count(region, lambda toucher: toucher[1] != "load", start, nbytes)

    def touched(self, kind: str, places: Iterable[Place]) -> int:
        """Bytes of all regions that accesses of one kind (``load``, ``store``, ``atomic``) at these lines touched."""
        wanted = {(place, kind) for place in places}
        return sum(self._count(region, wanted.__contains__, 0, region.nbytes) for region in self._bits)

    def _count(self, region: Region, wanted: Callable[[Toucher], bool], start: int, nbytes: int) -> int:
        part = slice(start // self._granule, -(-(start + nbytes) // self._granule))
        seen: Array = np.zeros(1, np.bool_)
        for number, plane in enumerate(self._planes.get(region, ())):
            chosen = sum(
                1 << bit % _BITS for t, bit in self._bits[region].items() if bit // _BITS == number and wanted(t)
            )
            if chosen:
                seen = seen | ((plane[0, part] & np.uint8(chosen)) != 0)
        return min(int(np.count_nonzero(seen)) * self._granule, nbytes)
