"""Record which bytes were touched at all, and by which lines: each counts once, however often it is touched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from pytest_bandwidth.features.traffic.ptx.lanes import Array, least
from pytest_bandwidth.features.traffic.ptx.loops import transfer
from pytest_bandwidth.features.traffic.ptx.memory import Access, Region
from pytest_bandwidth.features.traffic.ptx.program import Site

Place = tuple[str, int]
Toucher = tuple[Place, str]
_BITS = 8
_CHUNK = 1 << 22


class DistinctBytes:
    """Keep one bit per region, per granule, and per source line and kind of access, in planes of eight bits.

    granule_bytes: the narrowest global access of the kernel;
    aligned accesses touch whole granules, so counts are exact.
    """

    def __init__(self, granule_bytes: int, sites: Sequence[Site]) -> None:
        self._granule = granule_bytes
        self._places: list[Place] = [(site.file, site.line) for site in sites]
        self._bits: dict[Region, dict[Toucher, int]] = {}
        self._planes: dict[Region, list[Array]] = {}
        self._extents: dict[Region, tuple[int, int]] = {}
        self._found: dict[tuple[Region, int, int, int], Array] = {}

    def mark(self, access: Access) -> None:
        region = access.region
        bits = self._bits.setdefault(region, {})
        planes = self._planes.setdefault(region, [])
        bit = bits.setdefault((self._places[access.site], access.kind), len(bits))
        if bit // _BITS == len(planes):
            planes.append(np.zeros((1, -(-region.nbytes // self._granule)), np.uint8))
        first, end = self._extents.get(region, (region.nbytes, 0))
        self._extents[region] = min(first, access.first), max(end, access.end)
        self._found.clear()
        offset, mask = least(access.offset, access.mask)
        count = max(1, access.width // self._granule)
        transfer.mark(planes[bit // _BITS], 0, 0, offset // self._granule, mask, count, 1 << bit % _BITS)

    def read(self, region: Region, start: int, nbytes: int) -> int:
        """Count the bytes of a part of a region that were loaded or updated."""
        return self._count(region, lambda toucher: toucher[1] != "store", start, nbytes)

    def written(self, region: Region, start: int, nbytes: int) -> int:
        """Count the bytes of a part of a region that were stored or updated."""
        return self._count(region, lambda toucher: toucher[1] != "load", start, nbytes)

    def touched(self, kind: str, places: Iterable[Place]) -> int:
        """Count the bytes of all regions that one kind of access (``load``, ``store`` …) at these lines touched."""
        wanted = {(place, kind) for place in places}
        return sum(self._count(region, wanted.__contains__, 0, region.nbytes) for region in self._bits)

    def _count(self, region: Region, wanted: Callable[[Toucher], bool], start: int, nbytes: int) -> int:
        chosen: dict[int, int] = {}
        for toucher, bit in self._bits.get(region, {}).items():
            if wanted(toucher):
                chosen[bit // _BITS] = chosen.get(bit // _BITS, 0) | 1 << bit % _BITS
        first, end = self._extents.get(region, (0, 0))
        low, high = max(start, first) // self._granule, -(-min(start + nbytes, end) // self._granule)
        if not chosen or low >= high:
            return 0
        if len(chosen) == 1:
            ((plane, bits),) = chosen.items()
            granules = int(self._histogram(region, plane, low, high)[(np.arange(256) & bits) != 0].sum())
        else:
            granules = self._count_in_several(region, chosen, low, high)
        return min(granules * self._granule, nbytes)

    def _histogram(self, region: Region, plane: int, low: int, high: int) -> Array:
        """Count how many granules of a part have which bits set; one look serves all questions about them."""
        key = (region, plane, low, high)
        if key not in self._found:
            self._found[key] = transfer.histogram(self._planes[region][plane][0, low:high])
        return self._found[key]

    def _count_in_several(self, region: Region, chosen: dict[int, int], low: int, high: int) -> int:
        granules = 0
        for begin in range(low, high, _CHUNK):
            part = slice(begin, min(begin + _CHUNK, high))
            seen: Array = np.zeros(part.stop - begin, np.bool_)
            for plane, bits in chosen.items():
                seen |= (self._planes[region][plane][0, part] & np.uint8(bits)) != 0
            granules += int(np.count_nonzero(seen))
        return granules
