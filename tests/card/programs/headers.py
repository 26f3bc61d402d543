"""What a kernel computes before and after only a file changed that it includes, and one with all stand-ins."""

import json
import sys
from pathlib import Path

import cupy

from pytest_bandwidth.devices.base import KernelSource
from pytest_bandwidth.devices.cuda.code import RawKernelCodes
from pytest_bandwidth.devices.cuda.kernels import compile_kernel
from pytest_bandwidth.devices.kernel_source import STAND_INS

folder = Path(sys.argv[1])
TEXT = """
#include "outer.cuh"
extern "C" __global__ void fill(int* x) { x[threadIdx.x] = VALUE; }
"""
(folder / "fill.cu").write_text(TEXT)
(folder / "outer.cuh").write_text('#include "inner.cuh"\n')
codes = RawKernelCodes(cupy, "a driver")
values, hashes = [], []
for value in (1, 2, 1):
    (folder / "inner.cuh").write_text(f"#define VALUE {value}\n")
    kernel = compile_kernel(cupy, KernelSource(TEXT, "fill", file=folder / "fill.cu"))
    x = cupy.zeros(32, cupy.int32)
    kernel((1,), (32,), (x,))
    values.append(int(x[0]))
    hashes.append(codes.code(kernel).identity.sass)
INCLUDING = "".join(f"#include <{path.name}>\n" for path in STAND_INS.iterdir())
INCLUDING += 'extern "C" __global__ void root(std::int32_t* x) { *x = std::sqrt(*x) + std::is_same_v<int, int32_t>; }'
x = cupy.full(1, 49, cupy.int32)
kernel = compile_kernel(cupy, KernelSource(INCLUDING, "root"))
kernel((1,), (1,), (x,))
print(json.dumps([values, hashes, int(x[0]), codes.code(kernel).unknown]))
