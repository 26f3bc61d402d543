"""Say what a child process is to do: a request type for each mode, which knows the child's part in it.

The parent writes a request to a file (`options.handed_over`); the child reads it once. A mode of its own, such as a
feature's, is a subclass of `ChildRequest`, a frozen dataclass.
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

    device: the device's name, already chosen; "": that of the child's own settings, which it locks and names.
    target: what to collect, as a command-line argument; None: all that the parent ran.
    nodeids: the collected tests that are to run; None: all.
    report: the file for its rows. line: the descriptor of a socket, on which the child says that it is ready, and is
    sent `Go`; None where it waits for no turn. `Child` chooses both.
    """

    _: KW_ONLY
    target: str | None = None
    nodeids: tuple[str, ...] | None = None
    report: str = ""
    line: int | None = None

    for_parent: ClassVar[bool] = True
    # Whether features add their evidence to what was measured.
    adds_evidence: ClassVar[bool] = False
    # How long a child may take to end what it started.
    grace_seconds: ClassVar[float] = 0.0

    @staticmethod
    def values_of(plain: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of its fields from what JSON kept of them."""
        nodeids, peak = plain["nodeids"], plain["peak"]
        return {**plain, "nodeids": nodeids and tuple(nodeids), "peak": peak and Peak(**peak)}

    def to_plain(self) -> dict[str, Any]:
        """Return what JSON keeps of it: its fields, and the type that `read_request` makes again."""
        return {"type": f"{type(self).__module__}:{type(self).__name__}", **asdict(self)}

    @property
    def inherited(self) -> tuple[int, ...]:
        """Return the descriptors that the child inherits from its parent."""
        return ()

    def selects(self, nodeid: str) -> bool:
        """Return whether the test is asked for. A child may name its file from another folder."""
        test = nodeid.partition("::")[2]
        return self.nodeids is None or any(test == asked.partition("::")[2] for asked in self.nodeids)

    def begin(self, device: Device) -> TurnsOf | None:
        """Do what comes before a test is measured, then wait until the parent says Go; return whose turns it takes."""
        device.make_ready()
        line = ParentLine(self.line)
        line.wait_for_turn()
        line.close()
        return None

    def hand_over(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Hand the child's rows to its parent."""
        write_whole(Path(self.report), json.dumps(rows).encode())

    def note(self, step: str) -> None:
        """Let the parent know that the child has reached a step, whatever becomes of it then."""
        noted_file(self.report, step).touch()


@dataclass(frozen=True, slots=True)
class OldKernel:
    """Name the old code that a child runs alternately with the measurement of a label.

    old, new: PTX, each a module of one kernel. seconds: how long one run of the new code takes.
    cubin: the old code's machine code for this GPU, as text; None where none was kept. needs_cubin: whether the old PTX
    is the new one's, so that it cannot take the machine code's place.
    counts: whether to count the sectors that each asks for, too, which is the same in every process.
    shape: how the old code is launched, where that is another grid, block or shared memory than the new one's.
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
    """Return it back from plain data, in which a shape is a list of lists."""
    shape = plain.get("shape")
    if shape is None:
        return OldKernel(**plain)
    grid, block, shared_bytes = shape
    return OldKernel(**{**plain, "shape": LaunchShape(tuple(grid), tuple(block), shared_bytes)})


def read_request(plain: Mapping[str, Any]) -> ChildRequest:
    """Make a request again from `ChildRequest.to_plain`."""
    module, _, name = plain["type"].partition(":")
    kind: type[ChildRequest] = getattr(import_module(module), name)
    return kind(**kind.values_of({field: value for field, value in plain.items() if field != "type"}))


def request_of(config: pytest.Config) -> ChildRequest | None:
    """Return the request that this run was started with; None in any other process than a child."""
    from pytest_bandwidth.options.options import handed  # pytest's, which a command has no need of

    plain = handed(config, "child")
    return None if plain is None else read_request(plain)


def noted_file(report: str | Path, step: str) -> Path:
    """Return the file that says that a child has reached a step."""
    return Path(report).with_suffix(f".{step}")


@dataclass(frozen=True, slots=True)
class TellCode(ChildRequest):
    """Ask a child which code its tests run."""

    tells_code: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class WholeRun(ChildRequest):
    """Ask a child for a further run of all that its parent ran, as an update needs it."""

    adds_evidence: ClassVar[bool] = True
    # A profiler may be under way, in a process group of its own.
    grace_seconds: ClassVar[float] = 10.0


@dataclass(frozen=True, slots=True)
class Go:
    """Start a child's measurements: its message.

    other: the process that alternates with the child, where one does; processor: on which both sample; seed: of the
    random numbers of both.
    """

    other: int | None = None
    processor: int | None = None
    seed: int | None = None


class ParentLine:
    """Talk with the process that started this one, by lines. Without a descriptor nothing is said."""

    def __init__(self, descriptor: int | None) -> None:
        self._text: TextIO | None = None
        if descriptor is not None:
            with socket.socket(fileno=descriptor) as line:
                self._text = line.makefile("rw", encoding="utf-8")

    def wait_for_turn(self) -> Go:
        """Tell the parent that this child is ready, and wait for its turn. Raises SystemExit where that never comes."""
        return Go() if self._text is None else Go(**json.loads(self.answer_to("ready")))

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
