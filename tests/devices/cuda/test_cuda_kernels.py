"""From kernel text to a kernel: templates, C++ names, the compiler's log, and names that do not exist."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_model import Array, CompileException, CudaError, Gpu, RawKernel, model_cupy

from pytest_bandwidth.devices.base import KernelSource, Launch
from pytest_bandwidth.devices.cuda.arguments import ArrayWorld
from pytest_bandwidth.devices.cuda.kernels import (
    LONGEST_LOG,
    compile_error,
    compile_kernel,
    compile_options,
    kernel_resources,
    missing_kernel,
    prepared_call,
    ready_kernel,
)
from pytest_bandwidth.domain.errors import KernelError, UsageError

TEXT = """
extern "C" __global__ void copy(const float* x, float* y) {}
__global__ void mangled(float* x) {}
template <typename T> __global__ void scale(T* x) {}
"""
WORLD = ArrayWorld(lambda v: isinstance(v, Array), lambda a: a.device.id, lambda a: a, 0)


class Compiler:
    """Knows what NVRTC and the driver would: extern "C" names plainly, the others only as name expressions."""

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[str, ...], Any, str]] = []

    def __call__(self, code: str, options: tuple[str, ...], expressions: Any, name: str) -> None:
        self.asked.append((options, expressions, name))
        if "syntax error" in code:
            raise CompileException('kernel.cu(3): error: expected a ";"\n1 error detected')
        if name != "copy" and (not expressions or name not in expressions):
            raise CudaError(500, "CUDA_ERROR_NOT_FOUND: named symbol not found")


def compiled(name: str, text: str = TEXT, **more: Any) -> tuple[Any, Compiler]:
    compiler = Compiler()
    return compile_kernel(model_cupy(Gpu(), compiler), KernelSource(text, name, **more)), compiler


def test_an_extern_c_kernel() -> None:
    kernel, compiler = compiled("copy")
    assert kernel.name == "copy"
    assert compiler.asked == [((), None, "copy")]


def test_a_templates_instance_needs_no_more_than_its_name() -> None:
    _, compiler = compiled("scale<float>")
    assert compiler.asked == [((), ["scale<float>"], "scale<float>")]


def test_given_name_expressions_are_used() -> None:
    _, compiler = compiled("scale<float>", name_expressions=("scale<float>", "scale<double>"))
    assert compiler.asked[0][1] == ["scale<float>", "scale<double>"]


def test_a_kernel_that_is_not_extern_c_is_found_by_its_cpp_name() -> None:
    kernel, compiler = compiled("mangled")
    assert kernel.name == "mangled"
    assert [asked[1] for asked in compiler.asked] == [None, ["mangled"]]


def test_a_missing_kernel_lists_those_there_are() -> None:
    with pytest.raises(KernelError, match=r"no kernel 'cpoy', it has copy, mangled, scale"):
        compiled("cpoy")


def test_a_template_without_arguments_gets_a_hint() -> None:
    assert "scale<float>" not in str(missing_kernel(KernelSource(TEXT, "absent")))
    assert "name<float>" in str(missing_kernel(KernelSource(TEXT, "scale")))


def test_a_compile_error_shows_the_log(tmp_path: Path) -> None:
    with pytest.raises(KernelError) as caught:
        compiled("copy", "syntax error", file=tmp_path / "own.cu")
    first, second, *_ = str(caught.value).splitlines()
    assert "own.cu does not compile (kernel copy)" in first
    assert "expected a" in second


def test_an_endless_log_is_cut() -> None:
    text = str(compile_error(KernelSource(TEXT, "copy"), "x" * (LONGEST_LOG + 500)))
    assert len(text) < LONGEST_LOG + 200
    assert "500 more characters" in text


def test_another_driver_error_is_not_taken_for_a_missing_kernel() -> None:
    def refuse(*_: Any) -> None:
        raise CudaError(209, "no kernel image for this GPU")

    with pytest.raises(CudaError, match="no kernel image"):
        compile_kernel(model_cupy(Gpu(), refuse), KernelSource(TEXT, "copy"))


def test_a_files_own_folder_is_searched_for_includes() -> None:
    *options, headers = compile_options(KernelSource(TEXT, "copy", file=Path("/k/a.cu"), options=("-DN=1",)))
    assert options == ["-DN=1", "-I/k"]
    assert headers.startswith("-DPYTEST_BANDWIDTH_HEADERS=")
    assert compile_options(KernelSource(TEXT, "copy", options=("-DN=1",))) == ("-DN=1",)


def test_a_users_raw_kernel_is_compiled_before_it_is_timed() -> None:
    class Broken(RawKernel):
        @property
        def kernel(self) -> Any:
            raise CompileException("nonsense")

        @kernel.setter
        def kernel(self, value: Any) -> None:
            pass

    with pytest.raises(KernelError, match="nonsense"):
        ready_kernel(model_cupy(Gpu()), Broken("code", "own"))


def test_what_is_no_kernel_is_refused() -> None:
    with pytest.raises(UsageError, match="str is no kernel"):
        ready_kernel(model_cupy(Gpu()), "copy")


def launch(kernel: Any, **more: Any) -> Launch:
    return Launch(kernel, (1, 1, 1), (256, 1, 1), (Array(np.zeros(4, np.float32)),), **more)


def test_a_launch_with_too_many_threads_for_its_kernel_is_refused() -> None:
    kernel = RawKernel("", "fat")
    kernel.max_threads_per_block = 128
    with pytest.raises(UsageError, match="allows 128"):
        prepared_call(model_cupy(Gpu()), launch(kernel), WORLD)


def test_more_than_48_kib_of_shared_memory_is_asked_for() -> None:
    kernel = RawKernel("", "tiled")
    prepared_call(model_cupy(Gpu()), launch(kernel, shared_bytes=48 * 1024), WORLD)
    assert kernel.max_dynamic_shared_size_bytes == 48 * 1024
    prepared_call(model_cupy(Gpu()), launch(kernel, shared_bytes=64 * 1024), WORLD)
    assert kernel.max_dynamic_shared_size_bytes == 64 * 1024


def test_more_shared_memory_than_the_gpu_has_is_refused_in_one_line() -> None:
    class Small(RawKernel):
        def __setattr__(self, name: str, value: Any) -> None:
            if name == "max_dynamic_shared_size_bytes" and value > 48 * 1024:
                raise CudaError(1, "CUDA_ERROR_INVALID_VALUE: invalid argument")
            super().__setattr__(name, value)

    with pytest.raises(UsageError, match="asks for 1048576 bytes"):
        prepared_call(model_cupy(Gpu()), launch(Small("", "tiled"), shared_bytes=1 << 20), WORLD)


class OnHip(RawKernel):
    """A kernel as CuPy's HIP build has it: what CUDA has to be asked for cannot be set."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "max_dynamic_shared_size_bytes" and hasattr(self, name):
            raise CudaError(999, "hipErrorUnknown: unknown error")
        super().__setattr__(name, value)


def test_hip_gives_the_shared_memory_that_it_has_without_being_asked() -> None:
    cupy = model_cupy(Gpu(hip=True))
    cupy.cuda.runtime.getDeviceProperties = lambda _: {"sharedMemPerBlock": 64 * 1024}
    prepared_call(cupy, launch(OnHip("", "tiled"), shared_bytes=60 * 1024), WORLD)
    with pytest.raises(UsageError, match="asks for 81920 bytes of shared memory a block, this GPU has 65536"):
        prepared_call(cupy, launch(OnHip("", "tiled"), shared_bytes=80 * 1024), WORLD)


def test_resources_and_occupancy() -> None:
    found = kernel_resources(model_cupy(Gpu()), launch(RawKernel("", "copy")), threads_per_sm=2048)
    assert found is not None
    assert found.registers == 32
    assert found.occupancy == 4 * 256 / 2048


def test_a_kernel_of_another_kind_has_no_resources() -> None:
    assert kernel_resources(model_cupy(Gpu()), launch(lambda *_: None), threads_per_sm=2048) is None
