"""Programs in the shape of CUDA's samples and of textbooks."""

from __future__ import annotations

from itertools import pairwise
from math import erf, pi, sqrt

import numpy as np

from compat.registry import Made, Random, Sorted, program

SAMPLES, TEXTBOOK = "CUDA's samples", "textbooks"
K = 'extern "C" __global__ void k'


@program(SAMPLES, K + "(T* o, const T* a, const T* b, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x;"
         " if (i < n) o[i] = a[i] + b[i]; }", 4, 256, "float", "double", "int", "__half")  # fmt: skip
def vector_addition(r: Random) -> Made:
    a, b, o = r.values(1000), r.values(1000), r.zeros(1000)
    return (o, a, b, 1000), [(o, a + b)]


@program(SAMPLES, K + "(T* y, const T* x, T a, int n) { for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n;"
         " i += gridDim.x * blockDim.x) y[i] = a * x[i] + y[i]; }", 2, 128, "float", "double")  # fmt: skip
def axpy_with_a_grid_stride_loop(r: Random) -> Made:
    x, y = r.values(1000), r.values(1000)
    a = x.dtype.type(3)
    return (y, x, a, 1000), [(y, a * x + y)]


@program(SAMPLES, K + "(T* o, const T* a, int n) { int x = blockIdx.x * 16 + threadIdx.x,"
         " y = blockIdx.y * 16 + threadIdx.y; if (x < n && y < n) o[x * n + y] = a[y * n + x]; }",
         (4, 4), (16, 16), "float", "double")  # fmt: skip
def transpose_without_shared_memory(r: Random) -> Made:
    a, o = r.values(50, 50), r.zeros(50, 50)
    return (o, a, 50), [(o, a.T.copy())]


@program(SAMPLES, K + r"""(T* o, const T* a, int n) {
    __shared__ T tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) if (x < n && y + j < n) tile[threadIdx.y + j][threadIdx.x] = a[(y + j) * n + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x; y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) if (x < n && y + j < n) o[(y + j) * n + x] = tile[threadIdx.x][threadIdx.y + j];
}""", (2, 2), (32, 8), "float", "double", "int")  # fmt: skip
def transpose_with_a_padded_tile(r: Random) -> Made:
    a, o = r.values(50, 50), r.zeros(50, 50)
    return (o, a, 50), [(o, a.T.copy())]


_TWO = "s[t] = a[i] + a[i + 256]; __syncthreads(); for (int d = "
_REDUCTIONS = {
    "with interleaved threads": _TWO
    + "1; d < 256; d *= 2) { if (t % (2 * d) == 0) s[t] += s[t + d]; __syncthreads(); }",
    "with strided indices": _TWO + "1; d < 256; d *= 2)"
    " { int j = 2 * d * t; if (j < 256) s[j] += s[j + d]; __syncthreads(); }",
    "with sequential addresses": _TWO + "128; d > 0; d /= 2) { if (t < d) s[t] += s[t + d]; __syncthreads(); }",
    "with shuffles": "T v = a[i] + a[i + 256]; for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(~0u, v, d);"
    " if (t % 32 == 0) s[t / 32] = v; __syncthreads(); if (t < 32) { v = t < 8 ? s[t] : T(0);"
    " for (int d = 4; d > 0; d /= 2) v += __shfl_down_sync(~0u, v, d); if (t == 0) s[0] = v; }",
}


@program(SAMPLES, K + r"""(T* o, const T* a, int n) {
    __shared__ T s[512]; int t = threadIdx.x, i = blockIdx.x * 512 + t;
    WAY
    if (t == 0) o[blockIdx.x] = s[0];
}""", 4, 256, "float", "int", ways=_REDUCTIONS)  # fmt: skip
def reduction(r: Random) -> Made:
    a, o = r.values(2048), r.zeros(4)
    return (o, a, 2048), [(o, a.reshape(4, 512).sum(axis=1, dtype="f8" if r.dtype == "f4" else r.dtype))]


@program(SAMPLES, r"""
__device__ unsigned done = 0;
extern "C" __global__ void k(T* o, volatile T* parts, const T* a, int n) {
    __shared__ T s[128]; __shared__ bool last; int t = threadIdx.x; T v = 0;
    for (int i = blockIdx.x * 128 + t; i < n; i += gridDim.x * 128) v += a[i];
    s[t] = v; __syncthreads();
    for (int d = 64; d > 0; d /= 2) { if (t < d) s[t] += s[t + d]; __syncthreads(); }
    if (t == 0) { parts[blockIdx.x] = s[0]; __threadfence(); last = atomicInc(&done, gridDim.x) == gridDim.x - 1; }
    __syncthreads();
    if (last && t == 0) { v = 0; for (int b = 0; b < gridDim.x; b++) v += parts[b]; *o = v; }
}""", 5, 128, "float", "double")  # fmt: skip
def reduction_by_the_last_block(r: Random) -> Made:
    a, parts, o = r.values(3000), r.zeros(5), r.zeros(1)
    return (o, parts, a, 3000), [(o, a.sum(keepdims=True, dtype="f8"))]


@program(SAMPLES, K + r"""(T* o, const T* a) {
    __shared__ T s[2][256]; int t = threadIdx.x, p = 0;
    s[0][t] = a[t]; __syncthreads();
    for (int d = 1; d < 256; d *= 2) {
        s[1 - p][t] = t >= d ? s[p][t] + s[p][t - d] : s[p][t]; p = 1 - p; __syncthreads();
    }
    o[t] = s[p][t];
}""", 1, 256, "float", "int")  # fmt: skip
def scan_of_hillis_and_steele(r: Random) -> Made:
    a, o = r.values(256), r.zeros(256)
    return (o, a), [(o, a.cumsum(dtype=r.dtype))]


