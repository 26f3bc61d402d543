"""What launches on the card are identified by: addresses as numbers, structs, what index arrays hold."""

import json

import numpy as np

from pytest_bandwidth.devices.base import KernelSource, Launch
from pytest_bandwidth.devices.code.callables import callable_code
from pytest_bandwidth.devices.contents import host_contents
from pytest_bandwidth.devices.cuda.device import open_cuda

N = 1 << 10
SOURCE = """
struct View { int n; float* x; };
extern "C" __global__ void scale(float* x, long long n) { if (threadIdx.x < n) x[threadIdx.x] *= 2; }
extern "C" __global__ void of_struct(View view) { if (threadIdx.x < view.n) view.x[threadIdx.x] *= 2; }
"""
VIEW = np.dtype([("n", "i4"), ("x", "u8")], align=True)
device = open_cuda(0)
xp = device.xp
scale, of_struct = (device.kernel(KernelSource(SOURCE, name)) for name in ("scale", "of_struct"))
before = [xp.zeros(3000 + n, np.float32) for n in range(int(np.random.default_rng().integers(1, 9)))]
x = xp.ones(N, np.float32)
address = x.data.ptr


def launched(kernel: object, *args: object) -> str | None:
    launch = Launch(kernel, (1, 1, 1), (32, 1, 1), args)
    device.launcher(launch, None)()
    return device.code(launch).identity.launch


def view(value: int, n: int = 8) -> object:
    made = np.zeros(1, VIEW)
    made["n"], made["x"] = n, value
    return made


n = np.int64(8)
same = {
    "uint64": launched(scale, np.uint64(address), n),
    "int": launched(scale, address, n),
    "middle": launched(scale, np.uint64(address + 512), n),
    "struct": launched(of_struct, view(address)),
}
freed = xp.cuda.runtime.malloc(1 << 20)
xp.cuda.runtime.free(freed)
found = {
    "same": same,
    "is memory": [device.is_memory(a) for a in (address, address + 4 * N - 1, freed, 1 << 46, 12)],
    "written": float(x[0]),
    "number": same["int"] != launched(scale, address, np.int64(address)),
    "numbers": launched(scale, x, np.int64(address)) != launched(scale, x, np.int64(address + 128)),
    "struct's number": same["struct"] != launched(of_struct, view(address, 9)),
}
y = xp.empty_like(x)
bound = device.launcher(Launch(scale, (1, 1, 1), (32, 1, 1), (x, n)), None)
calls = {
    "copy": lambda: xp.copyto(y, x),
    "copy again": lambda: xp.copyto(y, x),
    "add": lambda: xp.add(y, x, out=y),
    "set": lambda: y.set(np.ones(N, np.float32), stream=xp.cuda.get_current_stream()),
    "ufunc": xp.square,
    "kernel": lambda: xp.RawKernel(SOURCE, "scale")((1,), (32,), (x, n)),
    "bound": bound,
}
found["library"] = {
    name: callable_code(call, (x,) if name == "ufunc" else (), {}, None, device).identity.function
    for name, call in calls.items()
}
index = np.random.default_rng(1).integers(0, N, 3001).astype(np.int32)
arrays = {
    "whole": index,
    "bytes": index.astype(np.int8)[:1003],
    "off a word": index.astype(np.int8)[1:700],
    "gaps": index[: 55 * 54].reshape(55, 54)[::2, 1:],
    "columns": np.asfortranarray(index[: 55 * 54].reshape(55, 54)),
    "bool": index > 500,
    "one": index[:1],
    "none": index[:0],
}
found["contents"] = {}
for name, array in arrays.items():
    base = plain = xp.asarray(np.ascontiguousarray(array))
    if name == "off a word":
        base = xp.asarray(index.astype(np.int8))[1:700]
    elif name == "gaps":
        base = xp.asarray(index[: 55 * 54].reshape(55, 54))[::2, 1:]
    elif name == "columns":
        base, plain = xp.asfortranarray(plain), xp.asarray(np.asfortranarray(array))
    changed = np.array(array)
    changed[..., -1:] = changed[..., -1:] == 0
    found["contents"][name] = device.contents(base) == device.contents(plain)
    found["contents"][name] &= name == "none" or device.contents(xp.asarray(changed)) != device.contents(plain)
found["on the host"] = device.contents(index) == host_contents(index)
swapped = index.copy()
swapped[[3, 900]] = swapped[[900, 3]]
found["swapped"] = device.contents(xp.asarray(swapped)) != device.contents(xp.asarray(index))
drawn = []
for _ in range(2):
    device.begin_test()
    drawn.append([device.contents(device.random(N, "int32")), device.contents(device.random(N, "int32"))])
found["random"] = [drawn[0] == drawn[1], drawn[0][0] != drawn[0][1]]
found["empty"] = int(abs(device.empty(N, "int32")).max())
print(json.dumps(found))
