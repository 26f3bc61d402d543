"""What the cuda device tells of work that CUPTI's records time: launches, copies, other streams, nothing at all."""

import json
import sys

import cupy
import numpy as np

from pytest_bandwidth.devices.base import Budget, Launch, Workload
from pytest_bandwidth.devices.cuda.device import open_cuda
from pytest_bandwidth.devices.kernel_source import read_source
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.traffic import Traffic

N = 1 << 16
device = open_cuda(0)
x, y = device.random(N, "float32"), device.empty(N, "float32")
kernel = device.kernel(read_source("stream.cu", "copy_f32", ()))
launch = device.launcher(Launch(kernel, (N // 256, 1, 1), (256, 1, 1), (y, x, np.int64(N))), None)
other = cupy.cuda.Stream(non_blocking=True)
runs = 0


def thrice():
    for _ in range(3):
        launch()


def elsewhere():
    """Work on a stream that the device knows nothing of, and wait for it, as JAX's arrays are waited for."""
    with other:
        launch()
    other.synchronize()


def sometimes_beyond():
    """Leave work on another stream, in every other run after those that calibrate."""
    global runs
    runs += 1
    if runs > 12 and runs % 2:
        forked = cupy.cuda.Event()
        forked.record()
        other.wait_event(forked)
        with other:
            thrice()
    launch()


def measured(call):
    try:
        found = device.measure(Workload(call, Traffic(4 * N, 4 * N)), Budget(8, 0.02), lambda _: None)
    except UsageError as error:
        return {"error": str(error)}
    return {
        "method": found.method,
        "seconds": found.seconds,
        "probe": found.rounds.probe_seconds[0],
        "floor": found.floor_seconds,
        "findings": [finding.code for finding in found.findings],
        "dropped": sorted({f"{dropped.code}: {dropped.reason}" for dropped in found.rounds.dropped}),
    }


CALLS = {
    "one": launch,
    "three": thrice,
    "copy": lambda: cupy.copyto(y, x),
    "fill": lambda: y.data.memset_async(0, y.nbytes),
    "elsewhere": elsewhere,
    "beyond": sometimes_beyond,
    "nothing": lambda: None,
}
told = {"events": {name: measured(call) for name, call in CALLS.items() if name != "beyond"}}
told["imported"] = "cupti" in sys.modules
device = open_cuda(0)  # another one: a device takes its floor once
device.time_by("cupti")
told["cupti"] = {name: measured(call) for name, call in CALLS.items()}
print(json.dumps(told))