@program(SAMPLES, r"""
#define AT(i) ((i) + ((i) >> 5))
extern "C" __global__ void k(T* o, const T* a) {
    __shared__ T s[AT(512)]; int t = threadIdx.x, offset = 1;
    s[AT(2 * t)] = a[2 * t]; s[AT(2 * t + 1)] = a[2 * t + 1];
    for (int d = 256; d > 0; d /= 2, offset *= 2) {
        __syncthreads();
        if (t < d) s[AT(offset * (2 * t + 2) - 1)] += s[AT(offset * (2 * t + 1) - 1)];
    }
    if (t == 0) s[AT(511)] = 0;
    for (int d = 1; d < 512; d *= 2) {
        offset /= 2; __syncthreads();
        if (t < d) {
            int i = AT(offset * (2 * t + 1) - 1), j = AT(offset * (2 * t + 2) - 1);
            T x = s[i]; s[i] = s[j]; s[j] += x;
        }
    }
    __syncthreads();
    o[2 * t] = s[AT(2 * t)]; o[2 * t + 1] = s[AT(2 * t + 1)];
}""", 1, 256, "float", "int")  # fmt: skip
def scan_of_blelloch_without_bank_conflicts(r: Random) -> Made:
    a, o = r.values(512), r.zeros(512)
    return (o, a), [(o, np.concatenate([[0], a.cumsum(dtype="f8")[:-1]]))]


@program(SAMPLES, K + r"""(unsigned* o, const unsigned char* a, int n) {
    __shared__ unsigned h[4][256]; int t = threadIdx.x, w = t / 32;
    for (int i = t; i < 1024; i += 128) h[0][i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * 128 + t; i < n; i += gridDim.x * 128) atomicAdd(&h[w][a[i]], 1u);
    __syncthreads();
    for (int i = t; i < 256; i += 128) atomicAdd(&o[i], h[0][i] + h[1][i] + h[2][i] + h[3][i]);
}""", 3, 128)  # fmt: skip
def histogram_with_a_copy_for_each_warp(r: Random) -> Made:
    a, o = r.below(256, 2000, dtype="u1"), r.zeros(256, dtype="u4")
    return (o, a, 2000), [(o, np.bincount(a, minlength=256))]


@program(SAMPLES, K + r"""(T* o, const T* a, int run) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, first = i / (2 * run) * 2 * run, j = i - first;
    bool right = j >= run; const T* other = a + first + (right ? 0 : run); T v = a[i];
    int low = 0, high = run;
    while (low < high) { int m = (low + high) / 2; if (right ? other[m] <= v : other[m] < v) low = m + 1;
        else high = m; }
    o[first + (right ? j - run : j) + low] = v;
}""", 2, 256, "int", "float")  # fmt: skip
def merge_by_ranks(r: Random) -> Made:
    a, o = np.sort(r.values(4, 128), axis=1), r.zeros(512)
    return (o, a, 128), [(o, np.sort(a.reshape(2, 256), axis=1).ravel())]


@program(SAMPLES, K + r"""(T* a) {
    __shared__ T s[512]; int t = threadIdx.x; s[t] = a[t]; s[t + 256] = a[t + 256];
    for (int size = 2; size <= 512; size *= 2)
        for (int stride = size / 2; stride > 0; stride /= 2) {
            __syncthreads();
            int i = 2 * t - (t & (stride - 1)); bool up = (i & size) == 0;
            if ((s[i] > s[i + stride]) == up) { T x = s[i]; s[i] = s[i + stride]; s[i + stride] = x; }
        }
    __syncthreads(); a[t] = s[t]; a[t + 256] = s[t + 256];
}""", 1, 256, "int", "float", "long long")  # fmt: skip
def bitonic_sort(r: Random) -> Made:
    a = r.values(512)
    return (a,), [(a, np.sort(a))]


CONVOLUTION = np.array([1, 4, 6, 4, 1], "f4") / 16


@program(SAMPLES, r"""
__constant__ float w[5] = {0.0625f, 0.25f, 0.375f, 0.25f, 0.0625f};
extern "C" __global__ void k(float* o, const float* a, int n) {
    __shared__ float s[132]; int i = blockIdx.x * 128 + threadIdx.x, t = threadIdx.x + 2;
    s[t] = i < n ? a[i] : 0;
    if (t < 4) s[t - 2] = i >= 2 ? a[i - 2] : 0;
    if (t >= 128) s[t + 2] = i + 2 < n ? a[i + 2] : 0;
    __syncthreads();
    float v = 0; for (int j = 0; j < 5; j++) v += w[j] * s[t + j - 2];
    if (i < n) o[i] = v;
}""", 3, 128)  # fmt: skip
def convolution_of_rows_with_a_halo(r: Random) -> Made:
    a, o = r.values(300), r.zeros(300)
    return (o, a, 300), [(o, np.convolve(a, CONVOLUTION, mode="same"))]


@program(SAMPLES, K + r"""(float* o, const float* a, const float* w, int h, int n) {
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y; if (x >= n || y >= h) return;
    float v = 0; for (int j = -2; j <= 2; j++) if (y + j >= 0 && y + j < h) v += w[j + 2] * a[(y + j) * n + x];
    o[y * n + x] = v;
}""", (2, 3), (16, 16))  # fmt: skip
def convolution_of_columns(r: Random) -> Made:
    a, o = r.values(40, 30), r.zeros(40, 30)
    expected = np.stack([np.convolve(column, CONVOLUTION, mode="same") for column in a.T], axis=1)
    return (o, a, CONVOLUTION, 40, 30), [(o, expected)]


@program(SAMPLES, K + r"""(float* o, const float* a, int n) {
    int x = blockIdx.x * 8 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y; if (x >= n || y >= n) return;
    float v = 0; int c = 0;
    for (int j = max(y - 1, 0); j <= min(y + 1, n - 1); j++)
        for (int i = max(x - 1, 0); i <= min(x + 1, n - 1); i++) { v += a[j * n + i]; c++; }
    o[y * n + x] = v / c;
}""", (4, 4), (8, 8))  # fmt: skip
def box_filter(r: Random) -> Made:
    a, o = r.values(30, 30), r.zeros(30, 30)
    sums = sum(np.pad(a, 1)[j : j + 30, i : i + 30] for j in range(3) for i in range(3))
    counts = sum(np.pad(np.ones_like(a), 1)[j : j + 30, i : i + 30] for j in range(3) for i in range(3))
    return (o, a, 30), [(o, sums / counts)]


@program(SAMPLES, r"""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void k(int* o, int* count, const int* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && a[i] > 0) {
        auto active = cg::coalesced_threads(); int first;
        if (active.thread_rank() == 0) first = atomicAdd(count, active.size());
        o[active.shfl(first, 0) + active.thread_rank()] = a[i];
    }
}""", 4, 128)  # fmt: skip
def filter_with_warp_aggregated_atomics(r: Random) -> Made:
    a, o, count = r.values(500, dtype="i4"), r.zeros(500, dtype="i4"), r.zeros(1, dtype="i4")
    kept = a[a > 0]
    return (o, count, a, 500), [(count, [len(kept)]), (Sorted(o[: len(kept)]), np.sort(kept))]


