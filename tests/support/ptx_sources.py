"""Hold CUDA kernels that several tests use, and run a text's kernel."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from compat.registry import Program, Random

from pytest_bandwidth.features.traffic import ptx

ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_120")
TOLERANCES = {"f2": 2e-3, "f4": 2e-5, "f8": 1e-12}


@functools.cache
def program(text: str, arch: str = "sm_90", options: tuple[str, ...] = ()) -> ptx.Program:
    return ptx.Program(ptx.compile_ptx(text, arch=arch, filename="kernel.cu", options=options))


def run(
    text: str, name: str, grid: Sequence[int], block: Sequence[int], *args: Any, arch: str = "sm_90", **options: Any
) -> ptx.Execution:
    """Execute a kernel of a text; faults fail the test unless `faulty` is given. `compile_options` go to NVRTC."""
    faulty, compile_options = options.pop("faulty", False), options.pop("compile_options", ())
    execution = ptx.execute(program(text, arch, compile_options), name, grid, block, args, **options)
    assert faulty or not execution.faults, [fault.text for fault in execution.faults]
    return execution


def kernel_of(head: str, body: str, bodies: tuple[str, ...]) -> tuple[str, str]:
    """Return a text in which a kernel has that BODY, and the kernel's name.

    All of `bodies` share a text: NVRTC takes hardly longer for many small kernels than for one.
    """
    if body not in bodies:
        return head.replace("BODY", body), "k"
    return _of_each(head, bodies), f"k{bodies.index(body)}"


@functools.cache
def _of_each(head: str, bodies: tuple[str, ...]) -> str:
    start = head.index('extern "C"')
    kernels = (head[start:].replace(" k(", f" k{n}(").replace("BODY", body) for n, body in enumerate(bodies))
    return head[:start] + "".join(kernels)


def computes_what_numpy_does(one: Program, arch: str = "sm_90", text: str = "", kernel: str = "k") -> None:
    """Run a program of `compat` and compare its results. text, kernel: where it lies, unless in a text of its own."""
    args, results = one.make(Random(one.dtype))
    expected = [np.array(value) for _, value in results]
    run(text or one.source, kernel, one.grid, one.block, *args, shared_bytes=one.shared_bytes, arch=arch)
    for (array, _), value in zip(results, expected, strict=True):
        found = np.asarray(array)
        if found.dtype.kind in "iu":
            np.testing.assert_array_equal(found, value)
        else:
            tolerance = TOLERANCES[found.dtype.str[1:]]
            np.testing.assert_allclose(found, value, rtol=tolerance, atol=tolerance * max(1, np.abs(value).max()))


def line_of(text: str, marker: str) -> int:
    """Return the number of the first line that contains `marker`."""
    return next(number for number, line in enumerate(text.splitlines(), 1) if marker in line)


# Each instance has two of its own: 2²² functions in all, for minutes and gigabytes.
ENDLESS_TEMPLATES = """
template <int N, int I> struct Many {
    static __device__ int f() { return Many<N - 1, 2 * I>::f() + Many<N - 1, 2 * I + 1>::f(); }
};
template <int I> struct Many<0, I> { static __device__ int f() { return I; } };
extern "C" __global__ void k(int* x) { *x = Many<21, 0>::f(); }
"""

# How threads use mbarriers.
MBARRIERS = r"""
using u64 = unsigned long long;
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void init(u64* b, int n) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(at(b)), "r"(n)); }
__device__ void arrive(u64* b) { asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(at(b)) : "memory"); }
__device__ void wait(u64* b, int parity) {
    asm volatile("{ .reg .pred p;\n again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n @!p bra again; }"
                 :: "r"(at(b)), "r"(parity) : "memory");
}
"""

COPIES = r"""
extern "C" __global__ void copy(float* out, const float* in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i];
}
extern "C" __global__ void copy4(float4* out, const float4* in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i];
}
extern "C" __global__ void strided(float* out, const float* in, int n, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[(i * stride) % n];
}
extern "C" __global__ void shifted(float* out, const float* in, int by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i + by];
}
extern "C" __global__ void gathered(float* out, const float* in, const int* index) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[index[i]];
}
extern "C" __global__ void spread(float* out, const float* in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[blockIdx.x];
}
"""

REDUCTION = r"""
extern "C" __global__ void total(float* out, const float* in, int n) {
    __shared__ float part[256];
    int t = threadIdx.x;
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x) sum += in[i];
    part[t] = sum;
    __syncthreads();  // after filling
    for (int half = 128; half > 0; half /= 2) {
        if (t < half) part[t] += part[t + half];
        __syncthreads();  // after each level
    }
    if (t == 0) out[blockIdx.x] = part[0];
}
"""

GEMM = r"""
#include <cuda_fp16.h>
#define TILE 16
extern "C" __global__ void gemm(__half* c, const __half* a, const __half* b, int n) {
    __shared__ __half left[TILE][TILE], right[TILE][TILE];
    int x = threadIdx.x, y = threadIdx.y, col = blockIdx.x * TILE + x, row = blockIdx.y * TILE + y;
    float sum = 0;
    for (int k = 0; k < n; k += TILE) {
        left[y][x] = a[row * n + k + x];
        right[y][x] = b[(k + y) * n + col];
        __syncthreads();  // tiles complete
        for (int j = 0; j < TILE; j++) sum += (float)left[y][j] * (float)right[j][x];
        __syncthreads();  // tiles used
    }
    c[row * n + col] = (__half)sum;
}
"""
