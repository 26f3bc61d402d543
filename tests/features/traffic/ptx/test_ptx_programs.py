"""Whole programs against NumPy and plain Python: what CUDA C++ and its headers lead to, and random control flow.

What a single opcode does is compared in test_ptx_opcodes.py and actions/, in every spelling. Here a program shows what
those cannot: that the compiler's output is read, and that threads part, wait and meet as they should.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from compat import PROGRAMS
from exact_opcodes import small_value
from ptx_sources import computes_what_numpy_does, run
from random_kernels import THREADS, VARIABLES, random_kernel

from pytest_bandwidth.features.traffic import ptx

old_and_new = pytest.mark.parametrize("arch", ["sm_75", "sm_120"])


MATH = r"""
template <class T> __device__ void all(T* out, const T* in, int n) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    T x = in[i];
    out[i] = sin(x);
    out[i + n] = cos(x);
    out[i + 2 * n] = exp(x);
    out[i + 3 * n] = log(fabs(x));
    out[i + 4 * n] = pow(fabs(x), (T)1.7);
    out[i + 5 * n] = sqrt(fabs(x));
    out[i + 6 * n] = 1 / x;
    out[i + 7 * n] = tanh(x);
    out[i + 8 * n] = erf(x);
    out[i + 9 * n] = atan2(x, (T)2);
    out[i + 10 * n] = cbrt(x);
    out[i + 11 * n] = fmod(x, (T)0.7);
}
extern "C" __global__ void floats(float* out, const float* in, int n) { all(out, in, n); }
extern "C" __global__ void doubles(double* out, const double* in, int n) { all(out, in, n); }
"""


def exactly(x: np.ndarray) -> list[np.ndarray]:
    """Return in binary64 what MATH computes of values in their own type."""
    wide, size, own = x.astype(np.float64), np.abs(x.astype(np.float64)), x.dtype.type
    with np.errstate(over="ignore"):
        found = [np.sin(wide), np.cos(wide), np.exp(wide), np.log(size), size ** np.float64(own(1.7)), np.sqrt(size)]
        found += [1 / wide, np.tanh(wide), np.array([math.erf(v) for v in wide]), np.arctan2(wide, 2), np.cbrt(wide)]
        return [*found, np.fmod(wide, np.float64(own(0.7)))]


@old_and_new
@pytest.mark.parametrize(("name", "dtype", "tolerance"), [("floats", np.float32, 3e-7), ("doubles", np.float64, 5e-16)])
def test_mathematical_functions(name: str, dtype: type, tolerance: float, arch: str) -> None:
    n = 256
    generator = np.random.default_rng(1)
    x = np.concatenate(
        [
            generator.standard_normal(n - 64) * 3,
            generator.standard_normal(32) * 1e-5,
            generator.standard_normal(32) * 80,
        ]
    )
    x[:4] = [1e6, -2e7, 3e9, 1.5e15]  # arguments of sine and cosine that take the slow path, through local memory
    x = x.astype(dtype)
    out = np.zeros((12, n), dtype)
    run(MATH, name, (2,), (128,), out, x, n, arch=arch)
    with np.errstate(over="ignore"):
        for found, expected in zip(out, exactly(x), strict=True):
            np.testing.assert_allclose(found, expected.astype(dtype), rtol=tolerance, atol=1e-45)


HALVES = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
template <class T> __device__ void all(T* out, const T* in, int n) {
    int i = threadIdx.x;
    T a = in[i], b = in[i + n];
    out[i] = a + b;
    out[i + n] = a * b;
    out[i + 2 * n] = __hmax(a, b);
    out[i + 3 * n] = a / b;
    out[i + 4 * n] = hexp(a);
    out[i + 5 * n] = (T)(float)(a < b);
}
extern "C" __global__ void halves(__half* out, const __half* in, int n) { all(out, in, n); }
extern "C" __global__ void brains(__nv_bfloat16* out, const __nv_bfloat16* in, int n) { all(out, in, n); }
"""


