"""Run an arena's sides, each in a process of its own, and judge what they report.

The code is not trusted to end. The process has no standard input, a folder of its own as its current and temporary one,
a limit of time for each case and a limit of memory. Its reports carry a token that only the package's own code in it is
handed. That keeps a candidate from forging a report by accident or by a print, and is no sandbox.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

from pytest_bandwidth.devices.base import Device
from pytest_bandwidth.devices.open import open_device
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.measured.measurement import NOTE, OF_WORK, WRONG, Finding
from pytest_bandwidth.domain.measured.validity import OF_OWN_SAMPLES
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.domain.units import format_bytes, format_seconds
from pytest_bandwidth.domain.verdict import Status
from pytest_bandwidth.evidence.processes.start_and_end import (
    child_environment,
    finish,
    own_group,
    python_command,
    wait_for_end,
)
from pytest_bandwidth.features.honest.arena_inputs import Case
from pytest_bandwidth.measuring.device_lock import DeviceLock
from pytest_bandwidth.measuring.progress import ConsoleProgress

LOCK_SECONDS = 600.0
# Labels of measurements: the candidate by itself, then both in the same rounds.
ALONE, REFERENCE, CANDIDATE = "alone", "reference", "candidate"
FAILED, SKIPPED, SLOWED = "failed", "not-run", "reference-slowed"
# Of those that say that something is wrong, these say that a result is; of the last no result can be believed.
OF_RESULTS, TAMPERED = ("wrong-result", "unwritten", "out-of-bounds"), "tampered"
# The roles of the parameters whose arrays messages of a test call so.
_ROLES_OF = {"reads": ("in", "inout"), "writes": ("out", "inout"), "array": ("in", "out", "inout")}
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
# If even the reference's fastest sample is slower than this, the candidate or a busy machine slows it. The time cannot
# show which: there is no accusation, and no speed-up, which would be wrong.
SLOWED_FACTOR = 2.0
MOST_OUTPUT_BYTES = 16 * 2**20
MOST_REPORT_BYTES = 256 * 2**20
_POLL_SECONDS = 0.1
_LAST_BYTES = 4096
# What would load plugins, or options, of the user's own tests.
_OF_PYTEST = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")

Report = dict[str, Any]
CRASHED, TIMED_OUT, FLOODED = "crashed", "timed-out", "flooded"


@dataclass(frozen=True, slots=True)
class Row:
    """Hold the result of one candidate in one case. correct, honest: None if the run could not show it.

    speed_up: how many times as fast as the reference, with its interval. None where the candidate is not fine, or the
    reference was slowed.
    sol: the share of the least possible time, or of the peak bandwidth.
    """

    candidate: str
    case: str
    correct: bool | None
    honest: bool | None
    findings: tuple[Finding, ...] = ()
    speed_up: float | None = None
    low: float | None = None
    high: float | None = None
    rounds: int | None = None
    seconds: float | None = None
    reference_seconds: float | None = None
    gbps: float | None = None
    sol: float | None = None

    @property
    def is_fine(self) -> bool:
        return self.correct is True and self.honest is True


def side_of(spec: str) -> dict[str, str]:
    """Return file and name of ``FILE::NAME``. Raises UsageError where there is no such file."""
    file, _, name = spec.partition("::")
    if not Path(file).is_file():
        raise UsageError(f"found no file {file}, expected FILE.py, FILE.py::FUNCTION or FILE.cu::KERNEL")
    return {"file": str(Path(file).resolve()), "name": name}


@dataclass(frozen=True)
class Arena:
    """Hold what is compared, and by which limits.

    cases: None where the reference's file yields them. options: of the runs, by name; None where not given.
    """

    reference: Mapping[str, str]
    candidates: Mapping[str, Mapping[str, str]]
    cases: Sequence[Case] | None
    device_name: str
    seconds: float
    memory: int | None
    options: Mapping[str, object]
    rtol: float | None
    atol: float | None
    progress: ConsoleProgress = field(default_factory=lambda: ConsoleProgress(command="arena"))

    @cached_property
    def _opened(self) -> Device:
        device = open_device(self.device_name)
        if device.xp.__name__ not in ("numpy", "cupy"):
            wanted = "expected one with arrays of NumPy or CuPy"
            raise UsageError(f"--device {self.device_name}: found arrays of {device.xp.__name__}, {wanted}")
        return device

    @property
    def device(self) -> DeviceIdentity:
        return self._opened.identity

    def rows(self) -> list[Row]:
        """Run everything. Raises UsageError where the reference fails."""
        # Sealed, so that no candidate changes what the next one has to compute.
        with open(os.memfd_create("arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "r+b") as data:
            try:
                known = self._reference(data)
                fcntl.fcntl(data, fcntl.F_ADD_SEALS, _SEALS)
                return [row for name in self.candidates for row in self._candidate(name, known, data)]
            finally:
                self.progress.clear()

    def _reference(self, data: BinaryIO) -> list[Report]:
        cases = None if self.cases is None else [{"case": case.to_plain()} for case in self.cases]
        ended = self._run("test_reference", None, cases, data)
        *known, last = ended.reports or [{}]
        rows = {row["label"]: row for row in last.get("rows", ())}
        alone = [(one, rows.get(str(number))) for number, one in enumerate(known)]  # labelled so by the test
        dishonest = (
            f"{one['case']['name']}: {_named(row['reason'], one['case'], 'reads', 'writes')}"
            for one, row in alone
            if row is not None and row["status"] == Status.MISMATCH and row["reason_code"] not in OF_OWN_SAMPLES
        )
        failure = next(dishonest, None) if "is_last" in last else last.get("failure") or ended.text
        if failure is None and not known:
            failure = "found no case, expected one at least"
        if failure is not None:
            raise UsageError(f"the reference {Path(self.reference['file']).name}: {failure}")
        return [{**one, "alone": row} for one, row in alone]

    def _candidate(self, name: str, known: Sequence[Report], data: BinaryIO) -> Iterator[Row]:
        """Yield a row for each case. After a process that ended too early another one goes on with the next case."""
        left = list(known)
        while left:
            ended = self._run("test_candidate", name, left, data)
            for case, report in zip(left, ended.reports, strict=False):
                yield judged(name, case, report)
            left = left[len(ended.reports) :]
            if left and ended.code is not None:
                finding = Finding(ended.code, ended.text or "", WRONG)
                yield Row(name, left.pop(0)["case"]["name"], None, None, (finding,))

    def _run(self, test: str, candidate: str | None, cases: Sequence[Report] | None, data: BinaryIO) -> Ended:
        options = {"device": self.device.option, **self.options}
        lock = DeviceLock(self.device, LOCK_SECONDS, advice="wait for it or end it")
        asked = {
            "test": test,
            "reference": self.reference,
            "candidate": None if candidate is None else self.candidates[candidate],
            "cases": None if cases is None else [{**case, "alone": None} for case in cases],
            "options": [f"-obandwidth_{name}={value}" for name, value in options.items() if value is not None],
            "limits_memory": not self.device.on_gpu,
            "memory": self.memory,
            "rtol": self.rtol,
            "atol": self.atol,
        }

        def is_over(reports: Sequence[Report]) -> bool:
            if candidate is None or cases is None:
                return any("is_last" in report or "failure" in report for report in reports)
            return len(reports) >= len(cases)

        with lock.held(self.progress.show, self.progress.log):
            self.progress.show("runs the reference" if candidate is None else f"runs {candidate}")
            return run_process(asked, data, self.seconds, is_over)


def judged(name: str, known: Report, report: Report) -> Row:
    """Return a candidate's row of a case. known: what the reference's process reported of the case."""
    case = known["case"]["name"]
    rows = {row["label"]: row for row in report.get("rows", ())}
    reference, own = rows.get(REFERENCE), [rows[label] for label in (ALONE, CANDIDATE) if label in rows]
    findings: dict[str, Finding] = {}
    for row in own:
        code = row["reason_code"].removeprefix(OF_WORK)
        if row["status"] == Status.MISMATCH:
            # Of so little work, or such a declaration, the reference cannot be told by its time, either.
            is_size = code in OF_OWN_SAMPLES and reference is not None and reference["reason_code"] == code
            findings.setdefault(code, Finding(code, row["reason"], NOTE if is_size else WRONG))
        elif not row["is_valid"]:
            findings.setdefault(code, Finding(code, row["reason"], NOTE))
        for one in row["findings"]:  # besides what its verdict says
            if one["code"].startswith(OF_WORK):
                code = one["code"].removeprefix(OF_WORK)
                findings.setdefault(code, Finding(code, one["text"], WRONG))
    if ALONE not in rows and "failure" not in report:
        findings[FAILED] = Finding(FAILED, "it measured nothing", WRONG)
    if "failure" in report and not any(row["status"] == Status.MISMATCH for row in rows.values()):
        code = SKIPPED if report.get("skipped") else FAILED
        findings[code] = Finding(code, report["failure"], WRONG)
    wrong = {code for code, finding in findings.items() if finding.level == WRONG}
    # What the candidate does wrong, such as a write out of bounds, shows in the reference's measurement, too.
    if reference is not None and reference["status"] == Status.MISMATCH and not wrong:
        code = f"reference-{reference['reason_code'].removeprefix(OF_WORK)}"
        findings[code] = Finding(code, reference["reason"], NOTE)
    slowed = None if reference is None else _slowed(reference, known["alone"])
    if slowed is not None:
        findings[SLOWED] = slowed
    found_out = wrong.isdisjoint((FAILED, SKIPPED))
    correct = wrong.isdisjoint(OF_RESULTS) if found_out and TAMPERED not in wrong else None
    honest = wrong <= set(OF_RESULTS) if found_out else None
    last = own[-1] if own else {}
    is_believed = correct and honest and slowed is None
    figures = {name: report.get(name) if is_believed else None for name in ("speed_up", "low", "high", "rounds")}
    return Row(
        name,
        case,
        correct,
        honest,
        tuple(
            one if one.code in (FAILED, SKIPPED) else replace(one, text=_named(one.text, known["case"], *_ROLES_OF))
            for one in findings.values()
        ),
        **figures,
        seconds=last.get("seconds"),
        reference_seconds=None if reference is None else reference["seconds"],
        gbps=last.get("gbps"),
        sol=last.get("sol", last.get("utilization") if last.get("utilization_of") == "peak" else None),
    )


def _named(text: str, case: Mapping[str, Any], *kinds: str) -> str:
    """Return a message in which arrays have the names of the case's parameters: `x` in place of `reads[0]`."""

    def name(found: re.Match[str]) -> str:
        names = [one["name"] for one in case["parameters"] if one["role"] in _ROLES_OF[found[1]]]
        # For each run the arrays are made anew, and counted from 1.
        return str(names[(int(found[2]) - (found[1] == "array")) % len(names)]) if names else found[0]

    head, colon, said = re.sub(rf"({'|'.join(kinds)})[ \[](\d+)(?:\]| of the test)", name, text).partition(": ")
    return f"{head}{colon}{'; '.join(dict.fromkeys(said.split('; ')))}"  # what several runs did is said once


def _slowed(beside: Mapping[str, Any], alone: Mapping[str, Any] | None) -> Finding | None:
    """Return that the reference is much slower beside the candidate than alone; None where it is not."""
    if alone is None or alone["seconds"] is None or not beside["samples"]:
        return None
    fastest = min(beside["samples"])
    if fastest <= SLOWED_FACTOR * alone["seconds"]:
        return None
    times = f"{format_seconds(fastest)} at least, and alone {format_seconds(alone['seconds'])}"
    return Finding(SLOWED, f"in its process the reference takes {times}: no speed-up is shown", NOTE)


# ---- a side's process ------------------------------------------------------------------------------------------------


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
