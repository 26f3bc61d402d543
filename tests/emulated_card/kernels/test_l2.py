"""The emulated card's last cache: cold, warm, dirty, written in part."""

from __future__ import annotations

import ctypes as c
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emulated_card.kernels.build import CARD, NoCompiler, compiler
from emulated_card.kernels.launching import Dram

READ, WRITE, UPDATE = range(3)
KIB, MIB = 1 << 10, 1 << 20


class Cache:
    """A cache of `card/l2.c`."""

    def __init__(self, library: c.CDLL, nbytes: int) -> None:
        self._library = library
        self.pointer = library.card_l2_new(c.c_uint64(nbytes))
        assert self.pointer

    def touch(self, address: int, nbytes: int, access: int) -> tuple[int, int]:
        """Return the sectors fetched and those written back."""
        return self._counted(self._library.card_l2_range, address, nbytes, access)

    def flush(self) -> tuple[int, int]:
        return self._counted(self._library.card_l2_flush)

    def drop(self, address: int, nbytes: int) -> None:
        self._library.card_l2_drop(c.c_void_p(self.pointer), c.c_uint64(address), c.c_uint64(nbytes))

    def _counted(self, function: Any, *arguments: int) -> tuple[int, int]:
        dram = Dram()
        widths = (c.c_uint64, c.c_uint64, c.c_int)
        function(
            c.c_void_p(self.pointer), *(kind(x) for kind, x in zip(widths, arguments, strict=False)), c.byref(dram)
        )
        return dram.sectors_read, dram.sectors_written

    @property
    def dirty_bytes(self) -> int:
        return int(self._library.card_l2_dirty_bytes(c.c_void_p(self.pointer)))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> c.CDLL:
    made = tmp_path_factory.mktemp("l2") / "l2.so"
    try:
        subprocess.run(
            [compiler(), "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(made), str(CARD / "l2.c")],
            check=True,
        )
    except NoCompiler as error:
        pytest.skip(str(error))
    library = c.CDLL(str(Path(made)))
    library.card_l2_new.restype = c.c_void_p
    library.card_l2_dirty_bytes.restype = c.c_uint64
    return library


@pytest.fixture
def cache(library: c.CDLL) -> Iterator[Cache]:
    made = Cache(library, MIB)
    yield made
    library.card_l2_free(c.c_void_p(made.pointer))


# Each step: an address, bytes, an access, and the sectors that it fetches and writes back; or a flush, and its sectors.
STEPS = {
    "a cold read fetches and a warm one does not": [(0, MIB // 2, READ, (MIB // 64, 0)), (0, MIB // 2, READ, (0, 0))],
    "more than the cache is never warm": [(0, 2 * MIB, READ, (2 * MIB // 32, 0))] * 3,
    "reading pushes dirty lines out": [(0, MIB, WRITE, (0, 0)), (16 * MIB, MIB, READ, (MIB // 32, MIB // 32))],
    "a sector written in part is completed when it leaves": [(4, 8, WRITE, (0, 0)), ((1, 1),)],
    "a sector written in pieces needs no fetch": [
        *((4 * piece, 4, WRITE, (0, 0)) for piece in range(8)),
        *((0, 32, READ, (0, 0)), ((0, 1),)),
    ],
    "a read completes what was written in part": [(0, 4, WRITE, (0, 0)), (16, 4, READ, (1, 0)), ((0, 1),)],
    "an atomic reads and writes": [(64, 4, UPDATE, (1, 0)), (64, 4, UPDATE, (0, 0)), ((0, 1),)],
}


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_sectors_are_fetched_and_written_back(cache: Cache, steps: list[Any]) -> None:
    for *touched, sectors in steps:
        assert (cache.touch(*touched) if touched else cache.flush()) == sectors


def test_a_write_of_whole_sectors_fetches_nothing_and_stays(cache: Cache) -> None:
    assert cache.touch(0, MIB // 2, WRITE) == (0, 0)
    assert cache.dirty_bytes == MIB // 2
    assert cache.flush() == (0, MIB // 2 // 32)
    assert cache.dirty_bytes == 0


def test_a_clean_cache_makes_writes_look_fast_and_a_dirty_one_does_not(cache: Cache) -> None:
    """What a flush by reads alone does to a kernel that writes: a cache's worth of it never reaches the memory."""
    cache.touch(0, 3 * MIB, READ)
    _, written = cache.touch(16 * MIB, 4 * MIB, WRITE)
    assert written == 3 * MIB // 32
    _, written = cache.touch(32 * MIB, 4 * MIB, WRITE)  # now as much leaves as enters
    assert written == 4 * MIB // 32


def test_freed_memory_is_not_written_back(cache: Cache) -> None:
    cache.touch(0, 4 * KIB, WRITE)
    cache.drop(0, 2 * KIB)
    assert cache.flush() == (0, 2 * KIB // 32)


def test_the_line_used_longest_ago_leaves_first(cache: Cache) -> None:
    sets = MIB // (128 * 16)
    lines = [way * sets * 128 for way in range(17)]  # of one set, which holds 16
    for line in lines[:16]:
        cache.touch(line, 32, READ)
    cache.touch(lines[0], 32, READ)
    cache.touch(lines[16], 32, READ)
    assert cache.touch(lines[0], 32, READ) == (0, 0)
    assert cache.touch(lines[1], 32, READ) == (1, 0)
