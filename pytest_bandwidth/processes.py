"""The same tests again in fresh processes: same interpreter, options, plugins and root folder.

The parent writes an Order to a file and names it in the environment; the child's plugin obeys it: it collects what the
order names, measures, writes its outcomes to the order's report and judges nothing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.interpreter import interpreter_options
from pytest_bandwidth.orphans import as_parent
from pytest_bandwidth.whole_files import write_whole

ORDER_VARIABLE = "PYTEST_BANDWIDTH_ORDER"
OUTPUT_LINES_KEPT = 12
# Like `pytest` itself: the current folder is not put on sys.path, as `python -m pytest` would.
_LIKE_CONSOLE_SCRIPT = "import sys; sys.path[:1] = []; from pytest import console_main; sys.exit(console_main())"


class FreshProcessFailed(BandwidthError):
    """A fresh process gave no outcome; the message holds the end of its output."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a child is asked for.

    device: the device's name, already chosen.
    nodeid, target: the one test, as the parent names it and as a command-line argument; None = all that the parent ran.
    paces: labels of measurements, each with the GB/s of the fastest probe beside which it shall be sampled if possible.
    rounds_share: the share of a measurement's time budget that is for rounds (see `Budget`).
    report: the file for its outcomes, a JSON list of plain rows; who starts the child chooses it.
    """

    device: str
    nodeid: str | None = None
    target: str | None = None
    paces: Sequence[tuple[str | None, float]] = ()
    rounds_share: float = 1.0
    report: str = ""

    def pace(self, label: str | None) -> float | None:
        """The fastest probe for the measurement of that label; None where any will do."""
        return dict(self.paces).get(label)


@dataclass(frozen=True, slots=True)
class Invocation:
    """How this pytest was started, so that another can be started alike."""

    args: tuple[str, ...]
    folder: Path
    as_module: bool
    extra_args: tuple[str, ...] = ()

    def command(self) -> list[str]:
        start = ["-m", "pytest"] if self.as_module else ["-c", _LIKE_CONSOLE_SCRIPT]
        return [sys.executable, *interpreter_options(), *start, *self.args, *self.extra_args]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended. code: its exit status, None after the time-out; rows: its outcomes; tail: its last lines."""

    code: int | None
    rows: list[dict[str, Any]]
    tail: tuple[str, ...]
    timeout_seconds: float

    def __str__(self) -> str:
        how = (
            f"did not end in {self.timeout_seconds:.0f} s"
            if self.code is None
            else f"ended with exit status {self.code}"
        )
        nothing = "" if self.rows else " and measured nothing"
        return f"{how}{nothing}; its last lines:\n  " + "\n  ".join(self.tail)


def started_as_module() -> bool:
    """Whether this process is ``python -m pytest`` (which puts the current folder on sys.path)."""
    return Path(sys.argv[0]).name == "__main__.py"


def order_of_environment(environment: Mapping[str, str] = os.environ) -> Order | None:
    """The order that this process was started with, if any."""
    path = environment.get(ORDER_VARIABLE)
    if not path:
        return None
    return Order(**json.loads(Path(path).read_text(encoding="utf-8")))


def report_to_parent(rows: Sequence[Mapping[str, Any]]) -> None:
    """Hands a child's outcomes to the process that ordered them; nothing happens in any other process."""
    order = order_of_environment()
    if order is None:
        return
    write_whole(Path(order.report), json.dumps(rows).encode())


def run_fresh(invocation: Invocation, order: Order, timeout_seconds: float) -> list[dict[str, Any]]:
    """Runs one test (or all) in a fresh process and returns its outcomes as plain rows.

    Raises FreshProcessFailed where it gives none. Whatever ends this call, no child is left behind.
    """
    ended = run_child(invocation.command(), invocation.folder, order, timeout_seconds)
    if not ended.rows:
        raise FreshProcessFailed(f"a fresh process {ended}")
    return ended.rows


def run_child(
    command: Sequence[str],
    folder: Path,
    order: Order,
    timeout_seconds: float,
    environment: Mapping[str, str] = os.environ,
) -> Ended:
    """Starts a child with an order and waits for it. Whatever ends this call, no child is left behind."""
    with tempfile.TemporaryDirectory(prefix="pytest-bandwidth-") as own:
        report, order_file = Path(own, "report.json"), Path(own, "order.json")
        order_file.write_text(json.dumps(asdict(replace(order, report=str(report)))), encoding="utf-8")
        rows: list[dict[str, Any]] = []
        with Path(own, "output").open("w+b") as output:
            code = _run(
                command, folder, {**as_parent(environment), ORDER_VARIABLE: str(order_file)}, output, timeout_seconds
            )
            if code is not None and report.exists():
                rows = json.loads(report.read_text(encoding="utf-8"))
            output.seek(0)
            tail = output.read().decode(errors="replace").strip().splitlines()[-OUTPUT_LINES_KEPT:]
        return Ended(code, rows, tuple(tail), timeout_seconds)


def _run(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], output: Any, timeout_seconds: float
) -> int | None:
    """Exit status, or None after the time-out. A child that has not ended by itself is, with its own children."""
    child = subprocess.Popen(
        command,
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        return child.wait(timeout_seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if child.poll() is None:
            _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    if hasattr(os, "killpg"):
        os.killpg(child.pid, signal.SIGKILL)
    else:
        child.kill()
    child.wait()
