"""Start this run's tests in a child process: same interpreter, options, plugins and root folder.

The child's plugin (`child_plugin`) collects what the request names, waits for its turn, measures, and hands its rows
over; it judges nothing.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from pytest_bandwidth.devices.host import remember
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.evidence.processes.endings import (
    child_environment,
    descendant_environment,
    end_group,
    signals_as_interrupts,
)
from pytest_bandwidth.evidence.processes.interpreter import WITHOUT_CURRENT_FOLDER, this_python
from pytest_bandwidth.evidence.processes.requests import ChildRequest, Go, noted_file
from pytest_bandwidth.options.handed_over import REQUEST_VARIABLE, hand_over
from pytest_bandwidth.storage.own_folders import temporary_folder

OUTPUT_LINES_KEPT = 12
OUTPUT_COLUMNS = 1000
# Like `pytest` itself, which does not put the current folder on sys.path as `python -m pytest` does.
_LIKE_CONSOLE_SCRIPT = f"{WITHOUT_CURRENT_FOLDER}from pytest import console_main\nsys.exit(console_main())"


class FreshProcessFailed(BandwidthError):
    """Raised where a fresh process gave no outcome; the message holds the end of its output."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """Say how this pytest was started, so that another can be started alike."""

    args: tuple[str, ...]
    folder: Path
    as_module: bool
    extra_args: tuple[str, ...] = ()

    def command(self) -> list[str]:
        """Return the command line that starts such a pytest."""
        start = ["-m", "pytest"] if self.as_module else ["-c", _LIKE_CONSOLE_SCRIPT]
        return [*this_python(), *start, *self.args, *self.extra_args]

    def start(self, request: ChildRequest) -> Child:
        """Start the request's tests in a new process, which waits for its turn before it measures."""
        return Child(self.command(), self.folder, request)


@dataclass(frozen=True, slots=True)
class ChildResult:
    """Say how a child ended and what it measured.

    code: its exit status, None after the time-out; rows: its outcomes; tail: its last lines.
    steps: those that it noted.
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
    """Run a process that measures what a request names. As a context: whatever ends it, no child or file is left.

    direct: False where the command is another program's, which starts Python in its turn: it may close what it
    inherits, so that child waits for no turn.
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
            self._line, theirs = socket.socketpair()
            stack.enter_context(self._line)
            with theirs:
                line = theirs.fileno() if direct else None
                plain = replace(request, report=str(self._report), line=line).to_plain()
                hand_over(request_file, {"child": plain})
                # Nothing that its lines say, of which messages quote some, is cut at a terminal's width.
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
            remember(self._process.pid)
            self._grace_seconds = request.grace_seconds
            stack.callback(end_group, self._process, self._grace_seconds)
            self._stack = stack.pop_all()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def wait_until_ready(self, timeout_seconds: float) -> None:
        """Wait until the child is ready, has ended or the time is over; `finish` tells which."""
        self._line.settimeout(timeout_seconds)
        with suppress(OSError):
            self._line.recv(1)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def line(self) -> socket.socket:
        """Return where the child says lines, and is told."""
        return self._line

    def start(self, go: Go) -> None:
        """Let the child measure."""
        said = {name: value for name, value in asdict(go).items() if value is not None}
        self.tell(json.dumps(said))

    def tell(self, line: str) -> None:
        """Tell the child a line; nothing, where it has ended."""
        with suppress(OSError):
            self._line.sendall(f"{line}\n".encode())

    def finish(self, timeout_seconds: float) -> ChildResult:
        """Let the child measure and wait for its end."""
        self.start(Go())
        return self.result(timeout_seconds)

    def result(self, timeout_seconds: float) -> ChildResult:
        """Wait for the end of a child that measures."""
        rows: list[dict[str, Any]] = []
        code = self._exit_status(timeout_seconds)
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
            raise FreshProcessFailed(f"a fresh process {result}")
        return result.rows

    def _exit_status(self, timeout_seconds: float) -> int | None:
        """Return the exit status; None after the time-out, where the child is ended with its own children."""
        try:
            return self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            end_group(self._process, self._grace_seconds)
            return None
