"""Compare candidates with a reference: does each compute the same, do its work each time, and how fast is it?

REFERENCE and CANDIDATE are FILE.py (its function `run`), FILE.py::FUNCTION, or
a kernel: FILE.cu::KERNEL or FILE.ptx. A function gets the arrays and numbers of
a case, in order. It returns arrays, or writes into those that it gets, as the
reference does.

The file of the reference yields the cases, each a name and the arguments:

    def inputs(bandwidth):
        for n in (1000, 2**24):
            yield f"n={n}", (bandwidth.random(n), bandwidth.random(n))

    def run(x, y):
        return 2 * x + y

or --inputs names a file of cases, as kernels need it for grid and block:

    - name: small
      args:
        y: {shape: 1024, role: out}
        x: {shape: [1024], dtype: float32, distribution: signed}
        n: {value: 1024, dtype: int64}
      grid: 4
      block: 256

role is in, out or inout; distribution is one of `bandwidth.random`; shared_mem
is in bytes. Each candidate runs in a process of its own. That is no sandbox:
put code that you do not trust into a container without network.

Exit status 0: every candidate is correct and honest; 1: some candidate is not;
2: unusable input, or the reference fails.
"""

from __future__ import annotations

import argparse
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
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import geometric_mean
from typing import Any, BinaryIO

from pytest_bandwidth.cli.main import json_text, print_json, terminal_width, write_output
from pytest_bandwidth.devices.open import known_names, open_device
from pytest_bandwidth.domain import values
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.measured.measurement import CONFIDENCE, NOTE, OF_WORK, WRONG, Finding
from pytest_bandwidth.domain.measured.validity import OF_OWN_SAMPLES
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.domain.units import format_bytes, format_percent, format_seconds, parse_bytes
from pytest_bandwidth.domain.values import parsed
from pytest_bandwidth.domain.verdict import Status
from pytest_bandwidth.evidence.processes.start_and_end import (
    child_environment,
    finish,
    own_group,
    python_command,
    signals_as_interrupts,
    wait_for_end,
)
from pytest_bandwidth.features.honest.arena_inputs import Case, read_cases
from pytest_bandwidth.measuring.measurer import DeviceLock
from pytest_bandwidth.measuring.progress import ConsoleProgress
from pytest_bandwidth.reports.text_safe import aligned, printable_sentence
from pytest_bandwidth.storage.atomic import FileForm, refuse_foreign

FORM = FileForm((".json",), r'\{\s*"schema": \d+,\s*"reference":')
_UNKNOWN = "–"
_WORDS = {True: "yes", False: "no", None: _UNKNOWN}
_error = values.fitting(float, lambda value: 0 <= value < float("inf"), "a number of at least 0")

LOCK_SECONDS = 600.0
# Labels of measurements: the candidate by itself, then both in the same rounds.
ALONE, REFERENCE, CANDIDATE = "alone", "reference", "candidate"
FAILED, SKIPPED, SLOWED = "failed", "not-run", "reference-slowed"
# Codes for wrong results, among all codes for something wrong; and the code after which no result is reliable.
OF_RESULTS, TAMPERED = ("wrong-result", "unwritten", "out-of-bounds"), "tampered"
# A test's messages number arrays by these words: the roles of the parameters that each word means.
_ROLES_OF = {"reads": ("in", "inout"), "writes": ("out", "inout"), "array": ("in", "out", "inout")}
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
# If even the reference's fastest sample is slower than this factor, the candidate or a busy machine slows it. The time
# does not show which, so there is a note without a verdict, and no speed-up, which would be wrong.
SLOWED_FACTOR = 2.0
MOST_OUTPUT_BYTES = 16 * 2**20
MOST_REPORT_BYTES = 256 * 2**20
_POLL_SECONDS = 0.1
_LAST_BYTES = 4096
# Variables that would load plugins or options of the user's own tests.
_OF_PYTEST = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")

Report = dict[str, Any]
CRASHED, TIMED_OUT, FLOODED = "crashed", "timed-out", "flooded"


