"""Why there is no GPU, in one line."""

import sys
from typing import Any

import pytest
from gpu_model import CudaError, Gpu, model_cupy, skip_beside_a_gpu

from pytest_bandwidth.devices.cuda import context
from pytest_bandwidth.devices.cuda.device import open_cuda
from pytest_bandwidth.domain.errors import DeviceUnavailable


def refusal(index: int = 0) -> str:
    with pytest.raises(DeviceUnavailable) as caught:
        open_cuda(index)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """CuPy as the model has it, with one GPU of which little is known."""
    module = model_cupy(Gpu())
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return module


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (None, "the cuda device needs CuPy, which is not installed: pip install 'pytest-bandwidth[cuda13]'"),
        (ImportError("libcudart.so.12: cannot open\nshared object file"), "CuPy does not import (libcudart.so.12: "),
    ],
)
def test_why_there_is_no_cupy(monkeypatch: pytest.MonkeyPatch, error: ImportError | None, said: str) -> None:
    def refuse(_: str) -> Any:
        assert error is not None
        raise error

    monkeypatch.setitem(sys.modules, "cupy", None)
    if error is not None:
        monkeypatch.setattr(context.importlib, "import_module", refuse)
    assert refusal().startswith(said)


def test_the_real_cupy_on_this_machine_opens_or_says_why_not() -> None:
    skip_beside_a_gpu()
    assert "driver" in refusal()


@pytest.mark.parametrize(
    ("status", "driver", "runtime", "visible", "expected"),
    [
        (35, 0, 13020, None, "no NVIDIA driver"),
        (35, 12040, 13020, None, "too old: it supports CUDA 12.4, CuPy needs 13.2"),
        (100, 13000, 13000, None, "shows no GPU"),
        (100, 13000, 13000, "", "CUDA_VISIBLE_DEVICES is ''"),
        (999, 13000, 13000, None, "CUDA does not start"),
    ],
)
def test_why_there_is_no_device(
    cupy: Any,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    driver: int,
    runtime: int,
    visible: str | None,
    expected: str,
) -> None:
    def count() -> int:
        raise CudaError(status)

    asked = cupy.cuda.runtime
    asked.getDeviceCount, asked.driverGetVersion, asked.runtimeGetVersion = count, lambda: driver, lambda: runtime
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert expected in refusal()


def test_rocm_without_a_driver_does_not_even_tell_versions(cupy: Any) -> None:
    def refuse() -> int:
        raise CudaError(100, "hipErrorNoDevice")

    asked = cupy.cuda.runtime
    asked.is_hip = True
    asked.getDeviceCount = asked.driverGetVersion = asked.runtimeGetVersion = refuse
    said = refusal()
    assert "ROCm shows no GPU" in said
    assert "NVIDIA" not in said


@pytest.mark.parametrize(
    ("index", "count", "visible", "said"),
    [
        (3, 1, None, "no device cuda:3: there is 1 GPU, cuda:0"),
        (4, 4, None, "there are 4 GPUs, cuda:0 to cuda:3"),
        (2, 1, "2", "there is 1 GPU, cuda:0 under CUDA_VISIBLE_DEVICES=2"),
    ],
)
def test_a_wrong_index_says_which_there_are(
    cupy: Any, monkeypatch: pytest.MonkeyPatch, index: int, count: int, visible: str | None, said: str
) -> None:
    cupy.cuda.runtime.getDeviceCount = lambda: count
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert said in refusal(index)


def facts(cupy: Any, **more: Any) -> None:
    cupy.cuda.runtime.getDeviceProperties = lambda _: {
        "name": b"NVIDIA Old", "totalGlobalMem": 1 << 30, "major": 7, "minor": 0, "multiProcessorCount": 4,
        "l2CacheSize": 1 << 20, "maxThreadsPerMultiProcessor": 2048,
        **more,
    }  # fmt: skip
    cupy.cuda.runtime.deviceGetPCIBusId = lambda _: "ffff:ff:1f.7"
    cupy.cuda.runtime.free = lambda _: None


def test_a_compiler_that_refuses_is_told_apart_by_whose_it_is(cupy: Any) -> None:
    facts(cupy)
    refused: Any = cupy.cuda.compiler.CompileException("nvrtc: error: invalid value for --gpu-architecture (-arch)")

    def refuse(**_: Any) -> Any:
        raise refused

    cupy.RawModule = refuse
    text = refusal()
    assert "NVIDIA Old" in text
    assert "invalid value for --gpu-architecture" in text
    cupy.cuda.nvrtc.getVersion = refuse
    refused = ImportError("DynamicLibNotFoundError: libnvrtc.so")
    assert "does not start: DynamicLibNotFoundError" in refusal()
    facts(cupy, gcnArchName=b"gfx1201")
    cupy.cuda.runtime.is_hip = True
    refused = cupy.cuda.compiler.CompileException("hiprtc: error: unknown target")
    text = refusal()
    assert "install the ROCm that CuPy's wheel was made for" in text
    assert "cuda12" not in text


def test_a_gpu_of_which_nvml_does_not_tell_opens_all_the_same(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    facts(cupy)
    monkeypatch.setattr(context, "open_nvml", lambda *_: "NVML: Not Supported")
    device = open_cuda(0)
    assert device.identity.name == "NVIDIA Old"
    assert device.identity.facts["nvml"] == "NVML: Not Supported"
    assert device.identity.facts["other_processes"] == "not watched: no management library"
    assert device.peak is None
