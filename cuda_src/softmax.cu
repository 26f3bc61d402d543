// Softmax of each row: out = exp(x - max) / sum of exp(x - max), for a rows x cols matrix.
//
//   bytes read rows*cols*s, bytes written rows*cols*s, ~5 FLOP an element (max, subtract, exp, add, multiply)
//
// Versions, which move the same bytes and ask for different ones, as a row's later reads are met by a cache or not:
//
//   kernel             loads of each element   how
//   softmax_naive      3                       maximum, then sum, then result: one pass each
//   softmax_online     2                       maximum and sum in one pass: where the maximum grows, the sum shrinks
//   softmax_staged     1                       as online, and the row waits in shared memory for the last pass; columns
//                                              past the first 8192 are read again
//   softmax_registers  1                       the row waits in registers, 64 bytes a thread; rows that do not fit,
//                                              or not in accesses of 16 bytes, go the way of online
//
// What bounds it: the memory, if enough is asked for before a thread waits. The first three do not. They load one
// element a round, wait for it, and branch on it before the next; 32 KiB of shared memory leave room for few blocks.
// softmax_registers, the one to copy, asks for 64 bytes a thread at once, and takes each exponential once.
//
// One block walks one row at a time. Blocks of whole warps (32, 64 ... 1024 threads), any one-dimensional grid, any
// shape, empty ones included. Halves: float arithmetic, one rounding at the end. As in other implementations, a row
// that is -inf throughout, or holds +inf or NaN, gives NaN.
//
// Reference: Milakov and Gimelshein, Online normalizer calculation for softmax, https://arxiv.org/abs/1805.02867.

#if defined(__HIPCC_RTC__) || defined(__HIP_PLATFORM_AMD__)
#ifndef __HIPCC_RTC__  // which has both kinds of halves built in
#include <hip/hip_bfloat16.h>
#include <hip/hip_fp16.h>
#endif
typedef hip_bfloat16 __nv_bfloat16;
#define SHUFFLE_XOR(value, lanes) __shfl_xor(value, lanes, 32)
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define SHUFFLE_XOR(value, lanes) __shfl_xor_sync(0xffffffffu, value, lanes)
#endif

// The lowest float rather than -inf: -inf - (-inf) would be NaN for threads that meet no element.
static constexpr float LOWEST = -3.402823466e+38f;
static constexpr int STAGED_COLS = 8192;  // 32 KiB of shared memory, so that several blocks fit a multiprocessor

// Running maximum and the sum of exp(x - max) up to here.
struct Running {
    float max, sum;
};

__device__ __forceinline__ Running including(Running before, float x) {
    if (x > before.max) return {x, before.sum * expf(before.max - x) + 1.0f};
    return {before.max, before.sum + expf(x - before.max)};
}

// After these, every thread of the block has the result. The last barrier lets `of_warp` be used again at once.
__device__ __forceinline__ float block_max(float value) {
    __shared__ float of_warp[32];
    for (int lanes = 16; lanes > 0; lanes /= 2) value = fmaxf(value, SHUFFLE_XOR(value, lanes));
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    value = of_warp[0];
    for (int warp = 1; warp < blockDim.x / 32; ++warp) value = fmaxf(value, of_warp[warp]);
    __syncthreads();
    return value;
}

__device__ __forceinline__ float block_sum(float value) {
    __shared__ float of_warp[32];
    for (int lanes = 16; lanes > 0; lanes /= 2) value += SHUFFLE_XOR(value, lanes);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    value = of_warp[0];
    for (int warp = 1; warp < blockDim.x / 32; ++warp) value += of_warp[warp];
    __syncthreads();
    return value;
}

__device__ __forceinline__ Running over_block(Running mine) {
    float max = block_max(mine.max);
    return {max, block_sum(mine.sum * expf(mine.max - max))};
}

