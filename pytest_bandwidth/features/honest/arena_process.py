"""Run code that is not trusted to end, in a process of its own, and take what it reports.

The process has no standard input, a folder of its own as its current and temporary one, a limit of time for each case
and a limit of memory. Its reports carry a token that only the package's own code in it is handed. That keeps a
candidate from forging a report by accident or by a print, and is no sandbox.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.domain.units import format_bytes
from pytest_bandwidth.evidence.processes.start_and_end import (
    child_environment,
    finish,
    own_group,
    python_command,
    wait_for_end,
)

MOST_OUTPUT_BYTES = 16 * 2**20
MOST_REPORT_BYTES = 256 * 2**20
_POLL_SECONDS = 0.1
_LAST_BYTES = 4096
# What would load plugins, or options, of the user's own tests.
_OF_PYTEST = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")

Report = dict[str, Any]
CRASHED, TIMED_OUT, FLOODED = "crashed", "timed-out", "flooded"


@dataclass(frozen=True, slots=True)
class Ended:
    """Hold what a process reported, in order, and why it ended before its last report; None where it did not."""

    reports: list[Report]
    code: str | None = None
    text: str | None = None


def run_process(
    asked: Mapping[str, Any], data: BinaryIO, seconds: float, is_over: Callable[[Sequence[Report]], bool]
) -> Ended:
    """Run `arena_child` until its reports say that it is over, or one of them takes longer than `seconds`.

    asked: plain data for the child. data: an open file that it inherits.
    """
    token = secrets.token_hex(16)
    with (
        tempfile.TemporaryDirectory(prefix="pytest-bandwidth-arena-", ignore_cleanup_errors=True) as folder,
        tempfile.TemporaryFile() as question,
        tempfile.TemporaryFile() as answer,
        tempfile.TemporaryFile() as output,
    ):
        question.write(json.dumps({**asked, "token": token}).encode())
        question.flush()
        Path(folder, "pytest.ini").write_text("[pytest]\n")
        descriptors = [file.fileno() for file in (question, answer, data)]
        kept = {name: value for name, value in os.environ.items() if name not in _OF_PYTEST}
        # Temporary files, among them the device's lock: this process holds the real one.
        own = {"TMPDIR": folder, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        with own_group(
            python_command("pytest_bandwidth.features.honest.arena_child", *map(str, descriptors)),
            0.0,
            cwd=folder,
            env=child_environment({**kept, **own}),
            stdout=output,
            stderr=output,
            pass_fds=descriptors,
        ) as process:
            found: list[Report] = []
            read, deadline, code, text = 0, time.monotonic() + seconds, None, None
            while code is None:
                ended = wait_for_end(process, _POLL_SECONDS)
                new, read = _new_reports(answer, read, token)
                if new:
                    found, deadline = [*found, *new], time.monotonic() + seconds
                if is_over(found):
                    break
                if ended:
                    text = f"{_end_of(finish(process, 0.0, 0.0))}{_last_line(output)}"
                    given = "" if asked["memory"] is None else f", with {format_bytes(asked['memory'])} (--memory)"
                    code, text = CRASHED, f"{text}{given}"
                elif os.fstat(output.fileno()).st_size > MOST_OUTPUT_BYTES:
                    code, text = FLOODED, f"it printed more than {format_bytes(MOST_OUTPUT_BYTES)}"
                elif os.fstat(answer.fileno()).st_size > MOST_REPORT_BYTES:
                    code, text = FLOODED, f"it reported more than {format_bytes(MOST_REPORT_BYTES)}"
                elif time.monotonic() > deadline:
                    code, text = TIMED_OUT, f"it did not end within {seconds:g} s (--timeout)"
            finish(process, 0.0, 0.0)  # with what it started
        return Ended(found, code, text)


def _new_reports(answer: BinaryIO, start: int, token: str) -> tuple[list[Report], int]:
    """Return whole lines from a place on that carry the token, and the place behind them."""
    there = os.fstat(answer.fileno()).st_size - start
    data = os.pread(answer.fileno(), max(0, min(there, MOST_REPORT_BYTES)), start)
    whole = data[: data.rfind(b"\n") + 1]
    reports = []
    for line in whole.splitlines():
        with suppress(ValueError, RecursionError):
            report = json.loads(line)
            if isinstance(report, dict) and secrets.compare_digest(
                str(report.pop("token", "")).encode(), token.encode()
            ):
                reports.append(report)
    return reports, start + len(whole)


def _end_of(status: int | None) -> str:
    if status is None or status >= 0:
        return f"its process ended with exit status {status} before its result was there"
    with suppress(ValueError):
        return f"its process was ended by {signal.Signals(-status).name}"
    return f"its process was ended by signal {-status}"


def _last_line(output: BinaryIO) -> str:
    size = os.fstat(output.fileno()).st_size
    lines = os.pread(output.fileno(), _LAST_BYTES, max(0, size - _LAST_BYTES)).decode("utf-8", "replace").splitlines()
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f", after {shown(last, 200)}" if last else ""
