"""Stand in for the other process of two that take turns, in the sampling loop of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


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
