"""Ask AMD SMI about a GPU: identity, partition, clocks, heat, and which processes use it. The only user of `amdsmi`.

Written against the Python interface of amdsmi 7.0. A GPU is found by its PCI bus id. What a card, a driver or a release
does not tell is "N/A" or an AmdSmiException there, and None here.
"""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_bandwidth.devices.cuda.management import GpuIdentity, GpuReading, ProcessUse

# Times that a limit held clocks down, since the driver was loaded (amdsmi.h, amdsmi_gpu_metrics_t; MI300 and newer).
# What has grown between two readings held them down meanwhile.
_RESIDENCIES = {
    "prochot_residency_acc": "processor hot",
    "socket_thm_residency_acc": "socket thermal limit",
    "vr_thm_residency_acc": "voltage regulator thermal limit",
    "hbm_thm_residency_acc": "memory thermal limit",
    "ppt_residency_acc": "power cap",
}
# By these the GPU saves itself. A power cap is normal under load, and older cards do not tell it from the others.
SLOWDOWNS = tuple(name for counter, name in _RESIDENCIES.items() if counter != "ppt_residency_acc")
THROTTLED = "throttled, for a reason not told"
_VIRTUALIZATION = {"HOST": "none", "BAREMETAL": "none", "GUEST": "vgpu", "PASSTHROUGH": "passthrough"}
_WHOLE = ("SPX", "NPS1")
MISSING = "the module amdsmi is missing: install the one that ROCm brings (pip install /opt/rocm/share/amd_smi)"


