"""Tell the device from the kernel, by both metrics and a probe.

A slower kernel loses GB/s and share of the probe alike. A device that changed moves one of them: slower memory takes
GB/s and leaves the share of a kernel that waits for memory; faster memory takes the share of one that does not, and
leaves its GB/s. On a virtual machine that happens within minutes, as the hypervisor puts its processors elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from statistics import median

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.judging.reference import Reference
from pytest_bandwidth.domain.judging.rule import REGRESSED_LEVEL, SUSPECT_LEVEL, fresh_gate
from pytest_bandwidth.domain.measured.metrics import Metrics
from pytest_bandwidth.domain.units import format_gbps, format_percent, log_of_drop

# The code of the finding that the evidence for a device that is down could not be had.
PROBE_ALONE = "probe-alone"


@dataclass(frozen=True, slots=True)
class BaselineBounds:
    """Hold what an entry knows of both figures, and the slowest and fastest probe beside them, in GB/s."""

    gbps: Reference
    relative: Reference
    slowest_probe: float
    fastest_probe: float
    tolerance: float


def bounds_of(
    entry: Entry, gbps: Reference | None, relative: Reference | None, tolerance: float
) -> BaselineBounds | None:
    """Return what the entry says of the device; None where it was not measured beside a probe."""
    probes = [run.probe_gbps for run in entry.runs if run.probe_gbps is not None]
    if gbps is None or relative is None or not probes:
        return None
    return BaselineBounds(gbps, relative, min(probes), max(probes), tolerance)


def only_gbps_dropped(figures: Metrics, known: BaselineBounds) -> bool:
    """Return whether GB/s dropped by more than noise explains, and the share of the probe did not."""
    if figures.relative is None or known.relative.centre - log(figures.relative) > _noise(known.relative, known):
        return False
    return known.gbps.centre - log(figures.gbps) > _noise(known.gbps, known)


def is_faster(probe_gbps: float, known: BaselineBounds) -> bool:
    """Return whether a probe is above all that the baseline's runs saw by more than noise explains.

    What a device did while the baseline was taken is in the spread of the shares, and excuses nothing. A faster one
    overturns a regression, so it has to be as certain as that.
    """
    return log(probe_gbps / known.fastest_probe) > known.gbps.bound(REGRESSED_LEVEL, known.tolerance, 1)


def is_slower(probe_gbps: float, known: BaselineBounds) -> bool:
    """Return whether a probe is below all that the baseline's runs saw by more than noise explains."""
    return log(known.slowest_probe / probe_gbps) > _noise(known.gbps, known)


def gained_gbps(gbps: float, known: BaselineBounds) -> bool:
    """Return whether the kernel's GB/s are above the baseline's by more than the tolerance."""
    return log(gbps) - known.gbps.centre > log_of_drop(known.tolerance)


def blame_when_down(figures: Metrics, probe_gbps: float, known: BaselineBounds) -> str | None:
    """Return why a kernel whose GB/s alone dropped is not to blame, given a probe alone in a process.

    None if that is well.
    """
    if not is_slower(probe_gbps, known):
        return None
    return (
        f"the device is down, not the kernel: {_compared(probe_gbps, known.slowest_probe)}; "
        f"the kernel keeps {format_percent(figures.relative or 0.0, 1)} of it"
    )


def blame_when_up(first: Metrics, fresh: Sequence[Metrics], known: BaselineBounds) -> str | None:
    """Return why a kernel whose share dropped is not to blame, given the suspect itself and its fresh processes.

    None unless they kept the baseline's GB/s but for the tolerance, beside probes that are faster than the baseline's.
    None as well where the suspect had dropped clearly beside a probe that was no faster: that no device explains.
    """
    if _dropped_at_known_speed(first, known):
        return None
    gbps = median(f.gbps for f in fresh)
    probes = [f.probe_gbps for f in fresh if f.probe_gbps is not None]
    if not probes or known.gbps.centre - log(gbps) > log_of_drop(known.tolerance):
        return None
    probe_gbps = median(probes)
    if not is_faster(probe_gbps, known):
        return None
    return (
        f"the device is up, not the kernel down: {_compared(probe_gbps, known.fastest_probe)}; "
        f"the kernel's {format_gbps(gbps)} are no less than they were ({format_gbps(known.gbps.value)})"
    )


def _dropped_at_known_speed(figures: Metrics, known: BaselineBounds) -> bool:
    """Return whether one process's share confirms a drop, beside a probe no faster than the baseline's."""
    if figures.relative is None or figures.probe_gbps is None or is_faster(figures.probe_gbps, known):
        return False
    return known.relative.centre - log(figures.relative) > fresh_gate(known.relative, known.tolerance, 1)


def _compared(probe_gbps: float, then: float) -> str:
    return f"a probe reaches {format_gbps(probe_gbps)}, {format_gbps(then)} with the baseline"


def _noise(reference: Reference, known: BaselineBounds) -> float:
    return reference.bound(SUSPECT_LEVEL, known.tolerance, 1)
