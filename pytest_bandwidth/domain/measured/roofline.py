"""Find what bounds a measurement, with the evidence: the roofline's numbers, the regime, and what wastes bandwidth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

from pytest_bandwidth.domain.measured.measurement import LARGEST_SHARE, Finding, Measurement
from pytest_bandwidth.domain.units import digits, format_percent, format_seconds

UtilizationClass = Literal["excellent", "good", "fair", "poor"]
ClassBounds = tuple[float, float, float]

# The shares of the peak above which a utilization is excellent, good and fair.
CLASS_BOUNDS: ClassBounds = (0.80, 0.60, 0.35)
CLASSES: tuple[UtilizationClass, ...] = ("excellent", "good", "fair", "poor")
Regime = Literal["memory-bound", "compute-bound", "overhead-bound"]

# Above this share of the probe's bandwidth, a kernel waits for memory, however much it computes.
MEMORY_BOUND_SHARE = 0.60
# If the doubled batch takes at most so much longer, the batch does not wait for its data.
DOUBLED_BATCH_GROWTH = 0.10
# A finding of this code is the evidence of a regime: a doubled batch hardly takes longer.
OVERHEAD_FOUND = "overhead-bound"
# A finding of this code: the time of a doubled batch that is no evidence of overhead.
GROWTH_FOUND = "doubled-batch"
# In a measurement's `detail`, on devices without a queue: the cost of calling a kernel, in seconds.
DISPATCH_SECONDS = "dispatch_seconds"
# In a measurement's `detail`: the SM clock that a GPU counted, in MHz.
SM_CLOCK_MHZ = "sm_clock_counted_mhz"
# The code of a finding and its key in `detail`: the cycles of a compute-bound run, which do not depend on the clock.
CYCLES = "cycles"
# A finding of this code is a measurement's bottleneck, by a suite's own model of its access pattern.
BOTTLENECK_FOUND = "bottleneck"
# A message mentions only requests that exceed the need by this factor or more.
WORTH_TELLING = 1.1
# Softmax and reductions request bytes twice by nature, and caches serve them.
READ_AGAIN = 2.5


def ridge_point(peak_flops: float, peak_bytes_per_second: float) -> float:
    """Compute the FLOP per byte at which compute and memory take equally long: peak FLOP/s ÷ peak bytes/s.

    Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009.
    """
    return peak_flops / peak_bytes_per_second


def utilization_class(utilization: float, bounds: ClassBounds = CLASS_BOUNDS) -> UtilizationClass | None:
    """Grade a utilization: excellent above 80 %, good above 60 %, fair above 35 %, else poor.

    bounds: other shares, highest first. None for a share that is not credible, see `LARGEST_SHARE`.
    """
    if utilization > LARGEST_SHARE:
        return None
    return CLASSES[sum(utilization <= bound for bound in bounds)]


@dataclass(frozen=True, slots=True)
class RegimeFinding:
    """Name a regime and the figures that show it."""

    regime: Regime
    evidence: str


@dataclass(frozen=True, slots=True)
class Ridge:
    """Hold a ridge point in FLOP per byte. measured: whether its rates were measured, or are a datasheet's."""

    point: float
    measured: bool


def ridge_of(measurement: Measurement) -> Ridge | None:
    """Divide peak FLOP/s by peak bytes/s, or by the probe's where no peak is known; None without known FLOP/s."""
    peak, flops, probe = measurement.peak, measurement.peak_flops, measurement.probe_gbps
    if flops is None:
        return None
    if peak is not None:
        # The host's FLOP/s are measured, whoever gave its bandwidth.
        return Ridge(ridge_point(flops, peak.bytes_per_second), measured=measurement.device.on_host)
    return Ridge(ridge_point(flops, probe * 1e9), measured=True) if probe else None


def with_regime(measurement: Measurement) -> Measurement:
    """Add the regime, where the evidence shows one, and a compute-bound run's cycles, where a clock was counted."""
    found, clock_mhz, seconds = regime_of(measurement), measurement.detail.get(SM_CLOCK_MHZ), measurement.seconds
    if found is None:
        return measurement
    classed = replace(measurement, regime=found.regime)
    if found.regime != "compute-bound" or not clock_mhz or not seconds:
        return classed
    cycles = round(seconds * clock_mhz * 1e6)
    finding = Finding(CYCLES, f"one run takes {cycles:,} cycles of the SM clock, which was {clock_mhz:.0f} MHz")
    return classed.with_detail(CYCLES, cycles).with_finding(finding)


