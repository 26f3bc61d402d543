"""Define requests for child processes: a type for each mode, which holds the child's part of it too.

The parent writes a request to a file (`options.handed_over`); the child reads it once. Further modes, such as a
feature's, are subclasses of `ChildRequest`, a frozen dataclass.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TextIO

from pytest_bandwidth.devices.base import Device
from pytest_bandwidth.domain.code.stored_kernel import LaunchShape
from pytest_bandwidth.domain.device import Peak
from pytest_bandwidth.measuring.task import Task, TurnsOf
from pytest_bandwidth.storage.atomic import write_whole

if TYPE_CHECKING:
    import pytest


@dataclass(frozen=True, slots=True)
class ChildRequest(Task):
    """Ask a child to measure tests, and to judge nothing.

    device: the name of the chosen device; "": the device of the child's own settings, which the child locks and names.
    target: the command-line argument with the tests to collect; None: the parent's arguments.
    nodeids: which of the collected tests to run; None: all.
    report: the file for its rows. line: the descriptor of a socket: the child sends "ready" on it, and the parent
    sends `Go`; None for a child that does not wait for its turn. `Child` sets both.
    """

    _: KW_ONLY
    target: str | None = None
    nodeids: tuple[str, ...] | None = None
    report: str = ""
    line: int | None = None

    for_parent: ClassVar[bool] = True
    # Whether features add their evidence to the measurements.
    adds_evidence: ClassVar[bool] = False
    # How long a child may take to end what it started.
    grace_seconds: ClassVar[float] = 0.0

    @staticmethod
    def values_of(plain: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the fields from JSON data."""
        nodeids, peak = plain["nodeids"], plain["peak"]
        return {**plain, "nodeids": nodeids and tuple(nodeids), "peak": peak and Peak(**peak)}

    def to_plain(self) -> dict[str, Any]:
        """Return the request as JSON-ready data: its fields, and its type for `read_request`."""
        return {"type": f"{type(self).__module__}:{type(self).__name__}", **asdict(self)}

    @property
    def inherited(self) -> tuple[int, ...]:
        """Return the descriptors that the child inherits from its parent."""
        return ()

    def selects(self, nodeid: str) -> bool:
        """Return whether the request includes the test. The path in a child's node id may start at another folder."""
        test = nodeid.partition("::")[2]
        return self.nodeids is None or any(test == asked.partition("::")[2] for asked in self.nodeids)

    def begin(self, device: Device) -> TurnsOf | None:
        """Prepare the device, then wait for the parent's Go; return the turns with another process, if it has any."""
        device.make_ready()
        line = ParentLine(self.line)
        line.wait_for_turn()
        line.close()
        return None

    def hand_over(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write the child's rows for its parent."""
        write_whole(Path(self.report), json.dumps(rows).encode())

    def note(self, step: str) -> None:
        """Record for the parent that the child has reached a step, even if it fails later."""
        noted_file(self.report, step).touch()


@dataclass(frozen=True, slots=True)
class OldKernel:
    """Hold the old code that a child runs alternately with the measurement of a label.

    old, new: PTX, each a module of one kernel. seconds: how long one run of the new code takes.
    cubin: the old code's machine code for this GPU, as text; None where none was kept. needs_cubin: whether old and new
    PTX are the same, so that the PTX cannot replace the machine code.
    counts: whether to count the requested sectors too, which are the same in every process.
    shape: the old code's grid, block and shared memory, if they differ from the new code's.
    """

    label: str | None
    old: str
    new: str
    seconds: float
    counts: bool = False
    shape: LaunchShape | None = None
    cubin: str | None = None
    needs_cubin: bool = False


def read_old_kernel(plain: Mapping[str, Any]) -> OldKernel:
    """Make an OldKernel from plain data, in which a shape is a list of lists."""
    shape = plain.get("shape")
    if shape is None:
        return OldKernel(**plain)
    grid, block, shared_bytes = shape
    return OldKernel(**{**plain, "shape": LaunchShape(tuple(grid), tuple(block), shared_bytes)})


def read_request(plain: Mapping[str, Any]) -> ChildRequest:
    """Make a request from the data of `ChildRequest.to_plain`."""
    module, _, name = plain["type"].partition(":")
    kind: type[ChildRequest] = getattr(import_module(module), name)
    return kind(**kind.values_of({field: value for field, value in plain.items() if field != "type"}))


def request_of(config: pytest.Config) -> ChildRequest | None:
    """Return the request that this run was started with; None if this process is no child."""
    from pytest_bandwidth.options.options import handed  # imports pytest, which commands do not need

    plain = handed(config, "child")
    return None if plain is None else read_request(plain)


def noted_file(report: str | Path, step: str) -> Path:
    """Return the file whose existence means that a child has reached a step."""
    return Path(report).with_suffix(f".{step}")


@dataclass(frozen=True, slots=True)
class ReportCode(ChildRequest):
    """Ask a child for rows with the code that its tests run."""

    reports_code: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class WholeRun(ChildRequest):
    """Ask a child for a further run of all tests of its parent, for an update of the baseline."""

    adds_evidence: ClassVar[bool] = True
    # A profiler may be running, in its own process group.
    grace_seconds: ClassVar[float] = 10.0


@dataclass(frozen=True, slots=True)
class Go:
    """Hold the message that starts a child's measurements.

    other: the id of a process that alternates with the child, if one does. processor: the one on which both sample.
    seed: for the random numbers of both.
    """

    other: int | None = None
    processor: int | None = None
    seed: int | None = None


class ParentLine:
    """Exchange lines with the process that started this one; without a descriptor, do nothing."""

    def __init__(self, descriptor: int | None) -> None:
        self._text: TextIO | None = None
        if descriptor is not None:
            with socket.socket(fileno=descriptor) as line:
                self._text = line.makefile("rw", encoding="utf-8")

    def wait_for_turn(self) -> Go:
        """Report "ready" to the parent and wait for this child's turn. Raises SystemExit if the parent hangs up."""
        return Go() if self._text is None else Go(**json.loads(self.answer_to("ready")))

    def answer_to(self, message: str) -> str:
        """Send a line and return the parent's answer. Raises SystemExit if the parent hangs up."""
        answer = ""
        if self._text is not None:
            with suppress(OSError):
                self._text.write(f"{message}\n")
                self._text.flush()
                answer = self._text.readline()
        if not answer:
            raise SystemExit("the process that started this one no longer needs it")
        return answer

    def close(self) -> None:
        if self._text is not None:
            self._text.close()
