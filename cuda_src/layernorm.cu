// Layer normalisation of each row: out = (x - mean)*rsqrt(variance + epsilon)*gamma + beta, for a rows x cols matrix.
//
//   bytes read rows*cols*s + 2*cols*s (gamma and beta), bytes written rows*cols*s, ~10 FLOP an element
//
// Versions:
//
//   kernel             loads of each element   how
//   layer_norm_naive   3                       mean, then variance, then result: one pass each
//   layer_norm_staged  1                       the row waits in shared memory for the two later passes; columns past
//                                              the first 8192 are read again
//
// The variance is the mean of (x - mean)^2, taken after the mean is known: the one-pass form, mean(x^2) - mean(x)^2,
// cancels catastrophically where the mean is large against the spread.
//
// One block walks one row at a time. Blocks of whole warps (32, 64 ... 1024 threads), any one-dimensional grid, any
// shape, empty ones included. f16: float arithmetic, one rounding at the end.
//
// Reference: Ba, Kiros and Hinton, Layer Normalization, https://arxiv.org/abs/1607.06450.

#if defined(__HIPCC_RTC__) || defined(__HIP_PLATFORM_AMD__)
#ifndef __HIPCC_RTC__  // which has halves built in
#include <hip/hip_fp16.h>
#endif
#define SHUFFLE_XOR(value, lanes) __shfl_xor(value, lanes, 32)
#else
#include <cuda_fp16.h>
#define SHUFFLE_XOR(value, lanes) __shfl_xor_sync(0xffffffffu, value, lanes)
#endif

static constexpr int STAGED_COLS = 8192;  // 32 KiB of shared memory, so that several blocks fit a multiprocessor

// Sum over the block, known to every thread. The last barrier lets `of_warp` be used again at once.
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
__device__ __forceinline__ void layer_norm_naive(T* out, const T* in, const T* gamma, const T* beta, float epsilon,
                                                 long long rows, long long cols) {
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        const T* x = in + row * cols;
        float sum = 0.0f;
        for (long long c = threadIdx.x; c < cols; c += blockDim.x) sum += static_cast<float>(x[c]);
        float mean = block_sum(sum) / cols;
        float squares = 0.0f;
        for (long long c = threadIdx.x; c < cols; c += blockDim.x) {
            float centred = static_cast<float>(x[c]) - mean;
            squares += centred * centred;
        }
        float scale = rsqrtf(block_sum(squares) / cols + epsilon);
        for (long long c = threadIdx.x; c < cols; c += blockDim.x) {
            float normal = (static_cast<float>(x[c]) - mean) * scale;
            out[row * cols + c] = static_cast<T>(normal * static_cast<float>(gamma[c]) + static_cast<float>(beta[c]));
        }
    }
}

template <typename T>
__device__ __forceinline__ void layer_norm_staged(T* out, const T* in, const T* gamma, const T* beta, float epsilon,
                                                  long long rows, long long cols) {
    // A thread reads back only what it stored itself, so the stage needs no barrier.
    __shared__ float staged[STAGED_COLS];
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        const T* x = in + row * cols;
        float sum = 0.0f;
        for (long long c = threadIdx.x; c < cols; c += blockDim.x) {
            float value = static_cast<float>(x[c]);
            if (c < STAGED_COLS) staged[c] = value;
            sum += value;
        }
        float mean = block_sum(sum) / cols;
        float squares = 0.0f;
        for (long long c = threadIdx.x; c < cols; c += blockDim.x) {
            float centred = (c < STAGED_COLS ? staged[c] : static_cast<float>(x[c])) - mean;
            squares += centred * centred;
        }
        float scale = rsqrtf(block_sum(squares) / cols + epsilon);
        for (long long c = threadIdx.x; c < cols; c += blockDim.x) {
            float normal = ((c < STAGED_COLS ? staged[c] : static_cast<float>(x[c])) - mean) * scale;
            out[row * cols + c] = static_cast<T>(normal * static_cast<float>(gamma[c]) + static_cast<float>(beta[c]));
        }
    }
}

extern "C" __global__ void layer_norm_naive_f32(float* __restrict__ out, const float* __restrict__ in,
                                                const float* __restrict__ gamma, const float* __restrict__ beta,
                                                float epsilon, long long rows, long long cols) {
    layer_norm_naive(out, in, gamma, beta, epsilon, rows, cols);
}
extern "C" __global__ void layer_norm_naive_f16(__half* __restrict__ out, const __half* __restrict__ in,
                                                const __half* __restrict__ gamma, const __half* __restrict__ beta,
                                                float epsilon, long long rows, long long cols) {
    layer_norm_naive(out, in, gamma, beta, epsilon, rows, cols);
}
extern "C" __global__ void layer_norm_staged_f32(float* __restrict__ out, const float* __restrict__ in,
                                                 const float* __restrict__ gamma, const float* __restrict__ beta,
                                                 float epsilon, long long rows, long long cols) {
    layer_norm_staged(out, in, gamma, beta, epsilon, rows, cols);
}
extern "C" __global__ void layer_norm_staged_f16(__half* __restrict__ out, const __half* __restrict__ in,
                                                 const __half* __restrict__ gamma, const __half* __restrict__ beta,
                                                 float epsilon, long long rows, long long cols) {
    layer_norm_staged(out, in, gamma, beta, epsilon, rows, cols);
}
