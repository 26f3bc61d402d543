"""Start several fresh processes together, before the first of them measures: they load at the same time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType

from pytest_bandwidth.domain.device import SAME_PROCESS_IDS, DeviceIdentity
from pytest_bandwidth.session.fresh.child import Child

# What a process takes of a GPU's memory by having opened it, generously, and the share of that memory that those which
# wait may have.
CONTEXT_GIB = 1.0
WAITING_SHARE = 0.1
# Of a host, whose memory they share; a process asks for fewer.
MOST_ON_HOST = 8


def most_ahead(identity: DeviceIdentity) -> int:
    """Return how many fresh processes may have the device open at the same time.

    One, where a process has to see itself open a GPU to know its own number (another pid namespace).
    """
    if identity.on_host:
        return MOST_ON_HOST
    if identity.facts.get("other_processes") != SAME_PROCESS_IDS or identity.memory_gib is None:
        return 1
    return max(1, int(WAITING_SHARE * identity.memory_gib / CONTEXT_GIB))


class StartedAhead:
    """Keep processes that wait for their turn. It is a context: those that still wait when it ends are ended."""

    def __init__(self, most: int, timeout_seconds: float) -> None:
        self._most, self._timeout_seconds = most, timeout_seconds
        self._stack = ExitStack()
        self._waiting: list[Child] = []

    def __enter__(self) -> StartedAhead:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def next(self, start: Callable[[], Child], needed: int) -> Child:
        """Return the next one that waits; where none does, start as many as are needed, and the device may have."""
        if not self._waiting:
            count = max(1, min(needed, self._most))
            self._waiting = [self._stack.enter_context(start()) for _ in range(count)]
            for child in self._waiting:
                child.wait_until_ready(self._timeout_seconds)
        return self._waiting.pop(0)

    def end_waiting(self) -> None:
        """End those that wait: they were asked for what is needed no more."""
        self._waiting = []
        self._stack.close()
