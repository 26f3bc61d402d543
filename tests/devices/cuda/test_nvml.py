"""NVML: what is read, what may be missing, and the reason when nothing can be."""

import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from gpu_model import Gpu, opened_model

from pytest_bandwidth.devices.base import Budget, Workload
from pytest_bandwidth.devices.cuda.device import CudaDevice
from pytest_bandwidth.devices.cuda.management import (
    NVML_SLOWDOWNS,
    GpuReading,
    NvmlGpu,
    decode_event_reasons,
    open_nvml,
)
from pytest_bandwidth.domain.device import Conditions
from pytest_bandwidth.domain.traffic import Traffic

pynvml = pytest.importorskip("pynvml")


class Library:
    """pynvml with answers instead of a driver: constants and exceptions are the real module's.

    Calls without an answer raise NVMLError_NotSupported, as a MIG slice or a vGPU does.
    """

    def __init__(self, **answers: Any) -> None:
        self.answers = {"nvmlInit": None, "nvmlDeviceGetHandleByPciBusId": "gpu", **answers}
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml") or name[4:].startswith(("Clocks",)):
            return getattr(pynvml, name)

        def call(*args: Any) -> Any:
            self.asked.append(name)
            answer = self.answers.get(name, pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED))
            if isinstance(answer, BaseException):
                raise answer
            return answer(*args) if callable(answer) else answer

        return call


def opened(library: Library | None = None, mig_uuid: str | None = None, **answers: Any) -> NvmlGpu:
    with patch.dict(sys.modules, {"pynvml": library or Library(**answers)}):
        gpu = open_nvml("0000:3b:00.0", mig_uuid)
    assert isinstance(gpu, NvmlGpu)
    return gpu


def test_the_bits_are_those_of_the_library() -> None:
    names = {
        "idle": "GpuIdle",
        "application clocks": "ApplicationsClocksSetting",
        "software power cap": "SwPowerCap",
        "hardware slowdown": "HwSlowdown",
        "sync boost": "SyncBoost",
        "software thermal slowdown": "SwThermalSlowdown",
        "hardware thermal slowdown": "HwThermalSlowdown",
        "hardware power brake": "HwPowerBrakeSlowdown",
        "display clocks": "DisplayClockSetting",
    }
    for ours, theirs in names.items():
        assert decode_event_reasons(getattr(pynvml, f"nvmlClocksEventReason{theirs}")) == (ours,)
    assert decode_event_reasons(0x1008) == ("hardware slowdown", "0x1000"), "an unknown bit"
    assert {*NVML_SLOWDOWNS} == {name for name in names if names[name].endswith("Slowdown")}


def test_identity_of_a_whole_gpu() -> None:
    clocks = {pynvml.NVML_CLOCK_SM: 1980, pynvml.NVML_CLOCK_MEM: 2619}
    found = opened(
        nvmlDeviceGetName="NVIDIA H100 80GB HBM3",
        nvmlDeviceGetUUID="GPU-1",
        nvmlSystemGetDriverVersion="580.1",
        nvmlDeviceGetMaxClockInfo=lambda _, kind: clocks[kind],
        nvmlDeviceGetDefaultApplicationsClock=1980,
        nvmlDeviceGetMemoryBusWidth=5120,
        nvmlDeviceGetMigMode=[0, 0],
        nvmlDeviceGetEccMode=[1, 1],
        nvmlDeviceGetPersistenceMode=1,
        nvmlDeviceGetVirtualizationMode=1,
        nvmlDeviceGetEnforcedPowerLimit=700_000,
        nvmlDeviceGetCurrPcieLinkGeneration=5,
        nvmlDeviceGetCurrPcieLinkWidth=16,
    ).identity()
    assert (found.name, found.uuid, found.driver_version) == ("NVIDIA H100 80GB HBM3", "GPU-1", "580.1")
    assert (found.max_sm_clock_mhz, found.max_memory_clock_mhz, found.memory_bus_width_bits) == (1980, 2619, 5120)
    assert (found.mig, found.ecc, found.persistence, found.virtual) == ("disabled", "on", "on", "passthrough")
    assert (found.power_limit_w, found.pcie_generation, found.pcie_width) == (700.0, 5, 16)


def test_a_gpu_that_answers_nothing_is_unknown_not_an_error() -> None:
    found = opened().identity()
    assert found.name is None
    assert (found.mig, found.ecc, found.virtual) == ("unsupported", "unsupported", "none")
    assert opened().reading().conditions.sm_clock_mhz is None
    assert opened().compute_processes() is None
    assert opened().activity(0) is None


