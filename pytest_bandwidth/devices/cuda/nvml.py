"""Ask NVML about a GPU: identity, settings, clocks, heat, and which processes use it. The only user of `pynvml`.

NVML ignores CUDA_VISIBLE_DEVICES, so a GPU is found by its PCI bus id, never by index. Every reading may be missing:
MIG, vGPU, WSL and old cards answer "Not Supported" to some calls, and that is no error here but None.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_bandwidth.devices.cuda.management import GpuIdentity, GpuReading, ProcessUse

# Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h, nvmlClocksEventReasons).
EVENT_REASONS: tuple[tuple[int, str], ...] = (
    (0x1, "idle"),
    (0x2, "application clocks"),
    (0x4, "software power cap"),
    (0x8, "hardware slowdown"),
    (0x10, "sync boost"),
    (0x20, "software thermal slowdown"),
    (0x40, "hardware thermal slowdown"),
    (0x80, "hardware power brake"),
    (0x100, "display clocks"),
    (0x200, "board limit"),
    (0x400, "reliability voltage"),
)
_VIRTUALIZATION = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host vgpu", 4: "host vsga"}


def decode_event_reasons(bits: int) -> tuple[str, ...]:
    """Return the names of the set bits, lowest first; a bit without a name is given in hexadecimal."""
    named = [name for bit, name in EVENT_REASONS if bits & bit]
    rest = bits & ~sum(bit for bit, _ in EVENT_REASONS)
    return (*named, *(hex(1 << n) for n in range(rest.bit_length()) if rest >> n & 1))


# By these the GPU saves itself or its power supply. A power cap is normal under load; the others are settings.
SLOWDOWNS = decode_event_reasons(0x8 | 0x20 | 0x40 | 0x80)


@dataclass(slots=True)
class NvmlGpu:
    """Read one GPU through NVML. pynvml: the module of that name; handle: the physical GPU, also for a MIG slice."""

    pynvml: Any
    handle: Any
    slice_handle: Any = None
    _refused: set[str] = field(default_factory=set)

    def identity(self) -> GpuIdentity:
        n = self.pynvml
        slice_name = _text(self._read("nvmlDeviceGetName", handle=self.slice_handle)) if self.slice_handle else None
        return GpuIdentity(
            name=slice_name or _text(self._read("nvmlDeviceGetName")),
            uuid=_text(self._read("nvmlDeviceGetUUID", handle=self.slice_handle)),
            driver_version=_text(self._call(n.nvmlSystemGetDriverVersion, "nvmlSystemGetDriverVersion")),
            max_sm_clock_mhz=self._read("nvmlDeviceGetMaxClockInfo", n.NVML_CLOCK_SM),
            default_sm_clock_mhz=self._read("nvmlDeviceGetDefaultApplicationsClock", n.NVML_CLOCK_SM),
            max_memory_clock_mhz=self._read("nvmlDeviceGetMaxClockInfo", n.NVML_CLOCK_MEM),
            memory_bus_width_bits=self._read("nvmlDeviceGetMemoryBusWidth"),
            mig=self._mig(slice_name),
            ecc=_on_off(self._first("nvmlDeviceGetEccMode"), "unsupported"),
            persistence=_on_off(self._read("nvmlDeviceGetPersistenceMode"), None),
            virtual=_VIRTUALIZATION.get(self._read("nvmlDeviceGetVirtualizationMode") or 0, "unknown"),
            power_limit_w=_thousandth(self._read("nvmlDeviceGetEnforcedPowerLimit")),
            pcie_generation=self._read("nvmlDeviceGetCurrPcieLinkGeneration"),
            pcie_width=self._read("nvmlDeviceGetCurrPcieLinkWidth"),
        )

    def reading(self) -> GpuReading:
        n = self.pynvml
        bits = self._read("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:  # drivers before 535 know the old name only
            bits = self._read("nvmlDeviceGetCurrentClocksThrottleReasons")
        return GpuReading(
            sm_clock_mhz=self._read("nvmlDeviceGetClockInfo", n.NVML_CLOCK_SM),
            memory_clock_mhz=self._read("nvmlDeviceGetClockInfo", n.NVML_CLOCK_MEM),
            temperature_c=self._read("nvmlDeviceGetTemperature", n.NVML_TEMPERATURE_GPU),
            power_w=_thousandth(self._read("nvmlDeviceGetPowerUsage")),
            event_reasons=decode_event_reasons(bits) if bits is not None else (),
            uncorrected_ecc_errors=self._read(
                "nvmlDeviceGetTotalEccErrors", n.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, n.NVML_VOLATILE_ECC
            ),
        )

    def compute_processes(self) -> Mapping[int, int | None] | None:
        # As the host numbers processes.
        found = self._read("nvmlDeviceGetComputeRunningProcesses")
        return None if found is None else {p.pid: p.usedGpuMemory for p in found}

    def activity(self, since_us: int) -> tuple[ProcessUse, ...] | None:
        # NVML samples a few times a second, so a burst of a millisecond may be missed.
        name = "nvmlDeviceGetProcessUtilization"
        try:
            samples = self._unguarded(name, since_us)
        except self.pynvml.NVMLError as error:
            # No sample since then means that nobody used it (pynvml raises "success" for an empty list).
            nothing = (self.pynvml.NVML_ERROR_NOT_FOUND, self.pynvml.NVML_SUCCESS)
            return () if error.value in nothing else None
        if samples is None:
            return None
        busiest: dict[int, int] = {}
        for s in samples:
            # The buffer may hold entries that were never filled: process 0, or older than asked for.
            if s.pid and s.timeStamp > since_us:
                busiest[s.pid] = max(busiest.get(s.pid, 0), s.smUtil, s.memUtil)
        return tuple(ProcessUse(pid, percent) for pid, percent in sorted(busiest.items()))

    def process_name(self, pid: int) -> str | None:
        return _text(self._call(lambda: self.pynvml.nvmlSystemGetProcessName(pid), f"name of {pid}"))

    def _mig(self, slice_name: str | None) -> str:
        mode = self._first("nvmlDeviceGetMigMode")
        if mode is None:
            return "unsupported"
        if mode == 0:
            return "disabled"
        # NVML names a slice "NVIDIA A100-SXM4-40GB MIG 1g.5gb".
        return slice_name.rpartition(" MIG ")[2] if slice_name and " MIG " in slice_name else "enabled"

    def _first(self, name: str) -> Any:
        """Return the current one of a pair (current, pending)."""
        pair = self._read(name)
        return None if pair is None else pair[0]

    def _read(self, name: str, *args: Any, handle: Any = None) -> Any:
        key = name if handle is None else f"{name} of the slice"
        return self._call(lambda: self._unguarded(name, *args, handle=handle), key)

    def _unguarded(self, name: str, *args: Any, handle: Any = None) -> Any:
        function = getattr(self.pynvml, name, None)
        return None if function is None else function(self.handle if handle is None else handle, *args)

    def _call(self, function: Callable[[], Any], name: str) -> Any:
        if name in self._refused:
            return None
        try:
            return function()
        except self.pynvml.NVMLError as error:
            if error.value in (self.pynvml.NVML_ERROR_NOT_SUPPORTED, self.pynvml.NVML_ERROR_FUNCTION_NOT_FOUND):
                self._refused.add(name)  # it will not change its mind
            return None


def open_nvml(pci_bus_id: str, mig_uuid: str | None = None, pynvml: Any = None) -> NvmlGpu | str:
    """Return the GPU at a PCI bus id (``0000:3b:00.0``), or the reason in words why NVML cannot be asked.

    mig_uuid: ``MIG-…`` of the slice in use, where CUDA runs on one.
    pynvml: the module of that name; imported where not given.
    """
    if pynvml is None:
        try:
            pynvml = importlib.import_module("pynvml")
        except ImportError:
            return "the module pynvml is missing: pip install nvidia-ml-py"
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)
    except pynvml.NVMLError as error:
        return f"NVML: {error}"
    slice_handle = None
    if mig_uuid is not None:
        try:
            slice_handle = pynvml.nvmlDeviceGetHandleByUUID(mig_uuid)
        except pynvml.NVMLError:
            slice_handle = None  # the GPU is not partitioned, or this container does not show the slice
    return NvmlGpu(pynvml, handle, slice_handle)


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _on_off(value: Any, unknown: Any) -> Any:
    return unknown if value is None else ("on" if value else "off")


def _thousandth(value: int | None) -> float | None:
    return None if value is None else value / 1000
