// Log-sum-exp of each row: out = max + ln sum of exp(x - max), for a rows x cols matrix of n elements.
//
//   version   launches                                   bytes moved, large cols       FLOP
//   fused     logsumexp_fused                            n*s                           ~3n (max, exp, add)
//   unfused   row_max, then exp_shifted, row_log_sum     n*s for the maxima, 3n*s      ~3n
//
// Fused, one pass keeps the running maximum and sum in registers and nothing of the size of the matrix is written.
// Unfused, exp(x - max) goes to memory and comes back to be added up: the intermediate that frameworks materialise when
// they run operation by operation. Both also move the rows results (and maxima), s bytes each.
//
// One block walks one row at a time. Blocks of whole warps (32, 64 ... 1024 threads), any one-dimensional grid, any
// shape; a row without columns gives -inf. f16: float arithmetic, but the unfused version's maxima and exponentials
// are rounded to half in memory, as they would be in a framework (where a row of -inf alone then gives NaN).
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

// Maximum and sum over the block, known to every thread. The last barrier lets `of_warp` be used again at once.
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

template <typename T>
__device__ __forceinline__ void logsumexp_fused(T* out, const T* in, long long rows, long long cols) {
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        float max = LOWEST, sum = 0.0f;  // of the elements this thread has met
        for (long long c = threadIdx.x; c < cols; c += blockDim.x) {
            float x = static_cast<float>(in[row * cols + c]);
            if (x > max) {
                sum = sum * expf(max - x) + 1.0f;
                max = x;
            } else {
                sum += expf(x - max);
            }
        }
        float row_max = block_max(max);
        float row_sum = block_sum(sum * expf(max - row_max));
        if (threadIdx.x == 0) out[row] = static_cast<T>(row_max + logf(row_sum));
    }
}

template <typename T>
__device__ __forceinline__ void row_max(T* max, const T* in, long long rows, long long cols) {
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        float mine = LOWEST;
        for (long long c = threadIdx.x; c < cols; c += blockDim.x)
            mine = fmaxf(mine, static_cast<float>(in[row * cols + c]));
        mine = block_max(mine);
        if (threadIdx.x == 0) max[row] = static_cast<T>(mine);
    }
}

template <typename T>
__device__ __forceinline__ void exp_shifted(T* out, const T* in, const T* max, long long rows, long long cols) {
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        float shift = static_cast<float>(max[row]);
        for (long long c = threadIdx.x; c < cols; c += blockDim.x)
            out[row * cols + c] = static_cast<T>(expf(static_cast<float>(in[row * cols + c]) - shift));
    }
}

template <typename T>
__device__ __forceinline__ void row_log_sum(T* out, const T* exps, const T* max, long long rows, long long cols) {
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        float sum = 0.0f;
        for (long long c = threadIdx.x; c < cols; c += blockDim.x) sum += static_cast<float>(exps[row * cols + c]);
        sum = block_sum(sum);
        if (threadIdx.x == 0) out[row] = static_cast<T>(static_cast<float>(max[row]) + logf(sum));
    }
}

extern "C" __global__ void logsumexp_fused_f32(float* __restrict__ out, const float* __restrict__ in, long long rows,
                                               long long cols) {
    logsumexp_fused(out, in, rows, cols);
}
extern "C" __global__ void logsumexp_fused_f16(__half* __restrict__ out, const __half* __restrict__ in, long long rows,
                                               long long cols) {
    logsumexp_fused(out, in, rows, cols);
}
extern "C" __global__ void row_max_f32(float* __restrict__ max, const float* __restrict__ in, long long rows,
                                       long long cols) {
    row_max(max, in, rows, cols);
}
extern "C" __global__ void row_max_f16(__half* __restrict__ max, const __half* __restrict__ in, long long rows,
                                       long long cols) {
    row_max(max, in, rows, cols);
}
extern "C" __global__ void exp_shifted_f32(float* __restrict__ out, const float* __restrict__ in,
                                           const float* __restrict__ max, long long rows, long long cols) {
    exp_shifted(out, in, max, rows, cols);
}
extern "C" __global__ void exp_shifted_f16(__half* __restrict__ out, const __half* __restrict__ in,
                                           const __half* __restrict__ max, long long rows, long long cols) {
    exp_shifted(out, in, max, rows, cols);
}
extern "C" __global__ void row_log_sum_f32(float* __restrict__ out, const float* __restrict__ exps,
                                           const float* __restrict__ max, long long rows, long long cols) {
    row_log_sum(out, exps, max, rows, cols);
}
extern "C" __global__ void row_log_sum_f16(__half* __restrict__ out, const __half* __restrict__ exps,
                                           const __half* __restrict__ max, long long rows, long long cols) {
    row_log_sum(out, exps, max, rows, cols);
}
