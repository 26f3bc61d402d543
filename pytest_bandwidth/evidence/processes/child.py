"""Run the same tests again in fresh processes: same interpreter, options, plugins and root folder.

The parent hands a ChildRequest over (`user.handed_over`). The child's plugin (`child_plugin`)
collects what the request names, waits for its turn, measures, and writes its outcomes to the request's report; it
judges nothing.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from pytest_bandwidth.devices.own_processes import remember
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.evidence.processes.endings import (
    child_environment,
    descendant_environment,
    end_group,
    signals_as_interrupts,
)
from pytest_bandwidth.evidence.processes.interpreter import WITHOUT_CURRENT_FOLDER, this_python
from pytest_bandwidth.options.handed_over import REQUEST_VARIABLE, hand_over
from pytest_bandwidth.storage.atomic import write_whole
from pytest_bandwidth.storage.own_folders import temporary_folder

if TYPE_CHECKING:
    import pytest

OUTPUT_LINES_KEPT = 12
# A child that counts may have a profiler under way, in a process group of its own: so long it may take to end that.
GRACE_SECONDS = 10.0
_NEWEST = (
    "identifies_code",
    "nodeids",
    "tells_code",
    "counts",
    "counted_label",
    "old_kernels",
    "counted_after",
    "takes_turns",
    "shared_memory",
)
OUTPUT_COLUMNS = 1000
# Like `pytest` itself, which does not put the current folder on sys.path as `python -m pytest` does.
_LIKE_CONSOLE_SCRIPT = f"{WITHOUT_CURRENT_FOLDER}from pytest import console_main\nsys.exit(console_main())"


class FreshProcessFailed(BandwidthError):
    """Raised where a fresh process gave no outcome; the message holds the end of its output."""


@dataclass(frozen=True, slots=True)
class ChildRequest:
    """Hold what a child shall measure.

    device: the device's name, already chosen; "": that of the child's own settings, which it locks and names.
    nodeid, target: the one test, as the parent names it and as a command-line argument; None = all that the parent ran.
    nodeids: those of the target's tests that are to run, where it is a file.
    tells_code: whether measurements only tell their code, and hand over a kernel's PTX: nothing is timed or counted.
    counts: whether nothing is timed, and the measurement labelled counted_label runs so that a profiler can count it.
    rounds_share: the share of a measurement's time budget that is for rounds (see `Budget`).
    peak: the device's in bytes a second, and where that is from; None where it is unknown.
    quiet_wait_seconds: how long all its measurements together may wait for others to end.
    identifies_code: whether rows say which code ran, which a GPU's kernels are compiled once more for.
    old_kernels: plain `OldKernel`s, of the measurements beside which old code shall take turns, or, with counts, in
    whose place it is counted.
    counted_after: whether a profiler counts each measurement once it is taken, where the options ask for one.
    takes_turns: whether its rounds follow those of another process (see `turns`). shared_memory: the descriptor, which
    it inherits, of memory that both may have arrays in (see `shared_arrays`).
    report: the file for its outcomes, a JSON list of plain rows. line: the descriptor of a socket, on which the child
    says that it is ready, and is sent `Go`; None where it waits for no turn. `Child` chooses both.
    """

    device: str
    nodeid: str | None = None
    target: str | None = None
    rounds_share: float = 1.0
    peak: Sequence[Any] | None = None
    quiet_wait_seconds: float = 0.0
    identifies_code: bool = True
    report: str = ""
    line: int | None = None
    nodeids: Sequence[str] | None = None
    tells_code: bool = False
    counts: bool = False
    counted_label: str | None = None
    old_kernels: Sequence[Mapping[str, Any]] = ()
    counted_after: bool = False
    takes_turns: bool = False
    shared_memory: int | None = None

    def plain(self) -> dict[str, Any]:
        """Return the fields by name, the newest only where they say something: an older plugin does not know them."""
        plain = asdict(self)
        return {f.name: plain[f.name] for f in fields(self) if f.name not in _NEWEST or plain[f.name] != f.default}

    def selects(self, nodeid: str) -> bool:
        """Return whether the test is asked for. A fresh process may name the file from another folder."""
        if self.nodeids is None and self.nodeid is None:
            return True
        wanted = (self.nodeid,) if self.nodeids is None else self.nodeids
        return any(nodeid.partition("::")[2] == (other or "").partition("::")[2] for other in wanted)


@dataclass(frozen=True, slots=True)
class Go:
    """Start a child's measurements: its message.

    beside: the process that takes turns with the child, where one does; processor: on which both sample; seed: of the
    random numbers of both.
    """

    beside: int | None = None
    processor: int | None = None
    seed: int | None = None


def go_of_plain(plain: Mapping[str, Any]) -> Go:
    """Return the message back; a parent of another version may say more than this process knows."""
    known = {f.name for f in fields(Go)}
    return Go(**{name: value for name, value in plain.items() if name in known})


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


@dataclass(frozen=True, slots=True)
class ChildResult:
    """Say how a child ended and what it measured.

    code: its exit status, None after the time-out; rows: its outcomes; tail: its last lines. reached: whether the
    workload that a profiler counts began; counted: whether it came to its end.
    """

    code: int | None
    rows: list[dict[str, Any]]
    tail: tuple[str, ...]
    timeout_seconds: float
    reached: bool = False
    counted: bool = False

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


def request_of(config: pytest.Config) -> ChildRequest | None:
    """Return the request that this run was started with; None in any other process than a child."""
    from pytest_bandwidth.options.own_process import handed  # pytest's, which a command has no need of

    plain = handed(config, "child")
    return None if plain is None else ChildRequest(**plain)


class ParentLine:
    """Talk with the process that started this one, by lines. Without a descriptor nothing is said."""

    def __init__(self, descriptor: int | None) -> None:
        self._text: TextIO | None = None
        if descriptor is not None:
            with socket.socket(fileno=descriptor) as line:
                self._text = line.makefile("rw", encoding="utf-8")

    def wait_for_turn(self) -> Go:
        """Tell the parent that this child is ready, and wait for its turn. Raises SystemExit where that never comes."""
        return Go() if self._text is None else go_of_plain(json.loads(self.answer_to("ready")))

    def answer_to(self, said: str) -> str:
        """Say a line and return the parent's. Raises SystemExit where there is none any more."""
        answer = ""
        if self._text is not None:
            with suppress(OSError):
                self._text.write(f"{said}\n")
                self._text.flush()
                answer = self._text.readline()
        if not answer:
            raise SystemExit("the process that started this one needs it no more")
        return answer

    def close(self) -> None:
        if self._text is not None:
            self._text.close()


