"""Tell what bounds a measurement, with the evidence: the roofline's numbers, the regime, and what wastes bandwidth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

from pytest_bandwidth.domain.measured.measurement import Finding, Measurement
from pytest_bandwidth.domain.measured.rounds import LARGEST_SHARE
from pytest_bandwidth.domain.units import digits, format_percent, format_seconds

UtilizationClass = Literal["excellent", "good", "fair", "poor"]
ClassBounds = tuple[float, float, float]

# Above which share of the peak a utilization is excellent, good and fair.
CLASS_BOUNDS: ClassBounds = (0.80, 0.60, 0.35)
CLASSES: tuple[UtilizationClass, ...] = ("excellent", "good", "fair", "poor")
Regime = Literal["memory-bound", "compute-bound", "overhead-bound"]

# Above this share of the probe's bandwidth, memory is what a kernel waits for, whatever it computes.
MEMORY_BOUND_SHARE = 0.60
# A doubled batch that takes at most so much longer was not waiting for its data.
DOUBLED_BATCH_GROWTH = 0.10
# What a doubled batch showed; a finding of this code on a measurement is its regime's evidence.
OVERHEAD_FOUND = "overhead-bound"
# A finding of this code tells what a doubled batch took where that is no evidence of overhead.
GROWTH_FOUND = "doubled-batch"
# Where a device without a queue tells what calling a kernel costs: a measurement's `detail`, in seconds.
DISPATCH_SECONDS = "dispatch_seconds"
# A finding of this code on a measurement is its bottleneck: what a suite's own model of an access pattern says.
BOTTLENECK_FOUND = "bottleneck"
# Less than this factor over what is needed is not worth a sentence.
WORTH_TELLING = 1.1
# Asking for bytes twice is what softmax and reductions do by nature, and what caches are for.
READ_AGAIN = 2.5


def interface_bytes_per_second(bits_per_second_and_line: float, lines: int) -> float:
    """Compute a memory interface's bandwidth: what one line carries in bit/s × its width in lines ÷ 8."""
    return bits_per_second_and_line * lines / 8


def ridge_point(peak_flops: float, peak_bytes_per_second: float) -> float:
    """Compute the FLOP per byte at which compute and memory take equally long: peak FLOP/s ÷ peak bytes/s."""
    return peak_flops / peak_bytes_per_second


def attainable_flops(intensity: float, peak_flops: float, peak_bytes_per_second: float) -> float:
    """Compute the FLOP/s under the roofline: min(peak FLOP/s, intensity × peak bytes/s).

    Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009.
    """
    return min(peak_flops, intensity * peak_bytes_per_second)


def utilization_class(utilization: float, bounds: ClassBounds = CLASS_BOUNDS) -> UtilizationClass | None:
    """Grade a utilization: excellent above 80 %, good above 60 %, fair above 35 %, else poor.

    bounds: other shares, highest first. None for a share that tells nothing, see `LARGEST_SHARE`.
    """
    if utilization > LARGEST_SHARE:
        return None
    return CLASSES[sum(utilization <= bound for bound in bounds)]


@dataclass(frozen=True, slots=True)
class RegimeFinding:
    """Name a regime and the figures that say so."""

    regime: Regime
    evidence: str


@dataclass(frozen=True, slots=True)
class Ridge:
    """Hold a ridge point in FLOP per byte. measured: by rates that were measured, not a datasheet's."""

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
    """Add the regime, where the evidence tells one."""
    found = regime_of(measurement)
    return measurement if found is None else replace(measurement, regime=found.regime)


def with_doubled_batch(measurement: Measurement) -> Measurement:
    """Add a finding of how long twice the work took, which was sampled in the same rounds; unchanged without one.

    It is bound by overhead where that takes at most 10 % longer. The rule is Horace He's, Making Deep Learning Go Brrrr
    From First Principles, 2022.
    """
    rounds, seconds = measurement.rounds, measurement.seconds
    if not seconds or not rounds.interleaved or not rounds.interleaved[0]:
        return measurement
    doubled = median(rounds.interleaved[0])
    code = OVERHEAD_FOUND if doubled <= seconds * (1 + DOUBLED_BATCH_GROWTH) else GROWTH_FOUND
    finding = Finding(code, growth_sentence(seconds, doubled))
    return replace(measurement, rounds=replace(rounds, interleaved=()), findings=(*measurement.findings, finding))


def regime_of(measurement: Measurement) -> RegimeFinding | None:
    """Tell the regime as far as the evidence goes: overhead, then the roofline, then the share of the probe."""
    if not measurement.seconds:
        return None
    return _overhead(measurement) or _on_the_roofline(measurement) or _beside_the_probe(measurement)


