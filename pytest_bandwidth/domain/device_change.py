"""The device told apart from the kernel, by both figures and a probe.

A slower kernel loses GB/s and share of the probe alike. A device that changed moves one of them: slower memory takes
GB/s and leaves the share of a kernel that waits for memory; faster memory takes the share of one that does not, and
leaves its GB/s. On a virtual machine that happens within minutes, as the hypervisor puts its processors elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, log1p
from typing import Literal

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.figures import Figures
from pytest_bandwidth.domain.judging import SUSPECT_LEVEL
from pytest_bandwidth.domain.reference import Reference
from pytest_bandwidth.domain.units import format_gbps, format_percent

Direction = Literal["down", "up"]


@dataclass(frozen=True, slots=True)
class Known:
    """What an entry knows of both figures, and the slowest and fastest probe beside them, in GB/s."""

    gbps: Reference
    relative: Reference
    slowest_probe: float
    fastest_probe: float
    tolerance: float


def known_of(entry: Entry, gbps: Reference | None, relative: Reference | None, tolerance: float) -> Known | None:
    """None where the entry was not measured beside a probe."""
    probes = [run.probe_gbps for run in entry.runs if run.probe_gbps is not None]
    if gbps is None or relative is None or not probes:
        return None
    return Known(gbps, relative, min(probes), max(probes), tolerance)


def only_gbps_dropped(figures: Figures, known: Known) -> bool:
    """Whether GB/s dropped by more than noise explains, and the share of the probe did not."""
    if figures.relative is None or known.relative.centre - log(figures.relative) > _noise(known.relative, known):
        return False
    return known.gbps.centre - log(figures.gbps) > _noise(known.gbps, known)


def moved(direction: Direction, probe_gbps: float, known: Known) -> bool:
    """Whether a probe has gone that way, past all that the baseline's runs saw, by more than noise explains.

    What a device did while the baseline was taken is in the spread of the shares, and excuses nothing.
    """
    change = log(probe_gbps / known.fastest_probe) if direction == "up" else log(known.slowest_probe / probe_gbps)
    return change > _noise(known.gbps, known)


def kept_gbps(gbps: float, known: Known) -> bool:
    """Whether the kernel's GB/s are the baseline's but for the tolerance, or above."""
    return known.gbps.centre - log(gbps) <= -log1p(-known.tolerance)


def gained_gbps(gbps: float, known: Known) -> bool:
    """Whether the kernel's GB/s are above the baseline's by more than the tolerance."""
    return log(gbps) - known.gbps.centre > -log1p(-known.tolerance)


def sentence(direction: Direction, figures: Figures, probe_gbps: float, known: Known) -> str:
    """What happened, for the reason of a verdict."""
    then = known.fastest_probe if direction == "up" else known.slowest_probe
    probe = f"a probe reaches {format_gbps(probe_gbps)}, {format_gbps(then)} with the baseline"
    if direction == "down":
        return (
            f"the device is down, not the kernel: {probe}; "
            f"the kernel keeps {format_percent(figures.relative or 0.0, 1)} of it"
        )
    return (
        f"the device is up, not the kernel down: {probe}; "
        f"the kernel's {format_gbps(figures.gbps)} are what they were ({format_gbps(known.gbps.value)})"
    )


def _noise(reference: Reference, known: Known) -> float:
    return reference.bound(SUSPECT_LEVEL, known.tolerance, 1)
