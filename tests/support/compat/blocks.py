"""Programs over CUB's primitives of blocks and warps."""

from __future__ import annotations

import numpy as np

from compat.registry import Made, Random, program

CUB = "CUB"
K = 'extern "C" __global__ void k'


def including(*headers: str) -> str:
    return "".join(f"#include <cub/{header}.cuh>\n" for header in headers)


def ways(*names: str) -> dict[str, str]:
    """Name CUB's algorithms as they are."""
    return {name.lower().replace("_", " "): name for name in names}


@program(CUB, including("block/block_reduce") + K + r"""(T* o, const T* a) {
    using R = cub::BlockReduce<T, 128, cub::BLOCK_REDUCE_WAY>; __shared__ typename R::TempStorage s;
    T v[2] = {a[2 * threadIdx.x], a[2 * threadIdx.x + 1]}; T sum = R(s).Sum(v); if (threadIdx.x == 0) *o = sum;
}""", 1, 128, "float", "int", ways=ways("RAKING", "RAKING_COMMUTATIVE_ONLY", "WARP_REDUCTIONS"))  # fmt: skip
def block_reduce(r: Random) -> Made:
    a, o = r.values(256), r.zeros(1)
    return (o, a), [(o, [a.sum(dtype="f8")])]


@program(CUB, including("block/block_reduce") + r"""
struct Larger { __device__ T operator()(T a, T b) const { return a > b ? a : b; } };
extern "C" __global__ void k(T* o, const T* a, int valid) {
    using R = cub::BlockReduce<T, 64>; __shared__ typename R::TempStorage s;
    T most = R(s).Reduce(threadIdx.x < valid ? a[threadIdx.x] : T(0), Larger(), valid);
        if (threadIdx.x == 0) *o = most;
}""", 1, 64, "float", "int")  # fmt: skip
def maximum_of_a_part_of_a_block(r: Random) -> Made:
    a, o = r.values(64), r.zeros(1)
    return (o, a, 50), [(o, [a[:50].max()])]


@program(CUB, including("block/block_scan") + K + r"""(T* o, T* total, const T* a) {
    using S = cub::BlockScan<T, 128, cub::BLOCK_SCAN_WAY>; __shared__ typename S::TempStorage s;
    T v[4], sum; for (int i = 0; i < 4; i++) v[i] = a[4 * threadIdx.x + i];
    S(s).ExclusiveSum(v, v, sum); for (int i = 0; i < 4; i++) o[4 * threadIdx.x + i] = v[i];
    if (threadIdx.x == 0) *total = sum;
}""", 1, 128, "float", "int", ways=ways("RAKING", "RAKING_MEMOIZE", "WARP_SCANS"))  # fmt: skip
def block_scan(r: Random) -> Made:
    a, o, total = r.values(512), r.zeros(512), r.zeros(1)
    sums = a.cumsum(dtype="f8")
    return (o, total, a), [(o, np.concatenate([[0], sums[:-1]])), (total, [sums[-1]])]


@program(CUB, including("block/block_load", "block/block_store") + K + r"""(T* o, T* a) {
    using L = cub::BlockLoad<T, 128, 4, cub::BLOCK_LOAD_WAY>;
    using S = cub::BlockStore<T, 128, 4, cub::BLOCK_STORE_WAY>;
    __shared__ union { typename L::TempStorage load; typename S::TempStorage store; } s; T v[4];
    L(s.load).Load(a, v); for (int i = 0; i < 4; i++) v[i] *= 2;
    __syncthreads(); S(s.store).Store(o, v);
}""", 1, 128, "float", "int", ways=ways("DIRECT", "VECTORIZE", "TRANSPOSE", "WARP_TRANSPOSE", "STRIPED"))  # fmt: skip
def block_load_and_store(r: Random) -> Made:
    a, o = r.values(512), r.zeros(512)
    return (o, a), [(o, a * a.dtype.type(2))]


@program(CUB, including("block/block_exchange") + K + r"""(T* o, const T* a) {
    using E = cub::BlockExchange<T, 64, 4>; __shared__ typename E::TempStorage s; T v[4];
    for (int i = 0; i < 4; i++) v[i] = a[i * 64 + threadIdx.x];
    E(s).StripedToBlocked(v, v); for (int i = 0; i < 4; i++) o[4 * threadIdx.x + i] = v[i];
}""", 1, 64, "float", "int")  # fmt: skip
def block_exchange(r: Random) -> Made:
    a, o = r.values(256), r.zeros(256)
    return (o, a), [(o, a)]


@program(CUB, including("block/block_radix_sort") + K + r"""(T* keys, int* values) {
    using S = cub::BlockRadixSort<T, 64, 4, int>; __shared__ typename S::TempStorage s; T key[4]; int value[4];
    for (int i = 0; i < 4; i++) { key[i] = keys[4 * threadIdx.x + i]; value[i] = values[4 * threadIdx.x + i]; }
    S(s).Sort(key, value);
    for (int i = 0; i < 4; i++) { keys[4 * threadIdx.x + i] = key[i]; values[4 * threadIdx.x + i] = value[i]; }
}""", 1, 64, "float", "int", "unsigned", "long long")  # fmt: skip
def block_radix_sort_of_pairs(r: Random) -> Made:
    keys, values = r.values(256), np.arange(256, dtype="i4")
    order = np.argsort(keys, kind="stable")
    return (keys, values), [(keys, keys[order]), (values, order)]


