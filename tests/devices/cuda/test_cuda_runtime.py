"""Every library's stream as a pointer, and errors that lose a context or do not."""

import ctypes
import gc
from types import SimpleNamespace
from typing import Any

import pytest
from gpu_model import CudaError, ModelOutOfMemory

from pytest_bandwidth.devices.cuda.runtime import (
    ContextGuard,
    ProbeSet,
    external_stream,
    stream_pointer,
)
from pytest_bandwidth.domain.errors import DeviceLost, OutOfMemory, UsageError
from pytest_bandwidth.domain.traffic import Traffic


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


MIB = 1 << 20


class Memory:
    """An allocator with `free` bytes, which records each allocation's size."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.taken: list[int] = []

    def allocate(self, size: int) -> Any:
        if size > self.free - sum(self.taken):
            raise ModelOutOfMemory(f"{size} bytes")
        self.taken.append(size)
        return memoryview(bytearray(size))

    def give_back(self) -> None:
        self.taken.clear()


class Kernels:
    def __init__(self) -> None:
        self.launched: list[tuple[str, Any]] = []

    def __call__(self, name: str) -> Any:
        return lambda grid, block, args: self.launched.append((name, (grid, block, args)))


def probes(memory: Memory, kernels: Kernels) -> ProbeSet:
    guard = ContextGuard(lambda: None, (ModelOutOfMemory,))
    return ProbeSet(kernels, memory.allocate, memory.give_back, guard, object())


def test_every_kernel_gets_the_arguments_it_declares_and_writes_differ_from_call_to_call() -> None:
    kernels = Kernels()
    made = probes(Memory(64 * MIB), kernels)
    for traffic in (Traffic(MIB, 0), Traffic(0, MIB), Traffic(MIB, MIB), Traffic(2 * MIB, MIB)):
        made.probe(traffic).call()
    assert [(name, len(call[2])) for name, call in kernels.launched] == [
        ("probe_read", 4),
        ("probe_write", 3),
        ("probe_copy", 3),
        ("probe_add", 4),
    ]
    assert kernels.launched[-1][1][:2] == ((MIB // 16 // 256,), (256,)), "no thread has a second turn"
    writes = made.probe(Traffic(0, MIB))
    writes.call()
    writes.call()
    seeds = [int(call[2][1]) for name, call in kernels.launched if name == "probe_write"]
    assert len(set(seeds)) == 3


def test_a_probe_that_does_not_fit_is_halved_until_it_does() -> None:
    memory = Memory(300 * MIB)
    probe = probes(memory, Kernels()).probe(Traffic(512 * MIB, 512 * MIB))
    assert probe.bytes_moved == 256 * MIB  # 1024 → 512 → 256
    assert memory.taken == [128 * MIB, 128 * MIB]  # nothing of the failed tries is still held


@pytest.mark.parametrize(("free", "array"), [(4 * MIB, 128 * MIB), (MIB, 2 * MIB)])
def test_a_probe_that_does_not_fit_is_not_shrunk_to_nothing(free: int, array: int) -> None:
    with pytest.raises(OutOfMemory, match="the probe"):
        probes(Memory(free), Kernels()).probe(Traffic(array, array))
