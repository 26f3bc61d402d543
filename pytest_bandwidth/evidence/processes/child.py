"""Start this run's tests in child processes: same interpreter, options, plugins and root folder.

A child's plugin (`child_plugin`) collects what the request names, waits for its turn, measures, and hands its rows
over; it judges nothing. Several may be started before the first of them measures: they load at the same time.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from pytest_bandwidth.devices.host import remember
from pytest_bandwidth.domain.device import SAME_PROCESS_IDS, DeviceIdentity
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.evidence.processes.requests import ChildRequest, Go, noted_file
from pytest_bandwidth.evidence.processes.start_and_end import (
    WITHOUT_CURRENT_FOLDER,
    child_environment,
    descendant_environment,
    end_group,
    signals_as_interrupts,
    this_python,
)
from pytest_bandwidth.options.handed_over import REQUEST_VARIABLE, hand_over
from pytest_bandwidth.storage.own_folders import temporary_folder

OUTPUT_LINES_KEPT = 12
OUTPUT_COLUMNS = 1000
# Like `pytest` itself, which does not put the current folder on sys.path as `python -m pytest` does.
_LIKE_CONSOLE_SCRIPT = f"{WITHOUT_CURRENT_FOLDER}import pytest\nsys.exit(pytest.main())"


class FreshProcessFailed(BandwidthError):
    """Raised where a fresh process gave no outcome; the message holds the end of its output."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """Hold how this pytest was started, for starting another one in the same way."""

    args: tuple[str, ...]
    folder: Path
    as_module: bool
    extra_args: tuple[str, ...] = ()

    def command(self) -> list[str]:
        """Return the command line for another pytest."""
        start = ["-m", "pytest"] if self.as_module else ["-c", _LIKE_CONSOLE_SCRIPT]
        return [*this_python(), *start, *self.args, *self.extra_args]

    def start(self, request: ChildRequest) -> Child:
        """Start the request's tests in a new process, which waits for its turn before it measures."""
        return Child(self.command(), self.folder, request)


@dataclass(frozen=True, slots=True)
class ChildResult:
    """Hold how a child ended and what it measured.

    code: its exit status, None after the time-out. rows: its outcomes. tail: the last lines of its output.
    steps: the steps that it noted.
    """

    code: int | None
    rows: list[dict[str, Any]]
    tail: tuple[str, ...]
    timeout_seconds: float
    steps: frozenset[str] = frozenset()

    def __str__(self) -> str:
        how = (
            f"did not end in {self.timeout_seconds:.0f} s"
            if self.code is None
            else f"ended with exit status {self.code}"
        )
        nothing = "" if self.rows else " and measured nothing"
        return f"{how}{nothing}; its last lines:\n  " + "\n  ".join(self.tail)


def started_as_module() -> bool:
    """Return whether this process is ``python -m pytest`` (which puts the current folder on sys.path)."""
    return Path(sys.argv[0]).name == "__main__.py"


