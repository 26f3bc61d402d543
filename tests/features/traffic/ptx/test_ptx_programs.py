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
from ptx_sources import ARCHITECTURES, computes_what_numpy_does, program, run
from random_kernels import THREADS, VARIABLES, interpret, random_kernel

from pytest_bandwidth.features.traffic import ptx

every_architecture = pytest.mark.parametrize("arch", ARCHITECTURES)
old_and_new = pytest.mark.parametrize("arch", ["sm_75", "sm_120"])


def randoms(*shape: int, seed: int = 1, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


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
    with np.errstate(over="ignore"):
        for found, expected in zip(out, exactly(x), strict=True):
            np.testing.assert_allclose(found, expected.astype(dtype), rtol=tolerance, atol=1e-45)


def test_fast_mathematics() -> None:
    """--use_fast_math: approximate opcodes and flushed subnormals; as near as hardware's own error bounds promise."""
    n = 256
    x = np.random.default_rng(1).uniform(-3, 3, n).astype(np.float32)
    out = np.zeros((12, n), np.float32)
    run(MATH, "floats", (2,), (128,), out, x, n, compile_options=("--use_fast_math", "-lineinfo"))
    for found, expected in zip(out[:5], exactly(x), strict=False):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


HALVES = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
__device__ void fused(__half* out, __half a, __half b) { *out = __hfma(a, b, a); }
__device__ void fused(__half2* out, __half2 a, __half2 b) { *out = __hfma2(a, b, a); }
#if __CUDA_ARCH__ >= 800
__device__ void fused(__nv_bfloat16* out, __nv_bfloat16 a, __nv_bfloat16 b) { *out = __hfma(a, b, a); }
__device__ void fused(__nv_bfloat162* out, __nv_bfloat162 a, __nv_bfloat162 b) { *out = __hfma2(a, b, a); }
#else
__device__ void fused(__nv_bfloat16* out, __nv_bfloat16 a, __nv_bfloat16 b) {}
__device__ void fused(__nv_bfloat162* out, __nv_bfloat162 a, __nv_bfloat162 b) {}
#endif
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
template <class T> __device__ void pairs(T* out, const T* in, int n) {
    int i = threadIdx.x;
    T a = in[i], b = in[i + n];
    out[i] = __hadd2(a, b);
    out[i + n] = __hmul2(a, b);
    fused(&out[i + 2 * n], a, b);
    out[i + 3 * n] = __hgt2(a, b);
    out[i + 4 * n] = __lowhigh2highlow(a);
    out[i + 5 * n] = __hmax2(a, b);
}
extern "C" __global__ void half_pairs(__half2* out, const __half2* in, int n) { pairs(out, in, n); }
extern "C" __global__ void brain_pairs(__nv_bfloat162* out, const __nv_bfloat162* in, int n) { pairs(out, in, n); }
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


def control(name: str, grid: int, block: int, *args: object, arch: str = "sm_90") -> None:
    instances = program(CONTROL, arch, ("scale<double, 3>", "scale<int, 2>"), ("--device-int128",))
    assert not ptx.execute(instances, name, (grid,), (block,), args).faults


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
    control("cases", 6, 128, out, data, 700, arch=arch)
    np.testing.assert_array_equal(out, [case(int(x), i) for i, x in enumerate(data)])


@every_architecture
def test_jump_tables_with_fall_through(arch: str) -> None:
    out = np.zeros(96, np.int32)
    control("jump", 1, 96, out, arch=arch)
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
    control("long_words", 1, 64, out, data, arch=arch)

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
    doubles, integers = np.ones(32), np.ones(32, np.int32)
    control("scale<double, 3>", 1, 32, doubles, np.float64(2))
    control("scale<int, 2>", 1, 32, integers, 5)
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


# ---- programs of many kinds ------------------------------------------------------------------------------------------


def generator() -> np.random.Generator:
    return np.random.default_rng(7)


@old_and_new
@pytest.mark.parametrize(
    "name",
    [
        "histogram with a copy for each warp",
        "hash table",
        "bitonic sort of float",
        "convolution of rows with a halo",
        "sums of tiles of eight of int",
        "scan that is handed from block to block",
    ],
)
def test_some_of_what_runs_on_one_architecture_runs_on_others(name: str, arch: str) -> None:
    """All of them: tests/compat, which takes minutes."""
    computes_what_numpy_does(PROGRAMS[name], arch)


@old_and_new
def test_colour_to_grey(arch: str) -> None:
    text = r"""
    struct Pixel { unsigned char r, g, b; };
    extern "C" __global__ void grey(unsigned char* out, const Pixel* in, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) out[i] = (77 * in[i].r + 150 * in[i].g + 29 * in[i].b) >> 8;
    }"""
    image, out = generator().integers(0, 256, (1000, 3)).astype(np.uint8), np.zeros(1000, np.uint8)
    execution = run(text, "grey", (8,), (128,), out, image, 1000, arch=arch)
    np.testing.assert_array_equal(out, image.astype(np.int64) @ [77, 150, 29] >> 8)
    assert execution.bytes_read == 3000


@old_and_new
def test_determinants_with_pivoting_in_local_memory(arch: str) -> None:
    text = r"""
    extern "C" __global__ void determinant(double* out, const double* in, int n) {
        double m[6][6], sign = 1;
        const double* mine = in + (blockIdx.x * blockDim.x + threadIdx.x) * n * n;
        for (int r = 0; r < n; r++) for (int c = 0; c < n; c++) m[r][c] = mine[r * n + c];
        for (int k = 0; k < n; k++) {
            int p = k;
            for (int r = k + 1; r < n; r++) if (fabs(m[r][k]) > fabs(m[p][k])) p = r;
            if (p != k) sign = -sign;
            for (int c = 0; c < n; c++) { double t = m[k][c]; m[k][c] = m[p][c]; m[p][c] = t; }
            for (int r = k + 1; r < n; r++) {
                double f = m[r][k] / m[k][k];
                for (int c = k; c < n; c++) m[r][c] -= f * m[k][c];
            }
        }
        for (int k = 0; k < n; k++) sign *= m[k][k];
        out[blockIdx.x * blockDim.x + threadIdx.x] = sign;
    }"""
    matrices, out = generator().standard_normal((64, 5, 5)), np.zeros(64)
    run(text, "determinant", (2,), (32,), out, matrices, 5, arch=arch)
    np.testing.assert_allclose(out, np.linalg.det(matrices), rtol=1e-10)


@old_and_new
def test_products_of_128_bits(arch: str) -> None:
    """Modulo 2¹²⁷ − 1: NVRTC's division adds after it subtracts, and so sees how a difference keeps its carry."""
    text = r"""
    typedef unsigned __int128 wide;
    extern "C" __global__ void power(ulonglong2* out, const unsigned long long* base, int exponent) {
        int i = threadIdx.x;
        const wide p = ((wide)1 << 127) - 1;
        wide result = 1, x = base[i];
        for (int e = exponent; e; e >>= 1) {
            if (e & 1) {
                wide sum = 0;
                for (wide y = result, z = x; z; z >>= 1) { if (z & 1) sum = (sum + y) % p; y = (y + y) % p; }
                result = sum;
            }
            wide sum = 0;
            for (wide y = x, z = x; z; z >>= 1) { if (z & 1) sum = (sum + y) % p; y = (y + y) % p; }
            x = sum;
        }
        out[i] = make_ulonglong2((unsigned long long)result, (unsigned long long)(result >> 64));
    }"""
    base = generator().integers(1, 2**63, 8, np.uint64)
    out = np.zeros((8, 2), np.uint64)
    run(text, "power", (1,), (8,), out, base, np.int32(13), arch=arch, compile_options=("--device-int128",))
    found = [int(low) | int(high) << 64 for low, high in out]
    assert found == [pow(int(b), 13, 2**127 - 1) for b in base]


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
# The headers take seconds: so all are compiled together.
SMALL_FLOATS = r"""
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>
extern "C" __global__ void scales(unsigned short* up, unsigned short* down, __nv_bfloat162_raw* wide, float* x) {
    int i = threadIdx.x;
    float2 pair = make_float2(x[i], x[i]);
    up[i] = __nv_cvt_float2_to_e8m0x2(pair, __NV_SATFINITE, cudaRoundPosInf);
    down[i] = __nv_cvt_float2_to_e8m0x2(pair, __NV_NOSAT, cudaRoundZero);
    wide[i] = __nv_cvt_e8m0x2_to_bf162raw(up[i]);
}
""" + "".join(
    f"""
extern "C" __global__ void {kind}(__half2_raw* wide, unsigned short* back, const float2* given) {{
    int i = threadIdx.x, two = i | (~i & {count - 1}) << {step};
    wide[i] = __nv_cvt_{name}x2_to_halfraw2(({holder})two, __NV_{kind[:4].upper()});
    back[i] = __nv_cvt_float2_to_{name}x2(given[i], __NV_{kind[:4].upper()}, cudaRoundNearest);
}}"""
    for kind, (holder, name, count, step) in NARROW.items()
)
# In opcodes where the architecture has them, in integers elsewhere.
with_and_without_opcodes = pytest.mark.parametrize("arch", ["sm_90", "sm_100a"])


@with_and_without_opcodes
@pytest.mark.parametrize("kind", NARROW)
def test_every_four_and_six_bit_float_and_back(kind: str, arch: str) -> None:
    *_, count, step = NARROW[kind]
    values = np.array([float(small_value(code, kind)) for code in range(count)], np.float32)
    values[count // 2] = -0.0
    finest = values[: count // 2]
    # Halfway between two, where the even code wins; beyond the largest; and what has no code of its own.
    between = (finest[1:] + finest[:-1]) / 2
    even = np.array([code + code % 2 for code in range(count // 2 - 1)])
    given = np.zeros((count, 2), np.float32)
    given[:, 0], given[: len(between), 1] = values, between
    given[len(between) : len(between) + 4, 1] = [99.0, -99.0, np.inf, np.nan]
    wide, back = np.zeros((count, 2), np.float16), np.zeros(count, np.uint16)
    run(SMALL_FLOATS, kind, (1,), (count,), wide, back, given, arch=arch)
    np.testing.assert_array_equal(wide, np.stack([values, values[::-1]], axis=1))
    np.testing.assert_array_equal(back & ((1 << step) - 1), np.arange(count))
    most = count // 2 - 1
    np.testing.assert_array_equal(back[: most + 4] >> step, [*even, most, count - 1, most, most])


@with_and_without_opcodes
def test_scales_are_powers_of_two(arch: str) -> None:
    x = np.array([0, 1, 1.5, 2, 3, 2.0**-127, 1.5 * 2.0**-127, 2.0**-126, 3e38, np.inf, np.nan], np.float32)
    up, down = np.zeros((2, len(x)), np.uint16)
    wide = np.zeros((len(x), 2), np.uint16)
    run(SMALL_FLOATS, "scales", (1,), (len(x),), up, down, wide, x, arch=arch)
    np.testing.assert_array_equal(up >> 8, [0, 127, 128, 128, 129, 0, 1, 1, 254, 254, 255])
    np.testing.assert_array_equal(down & 255, [0, 127, 127, 128, 128, 0, 0, 1, 254, 255, 255])
    singles = (wide.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(singles[:-1, 0], np.ldexp(1.0, (up[:-1] & 255).astype(int) - 127))
    assert np.isnan(singles[-1]).all()


def test_packed_arithmetic_of_newer_architectures() -> None:
    text = r"""
    extern "C" __global__ void step(float2* x, const float2* y) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        float2 a = x[i], b = y[i];
        x[i] = __ffma2_rn(a, b, __fadd2_rn(a, __fmul2_rn(b, b)));
    }"""
    x, y = generator().standard_normal((2, 512)).astype(np.float32)
    # A product of two singles is exact in a double; that its sum is rounded twice changes none of these.
    expected = (x.astype(np.float64) * y + (x + y * y)).astype(np.float32)
    execution = run(text, "step", (4,), (64,), x, y, arch="sm_100")
    np.testing.assert_array_equal(x, expected)
    # 32 threads of 8 bytes are 8 sectors; there are 8 warps with two loads and a store.
    assert (execution.counts.loads.sectors, execution.counts.stores.sectors) == (128, 64)


@pytest.mark.parametrize("wide", ["v8.f32", "v4.b64"])
def test_accesses_of_256_bits(wide: str) -> None:
    count, kind = int(wide[1]), "f" if wide.endswith("f32") else "l"
    items = [f"x{n}" for n in range(count)]
    declared = f"{'float' if kind == 'f' else 'long long'} {', '.join(items)};"
    loaded = ", ".join(f'"={kind}"({item})' for item in items)
    stored = ", ".join(f'"{kind}"({item})' for item in reversed(items))
    registers = ", ".join(f"%{n}" for n in range(count))
    later = ", ".join(f"%{n + 1}" for n in range(count))
    text = f"""
    extern "C" __global__ void turned(char* out, const char* in) {{
        int i = 32 * threadIdx.x;
        {declared}
        asm volatile("ld.global.{wide} {{{registers}}}, [%{count}];" : {loaded} : "l"(in + i));
        asm volatile("st.global.{wide} [%0], {{{later}}};" :: "l"(out + i), {stored});
    }}"""
    data = generator().integers(0, 2**31, (64, count)).astype("f4" if kind == "f" else "i8")
    out = np.zeros_like(data)
    execution = run(text, "turned", (1,), (64,), out, data, arch="sm_100")
    np.testing.assert_array_equal(out, data[:, ::-1])
    for one in (execution.counts.loads, execution.counts.stores):
        assert (one.requests, one.sectors, one.bytes_requested) == (2, 64, 64 * 32)


# ---- random programs of nested, divergent control flow, thread by thread against their syntax tree -------------------


@pytest.mark.parametrize("seed", range(24))
def test_random_control_flow(seed: int) -> None:
    kernel = random_kernel(seed)
    data, out = kernel.data, np.zeros_like(kernel.data)
    execution = run(kernel.text, "k", (1,), (THREADS,), out, data, arch=kernel.arch)
    for thread in range(THREADS):
        v = {name: int(data[i, thread]) for i, name in enumerate(VARIABLES)} | {"t": thread}
        interpret(kernel.body, v)
        assert [v[n] for n in VARIABLES] == out[:, thread].tolist(), f"thread {thread}, {VARIABLES}\n{kernel.text}"
    assert execution.counts.stores.requests == len(VARIABLES) * 2  # all threads have met again at the end


PRINTING = r"""
#include <stdio.h>
extern "C" __global__ void shown(int* x, int limit) {
    int i = threadIdx.x;
    if (x[i] > limit) { int n = printf("%d of %f\n", x[i], 1.5); x[i] += n * 0; }
    x[i] += 1;
}
"""


@every_architecture
def test_printing_prints_nothing_and_changes_nothing(arch: str, capfd: pytest.CaptureFixture[str]) -> None:
    x = np.arange(64, dtype=np.int32)
    assert run(PRINTING, "shown", (1,), (64,), x, 32, arch=arch).printed == ("kernel.cu:5",)
    np.testing.assert_array_equal(x, np.arange(64) + 1)
    assert run(PRINTING, "shown", (1,), (64,), x, 64, arch=arch).printed == (), "no thread came there"
    assert capfd.readouterr().out == ""


def test_only_lines_that_printed_are_named_in_any_batch_and_function() -> None:
    source = r"""
__device__ __noinline__ void said(int i) { printf("%d", i); }
extern "C" __global__ void k(int* out, int block, int never) {
    out[blockIdx.x] = 1;
    if (blockIdx.x == block) said(block);
    if (never > 0) printf("never");
    if (blockIdx.x == block && threadIdx.x == 31)
        printf("%d", out[blockIdx.x]);
}"""
    blocks = 1 << 12  # of 32 threads: two batches
    out = np.zeros(blocks, np.int32)
    for block in (0, blocks - 1):
        found = run(source, "k", (blocks,), (32,), out, block, 0)
        assert found.printed == ("kernel.cu:2", "kernel.cu:8")
    assert run(source, "k", (blocks,), (32,), out, blocks, 0).printed == ()


def test_a_call_of_printf_whose_predicate_holds_for_no_thread_is_none() -> None:
    text = ptx.compile_ptx('extern "C" __global__ void k(int* x) { if (x[0] > 3) printf("%d", x[0]); }').ptx
    assert "@%p1 bra" in text
    for call, printed in (("call.uni", ("kernel.cu:1",)), ("@%p1 call.uni", ())):
        made = ptx.Program(ptx.PtxModule(text.replace("call.uni", call), "", "sm_90", filename="kernel.cu"))
        assert ptx.execute(made, "k", (1,), (32,), (np.full(1, 4, np.int32),)).printed == printed


MACROS = r"""
#include <math.h>
#include <float.h>
#include <limits.h>
#include <cstdio>
extern "C" __global__ void macros(float* out, const float* in) {
    float m = -INFINITY;
    m = fmaxf(m, in[threadIdx.x]);
    bool inside = m < FLT_MAX && m > FLT_EPSILON && INT_MAX > CHAR_BIT && isnan(NAN) && UINT_MAX > 1u;
    out[threadIdx.x] = inside ? m * (float)(M_PI / M_PI) : 0;
}
"""


@every_architecture
def test_macros_of_c_s_headers_are_there(arch: str) -> None:
    out, given = np.zeros(64, np.float32), np.arange(1, 65, dtype=np.float32)
    run(MACROS, "macros", (1,), (64,), out, given, arch=arch)
    np.testing.assert_array_equal(out, given)


@pytest.mark.parametrize("index", ["n - 1 - t", "t / 32 * 32 + 31 - t % 32", "(n - t) % n"])
def test_addresses_of_shared_memory_wrap_at_32_bits(index: str) -> None:
    """NVRTC writes a reversed index as a negative address and a positive offset."""
    source = """extern "C" __global__ void k(int* x) {
    __shared__ int box[128];
    int t = threadIdx.x, n = 128;
    box[t] = t;
    __syncthreads();
    x[t] = box[INDEX];
}"""
    x, t, n = np.zeros(128, np.int32), np.arange(128), 128
    run(source.replace("INDEX", index), "k", (1,), (128,), x)
    np.testing.assert_array_equal(x, eval(index.replace("/", "//"), {"t": t, "n": n}))


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
