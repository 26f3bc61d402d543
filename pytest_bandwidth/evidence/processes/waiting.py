"""Start several fresh processes together, before the first of them measures: they load at the same time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from pytest_bandwidth.domain.device import SAME_PROCESS_IDS, DeviceIdentity
from pytest_bandwidth.evidence.processes.child import Child, FreshProcessFailed

# What a process takes of a GPU's memory by having opened it, generously, and the share of that memory that those which
# wait may have.
CONTEXT_GIB = 1.0
WAITING_SHARE = 0.1
MOST_ON_HOST = 8

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Room:
    """Say how many fresh processes may have the device open at the same time.

    takes_memory: whether those that wait have memory of the device that the one which measures may need.
    """

    most: int
    takes_memory: bool = False


def room_on(identity: DeviceIdentity) -> Room:
    """Return a device's room: of a GPU for one, where a process has to see itself open it to know its own number."""
    if identity.on_host:
        return Room(MOST_ON_HOST)
    if identity.facts.get("other_processes") != SAME_PROCESS_IDS or identity.memory_gib is None:
        return Room(1)
    return Room(max(1, int(WAITING_SHARE * identity.memory_gib / CONTEXT_GIB)), takes_memory=True)


class StartedAhead:
    """Keep processes that wait for their turn. It is a context: those that still wait when it ends are ended."""

    def __init__(self, room: Room, timeout_seconds: float) -> None:
        self._room, self._timeout_seconds = room, timeout_seconds
        self._stack = ExitStack()
        self._waiting: list[Child] = []

    def __enter__(self) -> StartedAhead:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def measured(self, start: Callable[[], Child], needed: int, measure: Callable[[Child], T]) -> T:
        """Have the next one that waits measure; where none does, first start as many as are needed and have room.

        Where one fails beside others that had memory which it may have needed, they are ended, and it is tried once
        more alone. Raises what `start` and `measure` do.
        """
        child = self._next(start, needed)
        alone = not self._waiting or not self._room.takes_memory
        try:
            return measure(child)
        except FreshProcessFailed:
            if alone:
                raise
        self.end_waiting()
        self._room = Room(1)
        return measure(self._next(start, 1))

    def end_waiting(self) -> None:
        """End those that wait: they were asked for what is needed no more."""
        self._waiting = []
        self._stack.close()

    def _next(self, start: Callable[[], Child], needed: int) -> Child:
        if not self._waiting:
            count = max(1, min(needed, self._room.most))
            started = [self._stack.enter_context(start()) for _ in range(count)]
            for child in started:
                child.wait_until_ready(self._timeout_seconds)
            self._waiting = started
        return self._waiting.pop(0)
