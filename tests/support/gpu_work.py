"""Set up work for the GPU tests: kernels with known traffic, and a shorthand for measuring."""

import json
import os
import statistics
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np

from pytest_bandwidth.devices.base import Budget, Call, KernelSource, Launch, Workload
from pytest_bandwidth.devices.cuda.device import CudaDevice
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.traffic import Traffic

MIB = 1 << 20
LONG_SECONDS = 40e-6  # 128 MiB on the fastest cards
BUDGET = Budget(min_samples=30, max_seconds=0.5)

COPY = """
extern "C" __global__ void copy(const float4* __restrict__ x, float4* __restrict__ y, long long n) {
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) y[i] = x[i];
}
"""
SPIN = """
extern "C" __global__ void spin(long long cycles) {
    long long start = clock64();
    while (clock64() - start < cycles) {}
}
"""


CHILD = """
import json, sys
import numpy as np
from pytest_bandwidth.devices.base import Budget, KernelSource, Launch, Workload
from pytest_bandwidth.devices.cuda.device import open_cuda
from pytest_bandwidth.domain.traffic import Traffic
device = open_cuda(0)
quiet = lambda text: None
"""


def quiet(_: str) -> None:
    pass


def child(body: str, **environ: str) -> Any:
    """Run code in a process of its own; what it prints last is JSON."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD + textwrap.dedent(body)],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, **environ},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def copy_task(device: CudaDevice, size: int, **more: Any) -> Workload:
    """Copy `size` bytes."""
    x, y = device.random(size // 4, "float32"), device.empty(size // 4, "float32")
    kernel = device.kernel(KernelSource(COPY, "copy"))
    blocks = int(device.identity.facts["sm_count"] or 1) * 8
    launch = Launch(kernel, (blocks, 1, 1), (256, 1, 1), (x, y, np.int64(size // 16)))
    call = device.launcher(launch, more.get("stream"))
    return Workload(call, Traffic(size, size), launch=launch, reads=(x,), writes=(y,), **more)


def spinner(device: CudaDevice, cycles: int, stream: Any = None) -> Call:
    """Keep one multiprocessor busy for so many of its cycles."""
    kernel = device.kernel(KernelSource(SPIN, "spin"))
    return device.launcher(Launch(kernel, (1, 1, 1), (1, 1, 1), (np.int64(cycles),)), stream)


def median_seconds(
    device: CudaDevice, task: Workload, runs: int = 30, *, cold: bool = False, blocked: bool = True
) -> float:
    """Time a task with a warm cache or a stream that is not blocked, so that a test may spring a trap on purpose.

    By the timer itself: outside a measurement `device.time` makes caches cold as the work's size needs it.
    """
    device._timer.begin(cold, task.written_share(device.nbytes))
    device._timer.blocked = blocked
    with device._current():
        for _ in range(5):
            device._timer.time(task.call, task.stream)
        return statistics.median(device._timer.time(task.call, task.stream).seconds for _ in range(runs))


def measured(device: CudaDevice, task: Workload, budget: Budget = BUDGET) -> Measurement:
    return device.measure(task, budget, quiet)


def large(device: CudaDevice) -> int:
    """Return bytes an array: a copy's data is well over five caches, and a launch is nothing beside it."""
    least = LONG_SECONDS * device.peak.bytes_per_second if device.peak else 128 * MIB
    return max(int(least), 4 * int(device.identity.facts["last_cache_bytes"] or 0)) // 256 * 256