def to_half(value: np.ndarray, brain: bool) -> np.ndarray:
    """Binary64 to halves as bits; bf16 through binary32, whose extra rounding no value here notices."""
    if not brain:
        return value.astype(np.float16).view(np.uint16)
    bits = value.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_half(bits: np.ndarray, brain: bool) -> np.ndarray:
    return ((bits.astype(np.uint32) << 16).view(np.float32) if brain else bits.view(np.float16)).astype(np.float64)


@old_and_new
@pytest.mark.parametrize("brain", [False, True], ids=["f16", "bf16"])
def test_half_arithmetic_of_the_headers(brain: bool, arch: str) -> None:
    n = 128
    bits = to_half(np.random.default_rng(1).standard_normal(2 * n), brain)
    out = np.zeros((6, n), np.uint16)
    run(HALVES, "brains" if brain else "halves", (1,), (n,), out, bits, n, arch=arch)
    a, b = from_half(bits[:n], brain), from_half(bits[n:], brain)
    for row, expected in enumerate([a + b, a * b, np.maximum(a, b)]):
        np.testing.assert_array_equal(out[row], to_half(expected, brain), err_msg=str(row))
    for row, expected in ((3, a / b), (4, np.exp(a))):
        np.testing.assert_allclose(from_half(out[row], brain), expected, rtol=0.008 if brain else 0.001)
    np.testing.assert_array_equal(from_half(out[5], brain), a < b)


def test_three_dimensional_launches() -> None:
    text = r"""
    extern "C" __global__ void where(int* out) {
        int3 at = {(int)(blockIdx.x * blockDim.x + threadIdx.x), (int)(blockIdx.y * blockDim.y + threadIdx.y),
        (int)(blockIdx.z * blockDim.z + threadIdx.z)};
        int wide = gridDim.x * blockDim.x, high = gridDim.y * blockDim.y;
        out[(at.z * high + at.y) * wide + at.x] = at.x * 10000 + at.y * 100 + at.z;
    }
    """
    out = np.zeros((6, 10, 12), np.int32)
    run(text, "where", (3, 5, 2), (4, 2, 3), out)
    z, y, x = np.meshgrid(np.arange(6), np.arange(10), np.arange(12), indexing="ij")
    np.testing.assert_array_equal(out, x * 10000 + y * 100 + z)


# ---- programs of many kinds ------------------------------------------------------------------------------------------


@old_and_new
@pytest.mark.parametrize("name", ["hash table", "sums of tiles of eight of int", "matrix product of fragments"])
def test_some_of_what_runs_on_one_architecture_runs_on_others(name: str, arch: str) -> None:
    """All of them: tests/compat, which takes minutes."""
    computes_what_numpy_does(PROGRAMS[name], arch)


@old_and_new
def test_every_eight_bit_float_and_back(arch: str) -> None:
    """By cuda_fp8.h: in opcodes where the architecture has them, in integers elsewhere."""
    text = r"""
    #include <cuda_fp8.h>
    extern "C" __global__ void convert(float* wide, unsigned char* back) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        __nv_fp8_e4m3 a; a.__x = (unsigned char)i;
        wide[i] = float(a);
        back[i] = __nv_fp8_e4m3(wide[i]).__x;
    }"""
    wide, back = np.zeros(256, np.float32), np.zeros(256, np.uint8)
    run(text, "convert", (4,), (64,), wide, back, arch=arch)
    values = [float(small_value(code, "e4m3x2")) for code in range(128)]
    np.testing.assert_array_equal(wide, [*values, *(-value for value in values)])
    np.testing.assert_array_equal(back & 127, np.arange(256) & 127)