class Child:
    """Run a process that measures what a request names. As a context, it always removes the child and its files.

    direct: False where the command is another program, which starts Python itself. Such a program may close inherited
    descriptors, so its child does not wait for its turn.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        request: ChildRequest,
        environment: Mapping[str, str] = os.environ,
        *,
        direct: bool = True,
    ) -> None:
        with ExitStack() as stack:
            stack.enter_context(signals_as_interrupts())
            own = stack.enter_context(temporary_folder())
            self._report, request_file = Path(own, "report.json"), Path(own, "request.json")
            self._output = stack.enter_context(Path(own, "output").open("w+b"))
            # The socket for lines between child and parent.
            self.line, theirs = socket.socketpair()
            stack.enter_context(self.line)
            with theirs:
                line = theirs.fileno() if direct else None
                plain = replace(request, report=str(self._report), line=line).to_plain()
                hand_over(request_file, {"child": plain})
                # Wide enough that pytest does not shorten lines of the output: messages quote some of them.
                own_variables = {REQUEST_VARIABLE: str(request_file), "COLUMNS": str(OUTPUT_COLUMNS)}
                inherited = child_environment(environment) if direct else descendant_environment(environment)
                self._process = subprocess.Popen(
                    command,
                    cwd=folder,
                    env={**inherited, **own_variables},
                    stdin=subprocess.DEVNULL,
                    stdout=self._output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=(theirs.fileno(), *request.inherited) if direct else (),
                )
            self.pid = self._process.pid
            remember(self.pid)
            self._grace_seconds = request.grace_seconds
            stack.callback(end_group, self._process, self._grace_seconds)
            self._stack = stack.pop_all()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def wait_until_ready(self, timeout_seconds: float) -> None:
        """Wait until the child is ready, has ended or the time is over; `finish` returns how it ended."""
        self.line.settimeout(timeout_seconds)
        with suppress(OSError):
            self.line.recv(1)

    def start(self, go: Go) -> None:
        """Let the child measure."""
        self.send(json.dumps({name: value for name, value in asdict(go).items() if value is not None}))

    def send(self, line: str) -> None:
        """Send the child a line; do nothing if it has ended."""
        with suppress(OSError):
            self.line.sendall(f"{line}\n".encode())

    def finish(self, timeout_seconds: float) -> ChildResult:
        """Let the child measure and wait for its end."""
        self.start(Go())
        return self.result(timeout_seconds)

    def result(self, timeout_seconds: float) -> ChildResult:
        """Wait for the end of a child that measures. After the time-out, end it with its own children."""
        rows: list[dict[str, Any]] = []
        code: int | None = None
        try:
            code = self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            end_group(self._process, self._grace_seconds)
        if code is not None and self._report.exists():
            rows = json.loads(self._report.read_text(encoding="utf-8"))
        self._output.seek(0)
        tail = self._output.read().decode(errors="replace").strip().splitlines()[-OUTPUT_LINES_KEPT:]
        noted = self._report.parent.glob(noted_file(self._report, "*").name)
        steps = frozenset(file.suffix[1:] for file in noted if file != self._report)
        return ChildResult(code, rows, tuple(tail), timeout_seconds, steps)

    def rows(self, timeout_seconds: float) -> list[dict[str, Any]]:
        """Let the child measure and return its rows. Raises FreshProcessFailed where it gives none."""
        result = self.finish(timeout_seconds)
        if not result.rows:
            raise FreshProcessFailed(f"a new process {result}")
        return result.rows


# An upper bound of the GPU memory that a process's context takes, and the share of the memory for waiting processes.
CONTEXT_GIB = 1.0
WAITING_SHARE = 0.1
MOST_ON_HOST = 8

T = TypeVar("T")


def room_on(identity: DeviceIdentity) -> int:
    """Return how many fresh processes may have the device open at the same time.

    It is 1 on a GPU where a process finds its own id in the driver's list by opening it alone.
    """
    if identity.on_host:
        return MOST_ON_HOST
    if identity.facts.get("other_processes") != SAME_PROCESS_IDS or identity.memory_gib is None:
        return 1
    return max(1, int(WAITING_SHARE * identity.memory_gib / CONTEXT_GIB))


class StartedAhead(ExitStack):
    """Keep processes that wait for their turn, and end the waiting ones when this context ends."""

    def __init__(self, room: int, timeout_seconds: float) -> None:
        super().__init__()
        self._room, self._timeout_seconds = room, timeout_seconds
        self._waiting: list[Child] = []

    def measured(self, start: Callable[[], Child], needed: int, measure: Callable[[Child], T]) -> T:
        """Let the next waiting process measure. If none waits, first start as many as are needed and have room.

        If it fails while others wait, which hold device memory, end those and try once more with a process alone.
        Raises what `start` and `measure` raise.
        """
        child = self._next(start, needed)
        try:
            return measure(child)
        except FreshProcessFailed:
            if not self._waiting:
                raise
        self.end_waiting()
        self._room = 1
        return measure(self._next(start, 1))

    def end_waiting(self) -> None:
        """End the waiting processes, because their requests are out of date."""
        self._waiting = []
        self.close()

    def _next(self, start: Callable[[], Child], needed: int) -> Child:
        if not self._waiting:
            count = max(1, min(needed, self._room))
            started = [self.enter_context(start()) for _ in range(count)]
            for child in started:
                child.wait_until_ready(self._timeout_seconds)
            self._waiting = started
        return self._waiting.pop(0)
