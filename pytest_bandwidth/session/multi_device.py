"""Several devices in one run (pytest-xdist's --dist=each): their names, their files, and who is unlike the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_bandwidth.domain.device import HOST_KINDS
from pytest_bandwidth.domain.judging import fleet
from pytest_bandwidth.domain.judging.fleet import Member, model_of
from pytest_bandwidth.domain.judging.reference import prior_spread
from pytest_bandwidth.domain.measurement import Finding
from pytest_bandwidth.domain.outcome import Outcome
from pytest_bandwidth.reports.text_safe import printable
from pytest_bandwidth.storage.baseline.locate import slug

LONGEST_SUFFIX = 60

Device = Mapping[str, Any]


def names_of(devices: Sequence[Device]) -> list[str]:
    """How sentences name each device: with its serial where its name does not tell it from the others."""
    return [printable(name) for name in _told_apart(devices, lambda name, serial: f"{name} ({serial})")]


def suffixes_of(devices: Sequence[Device]) -> list[str]:
    """A part of a file's name for each device, safe and unique: its name, with its serial where others share that."""
    found: list[str] = []
    for text in _told_apart(devices, lambda name, serial: f"{name} {serial}"):
        # The end tells devices of one model apart.
        base = slug(text)[-LONGEST_SUFFIX:].strip("-")
        suffix, others = base, 2
        while suffix in found:
            suffix, others = f"{base}-{others}", others + 1
        found.append(suffix)
    return found


def apart(path: Path, suffix: str) -> Path:
    """A device's own file: ``run.json`` → ``run.SUFFIX.json``."""
    return path.with_name(f"{path.stem}.{suffix}{path.suffix}")


def fleet_findings(
    devices: Sequence[Device], outcomes: Sequence[Sequence[Outcome]], tolerance: float
) -> list[Finding | None]:
    """For each device whether it is unlike the others of its model, by all valid figures of the run."""
    names = names_of(devices)
    found: list[Finding | None] = [None] * len(devices)
    for model in dict.fromkeys(map(model_of, devices)):
        of_model = [i for i, device in enumerate(devices) if model_of(device) == model]
        members = [Member(names[i], _gbps(outcomes[i])) for i in of_model]
        prior = prior_spread("gbps", on_host=model[0] in HOST_KINDS)
        for i, finding in zip(of_model, fleet.findings_of(members, tolerance, prior), strict=True):
            found[i] = finding
    return found


def _gbps(outcomes: Sequence[Outcome]) -> dict[str, float]:
    return {o.key: o.gbps for o in outcomes if o.gbps and o.is_valid}


def _told_apart(devices: Sequence[Device], with_serial: Callable[[str, str], str]) -> list[str]:
    names = Counter(str(device["name"]) for device in devices)
    return [
        with_serial(str(d["name"]), str(d["serial"])) if names[str(d["name"])] > 1 else str(d["name"]) for d in devices
    ]
