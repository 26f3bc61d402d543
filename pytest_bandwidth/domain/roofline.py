"""Where a measurement stands on the roofline: ridge point, attainable rate, regime with its evidence, class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_bandwidth.domain.metrics import LARGEST_SHARE
from pytest_bandwidth.domain.units import digits, format_percent, format_seconds

if TYPE_CHECKING:
    from pytest_bandwidth.domain.measurement import Measurement

Regime = Literal["memory-bound", "compute-bound", "overhead-bound"]
UtilizationClass = Literal["excellent", "good", "fair", "poor"]
ClassBounds = tuple[float, float, float]

# Above which share of the peak a utilization is excellent, good and fair.
CLASS_BOUNDS: ClassBounds = (0.80, 0.60, 0.35)
CLASSES: tuple[UtilizationClass, ...] = ("excellent", "good", "fair", "poor")
# Above this share of the probe's bandwidth, memory is what a kernel waits for, whatever it computes.
MEMORY_BOUND_SHARE = 0.60
# A doubled batch that takes at most so much longer was not waiting for its data.
DOUBLED_BATCH_GROWTH = 0.10
# What a doubled batch showed; a finding of this code on a measurement is its regime's evidence.
OVERHEAD_FOUND = "overhead-bound"
# Where a device without a queue tells what calling a kernel costs: a measurement's `detail`, in seconds.
DISPATCH_SECONDS = "dispatch_seconds"


@dataclass(frozen=True, slots=True)
class RegimeFinding:
    """A regime and the figures that say so."""

    regime: Regime
    evidence: str


@dataclass(frozen=True, slots=True)
class Ridge:
    """A ridge point in FLOP per byte. measured: by rates that were measured, not a datasheet's."""

    point: float
    measured: bool


def interface_bytes_per_second(bits_per_second_and_line: float, lines: int) -> float:
    """Bandwidth of a memory interface: what one line carries in bit/s × its width in lines ÷ 8."""
    return bits_per_second_and_line * lines / 8


def ridge_point(peak_flops: float, peak_bytes_per_second: float) -> float:
    """FLOP per byte at which compute and memory take equally long: peak FLOP/s ÷ peak bytes/s."""
    return peak_flops / peak_bytes_per_second


def attainable_flops(intensity: float, peak_flops: float, peak_bytes_per_second: float) -> float:
    """FLOP/s under the roofline: min(peak FLOP/s, intensity × peak bytes/s).

    Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009.
    """
    return min(peak_flops, intensity * peak_bytes_per_second)


def utilization_class(utilization: float, bounds: ClassBounds = CLASS_BOUNDS) -> UtilizationClass | None:
    """excellent above 80 %, good above 60 %, fair above 35 %, poor below (or by the bounds given, highest first).

    None for a share that tells nothing, see `LARGEST_SHARE`.
    """
    if utilization > LARGEST_SHARE:
        return None
    return CLASSES[sum(utilization <= bound for bound in bounds)]


def ridge_of(measurement: Measurement) -> Ridge | None:
    """Peak FLOP/s ÷ peak bytes/s of the measurement's precision; by the probe's bandwidth where no peak is known."""
    peak, flops, probe = measurement.peak, measurement.peak_flops, measurement.probe_gbps
    if flops is None:
        return None
    if peak is not None:
        # The host's FLOP/s are measured, whoever gave its bandwidth.
        return Ridge(ridge_point(flops, peak.bytes_per_second), measured=measurement.device.on_host)
    return Ridge(ridge_point(flops, probe * 1e9), measured=True) if probe else None


def regime_of(measurement: Measurement) -> RegimeFinding | None:
    """The regime as far as the evidence goes: overhead, then the roofline, then the share of the probe."""
    if not measurement.seconds:
        return None
    return _overhead(measurement) or _on_the_roofline(measurement) or _beside_the_probe(measurement)


def doubled_batch(single_seconds: float, doubled_seconds: float) -> RegimeFinding | None:
    """overhead-bound where twice the work takes at most 10 % longer; None where it takes longer than that.

    The rule is Horace He's, Making Deep Learning Go Brrrr From First Principles, 2022.
    """
    if doubled_seconds > single_seconds * (1 + DOUBLED_BATCH_GROWTH):
        return None
    return RegimeFinding("overhead-bound", growth_sentence(single_seconds, doubled_seconds))


def growth_sentence(single_seconds: float, doubled_seconds: float) -> str:
    """``twice the batch takes 4 % longer: 12.1 µs, then 12.6 µs``."""
    growth = doubled_seconds / single_seconds - 1
    change = f"{format_percent(growth)} longer" if growth >= 0 else f"{format_percent(-growth)} less"
    return f"twice the batch takes {change}: {format_seconds(single_seconds)}, then {format_seconds(doubled_seconds)}"


def _overhead(measurement: Measurement) -> RegimeFinding | None:
    """By a doubled batch, by the host's time around the device's, or by what calling a kernel costs at all."""
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
