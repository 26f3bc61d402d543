// Log-sum-exp of each row: out = max + ln sum of exp(x - max), for a rows x cols matrix of n elements.
//
//   version     launches                                   bytes moved, large cols       FLOP
//   registers   logsumexp_registers                        n*s                           ~3n (max, exp, add)
//   fused       logsumexp_fused                            n*s                           ~3n
//   unfused     row_max, then exp_shifted, row_log_sum     n*s for the maxima, 3n*s      ~3n
//
// Fused, one pass keeps the running maximum and sum in registers and nothing of the size of the matrix is written.
// Unfused, exp(x - max) goes to memory and comes back to be added up: the intermediate that frameworks materialise when
// they run operation by operation. Both also move the rows results (and maxima), s bytes each.
//
// What bounds it: the memory, if enough is asked for before a thread waits. logsumexp_fused does not: it loads one
// element a round, waits for it and branches on it. logsumexp_registers, the one to copy, asks for 64 bytes a thread a
// round and takes their exponentials together. Rows that are not whole accesses of 16 bytes go the way of fused.
//
// One block walks one row at a time. Blocks of whole warps (32, 64 ... 1024 threads), any one-dimensional grid, any
// shape; a row without columns gives -inf. Halves: float arithmetic, but the unfused version's maxima and exponentials
// are rounded to half in memory, as they would be in a framework (where a row of -inf alone then gives NaN).
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
__device__ __forceinline__ void logsumexp_registers(T* out, const T* in, long long rows, long long cols) {
    constexpr int PACKS = 4, WIDTH = Pack<T>::WIDTH;
    if (((unsigned long long)in | cols * sizeof(T)) % 16 != 0) return logsumexp_fused(out, in, rows, cols);
    __shared__ float maxima[32], sums[32];
    const Share my = share_of<PACKS>(cols * sizeof(T));
    const int round = my.lanes * PACKS * WIDTH;
#pragma unroll 1
    for (long long row = my.row; row < rows; row += my.at_once) {
        float max = LOWEST, sum = 0.0f;  // of the elements this thread has met
#pragma unroll 1
        for (long long first = 0; first < cols; first += round) {
            const int count = (cols - first < round ? static_cast<int>(cols - first) : round) / WIDTH;
            const float before = max;
            Pack<T> packs[PACKS];
            load_row(packs, in + row * cols + first, count, my);
#pragma unroll
            for (int k = 0; k < PACKS; ++k)
                if (my.lane + k * my.lanes < count)
#pragma unroll
                    for (int j = 0; j < WIDTH; ++j) max = fmaxf(max, static_cast<float>(packs[k].lane[j]));
            // Trick 4: the sum shrinks once a round, where the maximum grew, and nothing branches. The exponentials are
            // the hardware's exp2 of a product with log2(e).
            sum *= __expf(before - max);
#pragma unroll
            for (int k = 0; k < PACKS; ++k)
                if (my.lane + k * my.lanes < count)
#pragma unroll
                    for (int j = 0; j < WIDTH; ++j) sum += __expf(static_cast<float>(packs[k].lane[j]) - max);
        }
        const float row_max = over_row(max, my.lanes, maxima, [](float a, float b) { return fmaxf(a, b); });
        sum *= __expf(max - row_max);
        const float row_sum = over_row(sum, my.lanes, sums, [](float a, float b) { return a + b; });
        if (my.lane == 0) out[row] = static_cast<T>(row_max + logf(row_sum));
    }
}

extern "C" __global__ void logsumexp_registers_f32(float* __restrict__ out, const float* __restrict__ in,
                                                   long long rows, long long cols) {
    logsumexp_registers(out, in, rows, cols);
}
extern "C" __global__ void logsumexp_registers_f16(__half* __restrict__ out, const __half* __restrict__ in,
                                                   long long rows, long long cols) {
    logsumexp_registers(out, in, rows, cols);
}
extern "C" __global__ void logsumexp_registers_bf16(__nv_bfloat16* __restrict__ out,
                                                    const __nv_bfloat16* __restrict__ in, long long rows,
                                                    long long cols) {
    logsumexp_registers(out, in, rows, cols);
}
