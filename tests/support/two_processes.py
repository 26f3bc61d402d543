"""Two processes in turn: memory for their arrays, where the system has what they take; a stand-in for one of them."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pytest_bandwidth.devices.shared_arrays import shared_memory

# MADV_COLLAPSE for shared memory.
_OLDEST_LINUX = (6, 1)
_OF_SHARED_MEMORY = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")


def memory_of(size: int) -> Callable[[], Iterator[int]]:
    """Return a fixture's function: the descriptor of so many bytes."""

    def memory() -> Iterator[int]:
        with shared_memory() as descriptor:
            if descriptor is None or not _can_exchange():
                pytest.skip("this system cannot exchange pages (Linux 6.1, huge pages of 2 MiB, one NUMA node can)")
            os.ftruncate(descriptor, size)
            yield descriptor

    return memory


def _can_exchange() -> bool:
    """Tell by the system alone: what is tested must not decide whether it is."""
    version = tuple(int(number) for number in re.findall(r"\d+", platform.release())[:2])
    denied = _OF_SHARED_MEMORY.is_file() and "[deny]" in _OF_SHARED_MEMORY.read_text(encoding="ascii")
    return version >= _OLDEST_LINUX and not denied


class InTurn:
    """Hold another process whose rounds take no time, and with which this one has enough after so many."""

    def __init__(self, rounds: int) -> None:
        self.left = rounds
        self.touched: Sequence[Any] = ()

    @contextmanager
    def begin(self, run: Callable[[], object], touched: Sequence[Any]) -> Iterator[InTurn]:
        run()
        self.touched = touched
        yield self

    def taken(self, seconds: float | None, *, stops: bool) -> bool:
        del seconds
        assert not stops
        self.left -= 1
        return self.left == 0