@dataclass(frozen=True, slots=True)
class Row:
    """Hold the result of one candidate in one case. correct, honest: None if unknown.

    speed_up: how many times as fast as the reference, with its interval. None where the candidate is not correct and
    honest, or the reference was slowed.
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


def declare(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("reference", metavar="REFERENCE", help="what every candidate has to compute")
    parser.add_argument("candidates", metavar="CANDIDATE", nargs="+", help="what is compared with it")
    parser.add_argument("--inputs", type=Path, metavar="FILE", help="YAML: a list of cases (default: the reference's)")
    parser.add_argument("--device", default="auto", metavar="NAME", help=f"{known_names()} (default: auto)")
    parser.add_argument("--rtol", metavar="X", help="largest relative error (default: by dtype)")
    parser.add_argument("--atol", metavar="X", help="largest absolute error (default: by dtype)")
    parser.add_argument("--max-time", metavar="S", help="stop a measurement after S seconds (default: 1)")
    parser.add_argument(
        "--busy-processors",
        metavar="N",
        help="processors that others may use of a host before its figures are invalid, as bandwidth_busy_processors",
    )
    parser.add_argument("--timeout", metavar="S", default="120", help="end a case after S seconds (default: 120)")
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        help="memory that a process may take, such as 8GiB; without effect on a GPU (default: what is free)",
    )
    parser.add_argument("--json", metavar="FILE", help="write JSON; - prints it alone")


def run(options: argparse.Namespace) -> int:
    if len(set(options.candidates)) < len(options.candidates):
        raise UsageError("found a candidate twice, expected each once")
    arena = Arena(
        side_of(options.reference),
        {name: side_of(name) for name in options.candidates},
        None if options.inputs is None else read_cases(options.inputs),
        options.device,
        seconds=parsed("--timeout", options.timeout, values.seconds),
        memory=parsed("--memory", options.memory, parse_bytes),
        options={
            "max_time": parsed("--max-time", options.max_time, values.seconds),
            "busy_processors": parsed("--busy-processors", options.busy_processors, values.processors),
        },
        rtol=parsed("--rtol", options.rtol, _error),
        atol=parsed("--atol", options.atol, _error),
    )
    file = None if options.json in (None, "-") else Path(options.json)
    if file is not None:
        refuse_foreign("--json", file, FORM)
    with signals_as_interrupts():
        rows = arena.rows()
    document = document_of(options.reference, arena.device, rows)
    if options.json == "-":
        print_json(document)
    else:
        print("\n".join(lines_of(options.reference, arena.device, rows)))
    if file is not None:
        write_output(file, json_text(document), FORM)
    return int(not all(row.is_fine for row in rows))


def document_of(reference: str, device: DeviceIdentity, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the document: the overall result of each candidate, and a row for each of its cases."""
    return {
        "reference": reference,
        "device": {"kind": device.kind, "name": device.name},
        "confidence": CONFIDENCE,
        "candidates": _candidates(rows),
        "rows": [asdict(row) for row in rows],
    }


