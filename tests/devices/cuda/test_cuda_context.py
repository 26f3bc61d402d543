"""Why there is no GPU, in one line; and that importing the device needs neither CuPy nor NVML."""

import subprocess
import sys
from typing import Any

import pytest
from gpu_model import CudaError, Gpu, model_cupy, skip_beside_a_gpu

from pytest_bandwidth.devices.cuda import context
from pytest_bandwidth.devices.cuda.context import no_cupy, no_device, no_such_index
from pytest_bandwidth.devices.cuda.device import open_cuda
from pytest_bandwidth.devices.cuda.management import MISSING
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


def test_importing_loads_neither_cupy_nor_pynvml() -> None:
    code = (
        "import sys, pytest_bandwidth.devices.cuda.device, pytest_bandwidth.devices.cuda.management;"
        "import pytest_bandwidth.devices.cuda.identity;"
        "print([m for m in ('cupy', 'pynvml', 'amdsmi', 'torch', 'numba') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_without_cupy_the_extras_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert "pytest-bandwidth[cuda13]" in refusal()


def test_the_real_cupy_on_this_machine_opens_or_says_why_not() -> None:
    skip_beside_a_gpu()
    assert "driver" in refusal()


def test_a_driver_too_old(cupy: Any) -> None:
    def count() -> int:
        raise CudaError(35)

    cupy.cuda.runtime.getDeviceCount = count
    cupy.cuda.runtime.driverGetVersion = lambda: 12020
    assert "supports CUDA 12.2, CuPy needs 13.2" in refusal()


def test_rocm_without_a_driver_does_not_even_tell_versions(cupy: Any) -> None:
    def refuse() -> int:
        raise CudaError(100, "hipErrorNoDevice")

    cupy.cuda.runtime.is_hip = True
    cupy.cuda.runtime.getDeviceCount = refuse
    cupy.cuda.runtime.driverGetVersion = refuse
    cupy.cuda.runtime.runtimeGetVersion = refuse
    assert "ROCm shows no GPU" in refusal()


def test_no_such_index(cupy: Any) -> None:
    assert "no device cuda:3: there is 1 GPU, cuda:0" in refusal(3)
    assert "no device cuda:-1" in refusal(-1)
    assert cupy.cuda.runtime.getDeviceCount() == 1


def facts(cupy: Any, **more: Any) -> None:
    cupy.cuda.runtime.getDeviceProperties = lambda _: {
        "name": b"NVIDIA Old", "totalGlobalMem": 1 << 30, "major": 7, "minor": 0, "multiProcessorCount": 4,
        "l2CacheSize": 1 << 20, "maxThreadsPerMultiProcessor": 2048,
        **more,
    }  # fmt: skip
    cupy.cuda.runtime.deviceGetPCIBusId = lambda _: "ffff:ff:1f.7"
    cupy.cuda.runtime.free = lambda _: None


def test_a_compiler_that_does_not_know_the_gpu(cupy: Any) -> None:
    facts(cupy)

    def refuse(**_: Any) -> Any:
        raise cupy.cuda.compiler.CompileException("nvrtc: error: invalid value for --gpu-architecture (-arch)")

    cupy.RawModule = refuse
    text = refusal()
    assert "NVIDIA Old" in text
    assert "invalid value for --gpu-architecture" in text


def test_hips_compiler_is_not_mistaken_for_cudas(cupy: Any) -> None:
    facts(cupy)
    asked = cupy.cuda.runtime.getDeviceProperties
    cupy.cuda.runtime.is_hip = True
    cupy.cuda.runtime.getDeviceProperties = lambda index: {**asked(index), "gcnArchName": b"gfx1201"}

    def refuse(**_: Any) -> Any:
        raise cupy.cuda.compiler.CompileException("hiprtc: error: unknown target")

    cupy.RawModule = refuse
    text = refusal()
    assert "install the ROCm that CuPy's wheel was made for" in text
    assert "cuda12" not in text


def test_a_missing_compiler_or_a_full_gpu(cupy: Any) -> None:
    facts(cupy)

    def refuse(**_: Any) -> Any:
        raise ImportError("DynamicLibNotFoundError: libnvrtc.so")

    cupy.RawModule = cupy.cuda.nvrtc.getVersion = refuse
    assert "does not start: DynamicLibNotFoundError" in refusal()


def test_a_gpu_of_which_nvml_does_not_tell_opens_all_the_same(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    facts(cupy)
    monkeypatch.setattr(context, "open_nvml", lambda *_: "NVML: Not Supported")
    device = open_cuda(0)
    assert device.identity.name == "NVIDIA Old"
    assert device.identity.facts["nvml"] == "NVML: Not Supported"
    assert device.identity.facts["other_processes"] == "not watched: no management library"
    assert device.peak is None


def test_an_amd_gpu_is_looked_for_in_amd_smi_alone(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    facts(cupy, gcnArchName=b"gfx942:sramecc+:xnack-", clockRate=2_100_000)
    cupy.cuda.runtime.is_hip = True
    monkeypatch.setattr(context, "open_nvml", None)
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    said = open_cuda(0).identity.facts
    assert "nvml" not in said
    assert said["amdsmi"] == MISSING
    assert said["other_processes"] == "not watched: no management library"


def test_missing_cupy_names_the_extras() -> None:
    text = str(no_cupy(ModuleNotFoundError("No module named 'cupy'", name="cupy")))
    assert "not installed" in text
    assert "pytest-bandwidth[cuda13]" in text


def test_a_cupy_that_does_not_import_is_told_apart_from_none() -> None:
    text = str(no_cupy(ImportError("libcudart.so.12: cannot open\nshared object file")))
    assert "does not import" in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("status", "driver", "runtime", "visible", "expected"),
    [
        (35, 0, 13020, None, "no NVIDIA driver"),
        (35, 12040, 13020, None, "too old: it supports CUDA 12.4, CuPy needs 13.2"),
        (3, 12040, 13020, None, "too old"),
        (100, 13000, 13000, None, "shows no GPU"),
        (100, 13000, 13000, "", "CUDA_VISIBLE_DEVICES is ''"),
        (999, 13000, 13000, None, "CUDA does not start"),
    ],
)
def test_why_there_is_no_device(status: int, driver: int, runtime: int, visible: str | None, expected: str) -> None:
    text = str(no_device(CudaError(status), driver, runtime, visible))
    assert expected in text
    assert "\n" not in text


def test_rocm_is_not_told_to_install_an_nvidia_driver() -> None:
    text = str(no_device(CudaError(100, "hipErrorNoDevice"), 0, 0, None, hip=True))
    assert "ROCm" in text
    assert "NVIDIA" not in text


def test_a_wrong_index_says_which_there_are() -> None:
    assert "cuda:0 to cuda:3" in str(no_such_index(4, 4, None))
    assert "there is 1 GPU, cuda:0 under CUDA_VISIBLE_DEVICES=2" in str(no_such_index(2, 1, "2"))
