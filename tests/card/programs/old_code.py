"""What the cuda device makes of a kernel's old code: launched in the new one's place, its traces gone afterwards."""

import json
import re

import numpy as np

from pytest_bandwidth.devices.base import Budget, KernelSource, Launch, Workload
from pytest_bandwidth.devices.cuda.device import open_cuda
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.traffic import Traffic

N = 1 << 12
NEW = 'extern "C" __global__ void add(float* x, int n) { for (int i = threadIdx.x; i < n; i += 256) x[i] += 1; }'
OLD = 'extern "C" __global__ void adds(float* x, int n) { for (int i = threadIdx.x; i < n; i += 128) x[i] += 2; }'
device = open_cuda(0)
x = device.xp.zeros(N, np.float32)
launch = Launch(device.kernel(KernelSource(NEW, "add")), (1, 1, 1), (256, 1, 1), (x, np.int32(N)))
old, new = (
    device.code(Launch(device.kernel(KernelSource(text, name)), (1, 1, 1), (256, 1, 1), (x, np.int32(N)))).ptx or ""
    for text, name in ((OLD, "adds"), (NEW, "add"))
)
set_up = []
workload = Workload(
    device.launcher(launch, None), Traffic(4 * N, 4 * N), launch=launch, setup=lambda: set_up.append(float(x[0]))
)
found = {}
for machine_code in (False, True):
    type(device._codes).loads_machine_code = machine_code  # the card itself runs PTX alone
    x[:] = 5
    code = device.old_code(workload, old, new)
    kept = float(x[0])
    code.calls[0]()
    by_old = float(x[-1])
    set_up.clear()
    beside = Workload(
        workload.call, workload.traffic, launch=launch, setup=workload.setup, interleaved=code.calls, setup_for_all=True
    )
    rounds = device.measure(beside, Budget(4, 0.01), lambda _: None).rounds
    runs = len(set_up)
    code.restore()
    found[str(machine_code)] = {
        "kept": kept,
        "by_old": by_old,
        "restored": float(x[0]),
        "calls": len(code.calls),
        "registers": code.resources.registers > 0,
        "rounds": [len(rounds.kernel_seconds), *map(len, rounds.interleaved)],
        "slower": rounds.interleaved[0][0] > rounds.kernel_seconds[0],
        "set_up_a_sample": runs >= len(rounds.kernel_seconds) * (1 + len(code.calls)),
    }
newer = re.sub(r"^\.version .*", ".version 10.0", old)
for case, text in {"damaged": old.replace("ret;", "rot 3;"), "newer": newer, "none": ""}.items():
    try:
        device.old_code(workload, text, new)
        found[case] = "loaded"
    except BandwidthError as error:
        found[case] = str(error)
found["after"] = float(device.run(workload) is None)
print(json.dumps(found))
