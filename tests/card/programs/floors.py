"""What the cuda device finds to stand in every sample of a short launch: alone, again, and from a graph."""

import json
from dataclasses import replace

import numpy as np

from pytest_bandwidth.devices.base import Budget, Launch, Workload
from pytest_bandwidth.devices.cuda.device import open_cuda
from pytest_bandwidth.devices.kernel_source import read_source
from pytest_bandwidth.domain.traffic import Traffic

N = 1 << 16
device = open_cuda(0)
x, y = device.random(N, "float32"), device.empty(N, "float32")
kernel = device.kernel(read_source("stream.cu", "copy_f32", ()))
launch = Launch(kernel, (N // 256, 1, 1), (256, 1, 1), (y, x, np.int64(N)))
work = Workload(device.launcher(launch, None), Traffic(4 * N, 4 * N), launch=launch, reads=(x,), writes=(y,))


def measured(workload):
    begun = device.now()
    found = device.measure(workload, Budget(8, 0.02), lambda _: None)
    names = ("floor_seconds", "event_step_seconds", "graph_launches")
    took = device.now() - begun - found.rounds.wall_seconds
    return {"seconds": found.seconds, "took": took, **{name: found.detail.get(name) for name in names}}


graph = replace(work, graph=True)
print(json.dumps({"first": measured(work), "again": measured(work), "graph": measured(graph)}))
