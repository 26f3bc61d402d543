"""Hold what a vendor's management library tells of a GPU: NVIDIA's through `nvml`, AMD's through `amdsmi`.

Every reading may be missing: then it is None, and no error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class GpuIdentity:
    """Hold what stays while a process runs; None where it cannot be read.

    mig: a MIG profile's or an AMD partition's name, or how partitioning stands.
    """

    name: str | None = None
    uuid: str | None = None
    driver_version: str | None = None
    max_sm_clock_mhz: int | None = None
    default_sm_clock_mhz: int | None = None
    max_memory_clock_mhz: int | None = None
    memory_bus_width_bits: int | None = None
    mig: str = "unsupported"
    ecc: str = "unsupported"
    persistence: str | None = None
    virtual: str = "none"
    power_limit_w: float | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None


@dataclass(frozen=True, slots=True)
class GpuReading:
    """Hold the state at one moment; None where it cannot be read. Clocks are the driver's word, not counted."""

    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    event_reasons: tuple[str, ...] = ()
    uncorrected_ecc_errors: int | None = None


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """Say how busy a process kept the GPU, in %: over NVML's last periods, or at the moment."""

    pid: int
    percent: int


class ManagedGpu(Protocol):
    """Name what is asked of a GPU's management library."""

    def identity(self) -> GpuIdentity:
        """Read everything that stays. Called once."""

    def reading(self) -> GpuReading:
        """Read what changes; never between two events."""

    def compute_processes(self) -> Mapping[int, int | None] | None:
        """Return GPU memory in bytes by process id; None where it is not told."""

    def activity(self, since_us: int) -> tuple[ProcessUse, ...] | None:
        """Return processes that used the GPU after a time (µs since the epoch); None where it is not told."""

    def process_name(self, pid: int) -> str | None:
        """Return the program behind a process id, where it may be known."""
