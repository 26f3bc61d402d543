"""Words about kernels that do not compile or are not there, and HIP's launches; tests/gpu has CUDA's."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gpu_model import Array, CudaError, Gpu, RawKernel, model_cupy, opened_model

from pytest_bandwidth.devices.arguments import GpuArrays
from pytest_bandwidth.devices.base import CompiledCode, KernelSource, Launch
from pytest_bandwidth.devices.cuda.device import CudaDevice
from pytest_bandwidth.devices.cuda.kernels import (
    LONGEST_LOG,
    compile_error,
    compile_kernel,
    kernel_resources,
    launches_in_graph,
    missing_kernel,
    prepared_call,
)
from pytest_bandwidth.devices.kernel_source import STAND_INS
from pytest_bandwidth.domain.errors import NotOnThisDevice, UsageError

TEXT = """
extern "C" __global__ void copy(const float* x, float* y) {}
__global__ void mangled(float* x) {}
template <typename T> __global__ void scale(T* x) {}
"""


def test_a_template_without_arguments_gets_a_hint() -> None:
    assert "scale<float>" not in str(missing_kernel(KernelSource(TEXT, "absent")))
    assert "name<float>" in str(missing_kernel(KernelSource(TEXT, "scale")))


def test_an_endless_log_is_cut() -> None:
    text = str(compile_error(KernelSource(TEXT, "copy"), "x" * (LONGEST_LOG + 500)))
    assert len(text) < LONGEST_LOG + 200
    assert "500 more characters" in text


def test_another_driver_error_is_not_taken_for_a_missing_kernel() -> None:
    def refuse(_: str) -> None:
        raise CudaError(209, "no kernel image for this GPU")

    cupy = model_cupy(Gpu())
    cupy.RawModule = lambda **_: SimpleNamespace(get_function=refuse)
    with pytest.raises(CudaError, match="no kernel image"):
        compile_kernel(cupy, KernelSource(TEXT, "copy"))


@pytest.mark.parametrize(("hip", "last"), [(False, [f"-I{STAND_INS}"]), (True, [])])
def test_includes_are_searched_beside_the_file_and_then_for_stand_ins(hip: bool, last: list[str]) -> None:
    given = []

    def module(**options: Any) -> Any:
        given.append(options["options"])
        return SimpleNamespace(get_function=lambda name: name)

    cupy = model_cupy(Gpu(hip=hip))
    cupy.RawModule = module
    compile_kernel(cupy, KernelSource(TEXT, "copy", file=Path("/k/a.cu"), options=("-DN=1", "-I/own")))
    [[*options, headers]] = given
    assert options == ["-DN=1", "-I/own", "-I/k", *last]
    assert headers.startswith("-DPYTEST_BANDWIDTH_HEADERS=")


def launch(kernel: Any, **more: Any) -> Launch:
    return Launch(kernel, (1, 1, 1), (256, 1, 1), (Array(np.zeros(4, np.float32)),), **more)


class OnHip(RawKernel):
    """A kernel as CuPy's HIP build has it: what CUDA has to be asked for cannot be set."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "max_dynamic_shared_size_bytes" and hasattr(self, name):
            raise CudaError(999, "hipErrorUnknown: unknown error")
        super().__setattr__(name, value)


def test_hip_gives_the_shared_memory_that_it_has_without_being_asked() -> None:
    cupy = model_cupy(Gpu(hip=True))
    cupy.cuda.runtime.getDeviceProperties = lambda _: {"sharedMemPerBlock": 64 * 1024}
    prepared_call(GpuArrays(cupy, 0), launch(OnHip("", "tiled"), shared_bytes=60 * 1024))
    with pytest.raises(UsageError, match="asks for 81920 bytes of shared memory a block, this GPU has 65536"):
        prepared_call(GpuArrays(cupy, 0), launch(OnHip("", "tiled"), shared_bytes=80 * 1024))


def test_a_kernel_of_another_kind_has_no_resources() -> None:
    assert kernel_resources(model_cupy(Gpu()), launch(lambda *_: None), threads_per_sm=2048) is None


def test_hip_has_no_code_for_nvidias_gpus_no_variables_to_set_and_no_cupti() -> None:
    device = CudaDevice(opened_model(Gpu(hip=True)))
    compiled = KernelSource("", "k", Path("libk.so"), compiled=(CompiledCode(b"", 90, is_ptx=True),))
    with pytest.raises(NotOnThisDevice, match=r"^libk\.so holds k for NVIDIA's GPUs, and this is AMD's$"):
        device.kernel(compiled)
    with pytest.raises(NotOnThisDevice, match=r"^kernel\.set: the sizes of variables are known for NVIDIA's GPUs"):
        device.kernel(KernelSource(TEXT, "copy")).set("c", np.zeros(1))
    with pytest.raises(UsageError, match=r"--bandwidth-timer=cupti: CUPTI is for NVIDIA's GPUs alone, use events"):
        device.time_by("cupti")


MIB = 2**20


@pytest.mark.parametrize(
    ("data", "cache", "launches"),
    [(64 * 1024, 50 * MIB, 32), (0, 50 * MIB, 32), (50 * MIB, 50 * MIB, 16), (10**9, 50 * MIB, 2), (1024, 0, 2)],
)
def test_enough_pass_through_the_cache_within_limits(data: int, cache: int, launches: int) -> None:
    assert launches_in_graph(data, cache) == launches
