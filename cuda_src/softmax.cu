// Softmax of each row: out = exp(x - max) / sum of exp(x - max), for a rows x cols matrix.
//
//   bytes read rows*cols*s, bytes written rows*cols*s, ~5 FLOP an element (max, subtract, exp, add, multiply)
//
// Versions, which move the same bytes and ask for different ones, as a row's later reads are met by a cache or not:
//
//   kernel           loads of each element   how
//   softmax_naive    3                       maximum, then sum, then result: one pass each
//   softmax_online   2                       maximum and sum in one pass: where the maximum grows, the sum shrinks
//   softmax_staged   1                       as online, and the row waits in shared memory for the last pass; columns
//                                            past the first 8192 are read again
//
// One block walks one row at a time. Blocks of whole warps (32, 64 ... 1024 threads), any one-dimensional grid, any
// shape, empty ones included. f16: float arithmetic, one rounding at the end. As in other implementations, a row that
// is -inf throughout, or holds +inf or NaN, gives NaN.
//
// Reference: Milakov and Gimelshein, Online normalizer calculation for softmax, https://arxiv.org/abs/1805.02867.

#if defined(__HIPCC_RTC__) || defined(__HIP_PLATFORM_AMD__)
#ifndef __HIPCC_RTC__  // which has halves built in
#include <hip/hip_fp16.h>
#endif
#define SHUFFLE_XOR(value, lanes) __shfl_xor(value, lanes, 32)
#else
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
