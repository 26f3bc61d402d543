"""Any library's stream is accepted; work on another one than the timed is caught."""

from importlib import import_module
from typing import Any

import numpy as np
import pytest
from gpu_work import copy_task, large, measured, spinner

from pytest_bandwidth.devices.base import Workload
from pytest_bandwidth.devices.cuda.device import CudaDevice
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.traffic import Traffic


def non_blocking(device: CudaDevice) -> Any:
    return device.xp.cuda.Stream(non_blocking=True)


@pytest.mark.parametrize("cycles", [10_000_000, 5_000])
def test_work_on_another_stream_is_caught(device: CudaDevice, cycles: int) -> None:
    other = non_blocking(device)
    with pytest.raises(UsageError, match="another stream"):
        measured(device, Workload(spinner(device, cycles, other), Traffic(1, 1)))


def test_a_compared_callable_on_another_stream_is_caught(device: CudaDevice) -> None:
    beside = spinner(device, 5_000, non_blocking(device))
    task = Workload(spinner(device, 100_000), Traffic(1, 1), interleaved=(beside,))
    with pytest.raises(UsageError, match="callable 2 of 2 runs on another stream"):
        measured(device, task)


def test_work_that_the_timed_stream_waits_for_is_measured(device: CudaDevice) -> None:
    other, here = non_blocking(device), device.xp.cuda.get_current_stream()
    work = spinner(device, 2_000_000, other)

    def call() -> None:
        other.wait_event(here.record())
        work()
        here.wait_event(other.record())

    alone = measured(device, Workload(spinner(device, 2_000_000), Traffic(1, 1)))
    joined = measured(device, Workload(call, Traffic(1, 1)))
    assert alone.seconds is not None
    assert joined.seconds is not None
    assert joined.seconds == pytest.approx(alone.seconds, rel=0.2)


@pytest.mark.parametrize("kind", ["cupy", "pointer", "protocol"])
def test_a_named_stream_gives_the_same_figure(device: CudaDevice, kind: str) -> None:
    stream = non_blocking(device)

    class Protocol:
        def __cuda_stream__(self) -> tuple[int, int]:
            return (0, stream.ptr)

    named = {"cupy": stream, "pointer": stream.ptr, "protocol": Protocol()}[kind]
    size = large(device)
    default = measured(device, copy_task(device, size))
    found = measured(device, copy_task(device, size, stream=named))
    assert default.gbps is not None
    assert found.gbps == pytest.approx(default.gbps, rel=0.1)


def test_torch_on_its_own_stream(device: CudaDevice, torch: Any) -> None:
    size = large(device)
    x = torch.empty(size, dtype=torch.uint8, device="cuda").random_()
    y = torch.empty_like(x)
    stream = torch.cuda.Stream()

    def call() -> None:
        with torch.cuda.stream(stream):
            y.copy_(x)

    with pytest.raises(UsageError, match="another stream"):
        measured(device, Workload(call, Traffic(size, size), reads=(x,), writes=(y,)))
    found = measured(device, Workload(call, Traffic(size, size), reads=(x,), writes=(y,), stream=stream))
    assert 0.5 < found.relative < 1.5
    assert found.method == "events+block"


def test_numba_on_its_own_stream(device: CudaDevice) -> None:
    cuda = pytest.importorskip("numba.cuda")
    if not cuda.is_available():
        pytest.skip("Numba sees no GPU")
    try:
        import_module("numba.cuda.cudaimpl")
    except AttributeError as reason:  # numba-cuda 0.30 beside NumPy 2.5, say
        pytest.skip(f"Numba's part for CUDA does not import here: {reason}")

    def plus_one(x: Any) -> None:
        i = cuda.grid(1)
        if i < x.size:
            x[i] += 1

    kernel = cuda.jit(plus_one)
    array = cuda.to_device(np.zeros(large(device) // 4, np.float32))
    stream = cuda.stream()
    blocks = -(-array.size // 256)

    def call() -> None:
        kernel[blocks, 256, stream](array)

    traffic = Traffic(array.nbytes, array.nbytes)
    found = measured(device, Workload(call, traffic, reads=(array,), writes=(array,), stream=stream))
    assert 0.3 < found.relative < 1.5