def growth_sentence(single_seconds: float, doubled_seconds: float) -> str:
    """Return ``twice the batch takes 4 % longer: 12.1 µs, then 12.6 µs``."""
    growth = doubled_seconds / single_seconds - 1
    change = f"{format_percent(growth)} longer" if growth >= 0 else f"{format_percent(-growth)} less"
    return f"twice the batch takes {change}: {format_seconds(single_seconds)}, then {format_seconds(doubled_seconds)}"


def _overhead(measurement: Measurement) -> RegimeFinding | None:
    """Look for overhead: a doubled batch, the host's time around the device's, or the cost of calling any kernel."""
    for finding in measurement.findings:
        if finding.code == OVERHEAD_FOUND:
            return RegimeFinding("overhead-bound", finding.text)
    seconds, host = measurement.seconds or 0.0, measurement.host_seconds
    if host and host > 2 * seconds and measurement.method.startswith("events"):
        return RegimeFinding(
            "overhead-bound",
            f"the host needs {format_seconds(host)} for {format_seconds(seconds)} of device work",
        )
    dispatch = measurement.detail.get(DISPATCH_SECONDS)
    if isinstance(dispatch, float) and 2 * dispatch > seconds:
        return RegimeFinding(
            "overhead-bound",
            f"a kernel without any work takes {format_seconds(dispatch)} here, this one {format_seconds(seconds)}",
        )
    return None


def _on_the_roofline(measurement: Measurement) -> RegimeFinding | None:
    if not measurement.flop_declared:
        return None
    if measurement.traffic.flop == 0:
        return RegimeFinding("memory-bound", "it computes nothing")
    intensity, ridge = measurement.arithmetic_intensity, ridge_of(measurement)
    if intensity is None or ridge is None:
        return None
    regime: Regime = "memory-bound" if intensity < ridge.point else "compute-bound"
    side = "under" if intensity < ridge.point else "over"
    by = " (by the rates measured here)" if ridge.measured else ""
    evidence = f"{digits(intensity)} FLOP/byte, {side} the ridge point at {digits(ridge.point)}{by}"
    return RegimeFinding(regime, evidence)


def _beside_the_probe(measurement: Measurement) -> RegimeFinding | None:
    relative = measurement.relative
    if relative is None or not MEMORY_BOUND_SHARE < relative <= LARGEST_SHARE:
        return None
    return RegimeFinding("memory-bound", f"it reaches {format_percent(relative)} of the probe's bandwidth")


def bottleneck_of(measurement: Measurement) -> str | None:
    """Return the sentence, or None where nothing that is known wastes bandwidth. The surest evidence first."""
    for finding in measurement.findings:
        if finding.code == BOTTLENECK_FOUND:
            return finding.text
    return _counted(measurement.detail) or _spilled(measurement) or _asked_again(measurement)


def access_sentence(verb: str, pattern: str, factor: float, unit: str = "sectors") -> str | None:
    """Say ``strided reads ask for 8.0× the sectors they need``; None below a factor that is worth telling.

    verb: ``reads`` or ``writes``; pattern: a word for their order, or nothing.
    """
    if factor < WORTH_TELLING:
        return None
    return f"{pattern} {verb} ask for {_times(factor)} the {unit} they need".lstrip()


def _counted(detail: Mapping[str, object]) -> str | None:
    """Name those of the counted loads and stores that waste more sectors."""
    wasted: list[tuple[float, str]] = []
    for verb, kind in (("reads", "loads"), ("writes", "stores")):
        access = detail.get(kind)
        if not isinstance(access, Mapping) or not access.get("coalescing"):
            continue
        pattern = str(access.get("pattern") or "").partition(" ")[0]
        said = "" if pattern in ("coalesced", "none", "broadcast") else pattern
        sentence = access_sentence(verb, said, 1 / access["coalescing"])
        if sentence is not None:
            wasted.append((access["sectors"] * (1 - access["coalescing"]), sentence))
    return max(wasted)[1] if wasted else None


def _spilled(measurement: Measurement) -> str | None:
    resources = measurement.resources
    if resources is None or not resources.local_bytes:
        return None
    return (
        f"{resources.local_bytes} B of local memory a thread (spilled registers, indexed arrays) go through the caches"
    )


def _asked_again(measurement: Measurement) -> str | None:
    """Compare the bytes that all loads ask for, by the operation's model, with the distinct ones."""
    traffic = measurement.traffic
    if traffic.requested_read is None or not traffic.bytes_read:
        return None
    factor = traffic.requested_read / traffic.bytes_read
    if factor < READ_AGAIN:
        return None
    return f"reads ask for {_times(factor)} the distinct bytes: what caches do not serve comes from memory again"


def _times(factor: float) -> str:
    return f"{factor:.1f}×" if factor < 100 else f"{factor:,.0f}×"
