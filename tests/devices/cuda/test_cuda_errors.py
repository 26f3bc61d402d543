"""CUDA's errors, by who has to act."""

import pytest
from gpu_model import CudaError, ModelOutOfMemory

from pytest_bandwidth.devices.cuda.errors import ContextGuard, no_cupy, no_device, no_such_index
from pytest_bandwidth.domain.errors import DeviceLost, OutOfMemory


def guard(*, then: BaseException | None = None) -> ContextGuard:
    def synchronize() -> None:
        if then is not None:
            raise then

    return ContextGuard(synchronize, (ModelOutOfMemory,))


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


def test_a_users_own_error_passes_through() -> None:
    with pytest.raises(ZeroDivisionError), guard().watch():
        raise ZeroDivisionError


def test_a_sticky_error_loses_the_device_for_good() -> None:
    watched = guard()
    with pytest.raises(DeviceLost, match="outside its arrays"), watched.watch():
        raise CudaError(700, "an illegal memory access was encountered")
    with pytest.raises(DeviceLost, match="outside its arrays"), watched.watch():
        pytest.fail("nothing may run on a lost device")


def test_another_librarys_words_for_it_are_checked_with_cuda_itself() -> None:
    watched = guard(then=CudaError(719))
    with pytest.raises(DeviceLost), watched.watch():
        raise RuntimeError("CUDA error: unspecified launch failure")
    assert watched.lost is not None


def test_an_error_that_leaves_the_context_usable_is_not_sticky() -> None:
    watched = guard(then=CudaError(1))
    with pytest.raises(ValueError, match="mine"), watched.watch():
        raise ValueError("mine")
    assert watched.lost is None


def test_interruption_passes_through_unexamined() -> None:
    watched = guard(then=CudaError(700))
    with pytest.raises(KeyboardInterrupt), watched.watch():
        raise KeyboardInterrupt
    assert watched.lost is None


def test_running_out_of_memory_says_for_what() -> None:
    expected = pytest.raises(OutOfMemory, match=r"the probe .* does not fit.*smaller arrays")
    with expected, guard().allocation("the probe (12 bytes)"):
        raise ModelOutOfMemory("out")
