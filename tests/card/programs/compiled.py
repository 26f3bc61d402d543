"""Kernels that are compiled already, and variables that a test sets, on the card."""

import json
import sys
from pathlib import Path
from tempfile import mkdtemp

import numpy as np

sys.path.append(str(Path(__file__).parents[2] / "support"))

from containers import MACHINE_CODE, PTX, copying, fatbin, library

from pytest_bandwidth.devices.base import Launch
from pytest_bandwidth.devices.cuda.device import open_cuda
from pytest_bandwidth.devices.kernel_source import read_source
from pytest_bandwidth.domain.errors import BandwidthError

device = open_cuda(0)
xp = device.xp
folder = Path(mkdtemp())


def launched(kernel: object, *args: object) -> object:
    launch = Launch(kernel, (1, 1, 1), (32, 1, 1), args)
    device.launcher(launch, None)()
    device.resources(launch)
    return device.code(launch).identity


def refused(source: object, name: str, value: object = None) -> str:
    try:
        kernel = device.kernel(read_source(source, "k", (folder,)))
        kernel.set(name, value)
    except BandwidthError as error:
        return f"{type(error).__name__}: {error}"
    return "accepted"


def copies(source: object) -> object:
    out, given = xp.zeros(32, np.float32), xp.arange(32, dtype=np.float32)
    identity = launched(device.kernel(read_source(source, "k", (folder,))), out, given)
    assert (out == given).all()
    return [identity.ptx, identity.sass]


# The machine code that CuPy had NVRTC make is all that the card loads.
text = 'extern "C" __global__ void k(float* out, const float* in) { out[threadIdx.x] = in[threadIdx.x]; }'
from_text = device.kernel(read_source(text, "k", ()))
plain = copies(text)
cubin = device.code(Launch(from_text, (1, 1, 1), (32, 1, 1), ())).cubin
if cubin is not None:
    (folder / "k.cubin").write_bytes(cubin)
    other = (MACHINE_CODE, 80, b"of another card")
    codes = (PTX, 90, copying("k").encode()), other, (MACHINE_CODE, 90, cubin)
    (folder / "libk.so").write_bytes(library(fatbin(*codes)))
    unknown = bytearray(cubin)
    unknown[0x33] ^= 1
    (folder / "unknown.fatbin").write_bytes(fatbin(codes[0], (MACHINE_CODE, 90, bytes(unknown))))
(folder / "k.ptx").write_text(copying("k"))
(folder / "new.fatbin").write_bytes(fatbin((PTX, 120, copying("k").encode())))
found: dict[str, object] = {
    "text": plain,
    "ptx": copies("k.ptx"),
    "ptx text": copies(copying("k")),
    "newer": refused("new.fatbin", "c"),
    "bad": refused(copying("k").replace("ret;", "frob;"), "c"),
}
if cubin is not None:
    found |= {"cubin": copies("k.cubin"), "library": copies("libk.so"), "unknown": copies("unknown.fatbin")}

SET = """
__constant__ float c[4];
__device__ int counter = 5;
extern "C" __global__ void k(float* x, int* n) { x[threadIdx.x] = c[threadIdx.x % 4] + counter; *n = counter; }
extern "C" __global__ void same(float* x, int* n) { x[threadIdx.x] = c[threadIdx.x % 4] + counter; }
"""
x, n = xp.zeros(32, np.float32), xp.zeros(1, np.int32)
kernel, same = (device.kernel(read_source(SET, name, ())) for name in ("k", "same"))
seen = []


def noted(one: object) -> None:
    identity = launched(one, x, n)
    seen.append([x[:4].tolist(), identity.launch])


noted(kernel)
kernel.set("c", xp.arange(4, dtype=np.float32))
noted(kernel)
noted(same)
kernel.set("counter", np.int32(7))
noted(kernel)
device.begin_test()
noted(kernel)
found["set"] = seen
found["error"] = refused(SET, "c", np.zeros(4))
ptx = copying("k", value="%f2").replace(".visible", ".const .align 4 .b8 c[8];\n.visible")
ptx = ptx.replace("ret;", "ld.const.f32 %f2, [c+4];\nst.global.f32 [%rd6], %f2;\nret;")
of_ptx = device.kernel(read_source(ptx, "k", ()))
of_ptx.set("c", np.array([1, 2], np.float32))
launched(of_ptx, x, x.copy())
found["set in ptx"] = float(x[0])
print(json.dumps(found))
