// Reductions: many elements to one.
//
//   kernel   result    bytes read   bytes written         FLOP      n elements of s bytes
//   sum      of in     n*s          4 (or 8) a block      n
//   dot      of a*b    2n*s         4 (or 8) a block      2n
//
// What bounds them: memory. Versions: _f32, _f16 and _f64 load one element at a time, and wait for each of halves. Copy
// _f32x4, _f16x8 and _bf16x8: 16 bytes a load, and 64 under way in each thread.
//
// Two launches give one number: the first leaves one partial sum per block in `partials`, the second (sum_f32, or
// sum_f64 for doubles, with a single block) adds those up. No atomics, so the same input gives the same bits each time.
// Input of 16 bits is added up in float, and its partial sums are float.
//
// Any grid; blocks of whole warps (32, 64 ... 1024 threads); any n, 0 included.
//
// Reference: Harris, Optimizing Parallel Reduction in CUDA; shuffles: CUDA C++ Programming Guide, "Warp Shuffle
// Functions". dot is BabelStream's.

#if defined(__HIPCC_RTC__) || defined(__HIP_PLATFORM_AMD__)
#ifndef __HIPCC_RTC__  // which has both kinds of halves built in
#include <hip/hip_bfloat16.h>
#include <hip/hip_fp16.h>
#endif
typedef hip_bfloat16 __nv_bfloat16;
#define SHUFFLE_DOWN(value, lanes) __shfl_down(value, lanes, 32)
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define SHUFFLE_DOWN(value, lanes) __shfl_down_sync(0xffffffffu, value, lanes)
#endif

template <typename T>
struct Arithmetic {
    typedef T type;
};
template <>
struct Arithmetic<__half> {
    typedef float type;
};
template <typename T>
using ArithmeticOf = typename Arithmetic<T>::type;

__device__ __forceinline__ long long thread_index() { return blockIdx.x * (long long)blockDim.x + threadIdx.x; }
__device__ __forceinline__ long long thread_count() { return gridDim.x * (long long)blockDim.x; }

// Sum over the 32 lanes of a warp, in lane 0: half of the lanes hand their value down, then a quarter ...
template <typename W>
__device__ __forceinline__ W warp_sum(W value) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) value += SHUFFLE_DOWN(value, lanes);
    return value;
}

// Sum over the block, in thread 0: each warp by itself, then the first warp over the warps' sums.
template <typename W>
__device__ __forceinline__ W block_sum(W value) {
    __shared__ W of_warp[32];
    value = warp_sum(value);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x < 32) value = warp_sum(threadIdx.x < blockDim.x / 32 ? of_warp[threadIdx.x] : W(0));
    return value;
}

