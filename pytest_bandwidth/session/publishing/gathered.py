"""Gather what a run's tests reported, by device.

Under pytest-xdist's --dist=each every worker may have a device of its own; otherwise there is one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_bandwidth.domain.code.stored_kernel import cubin_of_text, text_of_cubin
from pytest_bandwidth.judging.limits import MarkerOptions
from pytest_bandwidth.outcomes.outcome import Outcome, Plain, flat, from_plain
from pytest_bandwidth.outcomes.run_findings import Unmeasurable

Device = Mapping[str, Any]
# Kind, name and serial.
_Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Row:
    """Hold one judged measurement, and what an update goes by: what its test's marker asks for, the code to keep.

    ptx, cubin, files: the code that an update keeps, or that a child process hands to the run that started it.
    """

    outcome: Outcome
    asked: MarkerOptions = field(default_factory=MarkerOptions)
    ptx: str | None = None
    cubin: bytes | None = None
    files: str | None = None

    def to_plain(self) -> Plain:
        """Make it plain data, which travels with pytest's report of the test."""
        return {"outcome": self.outcome.to_plain(), "asked": flat(self.asked), **self.code_plain()}

    def code_plain(self) -> Plain:
        """Make plain data of the code to keep: PTX, machine code, a list of files, by name; only what there is."""
        cubin = None if self.cubin is None else text_of_cubin(self.cubin)
        found = {"ptx": self.ptx, "cubin": cubin, "files": self.files}
        return {name: text for name, text in found.items() if text is not None}


def row_of(plain: Plain) -> Row:
    """Make a row of `Row.to_plain`'s data."""
    asked, cubin = MarkerOptions(**plain["asked"]), cubin_of_text(plain.get("cubin"))
    return Row(from_plain(plain["outcome"]), asked, plain.get("ptx"), cubin, plain.get("files"))


@dataclass(frozen=True, slots=True)
class DeviceResults:
    """Hold what one device's tests reported.

    device: as `device_plain` gives it; rows: of its tests; failed: tests that failed on this device.
    further: outcomes of the fresh whole runs that the device's worker took for an update, one list a run; None where it
    was not asked to. trouble: why they are missing. unjudged: what tests said that failed before they were judged.
    not_measured: entries of the baseline that were not measured though their test ran, and why. skipped: how many tests
    skipped on this device, by reason.
    unmeasurable: entries of the baseline for which no test was to run.
    hidden: what tests failed by that were not reported as failed, by node id.
    environment: facts about the software and the host of the device's own process; empty where this process is it.
    findings: what its document says already, where its process wrote one.
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
    environment: Mapping[str, Any] = field(default_factory=dict)
    findings: Sequence[Mapping[str, str]] = ()

    @property
    def outcomes(self) -> list[Outcome]:
        """Return every row's outcome."""
        return [row.outcome for row in self.rows]

    @property
    def succeeded(self) -> list[Outcome]:
        """Return the outcomes of tests that did not fail."""
        return [row.outcome for row in self.rows if row.outcome.nodeid not in self.failed]


