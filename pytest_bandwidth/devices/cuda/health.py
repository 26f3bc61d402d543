"""Read the GPU's state around the samples: clocks, heat, power, what slows it down, and other processes on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pytest_bandwidth.devices.cuda import amdsmi, nvml
from pytest_bandwidth.devices.cuda.management import GpuReading, ManagedGpu
from pytest_bandwidth.devices.cuda.other_processes import Ownership, active_others, describe
from pytest_bandwidth.domain.device import ECC, SLOWDOWN, Conditions
from pytest_bandwidth.domain.measured.measurement import Finding

# NVML averages a process's share over up to a second, so older activity says nothing of now.
LOOK_BACK_SECONDS = 1.0


@dataclass(slots=True)
class Health:
    """Read conditions. Without a management library everything but the counted clock stays unknown.

    counted_clock: the SM clock counted in the samples so far, in MHz; wall: seconds since the epoch, as NVML stamps.
    """

    gpu: ManagedGpu | None
    ownership: Ownership
    counted_clock: Callable[[], float | None]
    wall: Callable[[], float] = time.time
    reading: GpuReading = field(default_factory=GpuReading)
    _looked_at: float | None = None

    def __post_init__(self) -> None:
        self._looked_at = self.wall()

    def begin(self) -> GpuReading:
        """Begin a measurement: return what is read now. Processes busy before it do not count."""
        self._looked_at = self.wall()
        return self.read()

    def read(self) -> GpuReading:
        """Return what is read now; also kept as `reading`."""
        if self.gpu is not None:
            self.reading = self.gpu.reading()
        return self.reading

    def conditions(self) -> Conditions:
        """Return the state now, and the processes busy since the last call, at most a second ago."""
        if self.gpu is None:
            return Conditions(sm_clock_mhz=self.counted_clock())
        reading = self.read()
        return Conditions(
            sm_clock_mhz=self.counted_clock() or reading.sm_clock_mhz,
            memory_clock_mhz=reading.memory_clock_mhz,
            temperature_c=reading.temperature_c,
            power_w=reading.power_w,
            event_reasons=reading.event_reasons,
            others=self._others(self.gpu),
        )

    def _others(self, gpu: ManagedGpu) -> tuple[str, ...]:
        now = self.wall()
        since = max(self._looked_at or 0.0, now - LOOK_BACK_SECONDS)
        self._looked_at = now
        busy = active_others(gpu.activity(int(since * 1e6)), self.ownership)
        return tuple(describe(use, gpu.process_name(use.pid)) for use in busy)


def ecc_finding(before: GpuReading, after: GpuReading) -> Finding | None:
    """Report new uncorrectable memory errors between two readings."""
    if before.uncorrected_ecc_errors is None or after.uncorrected_ecc_errors is None:
        return None
    new = after.uncorrected_ecc_errors - before.uncorrected_ecc_errors
    if new <= 0:
        return None
    return Finding(ECC, f"the GPU's memory had {new} uncorrectable ECC error(s) while measuring: replace it")


def slowdown_finding(event_reasons: Iterable[str]) -> Finding | None:
    """Report clocks held down by heat or power supply; a power cap is no finding."""
    seen = set(event_reasons)
    slowing = [reason for reason in (*nvml.SLOWDOWNS, *amdsmi.SLOWDOWNS) if reason in seen]
    if not slowing:
        return None
    return Finding(
        SLOWDOWN,
        f"the driver reports {', '.join(slowing)} around the samples, expected none: clocks were held down, and "
        "figures with them; look at the GPU's cooling and power supply",
    )
