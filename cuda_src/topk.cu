// The k largest elements of each row, the largest first, with their columns: what sampling needs of a vocabulary.
//
//   kernel   result                                         bytes moved                 FLOP
//   topk     values (rows, k) and columns (rows, k) of it   n*s + rows*k*(s + 4)        n       (n = rows*cols)
//
// What bounds it: memory, if what is too small costs next to nothing: of 4000 random numbers, a warp's share of 32000,
// some 60 ever enter a list of eight. Versions:
//   plain (topk_f32, _f16)       reads the row k times, 4 or 2 bytes a lane, for the largest that comes after the last.
//   wide (_f32x4, _f16x8, _bf16x8)   copy this one: reads it once, 16 bytes a lane, four times before the first use. A
//                                warp has one list and asks by one vote whether any lane holds what belongs there.
// A row has one block: a single long row leaves the other multiprocessors idle.
//
// k is at most 32; a larger k gives NaN and column -1. Of equal elements the first counts as larger. A NaN is never
// taken. Where the row has too few others, the rest is -infinity of column -1. Rows have less than 2^31 columns. Any
// one-dimensional grid, blocks of whole warps, any sizes, 0 included.
//
// Reference: Johnson et al., Billion-scale similarity search with GPUs (WarpSelect), https://arxiv.org/abs/1702.08734.

#if defined(__HIPCC_RTC__) || defined(__HIP_PLATFORM_AMD__)
#ifndef __HIPCC_RTC__  // which has both kinds of halves built in
#include <hip/hip_bfloat16.h>
#include <hip/hip_fp16.h>
#endif
typedef hip_bfloat16 __nv_bfloat16;
#define SHUFFLE_XOR(value, lanes) __shfl_xor(value, lanes, 32)
#define SHUFFLE(value, lane) __shfl(value, lane, 32)
#define VOTES(yes) static_cast<unsigned int>(__ballot(yes) >> (warpSize == 64 ? threadIdx.x & 32 : 0))
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define SHUFFLE_XOR(value, lanes) __shfl_xor_sync(0xffffffffu, value, lanes)
#define SHUFFLE(value, lane) __shfl_sync(0xffffffffu, value, lane)
#define VOTES(yes) __ballot_sync(0xffffffffu, yes)
#endif

static constexpr int LANES = 32;
static constexpr int PACKS = 4;  // of 16 bytes, that a thread loads before it looks at the first
static constexpr int NONE = 0x7fffffff;

struct Found {
    float value;
    int column;
};
__device__ __forceinline__ Found nothing() { return {__int_as_float(0xff800000), NONE}; }
__device__ __forceinline__ bool before(Found a, Found b) {  // false if a is NaN
    return a.value > b.value || (a.value == b.value && a.column < b.column);
}
__device__ __forceinline__ Found of_lane(Found mine, int lane) {
    return {SHUFFLE(mine.value, lane), SHUFFLE(mine.column, lane)};
}

template <typename T>
__device__ __forceinline__ void store(T* values, int* columns, long long at, Found found) {
    values[at] = static_cast<T>(found.value);
    columns[at] = found.column == NONE ? -1 : found.column;
}

template <typename T>
__device__ __forceinline__ bool refused(T* values, int* columns, long long rows, long long k) {
    if (k <= LANES) return false;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < rows * k;
         i += gridDim.x * (long long)blockDim.x)
        store(values, columns, i, Found{__int_as_float(0x7fffffff), NONE});
    return true;
}

template <typename T>
__device__ __forceinline__ void topk_plain(T* values, int* columns, const T* in, long long rows, long long cols,
                                           long long k) {
    __shared__ Found of_warp[LANES];
    if (refused(values, columns, rows, k)) return;
    const int lane = threadIdx.x % LANES, warps = blockDim.x / LANES;
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        Found last = {__int_as_float(0x7f800000), -1};
        for (int place = 0; place < k; ++place) {
            Found best = nothing();
            for (long long c = threadIdx.x; c < cols; c += blockDim.x) {
                const Found one = {static_cast<float>(in[row * cols + c]), static_cast<int>(c)};
                if (before(last, one) && before(one, best)) best = one;
            }
            for (int apart = LANES / 2; apart > 0; apart /= 2) {
                const Found other = {SHUFFLE_XOR(best.value, apart), SHUFFLE_XOR(best.column, apart)};
                if (before(other, best)) best = other;
            }
            if (lane == 0) of_warp[threadIdx.x / LANES] = best;
            __syncthreads();
            for (int warp = 0; warp < warps; ++warp)
                if (before(of_warp[warp], best)) best = of_warp[warp];
            __syncthreads();  // before the next place's overwrite these
            if (threadIdx.x == 0) store(values, columns, row * k + place, best);
            last = best;
        }
    }
}

