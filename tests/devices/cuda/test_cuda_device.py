"""The cuda device as a whole, on the model of a GPU."""

import gc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gpu_model import (
    L2_BYTES,
    MODEL_FACTS,
    Array,
    CudaError,
    Gpu,
    Nvml,
    opened_model,
)

from pytest_bandwidth.devices.base import Budget, KernelSource, Launch, Workload
from pytest_bandwidth.devices.cuda.device import CudaDevice
from pytest_bandwidth.devices.cuda.management import GpuReading
from pytest_bandwidth.domain.device import Conditions
from pytest_bandwidth.domain.errors import DeviceLost, OutOfMemory, UsageError
from pytest_bandwidth.domain.traffic import Traffic

TRAFFIC = Traffic(400_000, 400_000)
QUICK = Budget(min_samples=8, max_seconds=0.05)


def made(gpu: Gpu, nvml: Any = None, **facts: Any) -> CudaDevice:
    return CudaDevice(opened_model(gpu, nvml, replace(MODEL_FACTS, **facts)))


def quiet(_: str) -> None:
    pass


@pytest.mark.parametrize(("size", "flushed"), [(16 * L2_BYTES - 1, True), (16 * L2_BYTES, False)])
def test_data_of_sixteen_caches_need_no_flush_and_what_is_worked_on_in_place_counts_once(
    gpu: Gpu, size: int, flushed: bool
) -> None:
    array = Array(np.zeros(size, np.uint8))
    task = Workload(lambda: gpu.launch(1e-3), Traffic(size, size), reads=(array,), writes=(array,))
    assert made(gpu).measure(task, QUICK, quiet).detail["cache_flushed"] is flushed
    gpu.log.clear()
    made(gpu).time(lambda: gpu.launch(1e-3), None)
    assert "fill_cache" in gpu.log, "a call of unknown size is flushed"


def test_clocks_that_were_set_low_are_told_and_cost_no_sample(gpu: Gpu) -> None:
    gpu.clock_mhz = 800.0  # nominal is 1600
    found = made(gpu, Nvml()).measure(Workload(lambda: gpu.launch(1e-3), TRAFFIC), QUICK, quiet)
    assert found.invalid is None
    assert found.rounds.dropped == ()
    assert [f.code for f in found.findings] == ["sm-clock-low"]
    # A default that the card can hold, unlike its maximum, is nominal.
    held = made(gpu, Nvml(default_sm_clock_mhz=1000)).measure(Workload(lambda: gpu.launch(1e-3), TRAFFIC), QUICK, quiet)
    assert held.findings == ()


def test_no_kernel_is_loaded_and_no_memory_taken_behind_a_blocked_stream(gpu: Gpu) -> None:
    # Either waits for the whole device, and so until the blocking kernel gives up, after a quarter of a second or more.
    device = made(gpu)
    found = device.measure(Workload(lambda: gpu.launch_into_new_memory(1e-3), TRAFFIC), QUICK, quiet)
    assert found.method == "events+block"
    assert found.rounds.dropped == ()
    assert gpu.gave_up == 0


def test_slow_clocks_and_memory_errors_are_findings_and_no_verdict(gpu: Gpu) -> None:
    slowed = ("hardware power brake",)
    nvml = Nvml(  # before the calibration, before the samples, after them
        GpuReading(Conditions(1980.0, 2000.0), 1),
        GpuReading(Conditions(1980.0, 2000.0, event_reasons=slowed), 1),
        GpuReading(Conditions(1980.0, 2000.0, event_reasons=("software power cap",)), 2),
        max_memory_clock_mhz=2400,
    )
    found = made(gpu, nvml).measure(Workload(lambda: gpu.launch(1e-3), TRAFFIC), QUICK, quiet)
    assert {f.code for f in found.findings} == {"sm-clock", "memory-clock", "slowdown", "ecc"}
    assert any("hardware power brake" in finding.text for finding in found.findings)
    assert found.invalid is None


def test_an_error_that_loses_the_device_in_a_nested_call_is_told_once_and_for_all(gpu: Gpu) -> None:
    device = made(gpu)
    kernel = device.kernel(KernelSource('extern "C" __global__ void f() {}', "f"))

    def call() -> None:
        gpu.sticky = CudaError(700, "an illegal memory access was encountered")
        device.launcher(Launch(kernel, (1, 1, 1), (1, 1, 1), ()), None)()

    told = []
    for _ in range(2):
        with pytest.raises(DeviceLost, match="wrote outside its arrays") as caught:
            device.measure(Workload(call, TRAFFIC), QUICK, quiet)
        told.append(str(caught.value))
    assert told[0] == told[1]


