"""Count the kernels of a call, and the bytes that they move, by tinygrad's own account: in all, and one by one."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from typing import Any

from pytest_bandwidth.devices.base import Call
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.measured.explanation import Explanation, Operator, Wording
from pytest_bandwidth.domain.measured.measurement import Finding
from pytest_bandwidth.domain.traffic import differ
from pytest_bandwidth.domain.units import counted, format_bytes
from pytest_bandwidth.features.tinygrad.backend import Tinygrad
from pytest_bandwidth.frameworks.arrays import arrays_in, located
from pytest_bandwidth.frameworks.base import distinct_bytes

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


# With DEBUG=2 tinygrad prints a line for each kernel that has run: *** CPU   1 r_64_32   arg  2 mem …
_LINE = re.compile(r"\*\*\* +\S+ +\d+ +(.+?) +arg +\d+ ")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
WORDING = Wording("tinygrad", "kernel", " by its own count (of a buffer at most all of it)")


def explained_tinygrad(call: Callable[[], Any], given: object) -> Explanation:
    """Run the call once, realize what it returns, and return what its kernels move, by tinygrad's GlobalCounters.

    given: its arguments. Raises UsageError where no kernel ran.
    """
    tinygrad = sys.modules["tinygrad"]
    context = import_module("tinygrad.helpers").Context
    known, watch = Tinygrad(tinygrad), _Watch(tinygrad.GlobalCounters)
    with redirect_stdout(watch), redirect_stderr(io.StringIO()), context(DEBUG=2):
        value = call()
        returned = _tensors(known, value)
        for tensor in returned:
            known.wait([tensor])
    operators = watch.kernels()
    if not operators:
        raise UsageError("explain: no kernel of tinygrad ran in the call: its result was there before, or is no tensor")
    places = [located("an array of the call", one).extent for one in (*_tensors(known, given), *returned)]
    return Explanation(WORDING, operators, distinct_bytes(places), None)


class _Watch(io.TextIOBase):
    """Stand in for the output: each line about a kernel comes when that has been counted."""

    def __init__(self, counters: Any) -> None:
        self._counters = counters
        self._found: list[Operator] = []
        self._before = self._now()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        match = _LINE.search(_COLOUR.sub("", text))
        if match is not None:
            self._note(match.group(1))
        return len(text)

    def kernels(self) -> tuple[Operator, ...]:
        """Return all that was counted: kernels that no line told come as one."""
        count = self._now()[2] - self._before[2]
        if count:
            self._note(f"{count} kernels" if count > 1 else "a kernel")
        return tuple(self._found)

    def _note(self, name: str) -> None:
        now = self._now()
        moved, ops = now[0] - self._before[0], now[1] - self._before[1]
        self._before = now
        self._found.append(Operator(name, moved, flop=ops))

    def _now(self) -> tuple[int, int, int]:
        c = self._counters
        return int(c.global_mem), int(c.global_ops), int(c.kernel_count)


def _tensors(known: Tinygrad, value: object) -> list[Any]:
    return [array for _, array in arrays_in(value, "an array of the call") if known.owns(array)]
