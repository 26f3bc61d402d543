// Matrix times vector: y (n) = W (n x k) * x (k), row-major. A linear layer for one token.
//
//   bytes read nk*s + k*s, bytes written n*s, 2nk FLOP
//
// What bounds it: memory. Each element of W is used once; x stays in a cache.
//
// Versions: in plain (gemv_f32, _f16) a warp has a row of W, and a lane loads one element before it multiplies. Copy
// the wide one (_f32x4, _f16x8, _bf16x8): 16 bytes a load, of which four are under way in each lane, two of W and
// two of x at the least. Rows that do not begin on 16 bytes take the way of plain.
//
// Any one-dimensional grid, blocks of whole warps, any sizes, 0 included. Halves: sums in float, one rounding at the
// end.
//
// Reference: CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory"; cuBLAS, gemv.

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

static constexpr int LANES = 32;
static constexpr int PACKS = 4;  // of 16 bytes, that a lane has under way

template <typename T>
struct __align__(16) Pack {
    static constexpr int WIDTH = 16 / sizeof(T);
    T lane[WIDTH];
};

template <typename T>
__device__ __forceinline__ float row_plain(const T* w, const T* x, long long k, int lane) {
    float sum = 0.0f;
#pragma unroll 1
    for (long long i = lane; i < k; i += LANES) sum += static_cast<float>(w[i]) * static_cast<float>(x[i]);
    return sum;
}

// WHOLE: all lanes have all of their packs; if each load had a condition, the assembler would part them.
template <bool WHOLE, typename T>
__device__ __forceinline__ float tile(const T* w, const T* x, int first, int count) {
    Pack<T> of_w[PACKS] = {};
#pragma unroll
    for (int p = 0; p < PACKS; ++p)  // all loads before the first use
        if (WHOLE || first + p * LANES < count)
            reinterpret_cast<uint4&>(of_w[p]) = reinterpret_cast<const uint4*>(w)[first + p * LANES];
    float sum = 0.0f;
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
        Pack<T> of_x = {};
        if (WHOLE || first + p * LANES < count)
            reinterpret_cast<uint4&>(of_x) = reinterpret_cast<const uint4*>(x)[first + p * LANES];
#pragma unroll
        for (int j = 0; j < Pack<T>::WIDTH; ++j)
            sum += static_cast<float>(of_w[p].lane[j]) * static_cast<float>(of_x.lane[j]);
    }
    return sum;
}

template <typename T>
__device__ __forceinline__ float row_wide(const T* w, const T* x, long long k, int lane) {
    const int count = static_cast<int>(k / Pack<T>::WIDTH);
    float sum = 0.0f;
    int first = 0;
#pragma unroll 1
    for (; first + PACKS * LANES <= count; first += PACKS * LANES) sum += tile<true>(w, x, first + lane, count);
    return first < count ? sum + tile<false>(w, x, first + lane, count) : sum;
}

template <bool WIDE, typename T>
__device__ __forceinline__ void gemv(T* y, const T* w, const T* x, long long n, long long k) {
    const int lane = threadIdx.x % LANES, warps = blockDim.x / LANES;
    const unsigned long long bits =
        reinterpret_cast<unsigned long long>(w) | reinterpret_cast<unsigned long long>(x) | k * sizeof(T);
    const bool wide = WIDE && bits % sizeof(Pack<T>) == 0;
#pragma unroll 1
    for (long long row = blockIdx.x * (long long)warps + threadIdx.x / LANES; row < n;
         row += gridDim.x * (long long)warps) {
        float sum = wide ? row_wide(w + row * k, x, k, lane) : row_plain(w + row * k, x, k, lane);
#pragma unroll
        for (int apart = LANES / 2; apart > 0; apart /= 2) sum += SHUFFLE_XOR(sum, apart);
        if (lane == 0) y[row] = static_cast<T>(sum);
    }
}

extern "C" __global__ void gemv_f32(float* __restrict__ y, const float* __restrict__ w, const float* __restrict__ x,
                                    long long n, long long k) {
    gemv<false>(y, w, x, n, k);
}
extern "C" __global__ void gemv_f16(__half* __restrict__ y, const __half* __restrict__ w, const __half* __restrict__ x,
                                    long long n, long long k) {
    gemv<false>(y, w, x, n, k);
}
extern "C" __global__ void __launch_bounds__(1024)
    gemv_f32x4(float* __restrict__ y, const float* __restrict__ w, const float* __restrict__ x, long long n,
               long long k) {
    gemv<true>(y, w, x, n, k);
}
extern "C" __global__ void __launch_bounds__(1024)
    gemv_f16x8(__half* __restrict__ y, const __half* __restrict__ w, const __half* __restrict__ x, long long n,
               long long k) {
    gemv<true>(y, w, x, n, k);
}
extern "C" __global__ void __launch_bounds__(1024)
    gemv_bf16x8(__nv_bfloat16* __restrict__ y, const __nv_bfloat16* __restrict__ w, const __nv_bfloat16* __restrict__ x,
                long long n, long long k) {
    gemv<true>(y, w, x, n, k);
}