# Each with the type of a pair, the headers' name, the codes of one, and how far apart the two of a pair lie.
NARROW = {
    "e2m1x2": ("__nv_fp4x2_storage_t", "fp4", 16, 4),
    "e2m3x2": ("__nv_fp6x2_storage_t", "fp6", 64, 8),
    "e3m2x2": ("__nv_fp6x2_storage_t", "fp6", 64, 8),
}
SMALL_FLOATS = "#include <cuda_fp4.h>\n#include <cuda_fp6.h>\n" + "".join(
    f"""
extern "C" __global__ void {kind}(__half2_raw* wide, unsigned short* back, const float2* given) {{
    int i = threadIdx.x, two = i | (~i & {count - 1}) << {step};
    wide[i] = __nv_cvt_{name}x2_to_halfraw2(({holder})two, __NV_{kind[:4].upper()});
    back[i] = __nv_cvt_float2_to_{name}x2(given[i], __NV_{kind[:4].upper()}, cudaRoundNearest);
}}"""
    for kind, (holder, name, count, step) in NARROW.items()
)


@pytest.mark.parametrize("arch", ["sm_90", "sm_100a"])
def test_every_four_and_six_bit_float_and_back(arch: str) -> None:
    """In opcodes where the architecture has them, in integers elsewhere."""
    for kind, (*_, count, step) in NARROW.items():
        values = np.array([float(small_value(code, kind)) for code in range(count)], np.float32)
        values[count // 2] = -0.0
        wide, back = np.zeros((count, 2), np.float16), np.zeros(count, np.uint16)
        given = np.stack([values, values[::-1]], axis=1)
        run(SMALL_FLOATS, kind, (1,), (count,), wide, back, given, arch=arch)
        np.testing.assert_array_equal(wide, given)
        np.testing.assert_array_equal(back, np.arange(count)[::-1] << step | np.arange(count))


# ---- random programs of nested, divergent control flow, thread by thread against the same in Python -----------------


@pytest.mark.parametrize("seed", range(12))
def test_random_control_flow(seed: int) -> None:
    kernel = random_kernel(seed)
    data, out = kernel.data, np.zeros_like(kernel.data)
    execution = run(kernel.text, "k", (1,), (THREADS,), out, data, arch=kernel.arch)
    for thread in range(THREADS):
        expected = kernel.computed(*data[:, thread].tolist(), thread)
        assert expected == out[:, thread].tolist(), f"thread {thread}, {VARIABLES}\n{kernel.text}"
    assert execution.counts.stores.requests == len(VARIABLES) * 2  # all threads have met again at the end


def test_a_call_of_printf_whose_predicate_holds_for_no_thread_is_none() -> None:
    text = ptx.compile_ptx('extern "C" __global__ void k(int* x) { if (x[0] > 3) printf("%d", x[0]); }').ptx
    assert "@%p1 bra" in text
    for call, printed in (("call.uni", ("kernel.cu:1",)), ("@%p1 call.uni", ())):
        made = ptx.Program(ptx.PtxModule(text.replace("call.uni", call), "", "sm_90", filename="kernel.cu"))
        assert ptx.execute(made, "k", (1,), (32,), (np.full(1, 4, np.int32),)).printed == printed


def test_what_may_run_before_the_wait_for_the_kernel_before_is_named() -> None:
    source = """extern "C" __global__ void k(float* out, const float* in, const float* weights, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float weight = weights[i];
    if (i < n) weight += in[0];
    asm volatile("griddepcontrol.wait;" ::: "memory");
    out[i] = weight * in[i];
}"""
    out, x = np.zeros(64, np.float32), np.ones(64, np.float32)
    assert run(source, "k", (1,), (64,), out, x, x, np.int32(9)).before_wait == ("kernel.cu:3", "kernel.cu:4")
    np.testing.assert_array_equal(out, np.where(np.arange(64) < 9, 2, 1))
    alone = source.replace("griddepcontrol.wait;", "")
    assert run(alone, "k", (1,), (64,), out, x, x, np.int32(9)).before_wait == ()
