// Intensity sweep: one kernel that walks from memory-bound to compute-bound as `repeats` grows.
//
//   kernel          per element, repeats times   bytes moved   FLOP            arithmetic intensity
//   intensity_fma   x = x*factor + addend        2n*s          2*repeats*n     repeats / s
//   intensity_add   x = x + addend               2n*s          repeats*n       repeats / 2s
//
// What bounds it: memory below the ridge point, arithmetic above. While the device waits for memory, more repeats cost
// nothing: the bandwidth stays, the FLOP/s rise. Past the ridge point the FLOP/s stay and the bandwidth falls. That is
// the roofline, measured. Adds reach half of the FLOP/s of fused multiply-adds, which count as two.
//
// Versions: _f32, _f16 and _f64 have one chain a thread. It has one small load under way, and every operation waits for
// the one before it: the ridge they show is their own. Copy _f32x4 and _f16x8: a thread loads four times 16 bytes, and
// works on 16 chains at once.
//
// f16 here computes in half precision, two halves to an instruction (__half2), because its arithmetic rate is what the
// sweep is about. Give each multiprocessor all the threads it takes. Keep |factor| <= 1, or the values overflow.
//
// Any grid of one-dimensional blocks, any n and repeats, 0 included. Arrays must not overlap; _f16 arrays begin on a
// 4-byte boundary, those of the wide ones on a 16-byte one (any allocation does), or are done one element at a time.
//
// Reference: Williams, Waterman and Patterson, Roofline, https://doi.org/10.1145/1498765.1498785;
// Konstantinidis and Cotronis, mixbench, https://github.com/ekondis/mixbench.

#if defined(__HIPCC_RTC__) || defined(__HIP_PLATFORM_AMD__)
#ifndef __HIPCC_RTC__  // which has halves built in
#include <hip/hip_fp16.h>
#endif
#else
#include <cuda_fp16.h>
#endif

__device__ __forceinline__ long long thread_index() { return blockIdx.x * (long long)blockDim.x + threadIdx.x; }
__device__ __forceinline__ long long thread_count() { return gridDim.x * (long long)blockDim.x; }

// `unroll 1` of the loops over elements: unrolled, each thread would divide 64-bit numbers first, see stream.cu.

__device__ __forceinline__ float multiply_add(float x, float y, float z) { return fmaf(x, y, z); }
__device__ __forceinline__ double multiply_add(double x, double y, double z) { return fma(x, y, z); }
__device__ __forceinline__ __half multiply_add(__half x, __half y, __half z) { return __hfma(x, y, z); }
__device__ __forceinline__ __half2 multiply_add(__half2 x, __half2 y, __half2 z) { return __hfma2(x, y, z); }

__device__ __forceinline__ float plus(float x, float y) { return x + y; }
__device__ __forceinline__ double plus(double x, double y) { return x + y; }
__device__ __forceinline__ __half plus(__half x, __half y) { return __hadd(x, y); }
__device__ __forceinline__ __half2 plus(__half2 x, __half2 y) { return __hadd2(x, y); }

template <typename T>
__device__ __forceinline__ T fma_chain(T x, T factor, T addend, int repeats) {
#pragma unroll 16
    for (int r = 0; r < repeats; ++r) x = multiply_add(x, factor, addend);
    return x;
}

template <typename T>
__device__ __forceinline__ T add_chain(T x, T addend, int repeats) {
#pragma unroll 16
    for (int r = 0; r < repeats; ++r) x = plus(x, addend);
    return x;
}

// Pairs of halves in n; none where an array does not begin on a 4-byte boundary.
__device__ __forceinline__ long long pairs_in(long long n, const __half* a, const __half* b) {
    return (reinterpret_cast<unsigned long long>(a) | reinterpret_cast<unsigned long long>(b)) % 4 == 0 ? n / 2 : 0;
}

static constexpr int PACKS = 4;  // of 16 bytes, that a thread loads before it uses the first

// 16 bytes: four of what an instruction computes.
template <typename V>
struct __align__(16) Pack {
    V values[4];
};

