"""Ask a GPU's management library: identity, settings, clocks, temperature, and which processes use it.

NVIDIA's NVML through `pynvml`, AMD's AMD SMI through the Python interface of amdsmi 7.0; nothing else uses either. NVML
ignores CUDA_VISIBLE_DEVICES, so a GPU is found by its PCI bus id, never by index. Every reading may be missing: MIG,
vGPU, WSL and old cards do not answer some calls. Then this module returns None and raises no error.
"""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_bandwidth.domain.device import Conditions


@dataclass(frozen=True, slots=True)
class GpuIdentity:
    """Hold facts that are constant while a process runs; None where one cannot be read.

    mig: a MIG profile's or an AMD partition's name, or the state of partitioning.
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
    """Hold the state at one moment; None where it cannot be read. The driver reports clocks; they are not counted."""

    conditions: Conditions = field(default_factory=Conditions)
    uncorrected_ecc_errors: int | None = None


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
_NVML_VIRTUALIZATION = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host vgpu", 4: "host vsga"}


def decode_event_reasons(bits: int) -> tuple[str, ...]:
    """Return the names of the set bits, lowest first; a bit without a name is given in hexadecimal."""
    named = [name for bit, name in EVENT_REASONS if bits & bit]
    rest = bits & ~sum(bit for bit, _ in EVENT_REASONS)
    return (*named, *(hex(1 << n) for n in range(rest.bit_length()) if rest >> n & 1))


# The GPU's protection of itself or its power supply. A power cap is normal under load; the others are settings.
NVML_SLOWDOWNS = decode_event_reasons(0x8 | 0x20 | 0x40 | 0x80)


@dataclass(slots=True)
class NvmlGpu:
    """Read one GPU through NVML. pynvml: the module of that name; handle: the physical GPU, also for a MIG slice."""

    pynvml: Any
    handle: Any
    slice_handle: Any = None

    def identity(self) -> GpuIdentity:
        """Read the constant facts. Called once."""
        n = self.pynvml
        slice_name = text_of(self._read("nvmlDeviceGetName", handle=self.slice_handle)) if self.slice_handle else None
        mig = {None: "unsupported", 0: "disabled"}.get(self._first("nvmlDeviceGetMigMode"), "enabled")
        if mig == "enabled" and slice_name and " MIG " in slice_name:
            mig = slice_name.rpartition(" MIG ")[2]  # of "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
        return GpuIdentity(
            name=slice_name or text_of(self._read("nvmlDeviceGetName")),
            uuid=text_of(self._read("nvmlDeviceGetUUID", handle=self.slice_handle)),
            driver_version=text_of(self._ask("nvmlSystemGetDriverVersion")),
            max_sm_clock_mhz=self._read("nvmlDeviceGetMaxClockInfo", n.NVML_CLOCK_SM),
            default_sm_clock_mhz=self._read("nvmlDeviceGetDefaultApplicationsClock", n.NVML_CLOCK_SM),
            max_memory_clock_mhz=self._read("nvmlDeviceGetMaxClockInfo", n.NVML_CLOCK_MEM),
            memory_bus_width_bits=self._read("nvmlDeviceGetMemoryBusWidth"),
            mig=mig,
            ecc=_on_off(self._first("nvmlDeviceGetEccMode"), "unsupported"),
            persistence=_on_off(self._read("nvmlDeviceGetPersistenceMode"), None),
            virtual=_NVML_VIRTUALIZATION.get(self._read("nvmlDeviceGetVirtualizationMode") or 0, "unknown"),
            power_limit_w=_scaled(self._read("nvmlDeviceGetEnforcedPowerLimit"), 1e3),
            pcie_generation=self._read("nvmlDeviceGetCurrPcieLinkGeneration"),
            pcie_width=self._read("nvmlDeviceGetCurrPcieLinkWidth"),
        )

    def reading(self) -> GpuReading:
        """Read the current state; never between two events."""
        n = self.pynvml
        bits = self._read("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:  # drivers before 535 have the old name only
            bits = self._read("nvmlDeviceGetCurrentClocksThrottleReasons")
        conditions = Conditions(
            sm_clock_mhz=self._read("nvmlDeviceGetClockInfo", n.NVML_CLOCK_SM),
            memory_clock_mhz=self._read("nvmlDeviceGetClockInfo", n.NVML_CLOCK_MEM),
            temperature_c=self._read("nvmlDeviceGetTemperature", n.NVML_TEMPERATURE_GPU),
            power_w=_scaled(self._read("nvmlDeviceGetPowerUsage"), 1e3),
            event_reasons=decode_event_reasons(bits) if bits is not None else (),
        )
        of_ecc = (n.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, n.NVML_VOLATILE_ECC)
        return GpuReading(conditions, self._read("nvmlDeviceGetTotalEccErrors", *of_ecc))

    def compute_processes(self) -> Mapping[int, int | None] | None:
        """Return GPU memory in bytes by process id, as the host numbers them; None where it is unknown."""
        found = self._read("nvmlDeviceGetComputeRunningProcesses")
        return None if found is None else {p.pid: p.usedGpuMemory for p in found}

    def activity(self, since_us: int) -> Mapping[int, int] | None:
        """Return how busy processes kept the GPU after a time (µs since the epoch), in %; None where it is unknown."""
        # NVML samples a few times a second, so a burst of a millisecond may be missed.
        try:
            samples = self.pynvml.nvmlDeviceGetProcessUtilization(self.handle, since_us)
        except self.pynvml.NVMLError as error:
            # Both mean an empty list: no process used the GPU. pynvml raises "success" for it.
            nothing = (self.pynvml.NVML_ERROR_NOT_FOUND, self.pynvml.NVML_SUCCESS)
            return {} if error.value in nothing else None
        busiest: dict[int, int] = {}
        for s in samples:
            # The buffer may hold entries that were never filled: process 0, or older than asked for.
            if s.pid and s.timeStamp > since_us:
                busiest[s.pid] = max(busiest.get(s.pid, 0), s.smUtil, s.memUtil)
        return dict(sorted(busiest.items()))

    def process_name(self, pid: int) -> str | None:
        """Return the program of a process id; None where it is unknown."""
        return text_of(self._ask("nvmlSystemGetProcessName", pid))

    def _first(self, name: str) -> Any:
        """Return the current value of a pair (current, pending)."""
        pair = self._read(name)
        return None if pair is None else pair[0]

    def _read(self, name: str, *args: Any, handle: Any = None) -> Any:
        return self._ask(name, self.handle if handle is None else handle, *args)

    def _ask(self, name: str, *args: Any) -> Any:
        function = getattr(self.pynvml, name, None)
        try:
            return None if function is None else function(*args)
        except self.pynvml.NVMLError:
            return None


def open_nvml(pci_bus_id: str, mig_uuid: str | None = None) -> NvmlGpu | str:
    """Return the GPU at a PCI bus id (``0000:3b:00.0``), or the reason in words why NVML cannot be asked.

    mig_uuid: ``MIG-…`` of the slice in use, where CUDA runs on one.
    """
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
        # The GPU may not be partitioned, or this container does not show the slice.
        with contextlib.suppress(pynvml.NVMLError):
            slice_handle = pynvml.nvmlDeviceGetHandleByUUID(mig_uuid)
    return NvmlGpu(pynvml, handle, slice_handle)


def text_of(value: Any) -> str | None:
    """Return a library's text, which it gives as str or bytes."""
    if value is None:
        return None
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _on_off(value: Any, unknown: Any) -> Any:
    return unknown if value is None else ("on" if value else "off")