template <typename T>
__device__ __forceinline__ void softmax_naive(T* out, const T* in, long long rows, long long cols) {
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        const T* x = in + row * cols;
        float max = LOWEST;
        for (long long c = threadIdx.x; c < cols; c += blockDim.x) max = fmaxf(max, static_cast<float>(x[c]));
        max = block_max(max);
        float sum = 0.0f;
        for (long long c = threadIdx.x; c < cols; c += blockDim.x) sum += expf(static_cast<float>(x[c]) - max);
        float scale = 1.0f / block_sum(sum);
        for (long long c = threadIdx.x; c < cols; c += blockDim.x)
            out[row * cols + c] = static_cast<T>(expf(static_cast<float>(x[c]) - max) * scale);
    }
}

template <typename T>
__device__ __forceinline__ void softmax_online(T* out, const T* in, long long rows, long long cols) {
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        const T* x = in + row * cols;
        Running mine = {LOWEST, 0.0f};
        for (long long c = threadIdx.x; c < cols; c += blockDim.x) mine = including(mine, static_cast<float>(x[c]));
        Running all = over_block(mine);
        float scale = 1.0f / all.sum;
        for (long long c = threadIdx.x; c < cols; c += blockDim.x)
            out[row * cols + c] = static_cast<T>(expf(static_cast<float>(x[c]) - all.max) * scale);
    }
}

template <typename T>
__device__ __forceinline__ void softmax_staged(T* out, const T* in, long long rows, long long cols) {
    // A thread reads back only what it stored itself, so the stage needs no barrier.
    __shared__ float staged[STAGED_COLS];
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        const T* x = in + row * cols;
        Running mine = {LOWEST, 0.0f};
        for (long long c = threadIdx.x; c < cols; c += blockDim.x) {
            float value = static_cast<float>(x[c]);
            if (c < STAGED_COLS) staged[c] = value;
            mine = including(mine, value);
        }
        Running all = over_block(mine);
        float scale = 1.0f / all.sum;
        for (long long c = threadIdx.x; c < cols; c += blockDim.x) {
            float value = c < STAGED_COLS ? staged[c] : static_cast<float>(x[c]);
            out[row * cols + c] = static_cast<T>(expf(value - all.max) * scale);
        }
    }
}

extern "C" __global__ void softmax_naive_f32(float* __restrict__ out, const float* __restrict__ in, long long rows,
                                             long long cols) {
    softmax_naive(out, in, rows, cols);
}
extern "C" __global__ void softmax_naive_f16(__half* __restrict__ out, const __half* __restrict__ in, long long rows,
                                             long long cols) {
    softmax_naive(out, in, rows, cols);
}
extern "C" __global__ void softmax_online_f32(float* __restrict__ out, const float* __restrict__ in, long long rows,
                                              long long cols) {
    softmax_online(out, in, rows, cols);
}
extern "C" __global__ void softmax_online_f16(__half* __restrict__ out, const __half* __restrict__ in, long long rows,
                                              long long cols) {
    softmax_online(out, in, rows, cols);
}
extern "C" __global__ void softmax_staged_f32(float* __restrict__ out, const float* __restrict__ in, long long rows,
                                              long long cols) {
    softmax_staged(out, in, rows, cols);
}
extern "C" __global__ void softmax_staged_f16(__half* __restrict__ out, const __half* __restrict__ in, long long rows,
                                              long long cols) {
    softmax_staged(out, in, rows, cols);
}

// ---- the row in registers: copy these -------------------------------------------------------------------------------

// 16 bytes that are loaded and stored with one instruction each: float4, or eight halves.
template <typename T>
struct __align__(16) Pack {
    static constexpr int WIDTH = 16 / sizeof(T);
    T lane[WIDTH];
};

// Trick 1: a row that a warp can hold, PACKS a thread, has one, which needs no barrier. A longer one has the block.
struct Share {
    int lane, lanes;         // this thread among those of its row
    long long row, at_once;  // the first row of this thread, and how many the grid has at a time
};
template <int PACKS>
__device__ __forceinline__ Share share_of(long long row_bytes) {
    if (row_bytes > 32 * 16 * PACKS) return {(int)threadIdx.x, (int)blockDim.x, blockIdx.x, gridDim.x};
    const long long warps = blockDim.x / 32;
    return {(int)threadIdx.x % 32, 32, blockIdx.x * warps + threadIdx.x / 32, gridDim.x * warps};
}

