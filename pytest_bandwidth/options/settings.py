"""Read what command line, ini file and marker say into frozen Settings and MarkerOptions."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_bandwidth.domain.address import Address, is_address, masked
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.units import parse_fraction, parse_gbps, parse_positive
from pytest_bandwidth.features.fleet.card_places import card_places
from pytest_bandwidth.judging.limits import MarkerOptions
from pytest_bandwidth.options.handed_over import REQUEST_VARIABLE
from pytest_bandwidth.options.options import given, usage_error
from pytest_bandwidth.options.own_process import told

# In place of a revision: the commit of each entry's first runs.
ANCHOR = "anchor"
_SETTINGS = pytest.StashKey["Settings"]()


@dataclass(frozen=True, slots=True)
class Settings:
    """Hold the run's options. Seconds and fractions; None where an option was not given."""

    baseline: Path | None = None
    device: str = "auto"
    tolerance: float = 0.05
    update: bool = False
    update_new: bool = False
    runs: int = 5
    confirm: int = 3
    settle: str = "changed"
    settle_time: float = 900.0
    commit: str | None = None
    device_tolerance: float | None = None
    against: str | None = None
    pairs: int = 4
    strict: bool = False
    only: bool = False
    skip: bool = False
    disable: bool = False
    max_time: float = 1.0
    min_samples: int = 30
    precision: float = 0.005
    traffic_timeout: float = 60.0
    suite: str = "quick"
    counters: str = "off"
    peak: float | None = None
    busy_processors: float | None = None
    utilization_classes: tuple[float, float, float] | None = None
    build: str | None = None
    lock_timeout: float = 600.0
    private: bool = False
    html: Path | None = None
    json: Path | None = None
    csv: Path | None = None
    dir: Path | None = None
    history: Path | Address | None = None
    profile: Path | None = None

    @property
    def writes_baseline(self) -> bool:
        return self.update or self.update_new


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


def _positive(most: float, expected: str) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if not 0 < value <= most:
            raise ValueError(f"found {text[:40]!r}, expected {expected}")
        return value

    return parse


_seconds = _positive(86_400, "seconds, more than 0 and at most 86400")
_processors = _positive(10**6, "a number of processors, more than 0")


def _positive_fraction(text: str) -> float:
    value = parse_fraction(text)
    if value == 0:
        raise ValueError(f"found {text[:40]!r}, expected more than 0 %")
    return value


# A backend by tinygrad's name, and a card's number.
_TINYGRAD = re.compile(r"tinygrad:[A-Za-z]\w{0,20}(:[0-9]{1,4})?", re.ASCII)


def _device_name(text: str) -> str:
    kind, _, index = text.partition(":")
    if text in ("auto", "cpu", "cuda", "traffic") or (kind == "cuda" and index.isdecimal() and len(index) < 5):
        return text
    if kind == "traffic" and index.startswith("sm_") and index[3:].rstrip("af").isdecimal():
        return text
    if text == "tinygrad" or _TINYGRAD.fullmatch(text):
        return text
    raise ValueError(f"found {text[:40]!r}, expected auto, cuda, cuda:N, cpu, tinygrad:METAL or traffic")


def _suite(text: str) -> str:
    if text not in ("quick", "full"):
        raise ValueError(f"found {text[:40]!r}, expected quick or full")
    return text


def _profiler(text: str) -> str:
    if text not in ("auto", "ncu", "rocprofv3", "off"):
        raise ValueError(f"found {text[:40]!r}, expected auto, ncu, rocprofv3 or off")
    return text


def _ratio(text: str) -> float:
    value = parse_positive(text)
    if value > 1000:
        raise ValueError(f"found {text[:40]!r}, expected a ratio of at most 1000, such as 1.1")
    return value


def _settle(text: str) -> str:
    if text not in ("changed", "never"):
        raise ValueError(f"found {text[:40]!r}, expected changed or never")
    return text


_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}", re.ASCII)


