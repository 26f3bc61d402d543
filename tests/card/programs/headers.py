"""What a kernel computes before and after only a file changed that it includes."""

import json
import sys
from pathlib import Path

import cupy

from pytest_bandwidth.devices.base import KernelSource
from pytest_bandwidth.devices.cuda.code import RawKernelCodes
from pytest_bandwidth.devices.cuda.kernels import compile_kernel

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
print(json.dumps([values, hashes]))
