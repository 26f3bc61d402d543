"""Open a GPU by its index, or raise an error of one line with the reason why not."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_bandwidth.devices.cuda.health import Ownership, find_ownership
from pytest_bandwidth.devices.cuda.identity import CudaFacts, read_facts, version_text
from pytest_bandwidth.devices.cuda.management import ManagedGpu, open_amdsmi, open_nvml
from pytest_bandwidth.devices.cuda.runtime import ContextGuard, CupyRuntime, one_line, status_of
from pytest_bandwidth.devices.kernel_source import shipped_folder
from pytest_bandwidth.domain.errors import DeviceUnavailable

_OF_NVRTC = (
    "the installed NVRTC may not know this GPU (CUDA 13 starts at compute capability 7.5): install the extra that "
    "fits, cuda12 or cuda13"
)
_OF_HIPRTC = (
    "CuPy compiles with hiprtc, and asks hipcc for its headers: install the ROCm that CuPy's wheel was made for"
)

INSUFFICIENT_DRIVER = 35
NO_DEVICE = 100
INSTEAD = "use the device cpu or traffic"
EXTRAS = "pip install 'pytest-bandwidth[cuda13]' (cuda12 for a driver older than 580, rocm for an AMD GPU)"


@dataclass(frozen=True, slots=True)
class Opened:
    """Hold a GPU whose context is open and whose helper kernels are compiled.

    module: cuda_src/probe.cu, compiled. managed: None where the management library cannot be used.
    management: that library's name, with the reason or "available".
    """

    cupy: Any
    index: int
    facts: CudaFacts
    managed: ManagedGpu | None
    management: Mapping[str, str]
    runtime: CupyRuntime
    module: Any
    guard: ContextGuard
    ownership: Ownership


def open_context(index: int) -> Opened:
    """Open CUDA's device of this index and make it current in this thread. Raises DeviceUnavailable, one line."""
    try:
        cupy = importlib.import_module("cupy")
    except ImportError as error:
        is_missing = isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == "cupy"
        why = "the cuda device needs CuPy, which is not installed:"
        problem = why if is_missing else f"CuPy does not import ({one_line(error)}): reinstall it,"
        raise DeviceUnavailable(f"{problem} {EXTRAS}") from None
    runtime = cupy.cuda.runtime
    visible = os.environ.get("HIP_VISIBLE_DEVICES" if runtime.is_hip else "CUDA_VISIBLE_DEVICES")
    try:
        count = runtime.getDeviceCount()
    except (RuntimeError, OSError) as error:
        raise DeviceUnavailable(_why_no_device(error, runtime, visible)) from None
    if not 0 <= index < count:
        listed = f" under CUDA_VISIBLE_DEVICES={visible}" if visible is not None else ""
        there_is = "there is 1 GPU, cuda:0" if count == 1 else f"there are {count} GPUs, cuda:0 to cuda:{count - 1}"
        raise DeviceUnavailable(f"no device cuda:{index}: {there_is}{listed}")
    facts = read_facts(cupy, index)
    library = "amdsmi" if facts.gfx else "nvml"
    slice_uuid = f"MIG-{facts.uuid}" if facts.uuid else None
    answer: ManagedGpu | str = open_amdsmi(facts.pci_bus_id) if facts.gfx else open_nvml(facts.pci_bus_id, slice_uuid)
    gpu = None if isinstance(answer, str) else answer
    uses_before = gpu.compute_processes() if gpu else None
    guard = ContextGuard(runtime.deviceSynchronize, (cupy.cuda.memory.OutOfMemoryError,))
    try:
        cupy.cuda.Device(index).use()
        runtime.free(0)  # opens the context; an error would otherwise show up at the first array
        module = cupy.RawModule(code=(shipped_folder() / "probe.cu").read_text(encoding="utf-8"))
        on_device = CupyRuntime(cupy, module, index, facts.cache_bytes, facts.sm_count, guard)
    except cupy.cuda.compiler.CompileException as error:
        raise DeviceUnavailable(
            f"cuda:{index} ({facts.name}) compiles no kernels: {one_line(error)}; "
            f"{_OF_HIPRTC if facts.gfx else _OF_NVRTC}"
        ) from None
    except (RuntimeError, ImportError, OSError, MemoryError) as error:
        raise DeviceUnavailable(f"cuda:{index} ({facts.name}) does not start: {one_line(error)}") from None
    ownership = Ownership(known=False, how="no management library")
    if gpu is not None:
        ownership = find_ownership(uses_before, gpu.compute_processes())
    state = {library: answer if isinstance(answer, str) else "available"}
    return Opened(cupy, index, facts, gpu, state, on_device, module, guard, ownership)


def _why_no_device(error: BaseException, runtime: Any, visible: str | None) -> str:
    """Return why CUDA, or HIP, cannot be used here, given the error that it raised."""
    if runtime.is_hip:
        return f"ROCm shows no GPU ({one_line(error)}): {INSTEAD}"
    # CUDA's numbers: 13020 means 13.2; the driver's 0 means that no driver is installed.
    driver, needed = _version(runtime.driverGetVersion), _version(runtime.runtimeGetVersion)
    if driver == 0:
        return f"no NVIDIA driver on this machine: install one, or {INSTEAD}"
    status = status_of(error)
    if status == INSUFFICIENT_DRIVER or driver // 1000 < needed // 1000:
        return (
            f"the NVIDIA driver is too old: it supports CUDA {version_text(driver)}, "
            f"CuPy needs {version_text(needed)}: update the driver, or {EXTRAS}"
        )
    if status == NO_DEVICE:
        hidden = f" (CUDA_VISIBLE_DEVICES is {visible!r})" if visible is not None else ""
        return f"the driver shows no GPU{hidden}: {INSTEAD}"
    return f"CUDA does not start: {one_line(error)}"


def _version(ask: Callable[[], int]) -> int:
    try:
        return int(ask())
    except RuntimeError:
        return 0
