"""Report on each device of a run: its results, and what was done with them at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pytest_bandwidth.baseline.locate import slug
from pytest_bandwidth.domain.measured.measurement import Finding
from pytest_bandwidth.outcomes.outcome import Outcome, Plain
from pytest_bandwidth.reports.terminal import TerminalLine
from pytest_bandwidth.reports.text_safe import printable
from pytest_bandwidth.session.publishing.gathered import Device, DeviceResults, Row

LONGEST_SUFFIX = 60


@dataclass(frozen=True, slots=True)
class Remark:
    """Say something of a device's run in a line of the summary; where it has a code, in the document too.

    kind: a problem is what could not be done; a failure fails the run, and no test of it; a note is of no consequence;
    a finding is for the document alone.
    """

    kind: Literal["problem", "failure", "note", "finding"]
    text: str
    code: str | None = None


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """Report on one device, once the run is over.

    name: as sentences name it among the run's devices. baseline: what it was judged by, or written to.
    unlike: how it differs from others of its model. rows: those of the results, as far as they were written.
    further: the update's further runs. changes: of the baseline. interrupted: a person ended the run, or the update's
    further runs, before the baseline was updated. findings: about the run, for the document.
    written: names of files. commands: what the CI system reads on standard output, one a line.
    """

    results: DeviceResults
    name: str
    baseline: str | None
    unlike: Finding | None
    rows: tuple[Row, ...]
    further: Sequence[Sequence[Plain]] = ()
    changes: tuple[TerminalLine, ...] = ()
    interrupted: bool = False
    findings: tuple[dict[str, str], ...] = ()
    remarks: tuple[Remark, ...] = ()
    written: tuple[str, ...] = ()
    commands: str = ""

    @property
    def device(self) -> Device:
        return self.results.device

    @property
    def outcomes(self) -> list[Outcome]:
        """Return every row's outcome."""
        return [row.outcome for row in self.rows]

    def remarks_of(self, kind: str) -> list[str]:
        """Return the texts of the remarks of one kind."""
        return [remark.text for remark in self.remarks if remark.kind == kind]


def names_of(devices: Sequence[Device]) -> list[str]:
    """Return how sentences name each device: with its serial if others have its name."""
    return [printable(name) for name in _distinct(devices, lambda name, serial: f"{name} ({serial})")]


def suffixes_of(devices: Sequence[Device]) -> list[str]:
    """Return for each device a safe, unique part of a file's name: its name, and its serial where others share that."""
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