// Whether the threads of a row can hold it. They cannot where an array, or its second row, does not begin on a 16-byte
// boundary.
template <int PACKS>
__device__ __forceinline__ bool fits(long long row_bytes, int lanes, const void* a, const void* b = nullptr) {
    const unsigned long long bits = (unsigned long long)a | (unsigned long long)b | row_bytes;
    return bits % 16 == 0 && row_bytes <= lanes * 16 * PACKS;
}

// Trick 2: a loop of nothing but loads, so that all are under way before the first value is waited for. It loads
// words: the compiler takes halves apart where they are loaded, and so waits for each load.
template <typename T, int PACKS>
__device__ __forceinline__ void load_row(Pack<T> (&packs)[PACKS], const T* x, int count, const Share& my) {
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        const int i = my.lane + k * my.lanes;
        if (i < count) reinterpret_cast<uint4&>(packs[k]) = reinterpret_cast<const uint4*>(x)[i];
    }
}

// Trick 3: threads of a row join their values by shuffles and, between warps, with one barrier. One is enough where the
// next reduction has words of its own: behind its barrier all have read these.
template <typename Join>
__device__ __forceinline__ float over_row(float value, int lanes, float* of_warp, Join join) {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) value = join(value, SHUFFLE_XOR(value, apart));
    if (lanes == 32) return value;
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    value = of_warp[0];
#pragma unroll 1
    for (int warp = 1; warp < lanes / 32; ++warp) value = join(value, of_warp[warp]);
    return value;
}

template <typename T>
__device__ __forceinline__ void softmax_registers(T* out, const T* in, long long rows, long long cols) {
    constexpr int PACKS = 4, WIDTH = Pack<T>::WIDTH;
    const Share my = share_of<PACKS>(cols * sizeof(T));
    if (!fits<PACKS>(cols * sizeof(T), my.lanes, out, in)) return softmax_online(out, in, rows, cols);
    __shared__ float maxima[32], sums[32];
    const float minus_infinity = __int_as_float(0xff800000);
    const int count = cols / WIDTH;
#pragma unroll 1
    for (long long row = my.row; row < rows; row += my.at_once) {
        Pack<T> packs[PACKS];
        load_row(packs, in + row * cols, count, my);
        float value[PACKS][WIDTH], max = LOWEST, sum = 0.0f;
#pragma unroll
        for (int k = 0; k < PACKS; ++k)
#pragma unroll
            for (int j = 0; j < WIDTH; ++j) {
                value[k][j] = my.lane + k * my.lanes < count ? static_cast<float>(packs[k].lane[j]) : minus_infinity;
                max = fmaxf(max, value[k][j]);
            }
        // Trick 4: exponentials against the thread's own maximum need not wait for the row's; one factor is left. They
        // are the hardware's exp2 of a product with log2(e), and nothing branches.
#pragma unroll
        for (int k = 0; k < PACKS; ++k)
#pragma unroll
            for (int j = 0; j < WIDTH; ++j) sum += value[k][j] = __expf(value[k][j] - max);
        const float row_max = over_row(max, my.lanes, maxima, [](float a, float b) { return fmaxf(a, b); });
        sum *= __expf(max - row_max);
        const float row_sum = over_row(sum, my.lanes, sums, [](float a, float b) { return a + b; });
        const float factor = __expf(max - row_max) / row_sum;
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
#pragma unroll
            for (int j = 0; j < WIDTH; ++j) packs[k].lane[j] = static_cast<T>(value[k][j] * factor);
            if (my.lane + k * my.lanes < count)
                reinterpret_cast<Pack<T>*>(out + row * cols)[my.lane + k * my.lanes] = packs[k];
        }
    }
}

extern "C" __global__ void softmax_registers_f32(float* __restrict__ out, const float* __restrict__ in, long long rows,
                                                 long long cols) {
    softmax_registers(out, in, rows, cols);
}
extern "C" __global__ void softmax_registers_f16(__half* __restrict__ out, const __half* __restrict__ in,
                                                 long long rows, long long cols) {
    softmax_registers(out, in, rows, cols);
}
extern "C" __global__ void softmax_registers_bf16(__nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ in,
                                                  long long rows, long long cols) {
    softmax_registers(out, in, rows, cols);
}