@program(SAMPLES, K + r"""(T* c, const T* a, const T* b, int n) {
    __shared__ T s[16][16], u[16][16]; int x = threadIdx.x, y = threadIdx.y;
    int column = blockIdx.x * 16 + x, row = blockIdx.y * 16 + y; T v = 0;
    for (int m = 0; m < n; m += 16) {
        s[y][x] = a[row * n + m + x]; u[y][x] = b[(m + y) * n + column]; __syncthreads();
        #pragma unroll
        for (int i = 0; i < 16; i++) v += s[y][i] * u[i][x];
        __syncthreads();
    }
    c[row * n + column] = v;
}""", (3, 3), (16, 16), "float", "double", "int")  # fmt: skip
def matrix_product_with_tiles(r: Random) -> Made:
    a, b, c = r.values(48, 48), r.values(48, 48), r.zeros(48, 48)
    return (c, a, b, 48), [(c, a @ b)]


@program(TEXTBOOK, K + r"""(T* o, const T* a, const T* b, int n) {
    T v = 0; for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += a[i] * b[i];
    for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(~0u, v, d);
    if (threadIdx.x % 32 == 0) atomicAdd(o, v);
}""", 3, 64, "float", "double", "int")  # fmt: skip
def dot_product_with_atomics(r: Random) -> Made:
    a, b, o = r.values(700), r.values(700), r.zeros(1)
    return (o, a, b, 700), [(o, [(a.astype("f8") * b).sum()])]


@program(SAMPLES, K + r"""(unsigned* hits, int turns) {
    unsigned s = (blockIdx.x * blockDim.x + threadIdx.x) * 2654435761u + 1, n = 0;
    for (int i = 0; i < turns; i++) {
        s ^= s << 13; s ^= s >> 17; s ^= s << 5; unsigned x = s >> 16; s ^= s << 13; s ^= s >> 17; s ^= s << 5;
        unsigned y = s >> 16; n += (unsigned long long)x * x + (unsigned long long)y * y < 4294836225ull;
    }
    n = __reduce_add_sync(~0u, n); if (threadIdx.x % 32 == 0) atomicAdd(hits, n);
}""", 2, 64)  # fmt: skip
def pi_by_monte_carlo(r: Random) -> Made:
    hits, state = r.zeros(1, dtype="u4"), np.arange(128, dtype="u4") * np.uint32(2654435761) + np.uint32(1)

    def drawn(s: np.ndarray) -> np.ndarray:
        s = s ^ s << np.uint32(13)
        s = s ^ s >> np.uint32(17)
        return s ^ s << np.uint32(5)

    count = 0
    for _ in range(50):
        state = drawn(state)
        x = state >> np.uint32(16)
        state = drawn(state)
        y = state >> np.uint32(16)
        count += int((x.astype("u8") ** 2 + y.astype("u8") ** 2 < 4294836225).sum())
    assert abs(4 * count / 6400 - pi) < 0.5
    return (hits, 50), [(hits, [count])]


@program(SAMPLES, K + r"""(float* call, const float* s, const float* x, const float* t, float r, float v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
    float q = v * sqrtf(t[i]), d1 = (logf(s[i] / x[i]) + (r + 0.5f * v * v) * t[i]) / q, d2 = d1 - q;
    call[i] = s[i] * normcdff(d1) - x[i] * expf(-r * t[i]) * normcdff(d2);
}""", 4, 64)  # fmt: skip
def option_prices(r: Random) -> Made:
    s, x, t = 20 + 5 * r.values(200), 18 + 5 * r.values(200), 2 + r.values(200)
    call, rate, volatility = r.zeros(200), np.float32(0.02), np.float32(0.3)
    q = volatility * np.sqrt(t.astype("f8"))
    d = (np.log(s / x.astype("f8")) + (rate + volatility**2 / 2) * t) / q

    def cdf(values: np.ndarray) -> np.ndarray:
        return np.array([0.5 * (1 + erf(value / sqrt(2))) for value in values])

    expected = s * cdf(d) - x * np.exp(-rate * t.astype("f8")) * cdf(d - q)
    return (call, s.astype("f4"), x.astype("f4"), t.astype("f4"), rate, volatility, 200), [(call, expected)]


@program(SAMPLES, K + r"""(float4* acc, const float4* p, int n) {
    __shared__ float4 s[64]; int i = blockIdx.x * 64 + threadIdx.x; float4 me = p[i]; float x = 0, y = 0, z = 0;
    for (int tile = 0; tile < n; tile += 64) {
        s[threadIdx.x] = p[tile + threadIdx.x]; __syncthreads();
        for (int j = 0; j < 64; j++) {
            float dx = s[j].x - me.x, dy = s[j].y - me.y, dz = s[j].z - me.z;
            float q = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f), f = s[j].w * q * q * q;
            x += f * dx; y += f * dy; z += f * dz;
        }
        __syncthreads();
    }
    acc[i] = make_float4(x, y, z, 0);
}""", 2, 64)  # fmt: skip
def gravity_between_all_pairs(r: Random) -> Made:
    p, acc = r.values(128, 4), r.zeros(128, 4)
    p[:, 3] = np.abs(p[:, 3])
    d = p[None, :, :3].astype("f8") - p[:, None, :3]
    f = p[None, :, 3] / ((d**2).sum(axis=2) + 0.01) ** 1.5
    return (acc, p, 128), [(acc[:, :3], (f[:, :, None] * d).sum(axis=1))]