// Returns how many elements it did: those of whole packs, none where an array does not begin on a 16-byte boundary.
template <typename V, typename T>
__device__ __forceinline__ long long fma_wide(T* out, const T* in, V factor, V addend, int repeats, long long n) {
    constexpr int WIDTH = 16 / sizeof(T);
    if ((reinterpret_cast<unsigned long long>(out) | reinterpret_cast<unsigned long long>(in)) % 16) return 0;
    const long long packs = n / WIDTH;
    for (long long block = blockIdx.x; block * blockDim.x * PACKS < packs; block += gridDim.x) {
        const long long first = block * blockDim.x * PACKS + threadIdx.x;
        Pack<V> x[PACKS];
        uint4* loaded = reinterpret_cast<uint4*>(x);  // a pair of halves would be copied by itself
#pragma unroll
        for (int p = 0; p < PACKS; ++p)  // neighbours load neighbouring packs
            loaded[p] =
                first + p * blockDim.x < packs ? reinterpret_cast<const uint4*>(in)[first + p * blockDim.x] : uint4{};
        // Trick: sixteen chains, none of which waits for another, share one loop.
#pragma unroll 4
        for (int r = 0; r < repeats; ++r) {
#pragma unroll
            for (int p = 0; p < PACKS; ++p) {
#pragma unroll
                for (int v = 0; v < 4; ++v) x[p].values[v] = multiply_add(x[p].values[v], factor, addend);
            }
        }
#pragma unroll
        for (int p = 0; p < PACKS; ++p)
            if (first + p * blockDim.x < packs) reinterpret_cast<uint4*>(out)[first + p * blockDim.x] = loaded[p];
    }
    return packs * WIDTH;
}

extern "C" __global__ void intensity_fma_f32(float* __restrict__ out, const float* __restrict__ in, float factor,
                                             float addend, int repeats, long long n) {
#pragma unroll 1
    for (long long i = thread_index(); i < n; i += thread_count()) out[i] = fma_chain(in[i], factor, addend, repeats);
}
extern "C" __global__ void intensity_fma_f64(double* __restrict__ out, const double* __restrict__ in, double factor,
                                             double addend, int repeats, long long n) {
#pragma unroll 1
    for (long long i = thread_index(); i < n; i += thread_count()) out[i] = fma_chain(in[i], factor, addend, repeats);
}
extern "C" __global__ void intensity_fma_f16(__half* __restrict__ out, const __half* __restrict__ in, float factor,
                                             float addend, int repeats, long long n) {
    __half f = __float2half(factor), a = __float2half(addend);
    long long pairs = pairs_in(n, out, in);
#pragma unroll 1
    for (long long i = thread_index(); i < pairs; i += thread_count())
        reinterpret_cast<__half2*>(out)[i] =
            fma_chain(reinterpret_cast<const __half2*>(in)[i], __half2half2(f), __half2half2(a), repeats);
#pragma unroll 1
    for (long long i = 2 * pairs + thread_index(); i < n; i += thread_count()) out[i] = fma_chain(in[i], f, a, repeats);
}
extern "C" __global__ void intensity_add_f32(float* __restrict__ out, const float* __restrict__ in, float addend,
                                             int repeats, long long n) {
#pragma unroll 1
    for (long long i = thread_index(); i < n; i += thread_count()) out[i] = add_chain(in[i], addend, repeats);
}
extern "C" __global__ void intensity_add_f64(double* __restrict__ out, const double* __restrict__ in, double addend,
                                             int repeats, long long n) {
#pragma unroll 1
    for (long long i = thread_index(); i < n; i += thread_count()) out[i] = add_chain(in[i], addend, repeats);
}
extern "C" __global__ void intensity_add_f16(__half* __restrict__ out, const __half* __restrict__ in, float addend,
                                             int repeats, long long n) {
    __half a = __float2half(addend);
    long long pairs = pairs_in(n, out, in);
#pragma unroll 1
    for (long long i = thread_index(); i < pairs; i += thread_count())
        reinterpret_cast<__half2*>(out)[i] =
            add_chain(reinterpret_cast<const __half2*>(in)[i], __half2half2(a), repeats);
#pragma unroll 1
    for (long long i = 2 * pairs + thread_index(); i < n; i += thread_count()) out[i] = add_chain(in[i], a, repeats);
}
extern "C" __global__ void intensity_fma_f32x4(float* __restrict__ out, const float* __restrict__ in, float factor,
                                               float addend, int repeats, long long n) {
#pragma unroll 1
    for (long long i = fma_wide(out, in, factor, addend, repeats, n) + thread_index(); i < n; i += thread_count())
        out[i] = fma_chain(in[i], factor, addend, repeats);
}
extern "C" __global__ void intensity_fma_f16x8(__half* __restrict__ out, const __half* __restrict__ in, float factor,
                                               float addend, int repeats, long long n) {
    __half f = __float2half(factor), a = __float2half(addend);
    long long done = fma_wide(out, in, __half2half2(f), __half2half2(a), repeats, n);
#pragma unroll 1
    for (long long i = done + thread_index(); i < n; i += thread_count()) out[i] = fma_chain(in[i], f, a, repeats);
}