def with_doubled_batch(measurement: Measurement) -> Measurement:
    """Add a finding on the time of twice the work, sampled in the same rounds; change nothing without such samples.

    The work is bound by overhead where twice of it takes at most 10 % longer. The rule is Horace He's, Making Deep
    Learning Go Brrrr From First Principles, 2022.
    """
    rounds, seconds = measurement.rounds, measurement.seconds
    if not seconds or not rounds.interleaved or not rounds.interleaved[0]:
        return measurement
    doubled = median(rounds.interleaved[0])
    code = OVERHEAD_FOUND if doubled <= seconds * (1 + DOUBLED_BATCH_GROWTH) else GROWTH_FOUND
    growth = doubled / seconds - 1
    change = f"{format_percent(growth)} longer" if growth >= 0 else f"{format_percent(-growth)} less"
    took = f"{format_seconds(seconds)}, then {format_seconds(doubled)}"
    finding = Finding(code, f"twice the batch takes {change}: {took}")
    return replace(measurement, rounds=replace(rounds, interleaved=())).with_finding(finding)


def regime_of(measurement: Measurement) -> RegimeFinding | None:
    """Return the regime, if there is evidence for one: overhead, then the roofline, then the share of the probe."""
    seconds, host = measurement.seconds, measurement.host_seconds
    if not seconds:
        return None
    # A doubled batch, the host's time around the device's, or the cost of calling any kernel.
    overhead = next((finding.text for finding in measurement.findings if finding.code == OVERHEAD_FOUND), None)
    dispatch = measurement.detail.get(DISPATCH_SECONDS)
    if overhead is None and host and host > 2 * seconds and measurement.method.startswith(("events", "cupti")):
        overhead = f"the host needs {format_seconds(host)} for {format_seconds(seconds)} of device work"
    elif overhead is None and isinstance(dispatch, float) and 2 * dispatch > seconds:
        this = format_seconds(seconds)
        overhead = f"a kernel without any work takes {format_seconds(dispatch)} here, this one {this}"
    if overhead is not None:
        return RegimeFinding("overhead-bound", overhead)
    if measurement.flop_declared:
        if measurement.traffic.flop == 0:
            return RegimeFinding("memory-bound", "it computes nothing")
        intensity, ridge = measurement.arithmetic_intensity, ridge_of(measurement)
        if intensity is not None and ridge is not None:
            under = intensity < ridge.point
            by = " (by the rates measured here)" if ridge.measured else ""
            side = f"{'under' if under else 'over'} the ridge point at {digits(ridge.point)}{by}"
            evidence = f"{digits(intensity)} FLOP/byte, {side}"
            return RegimeFinding("memory-bound" if under else "compute-bound", evidence)
    relative = measurement.relative
    if relative is None or not MEMORY_BOUND_SHARE < relative <= LARGEST_SHARE:
        return None
    return RegimeFinding("memory-bound", f"it reaches {format_percent(relative)} of the probe's bandwidth")


def bottleneck_of(measurement: Measurement) -> str | None:
    """Return a sentence on what wastes bandwidth, by the best evidence; None where nothing is known to waste it."""
    for finding in measurement.findings:
        if finding.code == BOTTLENECK_FOUND:
            return finding.text
    # The counted loads or stores, whichever waste more sectors.
    wasted: list[tuple[float, str]] = []
    for verb, kind in (("reads", "loads"), ("writes", "stores")):
        access = measurement.detail.get(kind)
        if not isinstance(access, Mapping) or not access.get("coalescing"):
            continue
        pattern = str(access.get("pattern") or "").partition(" ")[0]
        order = "" if pattern in ("coalesced", "none", "broadcast") else pattern
        sentence = access_sentence(verb, order, 1 / access["coalescing"])
        if sentence is not None:
            wasted.append((access["sectors"] * (1 - access["coalescing"]), sentence))
    if wasted:
        return max(wasted)[1]
    resources, traffic = measurement.resources, measurement.traffic
    if resources is not None and resources.local_bytes:
        where = "(spilled registers, indexed arrays) go through the caches"
        return f"{resources.local_bytes} B of local memory a thread {where}"
    # Requested bytes ÷ distinct bytes of the loads, by the operation's traffic model.
    factor = (traffic.requested_read or 0) / traffic.bytes_read if traffic.bytes_read else 0.0
    if factor < READ_AGAIN:
        return None
    return f"reads ask for {_times(factor)} the distinct bytes: each miss of the caches reads memory again"


def access_sentence(verb: str, pattern: str, factor: float, unit: str = "sectors") -> str | None:
    """Return ``strided reads ask for 8.0× the sectors they need``; None for a factor below `WORTH_TELLING`.

    verb: ``reads`` or ``writes``; pattern: a word for their order, or nothing.
    """
    if factor < WORTH_TELLING:
        return None
    return f"{pattern} {verb} ask for {_times(factor)} the {unit} they need".lstrip()


def _times(factor: float) -> str:
    return f"{factor:.1f}×" if factor < 100 else f"{factor:,.0f}×"
