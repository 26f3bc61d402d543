// Layer normalisation of each row: out = (x - mean)*rsqrt(variance + epsilon)*gamma + beta, for a rows x cols matrix.
// And what has replaced it in language models, with the addition before it: sum = x + residual,
// out = sum*rsqrt(mean of sum^2 + epsilon)*gamma.
//
//   layer_norm          bytes read rows*cols*s + 2*cols*s (gamma, beta), written rows*cols*s, ~10 FLOP an element
//   rms_norm_residual   bytes read 2*rows*cols*s + cols*s (gamma), written 2*rows*cols*s, ~5 FLOP an element
//
// Versions:
//
//   kernel                loads of each element   how
//   layer_norm_naive      3                       mean, then variance, then result: one pass each
//   layer_norm_staged     1                       the row waits in shared memory for the two later passes; columns past
//                                                 the first 8192 are read again
//   rms_norm_residual_    2                       the sum is stored, and computed again for the result
//   naive
//   ..._registers         1                       the row waits in registers, 64 bytes a thread; rows that do not fit,
//                                                 or not in accesses of 16 bytes, go the way of naive
//
// What bounds them: the memory, if enough is asked for before a thread waits. The first three do not: they load one
// element a round and wait for it, and 32 KiB of shared memory leave room for few blocks. Those to copy are
// ..._registers.
//
// The variance is the mean of (x - mean)^2, taken after the mean is known: the one-pass form, mean(x^2) - mean(x)^2,
// cancels catastrophically where the mean is large against the spread.
//
// One block walks one row at a time. Blocks of whole warps (32, 64 ... 1024 threads), any one-dimensional grid, any
// shape, empty ones included. Halves: float arithmetic, one rounding at the end.
//
// Reference: Ba, Kiros and Hinton, Layer Normalization, https://arxiv.org/abs/1607.06450;
// Zhang and Sennrich, Root Mean Square Layer Normalization, https://arxiv.org/abs/1910.07467.

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
__device__ __forceinline__ bool fits(long long row_bytes, int lanes, const void* a, const void* b, const void* c,
                                     const void* d, const void* e = nullptr) {
    const unsigned long long bits = (unsigned long long)a | (unsigned long long)b | (unsigned long long)c |
                                    (unsigned long long)d | (unsigned long long)e | row_bytes;
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
__device__ __forceinline__ float sum_over_row(float value, int lanes, float* of_warp) {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) value += SHUFFLE_XOR(value, apart);
    if (lanes == 32) return value;
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    value = of_warp[0];
#pragma unroll 1
    for (int warp = 1; warp < lanes / 32; ++warp) value += of_warp[warp];
    return value;
}

template <typename T>
__device__ __forceinline__ void layer_norm_registers(T* out, const T* in, const T* gamma, const T* beta, float epsilon,
                                                     long long rows, long long cols) {
    constexpr int PACKS = 4, WIDTH = Pack<T>::WIDTH;
    const Share my = share_of<PACKS>(cols * sizeof(T));
    if (!fits<PACKS>(cols * sizeof(T), my.lanes, out, in, gamma, beta))
        return layer_norm_naive(out, in, gamma, beta, epsilon, rows, cols);
    __shared__ float sums[32], squares_of[32];
    const int count = cols / WIDTH;
#pragma unroll 1
    for (long long row = my.row; row < rows; row += my.at_once) {
        Pack<T> x[PACKS];
        load_row(x, in + row * cols, count, my);
        float sum = 0.0f, squares = 0.0f;
#pragma unroll
        for (int k = 0; k < PACKS; ++k)
            if (my.lane + k * my.lanes < count)
#pragma unroll
                for (int j = 0; j < WIDTH; ++j) sum += static_cast<float>(x[k].lane[j]);
        const float mean = sum_over_row(sum, my.lanes, sums) / cols;
        // Trick 4: the second pass, over registers, costs no memory. So the variance needs no shortcut.
#pragma unroll
        for (int k = 0; k < PACKS; ++k)
            if (my.lane + k * my.lanes < count)
#pragma unroll
                for (int j = 0; j < WIDTH; ++j) {
                    const float centred = static_cast<float>(x[k].lane[j]) - mean;
                    squares += centred * centred;
                }
        const float scale = rsqrtf(sum_over_row(squares, my.lanes, squares_of) / cols + epsilon);
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            const int i = my.lane + k * my.lanes;
            if (i >= count) continue;
            const Pack<T> factors = reinterpret_cast<const Pack<T>*>(gamma)[i];
            const Pack<T> shifts = reinterpret_cast<const Pack<T>*>(beta)[i];
#pragma unroll
            for (int j = 0; j < WIDTH; ++j) {
                const float normal = (static_cast<float>(x[k].lane[j]) - mean) * scale;
                x[k].lane[j] = static_cast<T>(normal * static_cast<float>(factors.lane[j]) +
                                              static_cast<float>(shifts.lane[j]));
            }
            reinterpret_cast<Pack<T>*>(out + row * cols)[i] = x[k];
        }
    }
}