def test_nothing_of_a_lost_device_is_destroyed(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    # CuPy's events raise there, which pytest would tell of the next test.
    unraisable: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", unraisable.append)
    gpu.destroying_fails = True
    device = made(gpu)

    def call() -> None:
        gpu.sticky = CudaError(719)

    try:
        device.measure(Workload(call, TRAFFIC), QUICK, quiet)
    except DeviceLost:
        device.release()
    del device, call
    gpu.sticky = None  # its traceback holds them
    gc.collect()
    gpu.destroying_fails = False
    assert unraisable == []


def test_running_out_of_memory_for_the_flush(gpu: Gpu) -> None:
    device = made(gpu)
    gpu.memory = L2_BYTES
    with pytest.raises(OutOfMemory, match="cache flush"):
        device.measure(Workload(lambda: gpu.launch(1e-3), TRAFFIC), QUICK, quiet)


def test_a_launch_runs_on_its_stream_with_everything_it_was_given(gpu: Gpu) -> None:
    device = made(gpu)
    kernel = device.kernel(KernelSource('extern "C" __global__ void f() {}', "f"))
    array = device.empty(4, "float32")
    launch = Launch(kernel, (2, 1, 1), (64, 1, 1), (array, np.int32(4)), shared_bytes=128)
    device.launcher(launch, None)()
    device.launcher(launch, 0x77)()
    assert kernel.calls[0] == ((2, 1, 1), (64, 1, 1), (array, np.int32(4)), 128)
    assert len(gpu.queues[0x77]) == 1
    assert gpu.stream_stack == []


def test_release_gives_back_what_was_kept(gpu: Gpu) -> None:
    device = made(gpu)
    device.measure(Workload(lambda: gpu.launch(1e-3), TRAFFIC), QUICK, quiet)
    allocated = gpu.arrays
    device.measure(Workload(lambda: gpu.launch(1e-3), TRAFFIC), QUICK, quiet)
    assert gpu.arrays == allocated, "they were kept"
    device.release()
    assert "free" in gpu.log
    device.measure(Workload(lambda: gpu.launch(1e-3), TRAFFIC), QUICK, quiet)
    assert gpu.arrays == allocated + 3  # the flush's buffer and the copy probe's two arrays, once more


def test_resources_and_flops(gpu: Gpu) -> None:
    device = made(gpu, Nvml(name="NVIDIA H200"), memory_bytes=140 << 30)
    source = KernelSource('extern "C" __global__ void f() {}', "f")
    kernel = device.kernel(source)
    assert device.kernel(source) is kernel, "compiled once"
    found = device.resources(Launch(kernel, (1, 1, 1), (256, 1, 1), ()))
    assert found.registers == 32
    assert device.peak_flops("fp32") == 67e12
    assert device.nbytes(device.empty((2, 3), "float16")) == 12
    assert device.xp.ndarray is Array
    assert device.identity.facts["index"] == 0  # by which a new process opens the same GPU


@pytest.mark.parametrize(
    ("parameter", "dtype", "value", "said"),
    [
        ("const int n", "float32", 1.5, r"the kernel's parameter is int, write a whole number$"),
        ("double a", "float32", 1.5, r"argument 2 is the bare Python float 1\.5.*: write np\.float64\(1\.5\)$"),
        ("__half a", "float32", 1.5, r": write np\.float16\(1\.5\)$"),
        ("float a", "float32", 1.5, r": write np\.float32\(1\.5\)$"),
        ("float4 a", "float32", 1.5, r"write np\.float32\(1\.5\), or np\.float64\(1\.5\) if"),
        ("int n", "float64", np.int32(4), r"`x` is float64, the kernel.s parameter is float: the kernel would read"),
    ],
)
def test_what_the_source_says_of_parameters_is_asked_of_arguments(
    gpu: Gpu, parameter: str, dtype: str, value: Any, said: str
) -> None:
    device = made(gpu)
    kernel = device.kernel(KernelSource(f'extern "C" __global__ void f(float* x, {parameter}) {{}}', "f"))
    with pytest.raises(UsageError, match=said):
        device.launcher(Launch(kernel, (1, 1, 1), (32, 1, 1), (device.empty(4, dtype), value)), None)


def test_where_the_kernel_cannot_be_identified_its_launch_is(gpu: Gpu) -> None:
    device = made(gpu)
    kernel = device.kernel(KernelSource('extern "C" __global__ void f() {}', "f"))
    found = device.code(Launch(kernel, (1, 1, 1), (256, 1, 1), ()))
    assert "compiling it again to identify its code failed" in (found.unknown or "")
    assert list(found.identity.known()) == ["launch", "arguments"]
