"""Gather the results of a run's tests by device, and hold the report on each device.

With pytest-xdist's --dist=each every worker may have its own device; otherwise there is one device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

from pytest_bandwidth.baseline.locate import slug
from pytest_bandwidth.domain.code.stored_kernel import cubin_of_text, text_of_cubin
from pytest_bandwidth.domain.measured.measurement import Finding
from pytest_bandwidth.judging.limits import MarkerOptions
from pytest_bandwidth.outcomes.outcome import Outcome, Plain, flat, from_plain
from pytest_bandwidth.outcomes.run_findings import Unmeasurable
from pytest_bandwidth.reports.terminal import TerminalLine
from pytest_bandwidth.reports.text_safe import printable

Device = Mapping[str, Any]
# Kind, name and serial.
_Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Row:
    """Hold one judged measurement, its test's marker options, and the code to keep.

    ptx, cubin, files: the code that an update keeps, or that a child process sends to its parent.
    """

    outcome: Outcome
    asked: MarkerOptions = field(default_factory=MarkerOptions)
    ptx: str | None = None
    cubin: bytes | None = None
    files: str | None = None

    def to_plain(self) -> Plain:
        """Return the row as plain data, for pytest's report of the test."""
        return {"outcome": self.outcome.to_plain(), "asked": flat(self.asked), **self.code_plain()}

    def code_plain(self) -> Plain:
        """Return the code to keep as plain data, by name: PTX, machine code, a list of files, as far as present."""
        cubin = None if self.cubin is None else text_of_cubin(self.cubin)
        found = {"ptx": self.ptx, "cubin": cubin, "files": self.files}
        return {name: text for name, text in found.items() if text is not None}


def row_of(plain: Plain) -> Row:
    """Make a row from the data of `Row.to_plain`."""
    asked, cubin = MarkerOptions(**plain["asked"]), cubin_of_text(plain.get("cubin"))
    return Row(from_plain(plain["outcome"]), asked, plain.get("ptx"), cubin, plain.get("files"))


@dataclass(frozen=True, slots=True)
class DeviceResults:
    """Hold the results of one device's tests.

    device: as `device_plain` returns it. rows: of its tests, by key. failed: node ids of tests that failed on it.
    further: outcomes of the fresh whole runs that the device's worker took for an update, one list a run; None without
    such runs. trouble: why they are missing. unjudged: errors of tests that failed before they were judged, by node id.
    not_measured: by key, why entries of the baseline were not measured although their test ran. skipped: by reason, how
    many tests skipped on this device.
    unmeasurable: entries of the baseline that no test of the run can measure.
    hidden: by node id, the failures of tests that were not reported as failed.
    failed_otherwise: node ids of tests of the run that failed for other reasons than those above.
    environment: facts about the software and the host of the device's own process; empty if that is this process.
    findings: those in the device's own document, if its process wrote one. hooks: as `conftest_hooks` returns them in
    the device's worker.
    """

    device: Device
    rows: tuple[Row, ...]
    failed: frozenset[str] = frozenset()
    further: Sequence[Sequence[Plain]] | None = None
    trouble: str | None = None
    unjudged: Mapping[str, str] = field(default_factory=dict)
    not_measured: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    unmeasurable: Unmeasurable = field(default_factory=Unmeasurable)
    hidden: Mapping[str, str] = field(default_factory=dict)
    failed_otherwise: Sequence[str] = ()
    environment: Mapping[str, Any] = field(default_factory=dict)
    findings: Sequence[Mapping[str, str]] = ()
    hooks: Sequence[str] = ()

    @property
    def outcomes(self) -> list[Outcome]:
        """Return every row's outcome."""
        return [row.outcome for row in self.rows]

    @property
    def succeeded(self) -> list[Outcome]:
        """Return the outcomes of tests that did not fail."""
        return [row.outcome for row in self.rows if row.outcome.nodeid not in self.failed]


@dataclass(slots=True)
class _OfDevice:
    """Hold what was gathered for one device.

    rows: by key, each with its worker. ended: the last message of the device's process, after its tests.
    not_measured: the reason, by the entry's key. skipped: the reason, by the test's node id.
    """

    device: Device
    rows: dict[str, tuple[str, Row]] = field(default_factory=dict)
    ended: Mapping[str, Any] = field(default_factory=dict)
    not_measured: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


