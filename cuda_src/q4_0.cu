// Q4_0: weights of four bits, in blocks of 32 that share one float16 scale.
//
// A block is 18 bytes: the scale, then 16 bytes of nibbles. Byte j holds element j in its low nibble and element j + 16
// in its high nibble; value = (nibble - 8)*scale. W is n x k, quantised along k: every row begins a block.
//
//   kernel              result                       bytes moved                             FLOP
//   q4_0_dequantize     out = W                      n*18/32 + n*s                           n      (n elements)
//   q4_0_gemv, _gemm    Y (m x n) = X (m x k) * W^T  kn*18/32 + (mk + mn)*s                  2mnk
//   linear_gemv, _gemm  the same, W unpacked         (kn + mk + mn)*s                        2mnk
//
// Versions of the product:
//   fused      q4_0_gemv or q4_0_gemm unpacks in registers: weights cost kn*18/32 bytes.
//   separate   q4_0_dequantize, then linear_gemv or linear_gemm: kn*18/32 + 2*kn*s, 15 times as many at float.
// A warp computes one column of Y: its lanes share a row of W, and add up at the end. gemv goes over that row once per
// row of X; gemm once per eight.
//
// One-dimensional blocks of whole warps for the products, of any size for dequantize; any grid; any sizes, 0 included.
// Where k is no multiple of 32 the last block of a row is stored whole. f16: sums in float, one rounding at the end.
//
// Reference: llama.cpp, ggml/src/ggml-common.h (block_q4_0) and ggml-quants.c (dequantize_row_q4_0),
// https://github.com/ggml-org/llama.cpp.

#if defined(__HIPCC_RTC__) || defined(__HIP_PLATFORM_AMD__)
#ifndef __HIPCC_RTC__  // which has halves built in
#include <hip/hip_fp16.h>
#endif
#define SHUFFLE_XOR(value, lanes) __shfl_xor(value, lanes, 32)
#else
#include <cuda_fp16.h>
#define SHUFFLE_XOR(value, lanes) __shfl_xor_sync(0xffffffffu, value, lanes)
#endif

static constexpr int BLOCK_ELEMENTS = 32;
static constexpr int BLOCK_BYTES = 18;
static constexpr int SCALE_BYTES = 2;

__device__ __forceinline__ long long thread_index() { return blockIdx.x * (long long)blockDim.x + threadIdx.x; }
__device__ __forceinline__ long long thread_count() { return gridDim.x * (long long)blockDim.x; }

// A block begins on an even address only, so the scale is the widest thing that can be loaded from it.
__device__ __forceinline__ float scale_of(const unsigned char* block) {
    return __half2float(*reinterpret_cast<const __half*>(block));
}
__device__ __forceinline__ float low_nibble(unsigned int byte) { return static_cast<int>(byte & 15) - 8; }
__device__ __forceinline__ float high_nibble(unsigned int byte) { return static_cast<int>(byte >> 4 & 15) - 8; }

// One thread per byte of nibbles, which makes two elements.
template <typename T>
__device__ __forceinline__ void dequantize(T* out, const unsigned char* blocks, long long n) {
    long long bytes = (n + BLOCK_ELEMENTS - 1) / BLOCK_ELEMENTS * (BLOCK_ELEMENTS / 2);
    for (long long i = thread_index(); i < bytes; i += thread_count()) {
        const unsigned char* block = blocks + i / (BLOCK_ELEMENTS / 2) * BLOCK_BYTES;
        int j = i % (BLOCK_ELEMENTS / 2);
        float scale = scale_of(block);
        unsigned int byte = block[SCALE_BYTES + j];
        long long low = i / (BLOCK_ELEMENTS / 2) * BLOCK_ELEMENTS + j, high = low + BLOCK_ELEMENTS / 2;
        if (low < n) out[low] = static_cast<T>(low_nibble(byte) * scale);
        if (high < n) out[high] = static_cast<T>(high_nibble(byte) * scale);
    }
}

__device__ __forceinline__ float warp_sum(float value) {
    for (int lanes = 16; lanes > 0; lanes /= 2) value += SHUFFLE_XOR(value, lanes);
    return value;
}