@program(SAMPLES, K + r"""(int* o, int w, int h, int most) {
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y; if (x >= w || y >= h) return;
    double cx = -2 + 3.0 * x / w, cy = -1 + 2.0 * y / h, zx = 0, zy = 0; int i = 0;
    while (i < most && zx * zx + zy * zy < 4) { double t = zx * zx - zy * zy + cx; zy = 2 * zx * zy + cy; zx = t;
        i++; }
    o[y * w + x] = i;
}""", (3, 2), (16, 16))  # fmt: skip
def mandelbrot_set(r: Random) -> Made:
    o = r.zeros(32, 48, dtype="i4")
    c = (-2 + 3.0 * np.arange(48) / 48)[None, :] + 1j * (-1 + 2.0 * np.arange(32) / 32)[:, None]
    z, counts = np.zeros_like(c), np.zeros(c.shape, int)
    for _ in range(30):
        inside = z.real**2 + z.imag**2 < 4
        counts += inside
        z = np.where(inside, (z.real**2 - z.imag**2 + c.real) + 1j * (2 * z.real * z.imag + c.imag), z)
    return (o, 48, 32, 30), [(o, counts)]


@program(SAMPLES, K + r"""(unsigned char* o, const unsigned char* a, int n) {
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    if (x < 1 || y < 1 || x >= n - 1 || y >= n - 1) return;
    const unsigned char* p = a + y * n + x;
    int gx = p[1 - n] + 2 * p[1] + p[1 + n] - p[-1 - n] - 2 * p[-1] - p[n - 1];
    int gy = p[n - 1] + 2 * p[n] + p[n + 1] - p[-n - 1] - 2 * p[-n] - p[1 - n];
    o[y * n + x] = min(255, abs(gx) + abs(gy));
}""", (2, 2), (16, 16))  # fmt: skip
def sobel_filter_of_bytes(r: Random) -> Made:
    a, o = r.below(256, 30, 30, dtype="u1"), r.zeros(30, 30, dtype="u1")
    p = a.astype(int)
    gx = p[:-2, 2:] + 2 * p[1:-1, 2:] + p[2:, 2:] - p[:-2, :-2] - 2 * p[1:-1, :-2] - p[2:, :-2]
    gy = p[2:, :-2] + 2 * p[2:, 1:-1] + p[2:, 2:] - p[:-2, :-2] - 2 * p[:-2, 1:-1] - p[:-2, 2:]
    expected = np.zeros((30, 30), int)
    expected[1:-1, 1:-1] = np.minimum(255, abs(gx) + abs(gy))
    return (o, a, 30), [(o, expected)]


@program(SAMPLES, K + r"""(T* o, const T* a, int n) {
    int x = blockIdx.x * 8 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    bool in = x > 0 && y > 0 && x < n - 1 && y < n - 1; if (!in) return;
    T below = a[y * n + x], here = a[(n + y) * n + x], above;
    for (int z = 1; z < n - 1; z++) {
        above = a[((z + 1) * n + y) * n + x]; const T* p = a + (z * n + y) * n + x;
        o[(z * n + y) * n + x] = p[-1] + p[1] + p[-n] + p[n] + below + above - 6 * here;
        below = here; here = above;
    }
}""", (2, 2), (8, 8), "float", "double")  # fmt: skip
def stencil_of_seven_points(r: Random) -> Made:
    a, o = r.values(12, 12, 12), r.zeros(12, 12, 12)
    expected, m = np.zeros(a.shape), slice(1, -1)
    around = sum(a[m, m, part] + a[m, part, m] + a[part, m, m] for part in (slice(2, None), slice(None, -2)))
    expected[m, m, m] = around - 6 * a[m, m, m]
    return (o, a, 12), [(o, expected)]


@program(TEXTBOOK, K + r"""(T* o, const T* a, int n) {
    __shared__ T s[10][34]; int x = threadIdx.x + 1, y = threadIdx.y + 1;
    int gx = blockIdx.x * 32 + x - 1, gy = blockIdx.y * 8 + y - 1;
    auto at = [&](int j, int i) { return j >= 0 && i >= 0 && j < n && i < n ? a[j * n + i] : T(0); };
    s[y][x] = at(gy, gx);
    if (y == 1) { s[0][x] = at(gy - 1, gx); s[9][x] = at(gy + 8, gx); }
    if (x == 1) { s[y][0] = at(gy, gx - 1); s[y][33] = at(gy, gx + 32); }
    __syncthreads();
    if (gx < n && gy < n) o[gy * n + gx] = (s[y - 1][x] + s[y + 1][x] + s[y][x - 1] + s[y][x + 1]) / 4;
}""", (2, 5), (32, 8), "float", "double")  # fmt: skip
def jacobi_step_with_shared_memory(r: Random) -> Made:
    a, o = r.values(40, 40), r.zeros(40, 40)
    p = np.pad(a, 1)
    return (o, a, 40), [(o, (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]) / 4)]


@program(SAMPLES, K + r"""(float* o, const float* a) {
    __shared__ float s[8][8]; int u = threadIdx.x, v = threadIdx.y; const float* p = a + blockIdx.x * 64;
    s[v][u] = p[v * 8 + u]; __syncthreads();
    float sum = 0;
    for (int y = 0; y < 8; y++) for (int x = 0; x < 8; x++)
        sum += s[y][x] * cospif((2 * x + 1) * u / 16.0f) * cospif((2 * y + 1) * v / 16.0f);
    o[blockIdx.x * 64 + v * 8 + u] = 0.25f * (u ? 1 : rsqrtf(2)) * (v ? 1 : rsqrtf(2)) * sum;
}""", 3, (8, 8))  # fmt: skip
def cosine_transform_of_blocks(r: Random) -> Made:
    a, o = r.values(3, 8, 8), r.zeros(3, 8, 8)
    u, x = np.arange(8)[:, None], np.arange(8)[None]
    basis = np.cos((2 * x + 1) * u * pi / 16) * np.where(u == 0, np.sqrt(0.5), 1) / 2
    return (o, a), [(o, basis @ a @ basis.T)]


@program(SAMPLES, K + r"""(T* a) {
    __shared__ T s[256]; int t = threadIdx.x; s[t] = a[t]; s[t + 128] = a[t + 128];
    for (int d = 128; d > 0; d /= 2) {
        __syncthreads(); int i = (t / d) * 2 * d + t % d; T x = s[i], y = s[i + d]; s[i] = x + y; s[i + d] = x - y;
    }
    __syncthreads(); a[t] = s[t]; a[t + 128] = s[t + 128];
}""", 1, 128, "float", "int")  # fmt: skip
def walsh_transform(r: Random) -> Made:
    a = r.values(256)
    found, d = a.astype("f8"), 128
    while d:
        pairs = found.reshape(-1, 2, d)
        found, d = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).ravel(), d // 2
    return (a,), [(a, found)]