def _commit(text: str) -> str:
    if _COMMIT.fullmatch(text) is None:
        raise ValueError(f"found {text[:80]!r}, expected a commit's full hash")
    return text


def _classes(text: str) -> tuple[float, float, float]:
    try:
        excellent, good, fair = (parse_fraction(part) for part in text.replace(",", " ").replace(" %", "%").split())
    except ValueError:
        excellent, good, fair = 0.0, 0.0, 0.0
    if not 1 > excellent > good > fair > 0:
        raise ValueError(f"found {text[:40]!r}, expected three falling shares such as '80% 60% 35%'")
    return excellent, good, fair


def _figure(text: str) -> str:
    if text not in ("relative", "gbps"):
        raise ValueError(f"found {text[:40]!r}, expected 'relative' or 'gbps'")
    return text


def _path(text: str) -> Path:
    if not text.strip():
        raise ValueError("found nothing, expected a path")
    if is_address(text):
        raise ValueError(
            f"found the address {masked(text)!r}, expected a path: mount it, or copy what was written there"
        )
    return Path(text)


def _place(text: str) -> Path | Address:
    if text.startswith("memory://"):
        raise ValueError(f"found {text[:40]!r}, which ends with this process, expected a folder or a bucket")
    return Address(text) if is_address(text) else _path(text)


def _share(text: str) -> float:
    """Return a share of the probe: may pass 1, since a kernel may beat a plain copy."""
    from pytest_bandwidth.domain.measured.rounds import LARGEST_SHARE  # kept out of start-up

    percent = text.strip().endswith("%")
    try:
        value = float(text.strip().rstrip("%")) / (100 if percent else 1)
    except ValueError:
        value = 0.0
    if not 0 < value <= LARGEST_SHARE:
        raise ValueError(
            f"found {text[:40]!r}, expected a share of the probe, such as 0.9 or 90%, of {LARGEST_SHARE:.0%} at most"
        )
    return value


# Options that are absent here are switches.
_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "baseline": _path,
    "device": _device_name,
    "tolerance": parse_fraction,
    "runs": _count(1),
    "confirm": _count(0),
    "settle": _settle,
    "settle-time": _seconds,
    "commit": _commit,
    "device-tolerance": _positive_fraction,
    "against": str,
    "pairs": _count(4),
    "max-time": _seconds,
    "min-samples": _count(1),
    "precision": _positive_fraction,
    "traffic-timeout": _seconds,
    "suite": _suite,
    "counters": _profiler,
    "html": _path,
    "json": _path,
    "csv": _path,
    "dir": _path,
    "history": _place,
    "profile": _path,
    "peak": parse_gbps,
    "busy-processors": _processors,
    "utilization-classes": _classes,
    "build": str,
    "lock-timeout": _seconds,
}


def settings_of(config: pytest.Config) -> Settings:
    """Return the run's settings, read when first asked for. Raises pytest.UsageError, one line."""
    if _SETTINGS not in config.stash:
        config.stash[_SETTINGS] = read_settings(config)
    return config.stash[_SETTINGS]


def read_settings(config: pytest.Config) -> Settings:
    """Read the settings: command line before ini before default. Raises pytest.UsageError, one line.

    A path in the ini file is relative to that file, as pytest's own are; one on the command line to the current folder.
    """
    values: dict[str, Any] = {}
    found = given(config)
    for name, (value, where) in found.items():
        parse = _PARSERS.get(name)
        try:
            read = bool(value) if parse is None else parse(str(value))
        except ValueError as error:
            raise usage_error(f"{where}: {error}") from None
        if isinstance(read, Path) and config.inipath is not None and not where.startswith("-"):
            read = config.inipath.parent / read
        values[name.replace("-", "_")] = read
    settings = _of_own_process(config, Settings(**values))
    _refuse_contradictions(settings, {name: where for name, (_, where) in found.items()})
    return settings