@pytest.mark.parametrize(
    ("slice_of_it", "expected"),
    [
        ("slice", ("NVIDIA A100 MIG 1g.5gb", "MIG-2", "1g.5gb")),
        (pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND), ("NVIDIA A100", "GPU-1", "enabled")),
    ],
    ids=["visible", "not visible"],
)
def test_a_mig_slice_has_its_own_name_and_uuid_where_it_is_visible(slice_of_it: Any, expected: Any) -> None:
    found = opened(
        mig_uuid="MIG-2",
        nvmlDeviceGetHandleByUUID=slice_of_it,
        nvmlDeviceGetName=lambda handle: "NVIDIA A100 MIG 1g.5gb" if handle == "slice" else b"NVIDIA A100",
        nvmlDeviceGetUUID=lambda handle: "MIG-2" if handle == "slice" else "GPU-1",
        nvmlDeviceGetMigMode=[1, 1],
    ).identity()
    assert (found.name, found.uuid, found.mig) == expected  # a text, too, where an old version gives bytes


def test_a_reading() -> None:
    clocks = {pynvml.NVML_CLOCK_SM: 1755, pynvml.NVML_CLOCK_MEM: 2619}
    found = opened(
        nvmlDeviceGetClockInfo=lambda _, kind: clocks[kind],
        nvmlDeviceGetTemperature=61,
        nvmlDeviceGetPowerUsage=412_345,
        nvmlDeviceGetCurrentClocksEventReasons=0x4,
        nvmlDeviceGetTotalEccErrors=2,
    ).reading()
    assert found == GpuReading(Conditions(1755, 2619, 61, 412.345, ("software power cap",)), 2)


def test_an_old_driver_knows_the_reasons_by_their_old_name() -> None:
    found = opened(
        nvmlDeviceGetCurrentClocksEventReasons=pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND),
        nvmlDeviceGetCurrentClocksThrottleReasons=0x40,
    ).reading()
    assert found.conditions.event_reasons == ("hardware thermal slowdown",)


def sample(pid: int, at: int, sm: int, memory: int = 0) -> Any:
    return SimpleNamespace(pid=pid, timeStamp=at, smUtil=sm, memUtil=memory, encUtil=0, decUtil=0)


def test_activity_is_each_processs_busiest_moment_after_a_time() -> None:
    samples = [sample(7, 150, 10), sample(7, 160, 80), sample(8, 150, 3, 40), sample(9, 90, 99), sample(0, 0, 0)]
    gpu = opened(nvmlDeviceGetProcessUtilization=samples)
    assert gpu.activity(100) == {7: 80, 8: 40}


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_SUCCESS])
def test_no_samples_mean_that_nobody_was_busy(code: int) -> None:
    assert opened(nvmlDeviceGetProcessUtilization=pynvml.NVMLError(code)).activity(0) == {}


def test_processes_by_memory_and_by_name_where_that_may_be_told() -> None:
    listed = [SimpleNamespace(pid=7, usedGpuMemory=300), SimpleNamespace(pid=8, usedGpuMemory=None)]
    named = opened(nvmlDeviceGetComputeRunningProcesses=listed, nvmlSystemGetProcessName="/bin/x")
    assert named.compute_processes() == {7: 300, 8: None}
    assert named.process_name(7) == "/bin/x"
    refused = opened(nvmlSystemGetProcessName=pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION))
    assert refused.process_name(8) is None


def test_without_the_module_the_reason_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    reason = open_nvml("0000:3b:00.0")
    assert "nvidia-ml-py" in reason


def test_the_real_library_gives_its_reason() -> None:
    # A bus id that no GPU has; without a driver the library does not even start.
    assert open_nvml("ffff:ff:1f.7").startswith("NVML: ")


class Untouched(Library):
    """Raises for whatever changes clocks or settings."""

    def __getattr__(self, name: str) -> Any:
        assert not any(word in name for word in ("Set", "Reset", "Lock")), f"{name} was asked for"
        return super().__getattr__(name)


@pytest.mark.parametrize("answering", [True, False])
def test_a_whole_measurement_changes_no_clock_and_no_setting(answering: bool) -> None:
    clocks = {pynvml.NVML_CLOCK_SM: 1500, pynvml.NVML_CLOCK_MEM: 2619}
    answers: dict[str, Any] = {
        "nvmlDeviceGetName": "NVIDIA H200",
        "nvmlDeviceGetMaxClockInfo": lambda _, kind: clocks[kind],
        "nvmlDeviceGetClockInfo": lambda _, kind: clocks[kind],
        "nvmlDeviceGetTemperature": 50,
        "nvmlDeviceGetPowerUsage": 300_000,
        "nvmlDeviceGetCurrentClocksEventReasons": 0x40,
        "nvmlDeviceGetEccMode": [1, 1],
        "nvmlDeviceGetProcessUtilization": [],
    }
    library = Untouched(**answers if answering else {})
    gpu = Gpu()
    device = CudaDevice(opened_model(gpu, opened(library)))
    task = Workload(lambda: gpu.launch(1e-3), Traffic(400_000, 400_000))
    found = device.measure(task, Budget(8, 0.05), lambda _: None)
    device.release()
    assert found.invalid is None
    assert [finding.code for finding in found.findings] == (["slowdown"] if answering else [])
    assert "nvmlDeviceGetClockInfo" in library.asked
    with pytest.raises(AssertionError, match="nvmlDeviceSetGpuLockedClocks"):
        library.nvmlDeviceSetGpuLockedClocks("gpu", 1, 2)