@program(SAMPLES, K + r"""(float* o, int base, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
    float v = 0, f = 1.0f / base; for (int m = i + 1; m > 0; m /= base, f /= base) v += f * (m % base); o[i] = v;
}""", 2, 64)  # fmt: skip
def halton_sequence(r: Random) -> Made:
    o, expected = r.zeros(100), []
    for m in range(1, 101):
        value, f = 0.0, 1 / 3
        while m:
            value, f, m = value + f * (m % 3), f / 3, m // 3
        expected.append(value)
    return (o, 3, 100), [(o, expected)]


@program(TEXTBOOK, K + r"""(int* o, const T* sorted, const T* wanted, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= m) return; int low = 0, high = n;
    while (low < high) { int mid = (low + high) >> 1; if (sorted[mid] < wanted[i]) low = mid + 1; else high = mid; }
    o[i] = low;
}""", 2, 64, "float", "int")  # fmt: skip
def binary_search(r: Random) -> Made:
    held, wanted, o = np.sort(r.values(90)), r.values(100), r.zeros(100, dtype="i4")
    return (o, held, wanted, 90, 100), [(o, np.searchsorted(held, wanted))]


@program(TEXTBOOK, K + r"""(unsigned* a) {
    __shared__ unsigned s[256]; __shared__ int sums[9]; int t = threadIdx.x, lane = t % 32, w = t / 32;
    unsigned v = a[t];
    for (int bit = 0; bit < 8; bit++) {
        unsigned zero = __ballot_sync(~0u, !(v >> bit & 1)); int before = __popc(zero & ((1u << lane) - 1));
        if (lane == 0) sums[w + 1] = __popc(zero);
        if (t == 0) sums[0] = 0;
        __syncthreads();
        if (t == 0) for (int i = 0; i < 8; i++) sums[i + 1] += sums[i];
        __syncthreads();
        int zeros = before + sums[w]; int at = v >> bit & 1 ? sums[8] + t - zeros : zeros;
        s[at] = v; __syncthreads(); v = s[t]; __syncthreads();
    }
    a[t] = v;
}""", 1, 256)  # fmt: skip
def radix_sort_by_splits(r: Random) -> Made:
    a = r.below(256, 256, dtype="u4")
    return (a,), [(a, np.sort(a))]


@program(TEXTBOOK, K + r"""(T* o, int* count, const T* a, int n) {
    __shared__ int s[128]; __shared__ int base; int t = threadIdx.x, i = blockIdx.x * 128 + t;
    int keep = i < n && a[i] > T(0); s[t] = keep; __syncthreads();
    for (int d = 1; d < 128; d *= 2) { int v = t >= d ? s[t - d] : 0; __syncthreads(); s[t] += v; __syncthreads(); }
    if (t == 127) base = atomicAdd(count, s[127]);
    __syncthreads(); if (keep) o[base + s[t] - 1] = a[i];
}""", 4, 128, "float", "int")  # fmt: skip
def stream_compaction(r: Random) -> Made:
    a, o, count = r.values(450), r.zeros(450), r.zeros(1, dtype="i4")
    kept = a[a > 0]
    return (o, count, a, 450), [(count, [len(kept)]), (Sorted(o[: len(kept)]), np.sort(kept))]


@program(TEXTBOOK, K + r"""(T* o, const T* a, const int* begins, int rows) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32; if (row >= rows) return;
    T v = 0; for (int i = begins[row] + lane; i < begins[row + 1]; i += 32) v += a[i];
    for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(~0u, v, d);
    if (lane == 0) o[row] = v;
}""", 3, 128, "float", "double", "int")  # fmt: skip
def sums_of_segments(r: Random) -> Made:
    begins = np.concatenate([[0], np.cumsum(r.below(60, 10))]).astype("i4")
    a, o = r.values(int(begins[-1])), r.zeros(10)
    return (o, a, begins, 10), [(o, [a[b:e].sum(dtype="f8") for b, e in pairwise(begins)])]


_SPARSE_PRODUCTS = {
    "a thread a row": "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"
    " T v = 0; for (int j = rows[i]; j < rows[i + 1]; j++) v += values[j] * x[columns[j]]; y[i] = v;",
    "a warp a row": r"""int i = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x & 31; T v = 0;
    if (i < n) for (int j = rows[i] + lane; j < rows[i + 1]; j += 32) v += values[j] * __ldg(x + columns[j]);
    #pragma unroll
    for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffff, v, d);
    if (i < n && lane == 0) y[i] = v;""",
}


@program(TEXTBOOK, K + "(T* y, const int* rows, const int* columns, const T* values, const T* x, int n) { WAY }",
         18, 128, "float", "double", ways=_SPARSE_PRODUCTS)  # fmt: skip
def sparse_product(r: Random) -> Made:
    rows = np.concatenate([[0], np.cumsum(r.below(9, 70))]).astype("i4")
    columns, values, x, y = r.below(50, int(rows[-1])), r.values(int(rows[-1])), r.values(50), r.zeros(70)
    expected = [(values[b:e].astype("f8") * x[columns[b:e]]).sum() for b, e in pairwise(rows)]
    return (y, rows, columns, values, x, 70), [(y, expected)]


@program(TEXTBOOK, K + r"""(float* y, const int* columns, const float* values, const float* x, int n, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; float v = 0;
    for (int j = 0; j < width; j++) { int c = columns[j * n + i]; if (c >= 0) v += values[j * n + i] * x[c]; }
    y[i] = v;
}""", 2, 64)  # fmt: skip
def sparse_product_by_padded_columns(r: Random) -> Made:
    columns, values, x, y = r.below(50, 6, 80) - 8, r.values(6, 80), r.values(50), r.zeros(80)
    taken = np.where(columns >= 0, x[np.maximum(columns, 0)], 0)
    return (y, columns, values, x, 80, 6), [(y, (values * taken).sum(axis=0))]