class Gathered:
    """Gather rows as tests' reports arrive; the last report of a test on a device counts."""

    def __init__(self) -> None:
        self._devices: dict[_Key, _OfDevice] = {}
        # By worker and test: errors of tests that failed before they were judged, and failures that workers sent.
        self._unjudged: dict[tuple[str, str], str] = {}
        self._failing: dict[tuple[str, str], str] = {}
        # A worker opens one device.
        self._opened: dict[str, _Key] = {}

    def add(
        self,
        worker: str,
        nodeid: str,
        device: Device | None,
        rows: Sequence[Plain] = (),
        *,
        missing: Mapping[str, Any] | None = None,
        unjudged: str | None = None,
    ) -> None:
        """Add the plain data of one report.

        device: None if no device was opened. missing: entries that the test left unmeasured, and why it skipped.
        unjudged: the error with which the test failed before it was judged.
        """
        if unjudged is not None and not rows:
            self._unjudged[worker, nodeid] = unjudged
        if device is None:
            return
        found = self._of(worker, device)
        found.device = device
        found.rows.update({row.outcome.key: (worker, row) for row in map(row_of, rows)})
        if missing is not None:
            found.not_measured.update(missing["not_measured"])
            if missing["skipped"] is not None:
                found.skipped[nodeid] = missing["skipped"]

    def add_ended(self, sent: Mapping[str, Any], worker: str = "") -> None:
        """Add the last message of a process.

        It holds `device`, `unmeasurable`, `failing`, `due`; a worker's `hooks`; for an update, `further` or `trouble`.
        """
        self._failing.update({(worker, nodeid): reason for nodeid, reason in sent.get("failing", {}).items()})
        self._of(worker, sent["device"]).ended = sent

    def _of(self, worker: str, device: Device) -> _OfDevice:
        key = self._opened[worker] = device["kind"], str(device["name"]), str(device["serial"])
        return self._devices.setdefault(key, _OfDevice(device))

    def failing(self, expected: Collection[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """Return the reason for each test that has to fail. expected: tests that may fail, as (worker, node id)."""
        by_row = {
            (worker, row.outcome.nodeid): verdict_reason(row.outcome.status)
            for one in self._devices.values()
            for worker, row in one.rows.values()
            if row.outcome.message
        }
        return {test: reason for test, reason in {**self._failing, **by_row}.items() if test not in expected}

    def results(
        self,
        failed: Collection[tuple[str, str]],
        expected: Collection[tuple[str, str]] = (),
        ran: Collection[str] | None = None,
    ) -> list[DeviceResults]:
        """Return the results of each device that has some, in a stable order.

        failed, expected: tests that failed, and tests that failed as expected, each as (worker, node id).
        ran: node ids of tests that ran; None if the run stopped early, with an exit status for that.
        """
        hidden = {test: reason for test, reason in self.failing(expected).items() if test not in failed}
        # Only tests whose last attempt failed.
        unjudged = {test: error for test, error in self._unjudged.items() if test in failed}
        otherwise = sorted({nodeid for _, nodeid in set(failed) - self.failing(expected).keys() - unjudged.keys()})
        found = []
        for key, of_device in sorted(self._devices.items(), key=itemgetter(0)):
            rows, given = [of_device.rows[key] for key in sorted(of_device.rows)], of_device.ended
            unmeasurable = Unmeasurable(**given.get("unmeasurable", {}))
            if ran is not None:
                due = (key for nodeid, keys in given.get("due", {}).items() if nodeid not in ran for key in keys)
                not_run = dict.fromkeys(due, "its test did not run")
                unmeasurable = replace(unmeasurable, not_measured=not_run | unmeasurable.not_measured)
            one = DeviceResults(
                of_device.device,
                tuple(row for _, row in rows),
                frozenset(row.outcome.nodeid for worker, row in rows if (worker, row.outcome.nodeid) in failed),
                given.get("further"),
                given.get("trouble"),
                self._on(key, unjudged, or_alone=True),
                {**of_device.not_measured, **unmeasurable.not_measured},
                Counter(of_device.skipped.values()),
                unmeasurable,
                self._on(key, hidden),
                otherwise[:MOST_FAILED],
                hooks=given.get("hooks", ()),
            )
            no_test = unmeasurable.gone or unmeasurable.moved or unmeasurable.elsewhere
            if one.rows or one.unjudged or one.not_measured or one.hidden or no_test:
                found.append(one)
        return found

    def _on(self, key: _Key, texts: Mapping[tuple[str, str], str], *, or_alone: bool = False) -> dict[str, str]:
        """Return the texts of a device's tests, by node id. or_alone: whether a single device gets all texts."""
        every = or_alone and len(self._devices) == 1
        return {nodeid: text for (worker, nodeid), text in texts.items() if every or self._opened.get(worker) == key}


def verdict_reason(status: str) -> str:
    """Return the reason of a test that a verdict fails."""
    return f"its verdict {status}"


LONGEST_SUFFIX = 60
# How many tests that failed for other reasons a report lists.
MOST_FAILED = 1000


@dataclass(frozen=True, slots=True)
class Remark:
    """Hold a line of the summary about a device's run. With a code, it is also a finding in the document.

    kind: a problem is a step that failed; a failure fails the run, but no test of it; a note has no consequence; a
    finding is for the document only.
    """

    kind: Literal["problem", "failure", "note", "finding"]
    text: str
    code: str | None = None


@dataclass(slots=True)
class DeviceReport:
    """Hold the report on one device after the run; publishing it fills in the fields.

    name: the device's name in messages, unique among the run's devices. baseline: the file or revision that it was
    judged by, or the updated file. unlike: how it differs from others of its model. rows: with their final verdicts.
    further: the update's further runs. changes: of the baseline. interrupted: the user ended the run, or the update's
    further runs, before the baseline was updated. why_not: why the baseline was not written. left_out: why the device's
    figures did not enter it. Both are "" otherwise. findings: about the run, for the document.
    written: names of files. commands: lines on standard output for the CI system.
    """

    results: DeviceResults
    name: str
    baseline: str | None
    unlike: Finding | None
    rows: tuple[Row, ...]
    further: Sequence[Sequence[Plain]] = ()
    changes: Sequence[TerminalLine] = ()
    interrupted: bool = False
    why_not: str = ""
    left_out: str = ""
    findings: Sequence[dict[str, str]] = ()
    remarks: list[Remark] = field(default_factory=list)
    written: Sequence[str] = ()
    commands: str = ""

    @property
    def device(self) -> Device:
        return self.results.device

    @property
    def outcomes(self) -> list[Outcome]:
        """Return every row's outcome."""
        return [row.outcome for row in self.rows]

    def add_problem(self, problem: object) -> None:
        """Add a remark about a step that failed."""
        self.remarks.append(Remark("problem", str(problem)))

    def remarks_of(self, kind: str) -> list[str]:
        """Return the texts of the remarks of one kind."""
        return [remark.text for remark in self.remarks if remark.kind == kind]


def names_of(devices: Sequence[Device]) -> list[str]:
    """Return each device's name for messages: with its serial if others have the same name."""
    return [printable(name) for name in _distinct(devices, lambda name, serial: f"{name} ({serial})")]


def suffixes_of(devices: Sequence[Device]) -> list[str]:
    """Return a safe, unique part of a file name for each device: its name, with its serial if others have that name."""
    found: list[str] = []
    for text in _distinct(devices, lambda name, serial: f"{name} {serial}"):
        # The serial is at the end.
        base = slug(text)[-LONGEST_SUFFIX:].strip("-")
        suffix, others = base, 2
        while suffix in found:
            suffix, others = f"{base}-{others}", others + 1
        found.append(suffix)
    return found


def own_file(path: Path, suffix: str) -> Path:
    """Return a device's own file: ``run.json`` → ``run.SUFFIX.json``."""
    return path.with_name(f"{path.stem}.{suffix}{path.suffix}")


def _distinct(devices: Sequence[Device], with_serial: Callable[[str, str], str]) -> list[str]:
    names = Counter(str(device["name"]) for device in devices)
    return [
        with_serial(str(d["name"]), str(d["serial"])) if names[str(d["name"])] > 1 else str(d["name"]) for d in devices
    ]
