"""Where a measurement stands on the roofline: ridge point, attainable rate, regime with its evidence, class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_bandwidth.domain.units import digits, format_percent, format_seconds

if TYPE_CHECKING:
    from pytest_bandwidth.domain.measurement import Measurement

Regime = Literal["memory-bound", "compute-bound", "overhead-bound"]
UtilizationClass = Literal["excellent", "good", "fair", "poor"]

# Lower bounds of the classes, as shares of the peak; settings may replace them.
CLASS_BOUNDS: tuple[tuple[UtilizationClass, float], ...] = (("excellent", 0.80), ("good", 0.60), ("fair", 0.35))
# Above this share of the probe's bandwidth, memory is what a kernel waits for, whatever it computes.
MEMORY_BOUND_SHARE = 0.60


@dataclass(frozen=True, slots=True)
class RegimeFinding:
    """A regime and the figures that say so."""

    regime: Regime
    evidence: str


def ridge_point(peak_flops: float, peak_bytes_per_second: float) -> float:
    """FLOP per byte at which compute and memory take equally long: peak FLOP/s ÷ peak bytes/s."""
    return peak_flops / peak_bytes_per_second


def attainable_flops(intensity: float, peak_flops: float, peak_bytes_per_second: float) -> float:
    """FLOP/s under the roofline: min(peak FLOP/s, intensity × peak bytes/s).

    Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009.
    """
    return min(peak_flops, intensity * peak_bytes_per_second)


def memory_seconds(bytes_moved: int, peak_bytes_per_second: float) -> float:
    """The least time that moving the bytes takes."""
    return bytes_moved / peak_bytes_per_second


def compute_seconds(flop: int, peak_flops: float) -> float:
    """The least time that computing the FLOP takes."""
    return flop / peak_flops


def utilization_class(
    utilization: float, bounds: tuple[tuple[UtilizationClass, float], ...] = CLASS_BOUNDS
) -> UtilizationClass:
    """excellent above 80 %, good above 60 %, fair above 35 %, poor below."""
    for name, bound in bounds:
        if utilization > bound:
            return name
    return "poor"


def regime_of(measurement: Measurement) -> RegimeFinding | None:
    """The regime as far as the evidence goes: host dispatch, then the roofline, then the share of the probe."""
    seconds, host = measurement.seconds, measurement.host_seconds
    if seconds and host and host > 2 * seconds and measurement.method.startswith("events"):
        return RegimeFinding(
            "overhead-bound",
            f"the host needs {format_seconds(host)} for {format_seconds(seconds)} of device work",
        )
    intensity, peak, flops = measurement.arithmetic_intensity, measurement.peak, measurement.peak_flops
    if intensity is not None and peak is not None and flops is not None:
        ridge = ridge_point(flops, peak.bytes_per_second)
        regime: Regime = "memory-bound" if intensity < ridge else "compute-bound"
        side = "under" if intensity < ridge else "over"
        return RegimeFinding(regime, f"{digits(intensity)} FLOP/byte, {side} the ridge point at {digits(ridge)}")
    if measurement.traffic.flop == 0 and seconds:
        return RegimeFinding("memory-bound", "it computes nothing")
    relative = measurement.relative
    if relative is not None and relative > MEMORY_BOUND_SHARE:
        return RegimeFinding("memory-bound", f"it reaches {format_percent(relative)} of the probe's bandwidth")
    return None
