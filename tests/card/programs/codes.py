"""What CuPy had compiled, by its cache, and what the cuda device says of the same kernels' code."""

import json
import os
from pathlib import Path

import cupy

from pytest_bandwidth.devices.base import KernelSource
from pytest_bandwidth.devices.code.cubin import kernel_code
from pytest_bandwidth.devices.cuda.code import RawKernelCodes
from pytest_bandwidth.devices.cuda.kernels import compile_kernel
from pytest_bandwidth.devices.kernel_source import shipped_folder

CACHE = Path(os.environ["CUPY_CACHE_DIR"])
PLAIN = """
static __constant__ float weights[4] = {1.0f, 2.0f, 3.0f, 4.0f};
extern "C" __global__ void plain(float* x) {
    x[threadIdx.x] = sinf(x[threadIdx.x]) / weights[threadIdx.x & 3];
}
"""
TEMPLATE = "template <typename T> __global__ void scale(T* x) { x[threadIdx.x] *= 3; }"


def source(text: str, name: str, **more: object) -> KernelSource:
    return KernelSource(text, name, **more)


SHIPPED = shipped_folder() / "reductions.cu"
SOURCES = {
    "plain": source(PLAIN, "plain"),
    "options": source(PLAIN, "plain", options=("--use_fast_math", "--std=c++20", "-DN=3")),
    "shipped": source(SHIPPED.read_text(), "sum_f32", file=SHIPPED),
    "template": source(TEMPLATE, "scale<float>"),
}


def cached() -> bytes:
    """Take what CuPy has just compiled out of its cache, behind a hash and the names of template kernels."""
    (file,) = CACHE.iterdir()
    data = file.read_bytes()
    file.unlink()
    start = data.find(b"\x7fELF\x02\x01")
    return data[start if start >= 0 else data.index(b".version") :]


codes = RawKernelCodes(cupy, "a driver")
found = {}
for case, one in SOURCES.items():
    try:
        kernel = compile_kernel(cupy, one)
    except cupy.cuda.driver.CUDADriverError:  # the card loads no machine code
        kernel = cupy.RawKernel(one.text, one.name, one.options)
    loaded, said = cached(), codes.code(kernel)
    if loaded.startswith(b"\x7fELF"):
        of_loaded = kernel_code(said.ptx or "", loaded, kernel.name).identity.sass
        found[case] = [of_loaded, said.identity.sass, said.unknown]
    else:
        of_loaded = kernel_code(loaded.rstrip(b"\0").decode(), b"", kernel.name).identity.ptx
        found[case] = [of_loaded, said.identity.ptx, said.unknown]
print(json.dumps(found))