// Also for rows that are not whole packs or do not fit.
template <typename T>
__device__ __forceinline__ void rms_norm_residual_naive(T* out, T* sum, const T* in, const T* residual, const T* gamma,
                                                        float epsilon, long long rows, long long cols) {
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        float squares = 0.0f;
        for (long long c = threadIdx.x; c < cols; c += blockDim.x) {
            const T x = static_cast<T>(static_cast<float>(in[row * cols + c]) +
                                       static_cast<float>(residual[row * cols + c]));
            sum[row * cols + c] = x;
            squares += static_cast<float>(x) * static_cast<float>(x);
        }
        const float scale = rsqrtf(block_sum(squares) / cols + epsilon);
        for (long long c = threadIdx.x; c < cols; c += blockDim.x) {
            const T x = static_cast<T>(static_cast<float>(in[row * cols + c]) +
                                       static_cast<float>(residual[row * cols + c]));
            out[row * cols + c] = static_cast<T>(static_cast<float>(x) * scale * static_cast<float>(gamma[c]));
        }
    }
}

template <typename T>
__device__ __forceinline__ void rms_norm_residual_registers(T* out, T* sum, const T* in, const T* residual,
                                                            const T* gamma, float epsilon, long long rows,
                                                            long long cols) {
    constexpr int PACKS = 2, WIDTH = Pack<T>::WIDTH;  // of each of two matrices
    const Share my = share_of<PACKS>(cols * sizeof(T));
    if (!fits<PACKS>(cols * sizeof(T), my.lanes, out, sum, in, residual, gamma))
        return rms_norm_residual_naive(out, sum, in, residual, gamma, epsilon, rows, cols);
    __shared__ float squares_of[2][32];
    const int count = cols / WIDTH;
    int turn = 0;  // there is one reduction a row, so that rows take turns at the words
#pragma unroll 1
    for (long long row = my.row; row < rows; row += my.at_once) {
        Pack<T> x[PACKS], y[PACKS];
        load_row(x, in + row * cols, count, my);
        load_row(y, residual + row * cols, count, my);
        float squares = 0.0f;
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            if (my.lane + k * my.lanes >= count) continue;
#pragma unroll
            for (int j = 0; j < WIDTH; ++j) {
                x[k].lane[j] = static_cast<T>(static_cast<float>(x[k].lane[j]) + static_cast<float>(y[k].lane[j]));
                squares += static_cast<float>(x[k].lane[j]) * static_cast<float>(x[k].lane[j]);
            }
            reinterpret_cast<Pack<T>*>(sum + row * cols)[my.lane + k * my.lanes] = x[k];
        }
        const float scale = rsqrtf(sum_over_row(squares, my.lanes, squares_of[turn ^= 1]) / cols + epsilon);
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            const int i = my.lane + k * my.lanes;
            if (i >= count) continue;
            const Pack<T> factors = reinterpret_cast<const Pack<T>*>(gamma)[i];
#pragma unroll
            for (int j = 0; j < WIDTH; ++j)
                x[k].lane[j] = static_cast<T>(static_cast<float>(x[k].lane[j]) * scale *
                                              static_cast<float>(factors.lane[j]));
            reinterpret_cast<Pack<T>*>(out + row * cols)[i] = x[k];
        }
    }
}

