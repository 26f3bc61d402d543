"""A run's reports, device by device: under pytest-xdist each worker may have a device of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_bandwidth.domain.outcome import Plain


@dataclass(frozen=True, slots=True)
class DeviceRun:
    """What one device's tests reported.

    device: as `device_plain` gives it; rows: outcomes as plain data; failed: tests that failed on this device.
    further: the fresh whole runs that the device's worker took for an update, each a list of rows; None where it was
    not asked to. trouble: why they are missing. unjudged: what tests said that failed before they were judged.
    """

    device: Mapping[str, Any]
    rows: Sequence[Plain]
    failed: frozenset[str]
    further: Sequence[Sequence[Plain]] | None = None
    trouble: str | None = None
    unjudged: Mapping[str, str] = field(default_factory=dict)

    @property
    def succeeded(self) -> list[Plain]:
        """The rows of tests that did not fail."""
        return [row for row in self.rows if row["nodeid"] not in self.failed]


class Gathered:
    """Fills as reports arrive. A device is told by kind, name and serial; the last report of a test on it counts."""

    def __init__(self) -> None:
        self._devices: dict[tuple[str, str, str], Mapping[str, Any]] = {}
        # By device, then by key: the worker, and the row.
        self._rows: dict[tuple[str, str, str], dict[str, tuple[str, Plain]]] = {}
        self._further: dict[tuple[str, str, str], Mapping[str, Any]] = {}
        # By worker and test.
        self._unjudged: dict[tuple[str, str], str] = {}
        # A worker opens one device.
        self._opened: dict[str, tuple[str, str, str]] = {}

    def add(self, worker: str, device: Mapping[str, Any], rows: Sequence[Plain]) -> None:
        """The rows of one report."""
        told = self._opened[worker] = _told_by(device)
        self._devices[told] = device
        self._rows.setdefault(told, {}).update({row["key"]: (worker, row) for row in rows})

    def add_unjudged(self, worker: str, nodeid: str, said: str, device: Mapping[str, Any] | None) -> None:
        """A test that failed without rows. device: None where none was opened."""
        self._unjudged[worker, nodeid] = said
        if device is not None:
            self.add(worker, device, ())

    def add_further(self, given: Mapping[str, Any]) -> None:
        """What a worker measured for an update: `device`, and `further` or `trouble`."""
        self._further[_told_by(given["device"])] = given

    def runs(self, failed: set[tuple[str, str]]) -> list[DeviceRun]:
        """One for each device that there is something to tell of, in a lasting order. failed: (worker, node id)."""
        runs = [self._run(told, failed) for told in sorted(self._devices)]
        return [run for run in runs if run.rows or run.unjudged]

    def _run(self, told: tuple[str, str, str], failed: set[tuple[str, str]]) -> DeviceRun:
        rows = self._rows[told].values()
        further = self._further.get(told, {})
        return DeviceRun(
            self._devices[told],
            [row for _, row in rows],
            frozenset(row["nodeid"] for worker, row in rows if (worker, row["nodeid"]) in failed),
            further.get("further"),
            further.get("trouble"),
            self._unjudged_on(told, failed),
        )

    def _unjudged_on(self, told: tuple[str, str, str], failed: set[tuple[str, str]]) -> dict[str, str]:
        """Those that failed in the end, on this device: all of them where there is no other."""
        return {
            nodeid: said
            for (worker, nodeid), said in self._unjudged.items()
            if (worker, nodeid) in failed and (len(self._devices) == 1 or self._opened.get(worker) == told)
        }


def _told_by(device: Mapping[str, Any]) -> tuple[str, str, str]:
    return device["kind"], str(device["name"]), str(device["serial"])