@program(TEXTBOOK, K + r"""(int* level, int* size, int* next, const int* frontier, const int* rows,
        const int* to, int n, int now) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; int node = frontier[i];
    for (int j = rows[node]; j < rows[node + 1]; j++)
        if (atomicCAS(&level[to[j]], -1, now) == -1) next[atomicAdd(size, 1)] = to[j];
}""", 1, 64)  # fmt: skip
def step_of_a_breadth_first_search(r: Random) -> Made:
    rows, to = (np.arange(101) * 4).astype("i4"), r.below(100, 400)
    level, size, following = np.full(100, -1, "i4"), r.zeros(1, dtype="i4"), r.zeros(100, dtype="i4")
    frontier = np.array([3, 50, 77], "i4")
    level[frontier] = 0
    expected = level.copy()
    found = {int(node) for one in frontier for node in to[4 * one : 4 * one + 4]} - {3, 50, 77}
    expected[list(found)] = 1
    return (level, size, following, frontier, rows, to, 3, 1), [(level, expected), (size, [len(found)])]


@program(TEXTBOOK, K + r"""(int* nearest, float* sums, int* counts, const float2* p, const float2* c, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; float2 q = p[i]; float best = 1e30f; int at = 0;
    for (int j = 0; j < m; j++) {
        float dx = q.x - c[j].x, dy = q.y - c[j].y, d = dx * dx + dy * dy; if (d < best) { best = d; at = j; }
    }
    nearest[i] = at; atomicAdd(&sums[2 * at], q.x); atomicAdd(&sums[2 * at + 1], q.y); atomicAdd(&counts[at], 1);
}""", 3, 64)  # fmt: skip
def assignment_of_k_means(r: Random) -> Made:
    p, c, nearest = r.values(150, 2), r.values(5, 2), r.zeros(150, dtype="i4")
    sums, counts = r.zeros(5, 2), r.zeros(5, dtype="i4")
    at = ((p[:, None] - c[None]) ** 2).sum(axis=2).argmin(axis=1)
    totals = [p[at == j].sum(axis=0, dtype="f8") for j in range(5)]
    return (nearest, sums, counts, p, c, 150, 5), [
        (nearest, at), (sums, totals), (counts, np.bincount(at, minlength=5))
    ]  # fmt: skip


@program(TEXTBOOK, K + r"""(unsigned char* o, const unsigned char* a, int n) {
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y; int c = 0;
    for (int j = -1; j < 2; j++) for (int i = -1; i < 2; i++)
        if (i || j) c += a[(y + j + n) % n * n + (x + i + n) % n];
    o[y * n + x] = c == 3 || (c == 2 && a[y * n + x]);
}""", (2, 2), (16, 16))  # fmt: skip
def game_of_life_on_a_torus(r: Random) -> Made:
    a, o = r.below(2, 32, 32, dtype="u1"), r.zeros(32, 32, dtype="u1")
    c = sum(np.roll(a, (j, i), (0, 1)) for j in (-1, 0, 1) for i in (-1, 0, 1)) - a
    return (o, a, 32), [(o, (c == 3) | ((c == 2) & (a == 1)))]


@program(TEXTBOOK, K + r"""(T* o, const T* a) {
    T v = a[threadIdx.x]; int lane = threadIdx.x & 31;
    for (int d = 1; d < 32; d *= 2) { T u = __shfl_up_sync(~0u, v, d); if (lane >= d && u > v) v = u; }
    o[threadIdx.x] = v;
}""", 1, 96, "float", "int")  # fmt: skip
def running_maximum_of_warps(r: Random) -> Made:
    a, o = r.values(96), r.zeros(96)
    return (o, a), [(o, np.maximum.accumulate(a.reshape(3, 32), axis=1).ravel())]


@program(TEXTBOOK, r"""
__device__ void atomic_max(float* at, float v) {
    int old = __float_as_int(*at), now; while (__int_as_float(old) < v) {
        now = atomicCAS((int*)at, old, __float_as_int(v)); if (now == old) break; old = now; }
}
extern "C" __global__ void k(float* o, const float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) atomic_max(o, a[i]); }""", 2, 64)  # fmt: skip
def maximum_of_floats_by_compare_and_swap(r: Random) -> Made:
    a, o = r.values(100), np.full(1, -np.inf, "f4")
    return (o, a, 100), [(o, [a.max()])]


@program(TEXTBOOK, K + r"""(T* a, int n) {
    extern __shared__ double raw[]; T* s = (T*)raw; int t = threadIdx.x;
    for (int i = 0; i < n; i++) s[i * n + t] = a[i * n + t];
    __syncthreads();
    for (int p = 0; p < n - 1; p++) {
        if (t > p) s[t * n + p] /= s[p * n + p];
        __syncthreads();
        if (t > p) for (int j = p + 1; j < n; j++) s[t * n + j] -= s[t * n + p] * s[p * n + j];
        __syncthreads();
    }
    for (int i = 0; i < n; i++) a[i * n + t] = s[i * n + t];
}""", 1, 16, "float", "double", shared_bytes=16 * 16 * 8)  # fmt: skip
def factors_of_a_matrix(r: Random) -> Made:
    a = (r.values(16, 16) + 8 * np.eye(16)).astype(r.dtype)
    lu = a.astype("f8")
    for p in range(15):
        lu[p + 1 :, p] /= lu[p, p]
        lu[p + 1 :, p + 1 :] -= np.outer(lu[p + 1 :, p], lu[p, p + 1 :])
    return (a, 16), [(a, lu)]


@program(SAMPLES, K + r"""(float2* a) {
    __shared__ float2 s[256]; int t = threadIdx.x;
    for (int i = t; i < 256; i += 128) s[__brev(i) >> 24] = a[i];
    for (int half = 1; half < 256; half *= 2) {
        __syncthreads(); int j = t % half, i = t / half * 2 * half + j; float sn, cs;
        sincospif(-(float)j / half, &sn, &cs);
        float2 x = s[i], y = s[i + half]; float re = y.x * cs - y.y * sn, im = y.x * sn + y.y * cs;
        s[i] = make_float2(x.x + re, x.y + im); s[i + half] = make_float2(x.x - re, x.y - im);
    }
    __syncthreads(); for (int i = t; i < 256; i += 128) a[i] = s[i];
}""", 1, 128)  # fmt: skip
def fourier_transform_in_shared_memory(r: Random) -> Made:
    a = r.values(256, 2)
    expected = np.fft.fft(a[:, 0].astype("f8") + 1j * a[:, 1])
    return (a,), [(a, np.stack([expected.real, expected.imag], axis=1))]


