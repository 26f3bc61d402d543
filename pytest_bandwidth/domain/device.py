"""Describe a device for its measurements: its identity, its peak, its state around the samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

# The clock that times kernels, or "nothing" where their traffic is only counted.
TimedOn = Literal["gpu", "host", "nothing"]
Fact = str | int | float | bool | None
# The compiler's version: a setting of devices that count traffic, since it may change the PTX; a fact of a GPU.
COMPILER_SETTING = "nvrtc"
# Settings that name the compiler of a kernel.
COMPILERS = (COMPILER_SETTING, "triton", "numba-cuda")
# The fact `other_processes` of a GPU whose driver reports the ids that processes have themselves.
SAME_PROCESS_IDS = "same process ids"
# Findings of these codes: the GPU was slower than it can be, independently of the kernel, …
MEMORY_CLOCK, SLOWDOWN, SM_CLOCK, SM_CLOCK_LOW = "memory-clock", "slowdown", "sm-clock", "sm-clock-low"
# … its memory fails, or the host's time is part of the figures. The terminal always shows them.
ECC, LAUNCH_BLOCKING, NOT_HELD = "ecc", "launch-blocking", "not-held"
READ_OTHERWISE = (ECC, LAUNCH_BLOCKING, NOT_HELD, MEMORY_CLOCK, SLOWDOWN, SM_CLOCK, SM_CLOCK_LOW)


@dataclass(frozen=True, slots=True)
class Peak:
    """Hold a bandwidth that the device cannot exceed, and its source."""

    bytes_per_second: float
    source: str

    @property
    def gbps(self) -> float:
        return self.bytes_per_second / 1e9


@dataclass(frozen=True, slots=True)
class DeviceType:
    """Describe a type of device for `pytest_bandwidth_devices`: how it is named, opened and timed.

    kind: its name, in options, baselines and documents. open: opens a device by the variant of ``KIND:VARIANT`` (""
    without one); raises DeviceUnavailable, one line with the remedy. timed_on: as in its devices' identities. usage:
    how users write it, such as ``cuda, cuda:N``. variants: a regular expression that matches each variant.
    """

    kind: str
    open: Callable[[str], Any]
    timed_on: TimedOn
    usage: str
    variants: str = ""


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """Identify a device.

    kind: as in its `DeviceType`. serial: distinguishes two devices of one model (a GPU's UUID, a host's name).
    settings: all that makes figures incomparable when it differs (MIG, ECC, thread count, architecture, compiler).
    facts: all that may explain a change (driver, clocks, cache sizes), by name with the unit in the name.
    timed_on: the clock that times kernels. variant: the part after the colon that opens this device: ``1`` of
    ``cuda:1``.
    """

    kind: str
    name: str
    memory_bytes: int | None
    serial: str
    settings: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Fact] = field(default_factory=dict)
    timed_on: TimedOn = "host"
    variant: str = ""

    @property
    def option(self) -> str:
        """Return the value of --bandwidth-device that opens this device in another process."""
        return f"{self.kind}:{self.variant}" if self.variant else self.kind

    @property
    def memory_gib(self) -> int | None:
        return None if self.memory_bytes is None else round(self.memory_bytes / 2**30)

    @property
    def on_host(self) -> bool:
        """Return whether the host's clock times kernels: GB/s scatter more, and its other processes disturb them."""
        return self.timed_on == "host"

    @property
    def on_gpu(self) -> bool:
        """Return whether kernels are timed on a GPU."""
        return self.timed_on == "gpu"

    @property
    def counts_only(self) -> bool:
        """Return whether the device counts traffic and times nothing: other processes do not change its counts."""
        return self.timed_on == "nothing"


@dataclass(frozen=True, slots=True)
class Conditions:
    """Hold the state of the device around the samples; None where it cannot be read.

    others: the other processes that were active; others_processors: how many of the host's processors they used,
    including a hypervisor's share (stolen_processors).
    """

    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    event_reasons: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    others_processors: float | None = None
    stolen_processors: float | None = None
    load_average: float | None = None


def device_plain(identity: DeviceIdentity, peak: Peak | None) -> dict[str, Any]:
    """Return a device and its peak as plain data."""
    names = ("kind", "name", "memory_gib", "serial", "timed_on", "variant")
    return {
        **{name: getattr(identity, name) for name in names},
        "settings": dict(identity.settings),
        "facts": dict(identity.facts),
        "peak": None if peak is None else {"gbps": peak.gbps, "source": peak.source},
    }


def identity_of(device: Mapping[str, Any]) -> DeviceIdentity:
    """Return the identity from `device_plain`'s mapping, with memory rounded to GiB."""
    gib = device.get("memory_gib")
    return DeviceIdentity(
        kind=device["kind"],
        name=str(device["name"]),
        memory_bytes=None if gib is None else int(gib) * 2**30,
        serial=str(device["serial"]),
        settings=dict(device.get("settings") or {}),
        facts=dict(device.get("facts") or {}),
        timed_on=device["timed_on"],
        variant=str(device.get("variant") or ""),
    )
