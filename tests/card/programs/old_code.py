"""What the cuda device makes of a kernel's old code: launched in the new one's place, its traces gone afterwards."""

import json
import re
from statistics import median

import numpy as np
from cupy.cuda import nvrtc

from pytest_bandwidth.devices.base import Budget, KernelSource, Launch, Workload
from pytest_bandwidth.devices.cuda.device import open_cuda
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.traffic import Traffic

N = 1 << 12
NEW = 'extern "C" __global__ void add(float* x, int n) { for (int i = threadIdx.x; i < n; i += 256) x[i] += 1; }'
OLD = 'extern "C" __global__ void adds(float* x, int n) { for (int i = threadIdx.x; i < n; i += 128) x[i] += 2; }'
device = open_cuda(0)
x = device.xp.zeros(N, np.float32)


def launched(text, name):
    return Launch(device.kernel(KernelSource(text, name)), (1, 1, 1), (256, 1, 1), (x, np.int32(N)))


launch = launched(NEW, "add")
old, new = device.code(launched(OLD, "adds")), device.code(launch)
set_up = []
workload = Workload(
    device.launcher(launch, None), Traffic(4 * N, 4 * N), launch=launch, setup=lambda: set_up.append(float(x[0]))
)


def beside(cubin):
    """Launch the old code in the new one's place, and tell what became of the arrays."""
    x[:] = 5
    code = device.old_code(workload, old.ptx, new.ptx, cubin=cubin)
    kept = float(x[0])
    code.calls[0]()
    by_old = float(x[-1])
    set_up.clear()
    both = Workload(
        workload.call, workload.traffic, launch=launch, setup=workload.setup, interleaved=code.calls, setup_for_all=True
    )
    rounds = device.measure(both, Budget(4, 0.01), lambda _: None).rounds
    runs = len(set_up)
    code.restore()
    return {
        "kept": kept,
        "by_old": by_old,
        "restored": float(x[0]),
        "calls": len(code.calls),
        "registers": code.resources.registers > 0,
        "rounds": [len(rounds.kernel_seconds), *map(len, rounds.interleaved)],
        "slower": median(rounds.interleaved[0]) > 1.1 * median(rounds.kernel_seconds),
        "set_up_a_sample": runs >= len(rounds.kernel_seconds) * (1 + len(code.calls)),
    }


def said(ptx, cubin=None):
    try:
        device.old_code(workload, ptx, new.ptx, cubin=cubin)
        return "loaded"
    except BandwidthError as error:
        return str(error)


def compiled_for(arch):
    program = nvrtc.createProgram(OLD, "adds.cu", (), ())
    nvrtc.compileProgram(program, (f"-arch={arch}",))
    return nvrtc.getCUBIN(program) + b"\0"


found = {"ptx": beside(None), "cubin": None if old.cubin is None else beside(old.cubin)}
for case, text in {
    "damaged": old.ptx.replace("ret;", "rot 3;"),
    "newer": re.sub(r"^\.version .*", ".version 10.0", old.ptx),
    "none": "",
}.items():
    found[case] = said(text)
if old.cubin is not None:
    spoilt = {
        "cut short": old.cubin[:-300],
        "of another architecture": compiled_for("sm_80"),
        "of another kernel": new.cubin,
        "unknown": old.cubin.replace(b"\xff\xff", b"\xff\xfe", 1),
        "text": b"no machine code",
        "empty": b"",
    }
    found["spoilt"] = {case: said(old.ptx, cubin) for case, cubin in spoilt.items()}
found["without machine code"] = said(old.ptx, b"" if old.cubin is None else None)
found["after"] = float(device.run(workload) is None)
print(json.dumps(found))