@program(TEXTBOOK, K + r"""(int* distance, const char* a, const char* b, int n) {
    __shared__ int d[3][65]; int t = threadIdx.x, now = 0, last = 1, before = 2;
    for (int wave = 0; wave <= 2 * n; wave++) {
        int i = t, j = wave - t;
        if (t <= n && j >= 0 && j <= n)
            d[now][t] = i == 0 ? j : j == 0 ? i
                : min(min(d[last][t - 1], d[last][t]) + 1, d[before][t - 1] + (a[i - 1] != b[j - 1]));
        __syncthreads(); int x = before; before = last; last = now; now = x;
    }
    if (t == n) *distance = d[last][n];
}""", 1, 65)  # fmt: skip
def edit_distance_by_diagonals(r: Random) -> Made:
    a, b, o = r.below(4, 60, dtype="i1"), r.below(4, 60, dtype="i1"), r.zeros(1, dtype="i4")
    row = list(range(61))
    for i, x in enumerate(a, 1):
        last, row[0] = row[:], i
        for j, y in enumerate(b, 1):
            row[j] = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + int(x != y))
    return (o, a, b, 60), [(o, [row[60]])]


@program(SAMPLES, K + r"""(unsigned char* o, const uchar4* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; uchar4 p = a[i];
    o[i] = (77 * p.x + 150 * p.y + 29 * p.z) >> 8;
}""", 2, 128)  # fmt: skip
def grey_of_colours(r: Random) -> Made:
    a, o = r.below(256, 200, 4, dtype="u1"), r.zeros(200, dtype="u1")
    return (o, a, 200), [(o, a[:, :3].astype(int) @ [77, 150, 29] >> 8)]


@program(SAMPLES, K + r"""(float* o, const float* a, int w, int n) {
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y; if (x >= n || y >= n) return;
    float sx = fminf(fmaxf((x + 0.5f) * w / n - 0.5f, 0), w - 1), sy = fminf(fmaxf((y + 0.5f) * w / n - 0.5f, 0),
        w - 1);
    int x0 = (int)sx, y0 = (int)sy, x1 = min(x0 + 1, w - 1), y1 = min(y0 + 1, w - 1); float fx = sx - x0, fy = sy - y0;
    float top = a[y0 * w + x0] * (1 - fx) + a[y0 * w + x1] * fx, low = a[y1 * w + x0] * (1 - fx) + a[y1 * w + x1] * fx;
    o[y * n + x] = top * (1 - fy) + low * fy;
}""", (3, 3), (16, 16))  # fmt: skip
def bilinear_resize(r: Random) -> Made:
    a, o = r.values(20, 20), r.zeros(40, 40)
    s = np.clip((np.arange(40) + 0.5) * 20 / 40 - 0.5, 0, 19)
    low, f = s.astype(int), s - s.astype(int)
    high = np.minimum(low + 1, 19)
    rows = a[low] * (1 - f)[:, None] + a[high] * f[:, None]
    return (o, a, 20, 40), [(o, rows[:, low] * (1 - f) + rows[:, high] * f)]


@program(SAMPLES, r"""
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
extern "C" __global__ void k(T* o, const T* a) {
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    T v = cg::reduce(tile, a[threadIdx.x], cg::plus<T>());
    if (tile.thread_rank() == 0) o[threadIdx.x / 8] = v;
}""", 1, 128, "int", "float")  # fmt: skip
def sums_of_tiles_of_eight(r: Random) -> Made:
    a, o = r.values(128), r.zeros(16)
    return (o, a), [(o, a.reshape(16, 8).sum(axis=1))]


@program(SAMPLES, K + r"""(float* o, const float* a, int n) {
    __shared__ __align__(16) float s[2][256]; int t = threadIdx.x, turns = n / 256; float v = 0;
    auto copy = [&](int turn) {
        unsigned to = (unsigned)__cvta_generic_to_shared(&s[turn & 1][4 * t]);
        if (t < 64) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(a + turn * 256 + 4 * t));
        asm volatile("cp.async.commit_group;");
    };
    copy(0);
    for (int turn = 0; turn < turns; turn++) {
        if (turn + 1 < turns) { copy(turn + 1); asm volatile("cp.async.wait_group 1;"); }
        else asm volatile("cp.async.wait_group 0;");
        __syncthreads(); v += s[turn & 1][t] + s[turn & 1][t + 128]; __syncthreads();
    }
    o[t] = v;
}""", 1, 128)  # fmt: skip
def copies_in_two_stages(r: Random) -> Made:
    a, o = r.values(1024), r.zeros(128)
    return (o, a, 1024), [(o, a.reshape(8, 128).sum(axis=0, dtype="f8"))]


@program(SAMPLES, K + r"""(float* o, const float* a, int n) {
    asm volatile("griddepcontrol.wait;" ::: "memory"); int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) o[i] = 2 * a[i]; asm volatile("griddepcontrol.launch_dependents;");
}""", 2, 128)  # fmt: skip
def launch_that_depends_on_another(r: Random) -> Made:
    a, o = r.values(200), r.zeros(200)
    return (o, a, 200), [(o, 2 * a)]


@program(TEXTBOOK, K + r"""(int* o, volatile int* sums, volatile int* ready, const int* a) {
    __shared__ int s[128]; __shared__ int before; int t = threadIdx.x, b = blockIdx.x; s[t] = a[b * 128 + t];
        __syncthreads();
    for (int d = 1; d < 128; d *= 2) { int v = t >= d ? s[t - d] : 0; __syncthreads(); s[t] += v; __syncthreads(); }
    if (t == 0) {
        before = 0;
        if (b > 0) { while (atomicAdd((int*)&ready[b - 1], 0) == 0) {} __threadfence(); before = sums[b - 1]; }
        sums[b] = before + s[127]; __threadfence(); atomicExch((int*)&ready[b], 1);
    }
    __syncthreads(); o[b * 128 + t] = before + s[t];
}""", 4, 128)  # fmt: skip
def scan_that_is_handed_from_block_to_block(r: Random) -> Made:
    a, o = r.values(512, dtype="i4"), r.zeros(512, dtype="i4")
    sums, ready = r.zeros(4, dtype="i4"), r.zeros(4, dtype="i4")
    return (o, sums, ready, a), [(o, a.cumsum())]