@dataclass(slots=True)
class AmdSmiGpu:
    """Read one GPU through AMD SMI. amdsmi: the module of that name; handle: the GPU's."""

    amdsmi: Any
    handle: Any
    _residencies: dict[str, int] = field(default_factory=dict)
    _names: dict[int, str] = field(default_factory=dict)

    def identity(self) -> GpuIdentity:
        clocks, static = self.amdsmi.AmdSmiClkType, self._read("amdsmi_get_pcie_info", "pcie_static")
        virtual = getattr(self._read("amdsmi_get_gpu_virtualization_mode", "mode"), "name", "HOST")
        return GpuIdentity(
            name=self._read("amdsmi_get_gpu_asic_info", "market_name"),
            uuid=self._read("amdsmi_get_gpu_device_uuid"),
            driver_version=self._read("amdsmi_get_gpu_driver_info", "driver_version"),
            max_sm_clock_mhz=self._read("amdsmi_get_clock_info", "max_clk", clocks.GFX),
            max_memory_clock_mhz=self._read("amdsmi_get_clock_info", "max_clk", clocks.MEM),
            memory_bus_width_bits=self._read("amdsmi_get_gpu_vram_info", "vram_bit_width"),
            mig=self._partition(),
            ecc=self._ecc(),
            virtual=_VIRTUALIZATION.get(virtual, "unknown"),
            power_limit_w=_millionth(self._read("amdsmi_get_power_cap_info", "power_cap")),
            pcie_generation=_known((static or {}).get("pcie_interface_version")),
            pcie_width=self._read_of("amdsmi_get_pcie_info", "pcie_metric", "pcie_width"),
        )

    def reading(self) -> GpuReading:
        """Read what changes. The reasons are those since the reading before; the first one has none."""
        amdsmi = self.amdsmi
        hottest = (amdsmi.AmdSmiTemperatureType.HOTSPOT, amdsmi.AmdSmiTemperatureMetric.CURRENT)
        power = self._read("amdsmi_get_power_info") or {}
        watts = (_known(power.get(name)) for name in ("current_socket_power", "average_socket_power"))
        return GpuReading(
            sm_clock_mhz=self._read("amdsmi_get_clock_info", "clk", amdsmi.AmdSmiClkType.GFX),
            memory_clock_mhz=self._read("amdsmi_get_clock_info", "clk", amdsmi.AmdSmiClkType.MEM),
            temperature_c=self._read("amdsmi_get_temp_metric", None, *hottest),
            power_w=next((value for value in watts if value is not None), None),
            event_reasons=self._reasons(),
            uncorrected_ecc_errors=self._read("amdsmi_get_gpu_total_ecc_count", "uncorrectable_count"),
        )

    def compute_processes(self) -> Mapping[int, int | None] | None:
        found = self._processes()
        return None if found is None else {one["pid"]: _known(one.get("mem")) for one in found}

    def activity(self, since_us: int) -> tuple[ProcessUse, ...] | None:
        del since_us  # AMD SMI keeps no samples of what was before: who holds compute units now, at least 1 %
        found = self._processes()
        units = self._read("amdsmi_get_gpu_asic_info", "num_compute_units")
        if found is None or not units:
            return None
        held = {one["pid"]: _known(one.get("cu_occupancy")) for one in found}
        if held and all(value is None for value in held.values()):
            return None
        return tuple(
            ProcessUse(pid, max(1, round(100 * value / units))) for pid, value in sorted(held.items()) if value
        )

    def process_name(self, pid: int) -> str | None:
        return self._names.get(pid)

    def _processes(self) -> list[Any] | None:
        found: list[Any] | None = self._read("amdsmi_get_gpu_process_list")
        if found is not None:
            self._names = {one["pid"]: one["name"] for one in found if _known(one.get("name")) is not None}
        return found

    def _partition(self) -> str:
        """Return the compute and the memory partition, as in ``CPX NPS4``; "unsupported" for a card in one piece."""
        parts = (self._read("amdsmi_get_gpu_compute_partition"), self._read("amdsmi_get_gpu_memory_partition"))
        named = [part for part in parts if part]
        return "unsupported" if all(part in _WHOLE for part in named) else " ".join(named)

    def _ecc(self) -> str:
        blocks = self._read("amdsmi_get_gpu_ecc_enabled")
        return "unsupported" if blocks is None else ("on" if blocks else "off")

    def _reasons(self) -> tuple[str, ...]:
        metrics = self._read("amdsmi_get_gpu_metrics_info") or {}
        now = {name: value for name in _RESIDENCIES if (value := _known(metrics.get(name))) is not None}
        before, self._residencies = self._residencies, now
        if not now:
            return (THROTTLED,) if metrics.get("throttle_status") is True else ()
        return tuple(
            reason for name, reason in _RESIDENCIES.items() if now.get(name, 0) > before.get(name, now.get(name, 0))
        )

    def _read_of(self, function: str, group: str, name: str) -> Any:
        return _known((self._read(function, group) or {}).get(name))

    def _read(self, function: str, name: str | None = None, *args: Any) -> Any:
        """Return what a function says, or one name of it; None where it says nothing."""
        ask: Callable[..., Any] | None = getattr(self.amdsmi, function, None)
        if ask is None:
            return None
        try:
            said = ask(self.handle, *args)
        except self.amdsmi.AmdSmiException:
            return None
        return _known(said.get(name) if name is not None else said)


def open_amdsmi(pci_bus_id: str) -> AmdSmiGpu | str:
    """Return the GPU at a PCI bus id (``0000:c1:00.0``), or the reason in words why AMD SMI cannot be asked."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):  # it prints what it misses, and then fails
            amdsmi = importlib.import_module("amdsmi")
    except ImportError:
        return MISSING
    except (KeyError, OSError, AttributeError) as error:
        return f"AMD SMI does not load: {' '.join(said.getvalue().split()) or repr(error)}"
    try:
        amdsmi.amdsmi_init(amdsmi.AmdSmiInitFlags.INIT_AMD_GPUS)
        return AmdSmiGpu(amdsmi, amdsmi.amdsmi_get_processor_handle_from_bdf(pci_bus_id))
    except amdsmi.AmdSmiException as error:
        return f"AMD SMI: {' '.join(str(error).split())}"


def _known(value: Any) -> Any:
    return None if value in ("N/A", "") else value


def _millionth(value: int | None) -> float | None:
    return None if value is None else value / 1e6