def _candidates(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the overall result of each candidate."""
    found = []
    for name in dict.fromkeys(row.candidate for row in rows):
        own = [row for row in rows if row.candidate == name]
        known = [row.speed_up for row in own if row.speed_up is not None]
        whole = {
            "candidate": name,
            "correct": all(row.correct is True for row in own),
            "honest": all(row.honest is True for row in own),
            "speed_up": geometric_mean(known) if all(row.is_fine for row in own) and len(known) == len(own) else None,
        }
        found.append(whole)
    return found


def lines_of(reference: str, device: DeviceIdentity, rows: Sequence[Row]) -> list[str]:
    """Return a table of the rows, then a line for each finding and for each candidate."""
    headings = ["candidate", "case", "correct", "honest", "speed-up", "interval", "of light", "findings"]
    cells = [
        [
            row.candidate,
            row.case,
            _WORDS[row.correct],
            _WORDS[row.honest],
            _UNKNOWN if row.speed_up is None else f"{row.speed_up:.3g}×",
            _UNKNOWN if row.low is None or row.high is None else f"{row.low:.3g} to {row.high:.3g}",
            "" if row.sol is None else format_percent(row.sol),
            ", ".join(finding.code for finding in row.findings),
        ]
        for row in rows
    ]
    about = printable_sentence(f"reference {reference} on {device.name}")
    table = aligned(headings, cells, left=headings, width=terminal_width())
    found = [
        f"{row.candidate} {row.case}: {one.code} ({one.level}): {one.text}" for row in rows for one in row.findings
    ]
    for whole in _candidates(rows):
        verdict = "correct and honest" if whole["correct"] and whole["honest"] else "not correct and honest"
        speed_up = whole["speed_up"]
        found.append(f"{whole['candidate']}: {verdict}{'' if speed_up is None else f', {speed_up:.3g}× as fast'}")
    return [about, *table, *map(printable_sentence, found)]


# ---- running the sides, each in a process of its own, and judging their reports --------------------------------------


def side_of(spec: str) -> dict[str, str]:
    """Return file and name of ``FILE::NAME``. Raises UsageError if the file does not exist."""
    file, _, name = spec.partition("::")
    if not Path(file).is_file():
        raise UsageError(f"found no file {file}, expected FILE.py, FILE.py::FUNCTION or FILE.cu::KERNEL")
    return {"file": str(Path(file).resolve()), "name": name}


@dataclass(frozen=True)
class Arena:
    """Hold the reference, the candidates and the limits of a comparison.

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
    progress: ConsoleProgress = field(default_factory=lambda: ConsoleProgress("arena"))

    @cached_property
    def device(self) -> DeviceIdentity:
        device = open_device(self.device_name)
        if device.xp.__name__ not in ("numpy", "cupy"):
            wanted = "expected one with arrays of NumPy or CuPy"
            raise UsageError(f"--device {self.device_name}: found arrays of {device.xp.__name__}, {wanted}")
        return device.identity

    def rows(self) -> list[Row]:
        """Run the reference and all candidates. Raises UsageError where the reference fails."""
        # The data are sealed, so that no candidate can change the inputs and results for the next one.
        with open(os.memfd_create("arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "r+b") as data:
            try:
                known = self._reference(data)
                fcntl.fcntl(data, fcntl.F_ADD_SEALS, _SEALS)
                return [row for name in self.candidates for row in self._candidate(name, known, data)]
            finally:
                self.progress.clear()

    def _reference(self, data: BinaryIO) -> list[Report]:
        cases = None if self.cases is None else [{"case": asdict(case)} for case in self.cases]
        ended = self._run("test_reference", None, cases, data)
        *known, last = ended.reports or [{}]
        rows = {row["label"]: row for row in last.get("rows", ())}
        alone = [(one, rows.get(str(number))) for number, one in enumerate(known)]  # the test's labels
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
        """Yield a row for each case. If a process ends too early, a new one continues with the next case."""
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
    """Return a candidate's row of a case. known: the report of the reference's process on that case."""
    case = known["case"]["name"]
    rows = {row["label"]: row for row in report.get("rows", ())}
    reference, own = rows.get(REFERENCE), [rows[label] for label in (ALONE, CANDIDATE) if label in rows]
    findings: dict[str, Finding] = {}
    for row in own:
        code = row["reason_code"].removeprefix(OF_WORK)
        if row["status"] == Status.MISMATCH:
            # A note, if the reference fails the same check: its work is too small, or the declaration is wrong.
            is_size = code in OF_OWN_SAMPLES and reference is not None and reference["reason_code"] == code
            findings.setdefault(code, Finding(code, row["reason"], NOTE if is_size else WRONG))
        elif not row["is_valid"]:
            findings.setdefault(code, Finding(code, row["reason"], NOTE))
        for one in row["findings"]:  # findings in addition to the verdict
            if one["code"].startswith(OF_WORK):
                code = one["code"].removeprefix(OF_WORK)
                findings.setdefault(code, Finding(code, one["text"], WRONG))
    if ALONE not in rows and "failure" not in report:
        findings[FAILED] = Finding(FAILED, "it measured nothing", WRONG)
    if "failure" in report and not any(row["status"] == Status.MISMATCH for row in rows.values()):
        code = SKIPPED if report.get("skipped") else FAILED
        findings[code] = Finding(code, report["failure"], WRONG)
    wrong = {code for code, finding in findings.items() if finding.level == WRONG}
    # A fault of the candidate, such as a write out of bounds, also affects the reference's measurement.
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
    """Return a message with the names of the case's parameters: `x` in place of `reads[0]`."""

    def name(found: re.Match[str]) -> str:
        names = [one["name"] for one in case["parameters"] if one["role"] in _ROLES_OF[found[1]]]
        # "array N" counts from 1, over the arrays of all runs.
        return str(names[(int(found[2]) - (found[1] == "array")) % len(names)]) if names else found[0]

    head, colon, clauses = re.sub(rf"({'|'.join(kinds)})[ \[](\d+)(?:\]| of the test)", name, text).partition(": ")
    return f"{head}{colon}{'; '.join(dict.fromkeys(clauses.split('; ')))}"  # once for several runs


def _slowed(together: Mapping[str, Any], alone: Mapping[str, Any] | None) -> Finding | None:
    """Return the finding that the reference is much slower with the candidate than alone; None where it is not."""
    if alone is None or alone["seconds"] is None or not together["samples"]:
        return None
    fastest = min(together["samples"])
    if fastest <= SLOWED_FACTOR * alone["seconds"]:
        return None
    times = f"{format_seconds(fastest)} at least, and alone {format_seconds(alone['seconds'])}"
    return Finding(SLOWED, f"in its process the reference takes {times}: no speed-up is shown", NOTE)


# ---- a side's process ------------------------------------------------------------------------------------------------
# The code may never end. The process has no standard input, a folder of its own as current and temporary folder, a time
# limit for each case and a memory limit. Its reports carry a token that only the package's own code in it gets. So a
# candidate cannot forge a report by accident or by a print. That is no sandbox.


@dataclass(frozen=True, slots=True)
class Ended:
    """Hold a process's reports, in order. code, text: why it ended before its last report; None where it did not."""

    reports: list[Report]
    code: str | None = None
    text: str | None = None


def run_process(
    asked: Mapping[str, Any], data: BinaryIO, seconds: float, is_over: Callable[[Sequence[Report]], bool]
) -> Ended:
    """Run `arena_child` until `is_over` is true of its reports, or one of them takes longer than `seconds`.

    asked: plain data for the child. data: an open file that the child inherits.
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
        # For its temporary files, including a lock of the device: this process holds the real lock.
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
            finish(process, 0.0, 0.0)  # with its own child processes
        return Ended(found, code, text)


def _new_reports(answer: BinaryIO, start: int, token: str) -> tuple[list[Report], int]:
    """Return the reports with the token in the complete lines after `start`, and the end of those lines."""
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