extern "C" __global__ void rms_norm_residual_naive_f32(float* __restrict__ out, float* __restrict__ sum,
                                                       const float* __restrict__ in,
                                                       const float* __restrict__ residual,
                                                       const float* __restrict__ gamma, float epsilon, long long rows,
                                                       long long cols) {
    rms_norm_residual_naive(out, sum, in, residual, gamma, epsilon, rows, cols);
}
extern "C" __global__ void rms_norm_residual_naive_f16(__half* __restrict__ out, __half* __restrict__ sum,
                                                       const __half* __restrict__ in,
                                                       const __half* __restrict__ residual,
                                                       const __half* __restrict__ gamma, float epsilon, long long rows,
                                                       long long cols) {
    rms_norm_residual_naive(out, sum, in, residual, gamma, epsilon, rows, cols);
}
extern "C" __global__ void __launch_bounds__(1024) layer_norm_registers_f32(float* __restrict__ out,
                                                                            const float* __restrict__ in,
                                                                            const float* __restrict__ gamma,
                                                                            const float* __restrict__ beta,
                                                                            float epsilon, long long rows,
                                                                            long long cols) {
    layer_norm_registers(out, in, gamma, beta, epsilon, rows, cols);
}
extern "C" __global__ void __launch_bounds__(1024) layer_norm_registers_f16(__half* __restrict__ out,
                                                                            const __half* __restrict__ in,
                                                                            const __half* __restrict__ gamma,
                                                                            const __half* __restrict__ beta,
                                                                            float epsilon, long long rows,
                                                                            long long cols) {
    layer_norm_registers(out, in, gamma, beta, epsilon, rows, cols);
}
extern "C" __global__ void __launch_bounds__(1024) layer_norm_registers_bf16(__nv_bfloat16* __restrict__ out,
                                                                             const __nv_bfloat16* __restrict__ in,
                                                                             const __nv_bfloat16* __restrict__ gamma,
                                                                             const __nv_bfloat16* __restrict__ beta,
                                                                             float epsilon, long long rows,
                                                                             long long cols) {
    layer_norm_registers(out, in, gamma, beta, epsilon, rows, cols);
}
extern "C" __global__ void __launch_bounds__(1024) rms_norm_residual_registers_f32(float* __restrict__ out,
                                                                                   float* __restrict__ sum,
                                                                                   const float* __restrict__ in,
                                                                                   const float* __restrict__ residual,
                                                                                   const float* __restrict__ gamma,
                                                                                   float epsilon, long long rows,
                                                                                   long long cols) {
    rms_norm_residual_registers(out, sum, in, residual, gamma, epsilon, rows, cols);
}
extern "C" __global__ void __launch_bounds__(1024) rms_norm_residual_registers_f16(
    __half* __restrict__ out, __half* __restrict__ sum, const __half* __restrict__ in,
    const __half* __restrict__ residual, const __half* __restrict__ gamma, float epsilon, long long rows,
    long long cols) {
    rms_norm_residual_registers(out, sum, in, residual, gamma, epsilon, rows, cols);
}
extern "C" __global__ void __launch_bounds__(1024) rms_norm_residual_registers_bf16(
    __nv_bfloat16* __restrict__ out, __nv_bfloat16* __restrict__ sum, const __nv_bfloat16* __restrict__ in,
    const __nv_bfloat16* __restrict__ residual, const __nv_bfloat16* __restrict__ gamma, float epsilon, long long rows,
    long long cols) {
    rms_norm_residual_registers(out, sum, in, residual, gamma, epsilon, rows, cols);
}
