"""Command line, ini and marker → frozen Settings and MarkerOptions. Options are read once, here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.units import parse_fraction, parse_gbps

if TYPE_CHECKING:
    from pytest_bandwidth.domain.baseline import Figure
    from pytest_bandwidth.domain.judging import Floors

MARKER_HELP = (
    "bandwidth(min_gbps=, min_utilization=, min_relative=, tolerance=, judged_on=, max_time=, min_samples=, device=): "
    "limits and budget of a memory-bandwidth test (pytest-bandwidth). tolerance='3%' replaces --bandwidth-tolerance; "
    "min_* are floors that hold whatever the baseline says; judged_on is 'relative' or 'gbps'; "
    "device='cuda' skips the test on other devices."
)


@dataclass(frozen=True, slots=True)
class Settings:
    """The run's options. Seconds and fractions; None where an option was not given."""

    baseline: Path | None = None
    device: str = "auto"
    tolerance: float = 0.05
    update: bool = False
    update_new: bool = False
    runs: int = 1
    confirm: int = 3
    strict: bool = False
    only: bool = False
    skip: bool = False
    disable: bool = False
    max_time: float = 1.0
    min_samples: int = 30
    precision: float = 0.005
    peak: float | None = None
    lock_timeout: float = 600.0
    html: Path | None = None
    json: Path | None = None
    csv: Path | None = None
    dir: Path | None = None

    @property
    def writes_baseline(self) -> bool:
        return self.update or self.update_new


@dataclass(frozen=True, slots=True)
class MarkerOptions:
    """What `@pytest.mark.bandwidth(...)` says about one test; None where it is silent."""

    min_gbps: float | None = None
    min_utilization: float | None = None
    min_relative: float | None = None
    tolerance: float | None = None
    judged_on: Figure | None = None
    max_time: float | None = None
    min_samples: int | None = None
    device: str | None = None

    @property
    def floors(self) -> Floors:
        from pytest_bandwidth.domain.judging import Floors  # kept out of start-up

        return Floors(self.min_gbps, self.min_utilization, self.min_relative)


