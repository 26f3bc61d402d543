"""Every library's stream as a pointer, and errors that lose a context or do not."""

import ctypes
import gc
from types import SimpleNamespace
from typing import Any

import pytest
from gpu_model import CudaError, ModelOutOfMemory

from pytest_bandwidth.devices.cuda.runtime import ContextGuard, external_stream, stream_pointer
from pytest_bandwidth.domain.errors import DeviceLost, OutOfMemory, UsageError


class Protocol:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __cuda_stream__(self) -> Any:
        return self.answer


class CudaPythonHandle:
    def __int__(self) -> int:
        return 0x99


@pytest.mark.parametrize(
    ("stream", "pointer"),
    [
        (0, 0),
        (0x7F00DEAD, 0x7F00DEAD),
        (SimpleNamespace(ptr=0x11), 0x11),  # CuPy
        (SimpleNamespace(cuda_stream=0x22), 0x22),  # PyTorch
        (Protocol((0, 0x33)), 0x33),
        (SimpleNamespace(__cuda_stream__=(0, 0x34)), 0x34),  # cuda.core before 0.2
        (SimpleNamespace(handle=ctypes.c_void_p(0x44)), 0x44),  # Numba
        (SimpleNamespace(handle=ctypes.c_void_p(None)), 0),
        (SimpleNamespace(handle=CudaPythonHandle()), 0x99),  # Numba over NVIDIA's bindings
    ],
)
def test_accepted(stream: Any, pointer: int) -> None:
    assert stream_pointer(stream) == pointer


@pytest.mark.parametrize(
    "stream",
    [
        *(True, -1, 2**64, 1.0, "stream", object(), SimpleNamespace(handle="x"), SimpleNamespace(cuda_stream=-5)),
        *(Protocol((1, 0x33)), Protocol(5), Protocol((0, "x"))),
    ],
)
def test_refused_in_one_line_that_says_what_is_accepted(stream: Any) -> None:
    with pytest.raises(UsageError) as caught:
        stream_pointer(stream)
    assert "expected" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_numbas_own_default_stream() -> None:
    numba_cuda = pytest.importorskip("numba.cuda.cudadrv.driver")
    context = Protocol(None)  # Numba only keeps a weak reference to it
    stream = numba_cuda.Stream(context, ctypes.c_void_p(0x66), None, external=True)
    assert stream_pointer(stream) == 0x66


def test_a_foreign_stream_is_not_destroyed_with_cupys_view_of_it() -> None:
    cupy = pytest.importorskip("cupy")
    owner = object()
    stream = external_stream(cupy, 0x77, 0, owner)
    assert stream.ptr == 0x77
    assert stream_pointer(stream) == 0x77
    assert stream_pointer(cupy.cuda.Stream.null) == 0
    # Destroying it would fail here, and on a GPU crash: 0x77 is no stream. Either shows as an unraisable exception.
    del stream
    gc.collect()


def guard(*, then: BaseException | None = None) -> ContextGuard:
    def synchronize() -> None:
        if then is not None:
            raise then

    return ContextGuard(synchronize, (ModelOutOfMemory,))


@pytest.mark.parametrize(
    ("raised", "then", "expected", "said"),
    [
        (ZeroDivisionError("mine"), None, ZeroDivisionError, "mine"),
        (CudaError(700, "an illegal memory access was encountered"), None, DeviceLost, "outside its arrays"),
        # Another library's words for it are checked with CUDA itself.
        (RuntimeError("CUDA error: unspecified launch failure"), CudaError(719), DeviceLost, "a kernel failed"),
        (ValueError("mine"), CudaError(1), ValueError, "mine"),  # which leaves the context usable
        (KeyboardInterrupt("mine"), CudaError(700), KeyboardInterrupt, "mine"),  # unexamined
    ],
)
def test_a_sticky_error_loses_the_device_for_good_and_others_pass_through(
    raised: BaseException, then: BaseException | None, expected: type[BaseException], said: str
) -> None:
    watched = guard(then=then)
    with pytest.raises(expected, match=said), watched.watch():
        raise raised
    assert (watched.lost is not None) is (expected is DeviceLost)
    if expected is DeviceLost:
        with pytest.raises(DeviceLost, match=said), watched.watch():
            pytest.fail("nothing may run on a lost device")


def test_running_out_of_memory_says_for_what() -> None:
    expected = pytest.raises(OutOfMemory, match=r"the probe .* does not fit.*smaller arrays")
    with expected, guard().allocation("the probe (12 bytes)"):
        raise ModelOutOfMemory("out")