// Y = X*W^T, W in blocks. A lane takes two bytes of nibbles at a time, so eight lanes a block and four blocks a step.
template <int ROWS, typename T>
__device__ __forceinline__ void q4_0_product(T* y, const T* x, const unsigned char* blocks, long long m, long long n,
                                             long long k) {
    const int lane = threadIdx.x % 32, byte = lane % 8 * 2;  // byte: of the two, the first, within its block
    long long blocks_per_row = (k + BLOCK_ELEMENTS - 1) / BLOCK_ELEMENTS;
    for (long long col = thread_index() / 32; col < n; col += thread_count() / 32) {
        for (long long row0 = 0; row0 < m; row0 += ROWS) {
            float sum[ROWS] = {};
            for (long long b = lane / 8; b < blocks_per_row; b += 4) {
                const unsigned char* block = blocks + (col * blocks_per_row + b) * BLOCK_BYTES;
                float scale = scale_of(block);
                unsigned int nibbles = *reinterpret_cast<const unsigned short*>(block + SCALE_BYTES + byte);
                float weight[4] = {low_nibble(nibbles), low_nibble(nibbles >> 8), high_nibble(nibbles),
                                   high_nibble(nibbles >> 8)};
#pragma unroll
                for (int r = 0; r < ROWS; ++r) {
                    float products = 0.0f;
#pragma unroll
                    for (int w = 0; w < 4; ++w) {
                        long long i = b * BLOCK_ELEMENTS + byte + w % 2 + w / 2 * (BLOCK_ELEMENTS / 2);
                        if (row0 + r < m && i < k) products += weight[w] * static_cast<float>(x[(row0 + r) * k + i]);
                    }
                    sum[r] += scale * products;
                }
            }
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                float total = warp_sum(sum[r]);
                if (lane == 0 && row0 + r < m) y[(row0 + r) * n + col] = static_cast<T>(total);
            }
        }
    }
}

// Y = X*W^T, W unpacked.
template <int ROWS, typename T>
__device__ __forceinline__ void linear_product(T* y, const T* x, const T* w, long long m, long long n, long long k) {
    const int lane = threadIdx.x % 32;
    for (long long col = thread_index() / 32; col < n; col += thread_count() / 32) {
        for (long long row0 = 0; row0 < m; row0 += ROWS) {
            float sum[ROWS] = {};
            for (long long i = lane; i < k; i += 32) {
                float weight = static_cast<float>(w[col * k + i]);
#pragma unroll
                for (int r = 0; r < ROWS; ++r)
                    if (row0 + r < m) sum[r] += weight * static_cast<float>(x[(row0 + r) * k + i]);
            }
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                float total = warp_sum(sum[r]);
                if (lane == 0 && row0 + r < m) y[(row0 + r) * n + col] = static_cast<T>(total);
            }
        }
    }
}

static constexpr int GEMM_ROWS = 8;  // rows of X that one pass over a row of W serves

extern "C" __global__ void q4_0_dequantize_f32(float* __restrict__ out, const unsigned char* __restrict__ blocks,
                                               long long n) {
    dequantize(out, blocks, n);
}
extern "C" __global__ void q4_0_dequantize_f16(__half* __restrict__ out, const unsigned char* __restrict__ blocks,
                                               long long n) {
    dequantize(out, blocks, n);
}
extern "C" __global__ void q4_0_gemv_f32(float* __restrict__ y, const float* __restrict__ x,
                                         const unsigned char* __restrict__ blocks, long long m, long long n,
                                         long long k) {
    q4_0_product<1>(y, x, blocks, m, n, k);
}
extern "C" __global__ void q4_0_gemv_f16(__half* __restrict__ y, const __half* __restrict__ x,
                                         const unsigned char* __restrict__ blocks, long long m, long long n,
                                         long long k) {
    q4_0_product<1>(y, x, blocks, m, n, k);
}
extern "C" __global__ void q4_0_gemm_f32(float* __restrict__ y, const float* __restrict__ x,
                                         const unsigned char* __restrict__ blocks, long long m, long long n,
                                         long long k) {
    q4_0_product<GEMM_ROWS>(y, x, blocks, m, n, k);
}
extern "C" __global__ void q4_0_gemm_f16(__half* __restrict__ y, const __half* __restrict__ x,
                                         const unsigned char* __restrict__ blocks, long long m, long long n,
                                         long long k) {
    q4_0_product<GEMM_ROWS>(y, x, blocks, m, n, k);
}
extern "C" __global__ void linear_gemv_f32(float* __restrict__ y, const float* __restrict__ x,
                                           const float* __restrict__ w, long long m, long long n, long long k) {
    linear_product<1>(y, x, w, m, n, k);
}
extern "C" __global__ void linear_gemv_f16(__half* __restrict__ y, const __half* __restrict__ x,
                                           const __half* __restrict__ w, long long m, long long n, long long k) {
    linear_product<1>(y, x, w, m, n, k);
}
extern "C" __global__ void linear_gemm_f32(float* __restrict__ y, const float* __restrict__ x,
                                           const float* __restrict__ w, long long m, long long n, long long k) {
    linear_product<GEMM_ROWS>(y, x, w, m, n, k);
}
extern "C" __global__ void linear_gemm_f16(__half* __restrict__ y, const __half* __restrict__ x,
                                           const __half* __restrict__ w, long long m, long long n, long long k) {
    linear_product<GEMM_ROWS>(y, x, w, m, n, k);
}