class Gathered:
    """Gather rows as tests' reports arrive; the last report of a test on a device counts."""

    def __init__(self) -> None:
        self._devices: dict[_Key, Mapping[str, Any]] = {}
        # By device, then by key: the worker, and the row.
        self._rows: dict[_Key, dict[str, tuple[str, Row]]] = {}
        # What the device's process sent when its tests had run.
        self._ended: dict[_Key, Mapping[str, Any]] = {}
        # By worker and test.
        self._unjudged: dict[tuple[str, str], str] = {}
        # By device: why, by the entry's key; and the reason of each test that skipped on it.
        self._not_measured: dict[_Key, dict[str, str]] = {}
        self._skipped: dict[_Key, dict[str, str]] = {}
        # What tests failed by, as the process that ran them knows it: by worker and test.
        self._failing: dict[tuple[str, str], str] = {}
        # A worker opens one device.
        self._opened: dict[str, _Key] = {}

    def add(self, worker: str, device: Mapping[str, Any], rows: Sequence[Plain]) -> None:
        """Take in the rows of one report, as plain data."""
        key = self._opened[worker] = _key_of(device)
        self._devices[key] = device
        self._rows.setdefault(key, {}).update({row.outcome.key: (worker, row) for row in map(row_of, rows)})

    def add_unjudged(self, worker: str, nodeid: str, said: str, device: Mapping[str, Any] | None) -> None:
        """Take in a test that failed without rows. device: None where none was opened."""
        self._unjudged[worker, nodeid] = said
        if device is not None:
            self.add(worker, device, ())

    def add_missing(
        self, worker: str, nodeid: str, device: Device, not_measured: Mapping[str, str], skipped: str | None
    ) -> None:
        """Take in a test that gave less than it could: entries that it left unmeasured, why it skipped."""
        self.add(worker, device, ())
        key = _key_of(device)
        self._not_measured.setdefault(key, {}).update(not_measured)
        if skipped is not None:
            self._skipped.setdefault(key, {})[nodeid] = skipped

    def add_ended(self, sent: Mapping[str, Any], worker: str = "") -> None:
        """Take in what a process sent at its end.

        `device`, `unmeasurable`, `failing`, `due`; of an update, `further` or `trouble`.
        """
        key = self._opened[worker] = _key_of(sent["device"])
        self._failing.update({(worker, nodeid): said for nodeid, said in sent.get("failing", {}).items()})
        self._devices.setdefault(key, sent["device"])
        self._rows.setdefault(key, {})
        self._ended[key] = sent

    def failing(self, expected: Collection[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """Say of each test that has to fail by what. expected: those that were expected to, as (worker, node id)."""
        rows = [row for rows in self._rows.values() for row in rows.values()]
        by_row = {
            (worker, row.outcome.nodeid): verdict_said(row.outcome.status)
            for worker, row in rows
            if row.outcome.message
        }
        return {test: said for test, said in {**self._failing, **by_row}.items() if test not in expected}

    def results(
        self,
        failed: Collection[tuple[str, str]],
        expected: Collection[tuple[str, str]] = (),
        ran: Collection[str] | None = None,
    ) -> list[DeviceResults]:
        """Return the results of each device that has some, in a lasting order.

        failed, expected: tests that did, and those that were expected to and did, as (worker, node id).
        ran: node ids of tests that ran; None where the run ended early and says so.
        """
        hidden = {test: said for test, said in self.failing(expected).items() if test not in failed}
        found = [self._results(key, failed, hidden, ran) for key in sorted(self._devices)]
        return [r for r in found if r.rows or r.unjudged or r.not_measured or r.hidden or not r.unmeasurable.is_empty]

    def _results(
        self,
        key: _Key,
        failed: Collection[tuple[str, str]],
        hidden: Mapping[tuple[str, str], str],
        ran: Collection[str] | None,
    ) -> DeviceResults:
        rows = self._rows[key].values()
        given = self._ended.get(key, {})
        unmeasurable = Unmeasurable(**given.get("unmeasurable", {}))
        if ran is not None:
            due = (key for nodeid, keys in given.get("due", {}).items() if nodeid not in ran for key in keys)
            not_run = dict.fromkeys(due, "its test did not run")
            unmeasurable = replace(unmeasurable, not_measured=not_run | unmeasurable.not_measured)
        return DeviceResults(
            self._devices[key],
            tuple(row for _, row in rows),
            frozenset(row.outcome.nodeid for worker, row in rows if (worker, row.outcome.nodeid) in failed),
            given.get("further"),
            given.get("trouble"),
            self._unjudged_on(key, failed),
            {**self._not_measured.get(key, {}), **unmeasurable.not_measured},
            Counter(self._skipped.get(key, {}).values()),
            unmeasurable,
            {nodeid: said for (worker, nodeid), said in hidden.items() if self._opened.get(worker) == key},
        )

    def _unjudged_on(self, key: _Key, failed: Collection[tuple[str, str]]) -> dict[str, str]:
        """Return those that failed in the end, on this device: all of them where there is no other."""
        return {
            nodeid: said
            for (worker, nodeid), said in self._unjudged.items()
            if (worker, nodeid) in failed and (len(self._devices) == 1 or self._opened.get(worker) == key)
        }


def verdict_said(status: str) -> str:
    """Say what a test failed by, where a verdict fails it."""
    return f"its verdict {status}"


def _key_of(device: Mapping[str, Any]) -> _Key:
    return device["kind"], str(device["name"]), str(device["serial"])
