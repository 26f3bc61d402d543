"""The blocking kernel: it holds ordinary work, lets go of work that waits, and nothing waits for it that need not.

If these are red no figure of the card means what it says: stop and look.
"""

import time

import pytest
from gpu_work import BUDGET, child, copy_task, large, measured

from pytest_bandwidth.devices.base import Workload
from pytest_bandwidth.devices.cuda.device import CudaDevice

FIRST_SAMPLE = """
import time
x = device.random(1 << 22, "float32")
found = device.measure(Workload(lambda: x + 1, Traffic(x.nbytes, x.nbytes)), Budget(5, 0.1), quiet)
drops = []
real = device.time
device.time = lambda call, stream: (drops.append(real(call, stream)), drops[-1])[1]
y = device.random(1 << 22, "float64")
begun = time.perf_counter()
device.measure(Workload(lambda: y * y, Traffic(y.nbytes, y.nbytes)), Budget(5, 0.1), quiet)
print(json.dumps([time.perf_counter() - begun, found.method, [s.drop.code for s in drops if s.drop]]))
"""


def test_an_ordinary_callable_is_held(device: CudaDevice) -> None:
    found = measured(device, copy_task(device, large(device)))
    assert found.method == "events+block"
    assert "not-held" not in {f.code for f in found.findings}
    # What every sample contains: a few microseconds, or events do not stand where they should. An empty launch as well.
    assert 0 < found.detail["empty_seconds"] < found.detail["floor_seconds"] < 2e-5


def test_an_interrupted_sample_leaves_nothing_held(device: CudaDevice) -> None:
    def call() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        device.time(call, None)
    begun = time.perf_counter()
    device.xp.cuda.runtime.deviceSynchronize()
    assert time.perf_counter() - begun < 0.1


def test_a_callable_that_synchronises_falls_back_in_a_few_seconds(device: CudaDevice) -> None:
    task = copy_task(device, large(device))

    def call() -> None:
        task.call()
        device.xp.cuda.runtime.deviceSynchronize()

    begun = time.perf_counter()
    found = measured(device, Workload(call, task.traffic))
    assert time.perf_counter() - begun < 5 + BUDGET.max_seconds
    assert found.method == "events"
    assert "not-held" in {f.code for f in found.findings}
    assert found.invalid is None


@pytest.mark.parametrize("loading", ["LAZY", "EAGER"])
def test_no_sample_is_dropped_for_loading_or_allocating(loading: str) -> None:
    # In a process of its own, so that every kernel is new to it; the second measurement also takes new memory.
    seconds, method, dropped = child(FIRST_SAMPLE, CUDA_MODULE_LOADING=loading)
    assert (method, dropped) == ("events+block", [])
    assert seconds < 2