def _scaled(value: int | None, unit: float) -> float | None:
    return None if value is None else value / unit


# How long a limit lowered clocks, since the driver was loaded (amdsmi.h, amdsmi_gpu_metrics_t; MI300 and newer).
# A counter that grew between two readings names a limit that lowered them meanwhile.
_RESIDENCIES = {
    "prochot_residency_acc": "processor hot",
    "socket_thm_residency_acc": "socket thermal limit",
    "vr_thm_residency_acc": "voltage regulator thermal limit",
    "hbm_thm_residency_acc": "memory thermal limit",
    "ppt_residency_acc": "power cap",
}
# The GPU's protection of itself. A power cap is normal under load, and older cards do not distinguish it.
AMD_SLOWDOWNS = tuple(name for counter, name in _RESIDENCIES.items() if counter != "ppt_residency_acc")
THROTTLED = "throttled (no reason given)"
_AMD_VIRTUALIZATION = {"HOST": "none", "BAREMETAL": "none", "GUEST": "vgpu", "PASSTHROUGH": "passthrough"}
_WHOLE = ("SPX", "NPS1")
MISSING = "the module amdsmi is missing: install the one that ROCm brings (pip install /opt/rocm/share/amd_smi)"


@dataclass(slots=True)
class AmdSmiGpu:
    """Read one GPU through AMD SMI, as `NvmlGpu` does. amdsmi: the module of that name; handle: the GPU's."""

    amdsmi: Any
    handle: Any
    _residencies: dict[str, int] = field(default_factory=dict)
    _names: dict[int, str] = field(default_factory=dict)

    def identity(self) -> GpuIdentity:
        clocks = self.amdsmi.AmdSmiClkType
        virtual = getattr(self._read("amdsmi_get_gpu_virtualization_mode", "mode"), "name", "HOST")
        # As in ``CPX NPS4``.
        parts = [self._read(f"amdsmi_get_gpu_{kind}_partition") for kind in ("compute", "memory")]
        partition = " ".join(filter(None, parts)) if {*parts} - {None, *_WHOLE} else "unsupported"
        return GpuIdentity(
            name=self._read("amdsmi_get_gpu_asic_info", "market_name"),
            uuid=self._read("amdsmi_get_gpu_device_uuid"),
            driver_version=self._read("amdsmi_get_gpu_driver_info", "driver_version"),
            max_sm_clock_mhz=self._read("amdsmi_get_clock_info", "max_clk", clocks.GFX),
            max_memory_clock_mhz=self._read("amdsmi_get_clock_info", "max_clk", clocks.MEM),
            memory_bus_width_bits=self._read("amdsmi_get_gpu_vram_info", "vram_bit_width"),
            mig=partition,
            ecc=_on_off(self._read("amdsmi_get_gpu_ecc_enabled"), "unsupported"),
            virtual=_AMD_VIRTUALIZATION.get(virtual, "unknown"),
            power_limit_w=_scaled(self._read("amdsmi_get_power_cap_info", "power_cap"), 1e6),
            pcie_generation=self._pcie("pcie_static", "pcie_interface_version"),
            pcie_width=self._pcie("pcie_metric", "pcie_width"),
        )

    def reading(self) -> GpuReading:
        """Read the current state. The reasons are those since the last reading; the first reading has no reasons."""
        amdsmi = self.amdsmi
        hottest = (amdsmi.AmdSmiTemperatureType.HOTSPOT, amdsmi.AmdSmiTemperatureMetric.CURRENT)
        power = self._read("amdsmi_get_power_info") or {}
        watts = (_known(power.get(name)) for name in ("current_socket_power", "average_socket_power"))
        conditions = Conditions(
            sm_clock_mhz=self._read("amdsmi_get_clock_info", "clk", amdsmi.AmdSmiClkType.GFX),
            memory_clock_mhz=self._read("amdsmi_get_clock_info", "clk", amdsmi.AmdSmiClkType.MEM),
            temperature_c=self._read("amdsmi_get_temp_metric", None, *hottest),
            power_w=next((value for value in watts if value is not None), None),
            event_reasons=self._reasons(),
        )
        return GpuReading(conditions, self._read("amdsmi_get_gpu_total_ecc_count", "uncorrectable_count"))

    def compute_processes(self) -> Mapping[int, int | None] | None:
        found = self._processes()
        return None if found is None else {one["pid"]: _known(one.get("mem")) for one in found}

    def activity(self, since_us: int) -> Mapping[int, int] | None:
        del since_us  # AMD SMI keeps no earlier samples: the result is who holds compute units now, at least 1 %
        found = self._processes()
        units = self._read("amdsmi_get_gpu_asic_info", "num_compute_units")
        if found is None or not units:
            return None
        held = {one["pid"]: _known(one.get("cu_occupancy")) for one in found}
        if held and all(value is None for value in held.values()):
            return None
        return {pid: max(1, round(100 * value / units)) for pid, value in sorted(held.items()) if value}

    def process_name(self, pid: int) -> str | None:
        return self._names.get(pid)

    def _processes(self) -> list[Any] | None:
        found: list[Any] | None = self._read("amdsmi_get_gpu_process_list")
        if found is not None:
            self._names = {one["pid"]: one["name"] for one in found if _known(one.get("name")) is not None}
        return found

    def _reasons(self) -> tuple[str, ...]:
        metrics = self._read("amdsmi_get_gpu_metrics_info") or {}
        now = {name: value for name in _RESIDENCIES if (value := _known(metrics.get(name))) is not None}
        before, self._residencies = self._residencies, now
        if not now:
            return (THROTTLED,) if metrics.get("throttle_status") is True else ()
        return tuple(
            reason for name, reason in _RESIDENCIES.items() if now.get(name, 0) > before.get(name, now.get(name, 0))
        )

    def _pcie(self, group: str, name: str) -> Any:
        return _known((self._read("amdsmi_get_pcie_info", group) or {}).get(name))

    def _read(self, function: str, name: str | None = None, *args: Any) -> Any:
        """Return a function's answer, or one value of it; None where it does not answer."""
        ask: Callable[..., Any] | None = getattr(self.amdsmi, function, None)
        if ask is None:
            return None
        try:
            answer = ask(self.handle, *args)
        except self.amdsmi.AmdSmiException:
            return None
        return _known(answer.get(name) if name is not None else answer)


def open_amdsmi(pci_bus_id: str) -> AmdSmiGpu | str:
    """Return the GPU at a PCI bus id (``0000:c1:00.0``), or the reason in words why AMD SMI cannot be asked."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):  # it prints what it misses, and then fails
            amdsmi = importlib.import_module("amdsmi")
    except ImportError:
        return MISSING
    except (KeyError, OSError, AttributeError) as error:
        return f"AMD SMI does not load: {' '.join(printed.getvalue().split()) or repr(error)}"
    try:
        amdsmi.amdsmi_init(amdsmi.AmdSmiInitFlags.INIT_AMD_GPUS)
        return AmdSmiGpu(amdsmi, amdsmi.amdsmi_get_processor_handle_from_bdf(pci_bus_id))
    except amdsmi.AmdSmiException as error:
        return f"AMD SMI: {' '.join(str(error).split())}"


def _known(value: Any) -> Any:
    return None if value in ("N/A", "") else value


ManagedGpu = NvmlGpu | AmdSmiGpu