def _of_own_process(config: pytest.Config, settings: Settings) -> Settings:
    """Return what a process that the plugin started runs with: it writes none of the files that its options name.

    One card of a fleet judges by the caller's baseline, and writes to it alone.
    """
    places = card_places(config)
    if places is None and told(config, REQUEST_VARIABLE) is None:
        return settings
    settings = replace(settings, json=None, html=None, csv=None, dir=None, history=None)
    return settings if places is None else replace(settings, baseline=places.baseline, json=places.document)


def places_of(config: pytest.Config) -> dict[str, str]:
    """Return where each option that was given stands, as messages name it: ``--bandwidth-json``, or the ini file."""
    places = {name: where for name, (_, where) in given(config).items()}
    if card_places(config) is None:
        return places
    return places | {"json": "the fleet's document", "baseline": "the fleet's baseline"}


def nothing_is_judged(config: pytest.Config) -> str | None:
    """Say that the ini file's strict fails nothing in this run, where the command line leaves bandwidth tests out."""
    settings = settings_of(config)
    if not settings.strict or not (settings.disable or settings.skip):
        return None
    places = places_of(config)
    return (
        f"{places['disable' if settings.disable else 'skip']}: nothing is judged, for all that {places['strict']} says"
    )


def _refuse_contradictions(settings: Settings, places: Mapping[str, str]) -> None:
    """Raise pytest.UsageError, one line, for options that exclude each other. places: where each was given."""
    if settings.only and settings.skip:
        raise pytest.UsageError(f"{places['only']} and {places['skip']} exclude each other: drop one")
    for name in ("disable", "skip"):
        if settings.strict and getattr(settings, name) and not _overrides(places[name], places["strict"]):
            raise pytest.UsageError(
                f"{places['strict']} and {places[name]} exclude each other, for nothing is judged: drop one (on the "
                f"command line {name} goes with strict = true in the ini file, and is said)"
            )
    if settings.update and settings.update_new:
        raise pytest.UsageError(
            f"{places['update']} and {places['update-new']} exclude each other, for one rewrites what the other keeps: "
            "drop one"
        )
    update = places["update" if settings.update else "update-new"] if settings.writes_baseline else ""
    if settings.writes_baseline and settings.baseline is None:
        raise pytest.UsageError(f"{update} needs --bandwidth-baseline=PATH to write to")
    if settings.writes_baseline and settings.disable:
        raise pytest.UsageError(f"{update} needs measurements and {places['disable']} takes none: drop one")
    if settings.writes_baseline and settings.against is not None:
        raise pytest.UsageError(f"{update} writes a baseline and {places['against']} needs none: drop one")
    # In an ini file it is the default of the runs that update.
    if places.get("runs", "").startswith("--") and not settings.writes_baseline:
        raise pytest.UsageError(f"{places['runs']} goes with --bandwidth-update or --bandwidth-update-new")
    if settings.against == ANCHOR and settings.baseline is None:
        raise pytest.UsageError(f"{places['against']}={ANCHOR} needs --bandwidth-baseline, whose entries have anchors")
    if settings.history is not None and importlib.util.find_spec("duckdb") is None:
        from pytest_bandwidth.features.history.store import MISSING  # kept out of start-up

        raise pytest.UsageError(f"{places['history']}: {MISSING}")


def _overrides(place: str, other: str) -> bool:
    """Return whether one place is the command line and the other is not."""
    return place.startswith("-") and not other.startswith("-")


_MARKER_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "min_gbps": parse_gbps,
    "min_utilization": _positive_fraction,
    "min_relative": _share,
    "tolerance": parse_fraction,
    "judged_on": _figure,
    "max_time": _seconds,
    "min_samples": _count(1),
    "device": _device_name,
    "blocks": _count(1),
    "max_dram_ratio": _ratio,
}


def read_marker(marks: list[pytest.Mark]) -> MarkerOptions:
    """Return the marker's arguments, the closest mark first. Raises UsageError that lists the known ones."""
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
    try:
        return _MARKER_PARSERS[name](str(value))
    except ValueError as error:
        raise UsageError(f"bandwidth marker: {name}: {error}") from None