def report_to_parent(request: ChildRequest, rows: Sequence[Mapping[str, Any]]) -> None:
    """Hand a child's outcomes to its parent."""
    write_whole(Path(request.report), json.dumps(rows).encode())


def tell_reached(request: ChildRequest) -> None:
    """Tell the parent that the workload which a profiler counts begins."""
    _reached_file(Path(request.report)).touch()


def tell_counted(request: ChildRequest) -> None:
    """Tell the parent that the workload which a profiler counts came to its end."""
    _counted_file(Path(request.report)).touch()


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
            inherited_too = () if request.shared_memory is None else (request.shared_memory,)
            with theirs:
                line = theirs.fileno() if direct else None
                plain = replace(request, report=str(self._report), line=line).plain()
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
                    pass_fds=(theirs.fileno(), *inherited_too) if direct else (),
                )
            remember(self._process.pid)
            self._grace_seconds = GRACE_SECONDS if request.counted_after else 0.0
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
        reached, counted = _reached_file(self._report).exists(), _counted_file(self._report).exists()
        return ChildResult(code, rows, tuple(tail), timeout_seconds, reached, counted)

    def _exit_status(self, timeout_seconds: float) -> int | None:
        """Return the exit status; None after the time-out, where the child is ended with its own children."""
        try:
            return self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            end_group(self._process, self._grace_seconds)
            return None


def start_fresh(invocation: Invocation, request: ChildRequest) -> Child:
    """Start the request's test (or all) in a fresh process, which waits for its turn before it measures."""
    return Child(invocation.command(), invocation.folder, request)


def rows_of(child: Child, timeout_seconds: float) -> list[dict[str, Any]]:
    """Let a child measure and return its outcomes as plain rows. Raises FreshProcessFailed where it gives none."""
    result = child.finish(timeout_seconds)
    if not result.rows:
        raise FreshProcessFailed(f"a fresh process {result}")
    return result.rows


def run_fresh(invocation: Invocation, request: ChildRequest, timeout_seconds: float) -> list[dict[str, Any]]:
    """Run one test (or all) in a fresh process at once and return its outcomes as plain rows.

    Raises FreshProcessFailed where it gives none. Whatever ends this call, no child is left behind.
    """
    with start_fresh(invocation, request) as child:
        return rows_of(child, timeout_seconds)


def run_child(
    command: Sequence[str],
    folder: Path,
    request: ChildRequest,
    timeout_seconds: float,
    environment: Mapping[str, str] = os.environ,
    *,
    direct: bool = True,
) -> ChildResult:
    """Start a child and wait for it. Whatever ends this call, no child is left behind. direct: as in `Child`."""
    with Child(command, folder, request, environment, direct=direct) as child:
        return child.finish(timeout_seconds)


def _reached_file(report: Path) -> Path:
    return report.with_suffix(".reached")


def _counted_file(report: Path) -> Path:
    return report.with_suffix(".counted")
