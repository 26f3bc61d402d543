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
//   embedding       out[i][] = table[index[i]][]    2n*s + 4*rows       4 loads (n = rows*cols)
//
// strided_read with stride 0 is a broadcast: every thread asks for in[0], 1 sector a request, and s bytes are read.
//
// What bounds embedding, which looks up a model's tokens: memory, though a row is short (128 to 512 bytes are one to
// four lines of a cache), and its place is known only when its index has come. Versions:
//   embedding_f32, _f16          4 or 2 bytes a lane, and a 64-bit division for each.
//   embedding_f32x4, _f16x8      copy this one: 16 bytes a lane, so that a warp has several short rows at once, and a
//                                lane loads of four rows before it stores the first. Blocks are two-dimensional:
//                                (lanes of a row, rows), at best as many lanes as the row has 16 bytes, 32 at most.
//
// Any grid of one-dimensional blocks, any n, 0 included. Arrays must not overlap. `in` of strided_read and `out` of
// strided_write hold (n - 1)*stride + 1 elements, `in` of misaligned n + offset. gather takes 32- or 64-bit indices
// into `length` elements, embedding 32-bit ones into as many rows; an index outside of them gives 0.
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

static constexpr int ROWS_AHEAD = 4;

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

// Rows: a lane has 16 bytes of a row, threadIdx.x of them, threadIdx.y the rows.
template <typename V>
__device__ __forceinline__ void embed_by_row(V* out, const V* table, const int* index, long long length,
                                             long long rows, long long cols) {
    const long long at_once = gridDim.x * (long long)blockDim.y;
    for (long long row = blockIdx.x * (long long)blockDim.y + threadIdx.y; row < rows; row += ROWS_AHEAD * at_once) {
        // Trick: the numbers of four rows, then a part of each, before the first is stored. A row's place in memory is
        // known a trip to memory late; four at a time share that trip and the next.
        long long source[ROWS_AHEAD];
        const V* from[ROWS_AHEAD];
        bool known[ROWS_AHEAD];
#pragma unroll
        for (int k = 0; k < ROWS_AHEAD; ++k) source[k] = row + k * at_once < rows ? index[row + k * at_once] : -1;
        // Trick: what is no row of the table is read from its first row and not used, and `__ldg` says that no store
        // changes the table. Loads under conditions, or maybe stored to, would wait for one another.
#pragma unroll
        for (int k = 0; k < ROWS_AHEAD; ++k) {
            known[k] = 0 <= source[k] && source[k] < length;
            from[k] = table + (known[k] ? source[k] : 0) * cols;
        }
#pragma unroll 1
        for (long long c = threadIdx.x; c < cols; c += blockDim.x) {
            V part[ROWS_AHEAD] = {};
            if (length > 0) {
#pragma unroll
                for (int k = 0; k < ROWS_AHEAD; ++k) part[k] = __ldg(from[k] + c);
            }
#pragma unroll
            for (int k = 0; k < ROWS_AHEAD; ++k)
                if (row + k * at_once < rows) out[(row + k * at_once) * cols + c] = known[k] ? part[k] : V{};
        }
    }
}

template <typename T>
__device__ __forceinline__ void embed_wide(T* out, const T* table, const int* index, long long length, long long rows,
                                           long long cols) {
    constexpr int WIDTH = 16 / sizeof(T);
    if (((unsigned long long)out | (unsigned long long)table | cols * sizeof(T)) % 16 == 0)
        embed_by_row(reinterpret_cast<uint4*>(out), reinterpret_cast<const uint4*>(table), index, length, rows,
                     cols / WIDTH);
    else
        embed_by_row(out, table, index, length, rows, cols);
}

template <typename T>
__device__ __forceinline__ void embed_plain(T* out, const T* table, const int* index, long long length,
                                            long long rows, long long cols) {
#pragma unroll 1
    for (long long i = thread_index(); i < rows * cols; i += thread_count()) {
        const long long source = index[i / cols];
        out[i] = 0 <= source && source < length ? table[source * cols + i % cols] : T(0);
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
extern "C" __global__ void embedding_f32(float* __restrict__ out, const float* __restrict__ table,
                                         const int* __restrict__ index, long long length, long long rows,
                                         long long cols) {
    embed_plain(out, table, index, length, rows, cols);
}
extern "C" __global__ void embedding_f16(__half* __restrict__ out, const __half* __restrict__ table,
                                         const int* __restrict__ index, long long length, long long rows,
                                         long long cols) {
    embed_plain(out, table, index, length, rows, cols);
}
extern "C" __global__ void embedding_f32x4(float* __restrict__ out, const float* __restrict__ table,
                                           const int* __restrict__ index, long long length, long long rows,
                                           long long cols) {
    embed_wide(out, table, index, length, rows, cols);
}
extern "C" __global__ void embedding_f16x8(__half* __restrict__ out, const __half* __restrict__ table,
                                           const int* __restrict__ index, long long length, long long rows,
                                           long long cols) {
    embed_wide(out, table, index, length, rows, cols);
}