@program(TEXTBOOK, K + r"""(unsigned* table, int size, const unsigned* keys, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
        unsigned key = keys[i], at = key * 2654435769u % size;
    while (true) { unsigned old = atomicCAS(&table[at], 0xffffffffu, key); if (old == 0xffffffffu || old == key) break;
                   at = (at + 1) % size; }
}""", 2, 64)  # fmt: skip
def hash_table(r: Random) -> Made:
    keys, table = r.below(60, 100, dtype="u4"), np.full(128, 0xFFFFFFFF, "u4")
    different = np.unique(keys)
    expected = np.concatenate([different, np.full(128 - len(different), 0xFFFFFFFF)])
    return (table, 128, keys, 100), [(Sorted(table), expected)]


@program(SAMPLES, K + r"""(float* o, unsigned long long texture, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = tex1Dfetch<float>(texture, i);
}""", 1, 32, skips="tex")  # fmt: skip
def texture_fetch(r: Random) -> Made:
    o = r.zeros(32)
    return (o, np.uint64(0), 32), [(o, o)]


@program(SAMPLES, r"""
#include <cooperative_groups.h>
extern "C" __global__ void k(float* a, int n) {
    auto grid = cooperative_groups::this_grid(); int i = blockIdx.x * blockDim.x + threadIdx.x;
    a[i] *= 2; grid.sync(); if (i == 0) a[0] = a[n - 1];
}""", 2, 32)  # fmt: skip
def barrier_of_the_whole_grid(r: Random) -> Made:
    a = r.values(64)
    expected = 2 * a
    expected[0] = expected[-1]
    return (a, 64), [(a, expected)]


@program(SAMPLES, r"""
#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void k(float* c, const half* a, const half* b, int n, int m, int depth) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    int row = 16 * blockIdx.y, column = 16 * (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32);
    wmma::fill_fragment(sum, 0.0f);
    for (int i = 0; i < depth; i += 16) {
        wmma::load_matrix_sync(left, a + row * depth + i, depth);
        wmma::load_matrix_sync(right, b + i * m + column, m);
        wmma::mma_sync(sum, left, right, sum);
    }
    wmma::store_matrix_sync(c + row * m + column, sum, m, wmma::mem_row_major);
}""", (1, 2), 64)  # fmt: skip
def matrix_product_of_fragments(r: Random) -> Made:
    a, b, c = r.values(32, 48, dtype="f2"), r.values(48, 32, dtype="f2"), r.zeros(32, 32)
    return (c, a, b, 32, 32, 48), [(c, a.astype("f4") @ b.astype("f4"))]


@program(SAMPLES, K + r"""(float* o, const float* a, int rounds) {
    __shared__ float tiles[2][64]; int t = threadIdx.x % 64;
    for (int i = 0; i < rounds; i++) {
        int stage = i % 2;
        if (threadIdx.x < 64) {
            if (i > 1) asm volatile("bar.sync %0, 128;" :: "r"(stage + 3) : "memory");
            tiles[stage][t] = a[i * 64 + t];
            asm volatile("bar.arrive %0, 128;" :: "r"(stage + 1) : "memory");
        } else {
            asm volatile("bar.sync %0, 128;" :: "r"(stage + 1) : "memory");
            o[i * 64 + t] = tiles[stage][63 - t];
            if (i < rounds - 2) asm volatile("bar.arrive %0, 128;" :: "r"(stage + 3) : "memory");
        }
    }
}""", 1, 128)  # fmt: skip
def warps_that_load_and_warps_that_compute(r: Random) -> Made:
    a, o = r.values(5 * 64), r.zeros(5 * 64)
    return (o, a, 5), [(o, a.reshape(5, 64)[:, ::-1].ravel())]


@program(SAMPLES, r"""
#include <cuda/atomic>
extern "C" __global__ void k(float* o, float* sums, int* ready, const float* a) {
    __shared__ float s[32]; int t = threadIdx.x, b = blockIdx.x;
    s[t] = a[b * 32 + t]; __syncthreads();
    if (t == 0) for (int i = 1; i < 32; i++) s[i] += s[i - 1];
    __syncthreads();
    __shared__ float before;
    if (t == 0) {
        before = 0;
        if (b > 0) {
            cuda::atomic_ref<int, cuda::thread_scope_device> flag(ready[b - 1]);
            while (!flag.load(cuda::memory_order_acquire));
            before = sums[b - 1];
        }
        sums[b] = before + s[31];
        cuda::atomic_ref<int, cuda::thread_scope_device>(ready[b]).store(1, cuda::memory_order_release);
    }
    __syncthreads();
    o[b * 32 + t] = s[t] + before;
}""", 4, 32)  # fmt: skip
def scan_with_release_and_acquire(r: Random) -> Made:
    a = r.values(128)
    o, sums, ready = r.zeros(128), r.zeros(4), np.zeros(4, "i4")
    return (o, sums, ready, a), [(o, a.cumsum())]


@program(SAMPLES, r"""
#include <cooperative_groups.h>
extern "C" __global__ void __cluster_dims__(2) k(float* o, const float* a) {
    __shared__ float s[32]; auto cluster = cooperative_groups::this_cluster(); int t = threadIdx.x;
    s[t] = a[blockIdx.x * 32 + t]; cluster.sync();
    o[blockIdx.x * 32 + t] = cluster.map_shared_rank(s, 1 - cluster.block_rank())[t]; cluster.sync();
}""", 2, 32)  # fmt: skip
def shared_memory_of_a_cluster(r: Random) -> Made:
    a, o = r.values(64), r.zeros(64)
    return (o, a), [(o, a.reshape(2, 32)[::-1].ravel())]


@program(SAMPLES, K + r"""(float* o, const float* a) {
    __shared__ __align__(128) float s[256]; __shared__ unsigned long long barrier; int t = threadIdx.x;
    unsigned to = (unsigned)__cvta_generic_to_shared(s), b = (unsigned)__cvta_generic_to_shared(&barrier);
    if (t == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(b));
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 1024;" :: "r"(b));
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 1024, [%2];"
                     :: "r"(to), "l"(a), "r"(b));
    }
    __syncthreads(); unsigned done = 0;
    while (!done) asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                               : "=r"(done) : "r"(b));
    o[t] = s[t];
}""", 1, 256)  # fmt: skip
def bulk_copy_with_a_barrier_in_memory(r: Random) -> Made:
    a, o = r.values(256), r.zeros(256)
    return (o, a), [(o, a)]