@program(CUB, including("block/block_merge_sort") + r"""
struct Less { __device__ bool operator()(T a, T b) const { return a < b; } };
extern "C" __global__ void k(T* a) {
    using S = cub::BlockMergeSort<T, 64, 4>; __shared__ typename S::TempStorage s; T v[4];
    for (int i = 0; i < 4; i++) v[i] = a[4 * threadIdx.x + i];
    S(s).Sort(v, Less()); for (int i = 0; i < 4; i++) a[4 * threadIdx.x + i] = v[i];
}""", 1, 64, "float", "int")  # fmt: skip
def block_merge_sort(r: Random) -> Made:
    a = r.values(256)
    return (a,), [(a, np.sort(a))]


@program(CUB, including("block/block_histogram") + K + r"""(unsigned* o, const unsigned char* a) {
    using H = cub::BlockHistogram<unsigned char, 64, 4, 16, cub::BLOCK_HISTO_WAY>;
    __shared__ typename H::TempStorage s; __shared__ unsigned bins[16]; unsigned char v[4];
    for (int i = 0; i < 4; i++) v[i] = a[4 * threadIdx.x + i];
    H(s).Histogram(v, bins); __syncthreads(); if (threadIdx.x < 16) o[threadIdx.x] = bins[threadIdx.x];
}""", 1, 64, ways=ways("SORT", "ATOMIC"))  # fmt: skip
def block_histogram(r: Random) -> Made:
    a, o = r.below(16, 256, dtype="u1"), r.zeros(16, dtype="u4")
    return (o, a), [(o, np.bincount(a, minlength=16))]


@program(CUB, including("block/block_discontinuity") + r"""
struct Differ { __device__ bool operator()(T a, T b) const { return a != b; } };
extern "C" __global__ void k(int* o, const T* a) {
    using D = cub::BlockDiscontinuity<T, 64>; __shared__ typename D::TempStorage s; T v[4]; int head[4];
    for (int i = 0; i < 4; i++) v[i] = a[4 * threadIdx.x + i];
    D(s).FlagHeads(head, v, Differ()); for (int i = 0; i < 4; i++) o[4 * threadIdx.x + i] = head[i];
}""", 1, 64, "int", "float")  # fmt: skip
def block_discontinuity(r: Random) -> Made:
    a, o = np.sort(r.below(40, 256)).astype(r.dtype), r.zeros(256, dtype="i4")
    return (o, a), [(o, np.concatenate([[1], a[1:] != a[:-1]]))]


@program(CUB, including("block/block_adjacent_difference") + r"""
struct Minus { __device__ T operator()(T a, T b) const { return a - b; } };
extern "C" __global__ void k(T* o, const T* a) {
    using D = cub::BlockAdjacentDifference<T, 64>; __shared__ typename D::TempStorage s; T v[2];
    for (int i = 0; i < 2; i++) v[i] = a[2 * threadIdx.x + i];
    D(s).SubtractLeft(v, v, Minus()); for (int i = 0; i < 2; i++) o[2 * threadIdx.x + i] = v[i];
}""", 1, 64, "int", "float")  # fmt: skip
def block_adjacent_difference(r: Random) -> Made:
    a, o = r.values(128), r.zeros(128)
    return (o, a), [(o, np.concatenate([a[:1], np.diff(a)]))]


@program(CUB, including("block/block_shuffle") + K + r"""(T* o, const T* a) {
    using S = cub::BlockShuffle<T, 96>; __shared__ typename S::TempStorage s; T v = a[threadIdx.x], u = v;
    S(s).Offset(v, u, 5); o[threadIdx.x] = threadIdx.x < 91 ? u : T(0);
}""", 1, 96, "int", "float")  # fmt: skip
def block_shuffle(r: Random) -> Made:
    a, o = r.values(96), r.zeros(96)
    return (o, a), [(o, np.concatenate([a[5:], np.zeros(5)]))]


@program(CUB, including("warp/warp_reduce") + K + r"""(T* o, const T* a) {
    using R = cub::WarpReduce<T, 16>; __shared__ typename R::TempStorage s[8];
    T sum = R(s[threadIdx.x / 16]).Sum(a[threadIdx.x]); if (threadIdx.x % 16 == 0) o[threadIdx.x / 16] = sum;
}""", 1, 128, "float", "int", "double")  # fmt: skip
def reduction_of_half_warps(r: Random) -> Made:
    a, o = r.values(128), r.zeros(8)
    return (o, a), [(o, a.reshape(8, 16).sum(axis=1, dtype="f8"))]


@program(CUB, including("warp/warp_scan") + K + r"""(T* o, const T* a) {
    using S = cub::WarpScan<T>; __shared__ typename S::TempStorage s[4]; T v;
    S(s[threadIdx.x / 32]).InclusiveSum(a[threadIdx.x], v); o[threadIdx.x] = v;
}""", 1, 128, "float", "int", "long long")  # fmt: skip
def scan_of_warps(r: Random) -> Made:
    a, o = r.values(128), r.zeros(128)
    return (o, a), [(o, a.reshape(4, 32).cumsum(axis=1, dtype="f8" if r.dtype == "f4" else r.dtype).ravel())]


@program(CUB, including("warp/warp_merge_sort") + r"""
struct Less { __device__ bool operator()(T a, T b) const { return a < b; } };
extern "C" __global__ void k(T* a) {
    using S = cub::WarpMergeSort<T, 4>; __shared__ typename S::TempStorage s[2]; T v[4]; int t = threadIdx.x;
    for (int i = 0; i < 4; i++) v[i] = a[4 * t + i];
    S(s[t / 32]).Sort(v, Less()); for (int i = 0; i < 4; i++) a[4 * t + i] = v[i];
}""", 1, 64, "float", "int")  # fmt: skip
def warp_merge_sort(r: Random) -> Made:
    a = r.values(256)
    return (a,), [(a, np.sort(a.reshape(2, 128), axis=1).ravel())]
