"""Count the kernels of a call, and the bytes that they move, by tinygrad's own account."""

from __future__ import annotations

from typing import Any

from pytest_bandwidth.devices.base import Call
from pytest_bandwidth.domain.measured.measurement import Finding
from pytest_bandwidth.domain.traffic import differ
from pytest_bandwidth.domain.units import counted, format_bytes

# In a measurement's `detail`.
KERNELS = "tinygrad"
# A finding of this code tells that a call's kernels move other bytes than were declared.
KERNELS_MOVE = "kernels-move"


class Counts:
    """Note what the last run of a callable added to ``GlobalCounters``.

    They count a buffer at most whole for each kernel, however often that reads it, and several kernels that `TinyJit`
    replays as a graph, where the backend has such, as one. They are not reset here.
    """

    def __init__(self, tinygrad: Any) -> None:
        self._counters = tinygrad.GlobalCounters
        self.kernels = 0
        self.total_bytes = 0

    def around(self, call: Call) -> Call:
        """Return the call, noting what it adds."""

        def run() -> object:
            counters = self._counters
            kernels, moved = counters.kernel_count, counters.global_mem
            value = call()
            self.kernels = int(counters.kernel_count - kernels)
            self.total_bytes = int(counters.global_mem - moved)
            return value

        return run

    def plain(self, declared_bytes: int) -> dict[str, int]:
        """Return what a document keeps of it: kernels, the bytes of all of them, and the declared ones."""
        return {"kernels": self.kernels, "total_bytes": self.total_bytes, "declared_bytes": declared_bytes}

    def finding(self, declared_bytes: int) -> Finding | None:
        """Tell where the kernels move other bytes than were declared; None where they do not."""
        total = self.total_bytes
        # A callable that resets the counters itself leaves nothing to tell.
        if self.kernels <= 0 or not differ(total, declared_bytes):
            return None
        verb = "moves" if self.kernels == 1 else "move"
        return Finding(
            KERNELS_MOVE,
            f"declared {format_bytes(declared_bytes)}; tinygrad's {counted(self.kernels, 'kernel')} {verb} "
            f"{format_bytes(total)} by its own count (a graph is one kernel; of a buffer at most all of it)",
        )
