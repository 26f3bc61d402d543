"""A copy, and what the cuda device makes of it, to the last digit: launched, launched again, and from a graph."""

import json
import os
from dataclasses import asdict, replace

import numpy as np

from pytest_bandwidth.devices.base import Budget, Launch, Workload
from pytest_bandwidth.devices.cuda.device import open_cuda
from pytest_bandwidth.devices.kernel_source import read_source
from pytest_bandwidth.domain.traffic import Traffic

N = int(os.environ.get("N", 1 << 16))
device = open_cuda(0)
x, y = device.random(N, "float32"), device.empty(N, "float32")
kernel = device.kernel(read_source("stream.cu", "copy_f32", ()))
launch = Launch(kernel, (N // 256, 1, 1), (256, 1, 1), (y, x, np.int64(N)))
work = Workload(device.launcher(launch, None), Traffic(4 * N, 4 * N), launch=launch, reads=(x,), writes=(y,))


def measured(workload):
    begun = device.now()
    found = device.measure(workload, Budget(8, 0.02), lambda _: None)
    figures = {"gbps": found.gbps, "relative": found.relative, "seconds": found.seconds, "host": found.host_seconds}
    more = {"took": device.now() - begun - found.rounds.wall_seconds, "findings": [f.code for f in found.findings]}
    return {**figures, **more, "rounds": asdict(found.rounds), "detail": dict(found.detail)}


print(json.dumps({"first": measured(work), "again": measured(work), "graph": measured(replace(work, graph=True))}))