def _count(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least or value > 10**6:
            raise ValueError(f"found {text[:40]!r}, expected a whole number from {least} to 1000000")
        return value

    return parse


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 86_400:
        raise ValueError(f"found {text[:40]!r}, expected seconds, more than 0 and at most 86400")
    return value


def _positive_fraction(text: str) -> float:
    value = parse_fraction(text)
    if value == 0:
        raise ValueError(f"found {text[:40]!r}, expected more than 0 %")
    return value


def _device_name(text: str) -> str:
    kind, _, index = text.partition(":")
    if text in ("auto", "cpu", "cuda", "traffic") or (kind == "cuda" and index.isdecimal() and len(index) < 5):
        return text
    raise ValueError(f"found {text[:40]!r}, expected auto, cuda, cuda:N, cpu or traffic")


def _figure(text: str) -> str:
    if text not in ("relative", "gbps"):
        raise ValueError(f"found {text[:40]!r}, expected 'relative' or 'gbps'")
    return text


@dataclass(frozen=True, slots=True)
class _Option:
    name: str
    parse: Callable[[str], Any] | None  # None: a switch
    help: str
    metavar: str | None = None

    @property
    def dest(self) -> str:
        return f"bandwidth_{self.field}"

    @property
    def field(self) -> str:
        return self.name.replace("-", "_")


_OPTIONS = (
    _Option("baseline", Path, "YAML baseline, or a folder that holds one per device (default: measure only)", "PATH"),
    _Option("device", _device_name, "auto, cuda, cuda:N, cpu or traffic (default: auto)", "NAME"),
    _Option("tolerance", parse_fraction, "drop that matters where marker and baseline are silent (default: 5%%)", "P"),
    _Option("update", None, "write what was measured to the baseline"),
    _Option("update-new", None, "write only what has no entry in the baseline yet"),
    _Option("runs", _count(1), "fresh whole runs when updating (default: 1; 5 advised)", "N"),
    _Option("confirm", _count(0), "fresh processes that must agree before a suspect fails (default: 3)", "N"),
    _Option("strict", None, "whatever could not be judged fails too"),
    _Option("only", None, "run bandwidth tests only"),
    _Option("skip", None, "skip bandwidth tests"),
    _Option("disable", None, "run the bodies of bandwidth tests once, untimed"),
    _Option("max-time", _seconds, "budget of one measurement in seconds (default: 1)", "S"),
    _Option("min-samples", _count(1), "samples of one measurement, time permitting (default: 30)", "N"),
    _Option("precision", _positive_fraction, "stop at this precision of the median (default: 0.5%%)", "P"),
    _Option("html", Path, "write the HTML summary", "FILE"),
    _Option("json", Path, "write everything measured as one JSON document", "FILE"),
    _Option("csv", Path, "write the table as CSV", "FILE"),
    _Option("dir", Path, "write DIR/RUN_ID/bandwidth_report.{json,csv,html}", "DIR"),
)
# Settled for a machine or a repository, not for a run: ini only.
_INI_ONLY = (
    _Option("peak", parse_gbps, "peak bandwidth of the device, e.g. 2039 GB/s, where the tables are wrong"),
    _Option("lock-timeout", _seconds, "seconds to wait for another process that measures on the device (default: 600)"),
)


def add_options(parser: pytest.Parser) -> None:
    """Declares every option on the command line and in the ini file."""
    group = parser.getgroup("bandwidth", "memory-bandwidth regression tests (pytest-bandwidth)")
    for option in _OPTIONS:
        flag = f"--bandwidth-{option.name}"
        if option.parse is None:
            group.addoption(flag, dest=option.dest, action="store_true", default=None, help=option.help)
        else:
            group.addoption(flag, dest=option.dest, default=None, metavar=option.metavar, help=option.help)
    for option in (*_OPTIONS, *_INI_ONLY):
        kind = "bool" if option.parse is None else "string"
        text = option.help.replace("%%", "%")
        parser.addini(option.dest, f"{text} (pytest-bandwidth)", type=kind, default=None)  # type: ignore[arg-type]  # kind is one of pytest's two names


def read_settings(config: pytest.Config) -> Settings:
    """The run's settings: command line before ini before default. Raises pytest.UsageError, one line."""
    given: dict[str, Any] = {}
    for option in (*_OPTIONS, *_INI_ONLY):
        value = config.getoption(option.dest, default=None)
        where = f"--bandwidth-{option.name}"
        if value is None:
            value, where = config.getini(option.dest), f"{option.dest} in {config.inipath or 'the ini file'}"
        if value is None or value == "":
            continue
        try:
            given[option.field] = bool(value) if option.parse is None else option.parse(str(value))
        except ValueError as error:
            raise pytest.UsageError(f"{where}: {error}") from None
    settings = Settings(**given)
    _refuse_contradictions(settings)
    return settings


def _refuse_contradictions(settings: Settings) -> None:
    if settings.only and settings.skip:
        raise pytest.UsageError("--bandwidth-only and --bandwidth-skip exclude each other: drop one")
    if settings.writes_baseline and settings.baseline is None:
        raise pytest.UsageError("--bandwidth-update needs --bandwidth-baseline=PATH to write to")
    if settings.writes_baseline and settings.disable:
        raise pytest.UsageError("--bandwidth-update needs measurements and --bandwidth-disable takes none: drop one")
    if settings.runs > 1 and not settings.writes_baseline:
        raise pytest.UsageError("--bandwidth-runs goes with --bandwidth-update or --bandwidth-update-new")


_MARKER_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "min_gbps": parse_gbps,
    "min_utilization": _positive_fraction,
    "tolerance": parse_fraction,
    "judged_on": _figure,
    "max_time": _seconds,
    "min_samples": _count(1),
    "device": _device_name,
}


def read_marker(marks: list[pytest.Mark]) -> MarkerOptions:
    """The marker's arguments, the closest mark first. Raises UsageError that lists the known ones."""
    known = [f.name for f in fields(MarkerOptions)]
    given: dict[str, Any] = {}
    for mark in marks:
        if mark.args:
            raise UsageError(f"bandwidth marker: found {mark.args[0]!r}, expected keywords only: {', '.join(known)}")
        for name, value in mark.kwargs.items():
            if name not in known:
                raise UsageError(f"bandwidth marker: found {name!r}, expected one of {', '.join(known)}")
            given.setdefault(name, _marker_value(name, value))
    return MarkerOptions(**given)


def _marker_value(name: str, value: object) -> Any:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise UsageError(f"bandwidth marker: {name}={value!r}, expected a number or text")
    parse = _MARKER_PARSERS.get(name, _share)
    try:
        return parse(str(value))
    except ValueError as error:
        raise UsageError(f"bandwidth marker: {name}: {error}") from None


def _share(text: str) -> float:
    """A share of the probe: may pass 1, since a kernel may beat a plain copy."""
    percent = text.strip().endswith("%")
    try:
        value = float(text.strip().rstrip("%")) / (100 if percent else 1)
    except ValueError:
        value = 0.0
    if not 0 < value < 10:
        raise ValueError(f"found {text[:40]!r}, expected a share of the probe, such as 0.9 or 90%")
    return value
