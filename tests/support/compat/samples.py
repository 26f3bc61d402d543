"""Programs in the shape of CUDA's samples and of textbooks."""

from __future__ import annotations

from itertools import pairwise

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


@program(TEXTBOOK, K + r"""(int* o, const T* sorted, const T* wanted, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= m) return; int low = 0, high = n;
    while (low < high) { int mid = (low + high) >> 1; if (sorted[mid] < wanted[i]) low = mid + 1; else high = mid; }
    o[i] = low;
}""", 2, 64, "float", "int")  # fmt: skip
def binary_search(r: Random) -> Made:
    held, wanted, o = np.sort(r.values(90)), r.values(100), r.zeros(100, dtype="i4")
    return (o, held, wanted, 90, 100), [(o, np.searchsorted(held, wanted))]


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


@program(TEXTBOOK, K + r"""(T* o, const T* a) {
    T v = a[threadIdx.x]; int lane = threadIdx.x & 31;
    for (int d = 1; d < 32; d *= 2) { T u = __shfl_up_sync(~0u, v, d); if (lane >= d && u > v) v = u; }
    o[threadIdx.x] = v;
}""", 1, 96, "float", "int")  # fmt: skip
def running_maximum_of_warps(r: Random) -> Made:
    a, o = r.values(96), r.zeros(96)
    return (o, a), [(o, np.maximum.accumulate(a.reshape(3, 32), axis=1).ravel())]


@program(SAMPLES, K + r"""(unsigned char* o, const uchar4* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; uchar4 p = a[i];
    o[i] = (77 * p.x + 150 * p.y + 29 * p.z) >> 8;
}""", 2, 128)  # fmt: skip
def grey_of_colours(r: Random) -> Made:
    a, o = r.below(256, 200, 4, dtype="u1"), r.zeros(200, dtype="u1")
    return (o, a, 200), [(o, a[:, :3].astype(int) @ [77, 150, 29] >> 8)]


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


@program(SAMPLES, r"""
#include <cuda/atomic>
extern "C" __global__ void k(int* o, int* ready, const int* a) {
    using flag = cuda::atomic_ref<int, cuda::thread_scope_device>; int b = blockIdx.x; if (threadIdx.x) return;
    if (b > 0) while (!flag(ready[b - 1]).load(cuda::memory_order_acquire));
    o[b] = a[b] + (b > 0 ? o[b - 1] : 0); flag(ready[b]).store(1, cuda::memory_order_release);
}""", 8, 32)  # fmt: skip
def scan_with_release_and_acquire(r: Random) -> Made:
    a, o, ready = r.values(8, dtype="i4"), r.zeros(8, dtype="i4"), r.zeros(8, dtype="i4")
    return (o, ready, a), [(o, a.cumsum())]
