// Access patterns: copies that move the same useful bytes and differ in the order of their addresses only.
//
// A GPU fetches memory in sectors of 32 bytes. What a warp's 32 threads ask for in one instruction is one request; the
// fewer sectors it falls into, the better. For float:
//
//   kernel          access                          useful bytes        sectors per request (coalesced: 4)
//   strided_read    out[i] = in[i*stride]           2n*s                min(4*stride, 32) loads, 4 stores
//   strided_write   out[i*stride] = in[i]           2n*s                4 loads, min(4*stride, 32) stores
//   misaligned      out[i] = in[i + offset]         2n*s                5 loads, if offset*s is no multiple of 32
//   gather          out[i] = in[index[i]]           2n*s + n*index      up to 32 loads
//
// strided_read with stride 0 is a broadcast: every thread asks for in[0], 1 sector a request, and s bytes are read.
//
// Any grid of one-dimensional blocks, any n, 0 included. Arrays must not overlap. `in` of strided_read and `out` of
// strided_write hold (n - 1)*stride + 1 elements, `in` of misaligned n + offset. gather takes 32- or 64-bit indices
// into `length` elements; an index outside of them gives 0.
//
// Reference: CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory".

#if defined(__HIPCC_RTC__) || defined(__HIP_PLATFORM_AMD__)
#ifndef __HIPCC_RTC__  // which has halves built in
#include <hip/hip_fp16.h>
#endif
#else
#include <cuda_fp16.h>
#endif

__device__ __forceinline__ long long thread_index() { return blockIdx.x * (long long)blockDim.x + threadIdx.x; }
__device__ __forceinline__ long long thread_count() { return gridDim.x * (long long)blockDim.x; }

// `unroll 1`: unrolled, each thread would divide 64-bit numbers first, which is not what is measured: see stream.cu.

template <typename T>
__device__ __forceinline__ void strided_read(T* out, const T* in, long long stride, long long n) {
#pragma unroll 1
    for (long long i = thread_index(); i < n; i += thread_count()) out[i] = in[i * stride];
}

template <typename T>
__device__ __forceinline__ void strided_write(T* out, const T* in, long long stride, long long n) {
#pragma unroll 1
    for (long long i = thread_index(); i < n; i += thread_count()) out[i * stride] = in[i];
}

template <typename T>
__device__ __forceinline__ void misaligned(T* out, const T* in, long long offset, long long n) {
#pragma unroll 1
    for (long long i = thread_index(); i < n; i += thread_count()) out[i] = in[i + offset];
}

template <typename T, typename Index>
__device__ __forceinline__ void gather(T* out, const T* in, const Index* index, long long length, long long n) {
#pragma unroll 1
    for (long long i = thread_index(); i < n; i += thread_count()) {
        long long source = index[i];
        out[i] = 0 <= source && source < length ? in[source] : T(0);
    }
}

extern "C" __global__ void strided_read_f32(float* __restrict__ out, const float* __restrict__ in, long long stride,
                                            long long n) {
    strided_read(out, in, stride, n);
}
extern "C" __global__ void strided_read_f16(__half* __restrict__ out, const __half* __restrict__ in, long long stride,
                                            long long n) {
    strided_read(out, in, stride, n);
}
extern "C" __global__ void strided_write_f32(float* __restrict__ out, const float* __restrict__ in, long long stride,
                                             long long n) {
    strided_write(out, in, stride, n);
}
extern "C" __global__ void strided_write_f16(__half* __restrict__ out, const __half* __restrict__ in, long long stride,
                                             long long n) {
    strided_write(out, in, stride, n);
}
extern "C" __global__ void misaligned_f32(float* __restrict__ out, const float* __restrict__ in, long long offset,
                                          long long n) {
    misaligned(out, in, offset, n);
}
extern "C" __global__ void misaligned_f16(__half* __restrict__ out, const __half* __restrict__ in, long long offset,
                                          long long n) {
    misaligned(out, in, offset, n);
}
// _i32 and _i64: the width of the indices, which are traffic too.
extern "C" __global__ void gather_f32_i32(float* __restrict__ out, const float* __restrict__ in,
                                          const int* __restrict__ index, long long length, long long n) {
    gather(out, in, index, length, n);
}
extern "C" __global__ void gather_f32_i64(float* __restrict__ out, const float* __restrict__ in,
                                          const long long* __restrict__ index, long long length, long long n) {
    gather(out, in, index, length, n);
}
extern "C" __global__ void gather_f16_i32(__half* __restrict__ out, const __half* __restrict__ in,
                                          const int* __restrict__ index, long long length, long long n) {
    gather(out, in, index, length, n);
}
extern "C" __global__ void gather_f16_i64(__half* __restrict__ out, const __half* __restrict__ in,
                                          const long long* __restrict__ index, long long length, long long n) {
    gather(out, in, index, length, n);
}