template <typename T, typename W>
__device__ __forceinline__ void sum(W* partials, const T* in, long long n) {
    W total = 0;
    for (long long i = thread_index(); i < n; i += thread_count()) total += static_cast<W>(in[i]);
    total = block_sum(total);
    if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

template <typename T, typename W>
__device__ __forceinline__ void dot(W* partials, const T* a, const T* b, long long n) {
    W total = 0;
    for (long long i = thread_index(); i < n; i += thread_count()) total += static_cast<W>(a[i]) * static_cast<W>(b[i]);
    total = block_sum(total);
    if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

// 16 bytes that are loaded with one instruction.
template <typename T>
struct __align__(16) Pack {
    static constexpr int WIDTH = 16 / sizeof(T);
    T lane[WIDTH];
};

// Packs in n elements; none where an array does not begin on a 16-byte boundary, because such a load would fault.
template <typename T>
__device__ __forceinline__ long long packs_in(long long n, const T* a, const T* b = nullptr) {
    unsigned long long bits = reinterpret_cast<unsigned long long>(a) | reinterpret_cast<unsigned long long>(b);
    return bits % sizeof(Pack<T>) == 0 ? n / Pack<T>::WIDTH : 0;
}

template <typename T>
__device__ __forceinline__ Pack<T> load(const T* in, long long pack) {
    return reinterpret_cast<const Pack<T>*>(in)[pack];
}

template <typename T>
__device__ __forceinline__ float added(float total, const Pack<T>& x) {
#pragma unroll
    for (int j = 0; j < x.WIDTH; ++j) total += static_cast<float>(x.lane[j]);
    return total;
}

template <typename T>
__device__ __forceinline__ float added(float total, const Pack<T>& x, const Pack<T>& y) {
#pragma unroll
    for (int j = 0; j < x.WIDTH; ++j) total += static_cast<float>(x.lane[j]) * static_cast<float>(y.lane[j]);
    return total;
}

// Trick: a thread loads 64 bytes, of one array or of two, before it adds the first of them. Blocks take turns at whole
// tiles of COUNT packs a thread: if each load had a condition, the assembler would part them. `unroll 1`: as stream.cu.
template <typename T>
__device__ __forceinline__ void sum_wide(float* partials, const T* in, long long n) {
    constexpr int COUNT = 4;
    const long long packs = packs_in(n, in), tile = COUNT * (long long)blockDim.x;
    float total = 0;
    long long first = blockIdx.x * tile;
#pragma unroll 1
    for (; first + tile <= packs; first += gridDim.x * tile) {
        Pack<T> x[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; ++k) x[k] = load(in, first + threadIdx.x + k * blockDim.x);
#pragma unroll
        for (int k = 0; k < COUNT; ++k) total = added(total, x[k]);
    }
#pragma unroll 1  // one block's tile may not be whole
    for (long long i = first + threadIdx.x; i < packs; i += blockDim.x) total = added(total, load(in, i));
#pragma unroll 1
    for (long long i = packs * Pack<T>::WIDTH + thread_index(); i < n; i += thread_count())
        total += static_cast<float>(in[i]);
    total = block_sum(total);
    if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

template <typename T>
__device__ __forceinline__ void dot_wide(float* partials, const T* a, const T* b, long long n) {
    constexpr int COUNT = 2;
    const long long packs = packs_in(n, a, b), tile = COUNT * (long long)blockDim.x;
    float total = 0;
    long long first = blockIdx.x * tile;
#pragma unroll 1
    for (; first + tile <= packs; first += gridDim.x * tile) {
        Pack<T> x[COUNT], y[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            x[k] = load(a, first + threadIdx.x + k * blockDim.x);
            y[k] = load(b, first + threadIdx.x + k * blockDim.x);
        }
#pragma unroll
        for (int k = 0; k < COUNT; ++k) total = added(total, x[k], y[k]);
    }
#pragma unroll 1
    for (long long i = first + threadIdx.x; i < packs; i += blockDim.x) total = added(total, load(a, i), load(b, i));
#pragma unroll 1
    for (long long i = packs * Pack<T>::WIDTH + thread_index(); i < n; i += thread_count())
        total += static_cast<float>(a[i]) * static_cast<float>(b[i]);
    total = block_sum(total);
    if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

extern "C" __global__ void sum_f32(float* __restrict__ partials, const float* __restrict__ in, long long n) {
    sum(partials, in, n);
}
extern "C" __global__ void sum_f16(float* __restrict__ partials, const __half* __restrict__ in, long long n) {
    sum(partials, in, n);
}
extern "C" __global__ void sum_f64(double* __restrict__ partials, const double* __restrict__ in, long long n) {
    sum(partials, in, n);
}
extern "C" __global__ void sum_f32x4(float* __restrict__ partials, const float* __restrict__ in, long long n) {
    sum_wide(partials, in, n);
}
extern "C" __global__ void sum_f16x8(float* __restrict__ partials, const __half* __restrict__ in, long long n) {
    sum_wide(partials, in, n);
}
extern "C" __global__ void sum_bf16x8(float* __restrict__ partials, const __nv_bfloat16* __restrict__ in, long long n) {
    sum_wide(partials, in, n);
}
extern "C" __global__ void dot_f32(float* __restrict__ partials, const float* __restrict__ a,
                                   const float* __restrict__ b, long long n) {
    dot(partials, a, b, n);
}
extern "C" __global__ void dot_f16(float* __restrict__ partials, const __half* __restrict__ a,
                                   const __half* __restrict__ b, long long n) {
    dot(partials, a, b, n);
}
extern "C" __global__ void dot_f64(double* __restrict__ partials, const double* __restrict__ a,
                                   const double* __restrict__ b, long long n) {
    dot(partials, a, b, n);
}
extern "C" __global__ void dot_f32x4(float* __restrict__ partials, const float* __restrict__ a,
                                     const float* __restrict__ b, long long n) {
    dot_wide(partials, a, b, n);
}
extern "C" __global__ void dot_f16x8(float* __restrict__ partials, const __half* __restrict__ a,
                                     const __half* __restrict__ b, long long n) {
    dot_wide(partials, a, b, n);
}
extern "C" __global__ void dot_bf16x8(float* __restrict__ partials, const __nv_bfloat16* __restrict__ a,
                                      const __nv_bfloat16* __restrict__ b, long long n) {
    dot_wide(partials, a, b, n);
}
