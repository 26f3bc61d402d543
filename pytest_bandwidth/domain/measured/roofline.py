"""Compute the roofline's numbers: ridge point, attainable rate, and the class of a utilization."""

from __future__ import annotations

from typing import Literal

from pytest_bandwidth.domain.measured.rounds import LARGEST_SHARE

UtilizationClass = Literal["excellent", "good", "fair", "poor"]
ClassBounds = tuple[float, float, float]

# Above which share of the peak a utilization is excellent, good and fair.
CLASS_BOUNDS: ClassBounds = (0.80, 0.60, 0.35)
CLASSES: tuple[UtilizationClass, ...] = ("excellent", "good", "fair", "poor")


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