// A warp's list: the largest in lane 0, the next in lane 1, and so on.
struct List {
    Found entry, last;  // last: the k-th, which a new one has to come before
    __device__ void offer(Found mine, int k) {
        const int lane = threadIdx.x % LANES;
        unsigned int asking = VOTES(before(mine, last));
        for (; asking != 0; asking &= asking - 1) {
            const Found one = of_lane(mine, __ffs(asking) - 1), above = of_lane(entry, lane > 0 ? lane - 1 : 0);
            // Trick: all entries behind the new one move up a lane at once; what falls off the end is too small.
            if (before(one, entry)) entry = lane > 0 && before(one, above) ? above : one;
        }
        last = of_lane(entry, k - 1);
    }
};

template <typename T>
struct __align__(16) Pack {
    static constexpr int WIDTH = 16 / sizeof(T);
    T lane[WIDTH];
};

template <typename T>
__device__ __forceinline__ void topk_wide(T* values, int* columns, const T* in, long long rows, long long cols,
                                          long long k) {
    constexpr int WIDTH = Pack<T>::WIDTH;
    __shared__ Found of_warp[LANES][LANES];
    if (refused(values, columns, rows, k) || k == 0) return;
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, warps = blockDim.x / LANES;
    const bool is_aligned = (reinterpret_cast<unsigned long long>(in) | cols * sizeof(T)) % 16 == 0;
    const int whole = is_aligned ? cols / WIDTH : 0, rest = static_cast<int>(cols), threads = blockDim.x;
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        List list = {nothing(), nothing()};
        const T* x = in + row * cols;
        // Whole warps stay in the loops, whose votes need every lane.
#pragma unroll 1
        for (int first = warp * LANES; first < whole; first += PACKS * threads) {
            Pack<T> packs[PACKS];
#pragma unroll
            for (int p = 0; p < PACKS; ++p)
                if (first + lane + p * threads < whole)
                    reinterpret_cast<uint4&>(packs[p]) = reinterpret_cast<const uint4*>(x)[first + lane + p * threads];
#pragma unroll
            for (int p = 0; p < PACKS; ++p) {
                const int at = first + lane + p * threads;
                float most = nothing().value;
#pragma unroll
                for (int j = 0; j < WIDTH; ++j) most = fmaxf(most, static_cast<float>(packs[p].lane[j]));
                // Trick: one vote for 128 or 256 elements, and nearly always no.
                if (VOTES(at < whole && most >= list.last.value) == 0) continue;
#pragma unroll
                for (int j = 0; j < WIDTH; ++j)
                    list.offer(at < whole ? Found{static_cast<float>(packs[p].lane[j]), at * WIDTH + j} : nothing(),
                               static_cast<int>(k));
            }
        }
#pragma unroll 1
        for (int first = warp * LANES; !is_aligned && first < rest; first += threads) {
            const int at = first + lane;
            list.offer(at < rest ? Found{static_cast<float>(x[at]), at} : nothing(), static_cast<int>(k));
        }
        of_warp[warp][lane] = list.entry;
        __syncthreads();
        if (warp == 0) {
            for (int other = 1; other < warps; ++other) list.offer(of_warp[other][lane], static_cast<int>(k));
            if (lane < k) store(values, columns, row * k + lane, list.entry);
        }
        __syncthreads();  // before the next row's overwrite these
    }
}

extern "C" __global__ void topk_f32(float* __restrict__ values, int* __restrict__ columns,
                                    const float* __restrict__ in, long long rows, long long cols, long long k) {
    topk_plain(values, columns, in, rows, cols, k);
}
extern "C" __global__ void topk_f16(__half* __restrict__ values, int* __restrict__ columns,
                                    const __half* __restrict__ in, long long rows, long long cols, long long k) {
    topk_plain(values, columns, in, rows, cols, k);
}
extern "C" __global__ void topk_f32x4(float* __restrict__ values, int* __restrict__ columns,
                                      const float* __restrict__ in, long long rows, long long cols, long long k) {
    topk_wide(values, columns, in, rows, cols, k);
}
extern "C" __global__ void topk_f16x8(__half* __restrict__ values, int* __restrict__ columns,
                                      const __half* __restrict__ in, long long rows, long long cols, long long k) {
    topk_wide(values, columns, in, rows, cols, k);
}
extern "C" __global__ void topk_bf16x8(__nv_bfloat16* __restrict__ values, int* __restrict__ columns,
                                       const __nv_bfloat16* __restrict__ in, long long rows, long long cols,
                                       long long k) {
    topk_wide(values, columns, in, rows, cols, k);
}
