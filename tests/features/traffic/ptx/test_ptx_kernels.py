"""Kernels of every modelled kind, differential against NumPy, on every architecture that they could differ on."""

from __future__ import annotations

import math

import numpy as np
import pytest
from ptx_sources import ARCHITECTURES, REDUCTION, SOFTMAX, program, run

from pytest_bandwidth.features.traffic import ptx

every_architecture = pytest.mark.parametrize("arch", ARCHITECTURES)


def randoms(*shape: int, seed: int = 1, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


STREAM = r"""
#include <cuda_fp16.h>
template <class T> __device__ void triad(T* a, const T* b, const T* c, T s, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) a[i] = b[i] + s * c[i];
}
extern "C" __global__ void triad_f32(float* a, const float* b, const float* c, float s, int n) { triad(a, b, c, s, n); }
extern "C" __global__ void triad_f64(double* a, const double* b, const double* c, double s, int n) { triad(a, b, c, s,
n); }
extern "C" __global__ void triad_i64(long long* a, const long long* b, const long long* c, long long s, int n) {
triad(a, b, c, s, n); }
extern "C" __global__ void triad_i16(short* a, const short* b, const short* c, short s, int n) { triad(a, b, c, s, n); }
extern "C" __global__ void triad_u8(unsigned char* a, const unsigned char* b, const unsigned char* c, unsigned char s,
int n) { triad(a, b, c, s, n); }
extern "C" __global__ void triad_f16(__half* a, const __half* b, const __half* c, __half s, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = __hfma(s, c[i], b[i]);
}
"""


@every_architecture
@pytest.mark.parametrize(
    ("name", "dtype"),
    [("triad_f32", "f4"), ("triad_f64", "f8"), ("triad_i64", "i8"), ("triad_i16", "i2"), ("triad_u8", "u1")],
)
def test_streams_of_every_type(name: str, dtype: str, arch: str) -> None:
    n, kind = 5000, np.dtype(dtype)
    generator = np.random.default_rng(1)
    make = (
        (lambda: generator.standard_normal(n).astype(kind))
        if kind.kind == "f"
        else (lambda: generator.integers(0, 100, n).astype(kind))
    )
    b, c, a = make(), make(), np.zeros(n, kind)
    execution = run(STREAM, name, (7,), (128,), a, b, c, kind.type(3), n, arch=arch)
    if kind.kind == "f":
        np.testing.assert_allclose(a, b + kind.type(3) * c, rtol=1e-6, atol=1e-6)
    else:
        np.testing.assert_array_equal(a, b + kind.type(3) * c)
    assert execution.bytes_read == 2 * n * kind.itemsize
    assert execution.bytes_written == n * kind.itemsize


@every_architecture
def test_half_stream(arch: str) -> None:
    b, c, a = randoms(512, dtype=np.float16), randoms(512, seed=2, dtype=np.float16), np.zeros(512, np.float16)
    run(STREAM, "triad_f16", (4,), (128,), a, b, c, np.float16(1.5), 512, arch=arch)
    np.testing.assert_array_equal(a, (b.astype(np.float64) + 1.5 * c.astype(np.float64)).astype(np.float16))


@every_architecture
def test_reduction_and_softmax(arch: str) -> None:
    x = randoms(5, 777)
    out = np.zeros_like(x)
    run(SOFTMAX, "softmax", (5,), (256,), out, x, 777, arch=arch)
    exact = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(out, exact / exact.sum(axis=1, keepdims=True), rtol=2e-6)
    parts = np.zeros(3, np.float32)
    run(REDUCTION, "total", (3,), (256,), parts, x, x.size, arch=arch)
    np.testing.assert_allclose(parts.sum(), x.astype(np.float64).sum(), rtol=1e-4)


Q4_0 = r"""
#include <cuda_fp16.h>
struct Block { __half scale; unsigned char nibbles[16]; };
extern "C" __global__ void dequantize(float* out, const Block* in, int blocks) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, b = i / 32, j = i % 32;
    if (b >= blocks) return;
    unsigned char packed = in[b].nibbles[j % 16];
    int value = (j < 16 ? packed & 15 : packed >> 4) - 8;
    out[i] = value * __half2float(in[b].scale);
}
"""


@every_architecture
def test_q4_0(arch: str) -> None:
    generator = np.random.default_rng(1)
    blocks = np.zeros(77, [("scale", np.float16), ("nibbles", np.uint8, 16)])
    blocks["scale"], blocks["nibbles"] = generator.standard_normal(77), generator.integers(0, 256, (77, 16))
    out = np.zeros(77 * 32, np.float32)
    execution = run(Q4_0, "dequantize", (20,), (128,), out, blocks, 77, arch=arch)
    values = np.concatenate([blocks["nibbles"] & 15, blocks["nibbles"] >> 4], axis=1).astype(np.float32) - 8
    np.testing.assert_array_equal(out, (values * blocks["scale"][:, None].astype(np.float32)).ravel())
    assert execution.bytes_read == 77 * 18


MATH = r"""
extern "C" __global__ void floats(float* out, const float* in, int n) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    float x = in[i];
    out[i] = sinf(x);
    out[i + n] = cosf(x);
    out[i + 2 * n] = expf(x);
    out[i + 3 * n] = logf(fabsf(x));
    out[i + 4 * n] = powf(fabsf(x), 1.7f);
    out[i + 5 * n] = sqrtf(fabsf(x));
    out[i + 6 * n] = 1.0f / x;
    out[i + 7 * n] = tanhf(x);
    out[i + 8 * n] = erff(x);
    out[i + 9 * n] = atan2f(x, 2.0f);
    out[i + 10 * n] = cbrtf(x);
    out[i + 11 * n] = fmodf(x, 0.7f);
}
extern "C" __global__ void doubles(double* out, const double* in, int n) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    double x = in[i];
    out[i] = sin(x);
    out[i + n] = cos(x);
    out[i + 2 * n] = exp(x);
    out[i + 3 * n] = log(fabs(x));
    out[i + 4 * n] = pow(fabs(x), 1.7);
    out[i + 5 * n] = sqrt(fabs(x));
    out[i + 6 * n] = 1.0 / x;
    out[i + 7 * n] = tanh(x);
    out[i + 8 * n] = erf(x);
    out[i + 9 * n] = atan2(x, 2.0);
    out[i + 10 * n] = cbrt(x);
    out[i + 11 * n] = fmod(x, 0.7);
}
"""


@every_architecture
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
    wide = x.astype(np.float64)
    with np.errstate(over="ignore"):
        exact = [
            np.sin(wide),
            np.cos(wide),
            np.exp(wide),
            np.log(np.abs(wide)),
            np.abs(wide) ** np.float64(dtype(1.7)),
            np.sqrt(np.abs(wide)),
            1 / wide,
        ]
        exact += [np.tanh(wide), np.array([math.erf(v) for v in wide]), np.arctan2(wide, 2), np.cbrt(wide)]
        exact += [np.fmod(wide, np.float64(dtype(0.7)))]
        for found, expected in zip(out, exact, strict=True):
            np.testing.assert_allclose(found, expected.astype(dtype), rtol=tolerance, atol=1e-45)


def test_fast_mathematics() -> None:
    """--use_fast_math: approximate opcodes and flushed subnormals; as near as hardware's own error bounds promise."""
    n = 256
    x = np.random.default_rng(1).uniform(-3, 3, n).astype(np.float32)
    out = np.zeros((12, n), np.float32)
    run(MATH, "floats", (2,), (128,), out, x, n, compile_options=("--use_fast_math", "-lineinfo"))
    wide = x.astype(np.float64)
    exact = [
        np.sin(wide),
        np.cos(wide),
        np.exp(wide),
        np.log(np.abs(wide)),
        np.abs(wide) ** np.float64(np.float32(1.7)),
    ]
    for found, expected in zip(out, exact, strict=False):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


HALVES = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
__device__ void fused(__half* out, __half a, __half b) { *out = __hfma(a, b, a); }
__device__ void fused(__nv_bfloat16* out, __nv_bfloat16 a, __nv_bfloat16 b) {
#if __CUDA_ARCH__ >= 800
    *out = __hfma(a, b, a);
#endif
}
template <class T> __device__ void all(T* out, const T* in, int n) {
    int i = threadIdx.x;
    T a = in[i], b = in[i + n];
    out[i] = a + b;
    out[i + n] = a - b;
    out[i + 2 * n] = a * b;
    fused(&out[i + 3 * n], a, b);
    out[i + 4 * n] = -a;
    out[i + 5 * n] = __habs(a);
    out[i + 6 * n] = __hmax(a, b);
    out[i + 7 * n] = __hmin(a, b);
    out[i + 8 * n] = a / b;
    out[i + 9 * n] = hexp(a);
    out[i + 10 * n] = hsqrt(__habs(a));
    out[i + 11 * n] = (T)(float)(a < b);
    out[i + 12 * n] = hfloor(a);
    out[i + 13 * n] = (T)(float)a;
}
extern "C" __global__ void halves(__half* out, const __half* in, int n) { all(out, in, n); }
extern "C" __global__ void brains(__nv_bfloat16* out, const __nv_bfloat16* in, int n) { all(out, in, n); }
extern "C" __global__ void half_pairs(__half2* out, const __half2* in, int n) {
    int i = threadIdx.x;
    __half2 a = in[i], b = in[i + n];
    out[i] = __hadd2(a, b);
    out[i + n] = __hmul2(a, b);
    out[i + 2 * n] = __hfma2(a, b, a);
    out[i + 3 * n] = __hgt2(a, b);
    out[i + 4 * n] = __lowhigh2highlow(a);
    out[i + 5 * n] = __hmax2(a, b);
}
extern "C" __global__ void brain_pairs(__nv_bfloat162* out, const __nv_bfloat162* in, int n) {
    int i = threadIdx.x;
    __nv_bfloat162 a = in[i], b = in[i + n];
    out[i] = __hadd2(a, b);
    out[i + n] = __hmul2(a, b);
#if __CUDA_ARCH__ >= 800
    out[i + 2 * n] = __hfma2(a, b, a);
#endif
    out[i + 3 * n] = __hgt2(a, b);
    out[i + 4 * n] = __lowhigh2highlow(a);
    out[i + 5 * n] = __hmax2(a, b);
}
"""


def to_half(value: np.ndarray, brain: bool) -> np.ndarray:
    """Binary64 to halves as bits; bf16 through binary32, whose extra rounding no value here notices."""
    if not brain:
        return value.astype(np.float16).view(np.uint16)
    bits = value.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_half(bits: np.ndarray, brain: bool) -> np.ndarray:
    return ((bits.astype(np.uint32) << 16).view(np.float32) if brain else bits.view(np.float16)).astype(np.float64)


@every_architecture
@pytest.mark.parametrize("brain", [False, True], ids=["f16", "bf16"])
def test_half_arithmetic_of_the_headers(brain: bool, arch: str) -> None:
    n = 128
    bits = to_half(randoms(2 * n, dtype=np.float64), brain)
    out = np.zeros((14, n), np.uint16)
    run(HALVES, "brains" if brain else "halves", (1,), (n,), out, bits, n, arch=arch)
    a, b = from_half(bits[:n], brain), from_half(bits[n:], brain)
    fused = np.zeros_like(a) if brain and arch == "sm_75" else a * b + a  # that architecture has no fused bf16
    exact = [a + b, a - b, a * b, fused, -a, np.abs(a), np.maximum(a, b), np.minimum(a, b)]
    for row, expected in enumerate(exact):
        np.testing.assert_array_equal(out[row], to_half(expected, brain), err_msg=str(row))
    for row, expected in ((8, a / b), (9, np.exp(a)), (10, np.sqrt(np.abs(a)))):
        np.testing.assert_allclose(from_half(out[row], brain), expected, rtol=0.008 if brain else 0.001)
    for row, expected in ((11, a < b), (12, np.floor(a)), (13, a)):
        np.testing.assert_array_equal(from_half(out[row], brain), expected)


@every_architecture
@pytest.mark.parametrize("brain", [False, True], ids=["f16", "bf16"])
def test_packed_halves_of_the_headers(brain: bool, arch: str) -> None:
    n = 64
    bits = to_half(randoms(2 * n, 2, dtype=np.float64), brain)
    out = np.zeros((6, n, 2), np.uint16)
    run(HALVES, "brain_pairs" if brain else "half_pairs", (1,), (n,), out, bits, n, arch=arch)
    a, b = from_half(bits[:n], brain), from_half(bits[n:], brain)
    fused = np.zeros_like(a) if brain and arch == "sm_75" else a * b + a
    for row, expected in enumerate([a + b, a * b, fused, (a > b).astype(np.float64), a[:, ::-1], np.maximum(a, b)]):
        np.testing.assert_array_equal(out[row], to_half(expected, brain), err_msg=str(row))


ATOMICS = r"""
#include <cuda_fp16.h>
extern "C" __global__ void integers(int* sums, unsigned* bits, unsigned long long* wide, const int* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    atomicAdd(&sums[0], in[i]);
    atomicSub(&sums[1], in[i]);
    atomicMin(&sums[2], in[i]);
    atomicMax(&sums[3], in[i]);
    atomicAnd(&bits[0], (unsigned)in[i]);
    atomicOr(&bits[1], (unsigned)in[i]);
    atomicXor(&bits[2], (unsigned)in[i]);
    atomicInc(&bits[3], 9u);
    atomicDec(&bits[4], 6u);
    atomicAdd(&wide[0], (unsigned long long)(long long)in[i]);
    atomicMax(&wide[1], (unsigned long long)i << 33);
}
extern "C" __global__ void floats(float* f, double* d, __half* h, const float* in) {
    __shared__ float box;
    if (threadIdx.x == 0) box = 0;
    __syncthreads();
    float x = in[blockIdx.x * blockDim.x + threadIdx.x];
    atomicAdd(&box, x);
    atomicAdd(d, (double)x);
    atomicAdd(h, __float2half(1.0f));
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(f, box);
}
extern "C" __global__ void swaps(int* lock, int* order, float* last) {
    int old = atomicExch(lock, (int)threadIdx.x);
    order[threadIdx.x] = old;
    float seen = *last, assumed;
    do { assumed = seen; seen = __int_as_float(atomicCAS((int*)last, __float_as_int(assumed), __float_as_int(assumed +
    1.0f))); } while (seen != assumed);
}
"""


@every_architecture
def test_integer_atomics(arch: str) -> None:
    data = np.random.default_rng(1).integers(-(2**20), 2**20, 1000).astype(np.int32)
    sums, bits = np.zeros(4, np.int32), np.array([0xFFFFFFFF, 0, 0, 0, 0], np.uint32)
    wide = np.zeros(2, np.uint64)
    run(ATOMICS, "integers", (9,), (128,), sums, bits, wide, data, 1000, arch=arch)
    np.testing.assert_array_equal(sums, [data.sum(), -data.sum(), min(0, data.min()), max(0, data.max())])
    unsigned = data.view(np.uint32)
    np.testing.assert_array_equal(
        bits[:3], [f.reduce(unsigned) for f in (np.bitwise_and, np.bitwise_or, np.bitwise_xor)]
    )
    counter = 0
    for _ in range(1000):
        counter = 6 if counter == 0 or counter > 6 else counter - 1
    np.testing.assert_array_equal(bits[3:], [1000 % 10, counter])
    np.testing.assert_array_equal(wide.view(np.int64), [data.sum(dtype=np.int64), 999 << 33])


@every_architecture
def test_float_atomics(arch: str) -> None:
    data = randoms(512)
    f, d, h = np.zeros(1, np.float32), np.zeros(1), np.zeros(1, np.float16)
    run(ATOMICS, "floats", (4,), (128,), f, d, h, data, arch=arch)
    np.testing.assert_allclose(f[0], data.astype(np.float64).sum(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(d[0], data.astype(np.float64).sum(), rtol=1e-12)
    assert h[0] == 512


def test_exchange_and_compare_and_swap() -> None:
    lock, order, last = np.array([-1], np.int32), np.zeros(64, np.int32), np.zeros(1, np.float32)
    run(ATOMICS, "swaps", (1,), (64,), lock, order, last, faulty=True)
    assert sorted([*order, lock[0]]) == [-1, *range(64)]
    assert last[0] == 64


CONTROL = r"""
template <int DEPTH> struct Power { static __device__ int of(int x) { return x * Power<DEPTH - 1>::of(x); } };
template <> struct Power<0> { static __device__ int of(int) { return 1; } };
__constant__ int table[8] = {3, 1, 4, 1, 5, 9, 2, 6};
__device__ __noinline__ int collatz(unsigned n) {
    int steps = 0;
    while (n > 1) { n = n & 1 ? 3 * n + 1 : n / 2; steps++; }
    return steps;
}
extern "C" __global__ void cases(int* out, const int* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int x = in[i], y;
    switch (x) {
        case 0: y = collatz(i + 1); break;
        case 1: y = Power<3>::of(i); break;
        case 2: y = table[i & 7]; break;
        case 3: y = __popc(i) - __clz(i); break;
        case 4: { int sum = 0; for (int k = 0; k < (i & 15); k++) { if (k == 7) continue; if (k == 12) break; sum +=
        k; } y = sum; break; }
        case 5: y = i % 7 * 1000 + i / 13; break;
        case 6: y = -i >> 2; break;
        case 7: { int list[8]; for (int k = 0; k < 8; k++) list[k] = k * i; y = list[(i * 5) & 7]; break; }
        default: y = -1;
    }
    out[i] = y;
}
extern "C" __global__ void long_words(long long* out, const long long* in) {
    int i = threadIdx.x;
    long long a = in[i], b = in[i + 64];
    out[i] = a * b;
    out[i + 64] = a / b;
    out[i + 128] = a % b;
    out[i + 192] = __mul64hi(a, b);
    out[i + 256] = a << (i & 63);
    out[i + 320] = a >> (i & 63);
    out[i + 384] = (long long)(unsigned __int128)((unsigned __int128)(unsigned long long)a * (unsigned long long)b >>
    64) + 1;
    out[i + 448] = (long long)((double)a * 0.5);
}
template <class T, int N> __global__ void scale(T* out, T by) { out[threadIdx.x] *= by * N; }
extern "C" __global__ void jump(int* out) {
    int i = threadIdx.x, y = i;
    switch (i % 12) {
        case 0: y += 1; case 1: y *= 2; break;
        case 2: y ^= 77; break; case 3: y -= 5; break; case 4: y |= 64; break; case 5: y &= 3; break;
        case 6: y = ~y; break; case 7: y <<= 3; break; case 8: y += y; break; case 9: y = 9; break; case 10: y -= 100;
        break;
    }
    out[i] = y;
}
"""


def case(x: int, i: int) -> int:
    def collatz(n: int) -> int:
        steps = 0
        while n > 1:
            n = 3 * n + 1 if n & 1 else n // 2
            steps += 1
        return steps

    return [
        lambda: collatz(i + 1),
        lambda: i**3,
        lambda: [3, 1, 4, 1, 5, 9, 2, 6][i & 7],
        lambda: bin(i).count("1") - (32 - i.bit_length()),
        lambda: sum(k for k in range(i & 15) if k != 7 and k < 12),
        lambda: i % 7 * 1000 + i // 13,
        lambda: -i >> 2,
        lambda: ((i * 5) & 7) * i,
        lambda: -1,
    ][x]()


@every_architecture
def test_switches_loops_calls_and_local_arrays(arch: str) -> None:
    data = np.random.default_rng(1).integers(0, 9, 700).astype(np.int32)
    out = np.zeros(700, np.int32)
    ptx.execute(
        program(CONTROL, arch, ("scale<double, 3>",), ("--device-int128",)), "cases", (6,), (128,), (out, data, 700)
    )
    np.testing.assert_array_equal(out, [case(int(x), i) for i, x in enumerate(data)])


@every_architecture
def test_jump_tables_with_fall_through(arch: str) -> None:
    out = np.zeros(96, np.int32)
    execution = ptx.execute(
        program(CONTROL, arch, ("scale<double, 3>",), ("--device-int128",)), "jump", (1,), (96,), (out,)
    )
    assert execution.faults == ()
    rules = [
        lambda y: (y + 1) * 2,
        lambda y: y * 2,
        lambda y: y ^ 77,
        lambda y: y - 5,
        lambda y: y | 64,
        lambda y: y & 3,
        lambda y: ~y,
    ]
    rules += [lambda y: y << 3, lambda y: y + y, lambda _: 9, lambda y: y - 100, lambda y: y]
    np.testing.assert_array_equal(out, [rules[i % 12](i) for i in range(96)])


@every_architecture
def test_64_and_128_bit_integers(arch: str) -> None:
    data = np.random.default_rng(1).integers(-(2**62), 2**62, 128)
    data[64:72] = [1, -1, 3, -7, 2**31, 2**33, -(2**40), 12345]
    out = np.zeros((8, 64), np.int64)
    ptx.execute(
        program(CONTROL, arch, ("scale<double, 3>",), ("--device-int128",)), "long_words", (1,), (64,), (out, data)
    )

    def wrapped(values: list[int]) -> np.ndarray:
        return np.array([v & (2**64 - 1) for v in values], np.uint64).view(np.int64)

    pairs = [(int(a), int(b)) for a, b in zip(data[:64], data[64:], strict=True)]
    quotients = [abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) for a, b in pairs]
    expected = [
        wrapped([a * b for a, b in pairs]),
        wrapped(quotients),
        wrapped([a - q * b for (a, b), q in zip(pairs, quotients, strict=True)]),
        wrapped([a * b >> 64 for a, b in pairs]),
        wrapped([a << (i & 63) for i, (a, _) in enumerate(pairs)]),
        wrapped([a >> (i & 63) for i, (a, _) in enumerate(pairs)]),
        wrapped([((a % 2**64) * (b % 2**64) >> 64) + 1 for a, b in pairs]),
        wrapped([int(float(a) * 0.5) for a, _ in pairs]),
    ]
    np.testing.assert_array_equal(out, expected)


def test_template_kernels_by_expression_and_by_name() -> None:
    instances = program(CONTROL, "sm_90", ("scale<double, 3>", "scale<int, 2>"), ("--device-int128",))
    doubles, integers = np.ones(32), np.ones(32, np.int32)
    ptx.execute(instances, "scale<double, 3>", (1,), (32,), (doubles, np.float64(2)))
    ptx.execute(instances, "scale<int, 2>", (1,), (32,), (integers, 5))
    assert set(doubles) == {6.0}
    assert set(integers) == {10}


WARPS = r"""
extern "C" __global__ void exchange(int* out, const int* in) {
    int i = threadIdx.x, x = in[i];
    out[i] = __shfl_sync(~0u, x, (i * 7) & 31);
    out[i + 64] = __shfl_up_sync(~0u, x, 3);
    out[i + 128] = __shfl_down_sync(~0u, x, 5, 16);
    out[i + 192] = __shfl_xor_sync(~0u, x, 9, 8);
    out[i + 256] = __ballot_sync(~0u, x & 1);
    out[i + 320] = __any_sync(~0u, x == 3) * 2 + __all_sync(~0u, x >= 0);
    out[i + 384] = __match_any_sync(~0u, x & 3);
    if (x & 1) out[i + 448] = __activemask(); else out[i + 448] = ~__activemask();
    out[i + 512] = __syncthreads_count(x > 5);
    out[i + 576] = __syncthreads_and(x >= 0) * 2 + __syncthreads_or(x > 100);
    double d = __shfl_sync(~0u, x * 0.25, 31 - (i & 31));
    out[i + 640] = (int)(d * 4);
}
extern "C" __global__ void reduce(unsigned* out, const unsigned* in) {
#if __CUDA_ARCH__ >= 800
    int i = threadIdx.x;
    out[i] = __reduce_add_sync(~0u, in[i]);
    out[i + 64] = __reduce_max_sync(~0u, in[i]);
    out[i + 128] = __reduce_xor_sync(~0u, in[i]);
#endif
}
"""


@every_architecture
def test_exchange_within_warps(arch: str) -> None:
    x = np.random.default_rng(1).integers(0, 10, 64).astype(np.int32)
    out = np.zeros((11, 64), np.int32)
    run(WARPS, "exchange", (1,), (64,), out, x, arch=arch)
    lane, warp = np.arange(64) % 32, np.arange(64) // 32 * 32

    def bits(truth: np.ndarray) -> np.ndarray:
        words = np.array([sum(int(t) << k for k, t in enumerate(row)) for row in truth.reshape(2, 32)], np.uint64)
        return np.repeat(words, 32).astype(np.uint32).view(np.int32)

    odd = bits((x & 1) != 0)
    expected = [
        x[warp + (lane * 7) % 32],
        np.where(lane >= 3, x[np.maximum(np.arange(64) - 3, 0)], x),
        np.where(lane % 16 + 5 < 16, x[np.minimum(np.arange(64) + 5, 63)], x),
        np.where((lane ^ 9) // 8 <= lane // 8, x[warp + (lane ^ 9)], x),
        odd,
        np.repeat([int((x[w : w + 32] == 3).any()) * 2 + 1 for w in (0, 32)], 32),
        np.array([bits((x & 3) == (v & 3))[i] for i, v in enumerate(x)]),
        odd,
        np.full(64, (x > 5).sum()),
        np.full(64, 2),
        x[warp + 31 - lane],
    ]
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_warp_reductions(arch: str) -> None:
    x = np.random.default_rng(1).integers(0, 2**32, 64, dtype=np.uint32)
    out = np.zeros((3, 2, 32), np.uint32)
    run(WARPS, "reduce", (1,), (64,), out, x, arch=arch)
    rows = x.reshape(2, 32)
    for found, expected in zip(
        out, (rows.sum(axis=1, dtype=np.uint32), rows.max(axis=1), np.bitwise_xor.reduce(rows, axis=1)), strict=True
    ):
        np.testing.assert_array_equal(found, np.repeat(expected[:, None], 32, axis=1))


DYNAMIC = r"""
struct Pair { float scale; int shift; };
__device__ int launches = 0;
extern "C" __global__ void reverse(float* out, const float* in, Pair pair, bool flip) {
    extern __shared__ float box[];
    int t = threadIdx.x;
    box[t] = in[blockIdx.x * blockDim.x + t] * pair.scale + pair.shift;
    __syncthreads();
    out[blockIdx.x * blockDim.x + t] = box[flip ? blockDim.x - 1 - t : t];
    if (t == 0) atomicAdd(&launches, 1);
}
extern "C" __global__ void tell(int* out) { *out = launches; }
"""


def test_dynamic_shared_memory_structs_and_module_variables() -> None:
    x, out, count = randoms(256), np.zeros(256, np.float32), np.zeros(1, np.int32)
    pair = np.array((2.0, 3), [("scale", np.float32), ("shift", np.int32)])[()]
    run(DYNAMIC, "reverse", (4,), (64,), out, x, pair, np.bool_(True), shared_bytes=256)
    np.testing.assert_array_equal(out, (x * np.float32(2) + np.float32(3)).reshape(4, 64)[:, ::-1].ravel())
    run(DYNAMIC, "reverse", (4,), (64,), out, x, pair, np.bool_(False), shared_bytes=256)
    run(DYNAMIC, "tell", (1,), (1,), count)
    assert count[0] == 8
    faults = run(DYNAMIC, "reverse", (1,), (64,), out, x, pair, np.bool_(False), shared_bytes=128, faulty=True).faults
    assert {(f.code, f.array, f.threads) for f in faults if f.code == "out-of-bounds"} == {("out-of-bounds", "box", 32)}


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
