"""Find reads of memory that was never written: shared and local memory, and arrays that were declared empty.

An empty array is filled with a pattern that depends on the place (`fill_untouched`); at a launch, whatever 16-byte
piece still shows it counts as never written, by a kernel or by NumPy.
A value that happens to equal the pattern is 2⁻¹²⁸ likely.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.traffic.ptx.checkers import Checker
from pytest_bandwidth.features.traffic.ptx.checkers.faults import FaultLog
from pytest_bandwidth.features.traffic.ptx.checkers.happens_before import HappensBefore
from pytest_bandwidth.features.traffic.ptx.lanes import Array, Geometry, least, spread
from pytest_bandwidth.features.traffic.ptx.loops import transfer
from pytest_bandwidth.features.traffic.ptx.memory import Access, Region, flat_bytes

_PIECE = 16
_CHUNK_WORDS = 1 << 16


def fill_untouched(array: Array) -> None:
    """Fill an array that owns its memory, of any dtype, with the pattern that stands for "never written"."""
    if array.base is not None:
        raise UsageError("fill_untouched: found a view, expected an array that owns its memory; copy it first")
    data, _ = flat_bytes(array)
    for start in range(0, data.size, _CHUNK_WORDS * 8):
        piece = data[start : start + _CHUNK_WORDS * 8]
        piece[:] = _pattern(start // 8, -(-piece.size // 8)).view(np.uint8)[: piece.size]


def untouched(array: Array) -> Array:
    """Tell per byte of the array's allocation whether it still shows the pattern, in pieces of 16: bool of (bytes,)."""
    data, _ = flat_bytes(array)
    same = np.zeros(data.size, np.bool_)
    for start in range(0, data.size, _CHUNK_WORDS * 8):
        piece = data[start : start + _CHUNK_WORDS * 8]
        expected = _pattern(start // 8, -(-piece.size // 8)).view(np.uint8)[: piece.size]
        equal = piece == expected
        whole = equal.size // _PIECE * _PIECE
        pieces = equal[:whole].reshape(-1, _PIECE).all(axis=1)
        same[start : start + whole] = np.repeat(pieces, _PIECE)
        same[start + whole : start + equal.size] = equal[whole:].all() if equal.size - whole >= 4 else False
    return same


def _pattern(first_word: int, words: int) -> Array:
    """Compute SplitMix64's finaliser of each word's number (Steele, Lea and Flood 2014), little-endian uint64."""
    z = np.arange(first_word + 1, first_word + 1 + words, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))).astype("<u8")


class InitialisationChecker(Checker):
    """Flag what was written. written: per global region that was declared empty, uint8 flags of (1, bytes),
    1 where initialised.
    """

    def __init__(self, faults: FaultLog, granule_bytes: Mapping[str, int], written: Mapping[Region, Array]) -> None:
        self._faults = faults
        self._granules = granule_bytes
        self._written = dict(written)
        self._windows: dict[Region, Array] = {}

    def begin(self, geometry: Geometry, order: HappensBefore) -> None:
        super().begin(geometry, order)
        self._windows = {}

    def see(self, access: Access) -> None:
        region = access.region
        if region.kind == "shared" or region.kind == "local":
            self._see_window(access)
        elif region in self._written:
            self._check(access, self._written[region], 1, *least(access.offset, access.mask))

    def _see_window(self, access: Access) -> None:
        """Check an access of shared or local memory. Flags have one row as long as all blocks (or, for local memory,
        all threads) did the same.
        """
        region, geometry = access.region, self.geometry
        granule = self._granules.get(region.kind, 1)
        flags = self._windows.get(region)
        if flags is None:
            flags = self._windows[region] = np.zeros((1, -(-region.nbytes // granule)), np.uint8)
        offset, mask = access.offset, access.mask
        columns = max(offset.shape[1], mask.shape[1])
        if region.thread_step:  # local: a row each, unless the whole block does the same at one place
            alike = offset.shape == (1, 1) and mask.shape == (1, 1)
            alike = alike or (offset.shape == (1, 1) and bool((mask == geometry.present).all()))
        else:
            alike = offset.shape[0] == 1 and mask.shape[0] == 1
        if not alike and len(flags) == 1 and len(region.data) > 1:
            flags = self._windows[region] = np.repeat(flags, len(region.data), axis=0)
        if len(flags) == 1:
            self._check(access, flags, granule, *least(offset, mask))
            return
        shape = (geometry.rows, geometry.lanes if region.thread_step else columns)
        self._check(access, flags, granule, spread(offset, shape), spread(mask, shape))

    def _check(self, access: Access, flags: Array, granule: int, offset: Array, mask: Array) -> None:
        count = max(1, access.width // granule)
        block_step, thread_step = (0, 0) if len(flags) == 1 else (access.region.block_step, access.region.thread_step)
        places = offset // granule
        if access.kind != "store":
            hit = np.zeros(offset.shape, np.bool_)
            if transfer.find_unmarked(flags, block_step, thread_step, places, mask, count, hit):
                sentence = "reads {array} at byte {place}, where nothing was written before"
                self._faults.add("uninitialised", access.site, access.region, hit & access.mask, offset, sentence)
        if access.kind != "load":
            transfer.mark(flags, block_step, thread_step, places, mask, count, 1)
