"""A copy, and what the cuda device makes of it: every sample, to the last digit."""

import json
from dataclasses import asdict

import numpy as np

from pytest_bandwidth.devices.base import Budget, Launch, Workload
from pytest_bandwidth.devices.cuda.device import open_cuda
from pytest_bandwidth.devices.kernel_source import read_source
from pytest_bandwidth.domain.traffic import Traffic

device = open_cuda(0)
x, y = device.random(1 << 19, "float32"), device.empty(1 << 19, "float32")
kernel = device.kernel(read_source("stream.cu", "copy_f32", ()))
launch = Launch(kernel, (320, 1, 1), (256, 1, 1), (y, x, np.int64(x.size)))
work = Workload(
    device.launcher(launch, None), Traffic(device.nbytes(x), device.nbytes(y)), launch=launch, reads=(x,), writes=(y,)
)
found = device.measure(work, Budget(30, 0.1), lambda _: None)
seen = {"gbps": found.gbps, "relative": found.relative, "host seconds": found.host_seconds, **asdict(found.rounds)}
print(json.dumps({**seen, "detail": dict(found.detail), "findings": [f.code for f in found.findings]}))
