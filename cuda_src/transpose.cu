// Transpose: out (cols x rows) = in (rows x cols), both row-major.
//
//   bytes read rows*cols*s, bytes written rows*cols*s, 0 FLOP
//
// What bounds it: memory, where both sides run along rows. Versions:
//   transpose_naive   reads along rows, so writes down columns: a warp's store touches 32 different sectors.
//   transpose_tiled   passes a 32x32 tile through shared memory, so that both sides run along rows. The tile has one
//                     column more than it holds: without it, the 32 elements of a column would all lie in one of the 32
//                     shared-memory banks and be served one after the other.
//   transpose_wide    copy this one. Tiled moves 4 or 2 bytes with each instruction, and computes a 64-bit place for
//                     each; here a thread loads 4 rows of 4 floats (8 of 8 halves), 16 bytes at a time, and transposes
//                     them in registers. Tiles are 64x64 floats, 128x128 halves. _f16 transposes bfloat16 as well.
//   transpose_batch_naive, _wide   the same for each matrix of a batch, a layer of the grid each. Of images, channels x
//                     pixels, it makes pixels x channels (NCHW to NHWC), and back.
//
// Blocks of (32, 8) threads, of (16, 16) for wide; any grid; any shape, empty ones included. Where rows or columns are
// no multiple of 16 bytes, wide moves single elements on that side.
//
// Reference: Ruetsch and Micikevicius, Optimizing Matrix Transpose in CUDA;
// https://developer.nvidia.com/blog/efficient-matrix-transpose-cuda-cc/

#if defined(__HIPCC_RTC__) || defined(__HIP_PLATFORM_AMD__)
#ifndef __HIPCC_RTC__  // which has halves built in
#include <hip/hip_fp16.h>
#endif
#else
#include <cuda_fp16.h>
#endif

static constexpr int TILE = 32;
static constexpr int BLOCK_ROWS = 8;  // rows of a tile that the block handles at once

template <typename T>
__device__ __forceinline__ void transpose_naive(T* out, const T* in, long long rows, long long cols) {
    long long row_step = gridDim.y * (long long)BLOCK_ROWS, col_step = gridDim.x * (long long)TILE;
    for (long long row = blockIdx.y * (long long)BLOCK_ROWS + threadIdx.y; row < rows; row += row_step)
#pragma unroll 1  // unrolled, each thread would divide 64-bit numbers first: see stream.cu
        for (long long col = blockIdx.x * (long long)TILE + threadIdx.x; col < cols; col += col_step)
            out[col * rows + row] = in[row * cols + col];
}

template <typename T>
__device__ __forceinline__ void transpose_tiled(T* out, const T* in, long long rows, long long cols) {
    __shared__ T tile[TILE][TILE + 1];
    for (long long row0 = blockIdx.y * (long long)TILE; row0 < rows; row0 += gridDim.y * (long long)TILE) {
        for (long long col0 = blockIdx.x * (long long)TILE; col0 < cols; col0 += gridDim.x * (long long)TILE) {
            for (int r = threadIdx.y; r < TILE; r += BLOCK_ROWS)
                if (row0 + r < rows && col0 + threadIdx.x < cols)
                    tile[r][threadIdx.x] = in[(row0 + r) * cols + col0 + threadIdx.x];
            __syncthreads();
            for (int c = threadIdx.y; c < TILE; c += BLOCK_ROWS)
                if (col0 + c < cols && row0 + threadIdx.x < rows)
                    out[(col0 + c) * rows + row0 + threadIdx.x] = tile[threadIdx.x][c];
            __syncthreads();  // before the next tile overwrites this one
        }
    }
}

// 16 bytes as elements.
template <typename T>
struct __align__(16) Pack {
    T elements[16 / sizeof(T)];
};

static constexpr int PACKS = 16;  // in a row of a tile, and threads along both sides

template <typename T>
__device__ __forceinline__ void transpose_wide(T* out, const T* in, long long rows, long long cols) {
    constexpr int WIDTH = 16 / sizeof(T), SIDE = PACKS * WIDTH;
    __shared__ Pack<T> tile[SIDE * PACKS];  // transposed: a row of it is a column of `in`
    const int x = threadIdx.x, y = threadIdx.y;
    const bool in_aligned = (reinterpret_cast<unsigned long long>(in) | cols * sizeof(T)) % 16 == 0;
    const bool out_aligned = (reinterpret_cast<unsigned long long>(out) | rows * sizeof(T)) % 16 == 0;
    for (long long row0 = blockIdx.y * (long long)SIDE; row0 < rows; row0 += gridDim.y * (long long)SIDE) {
        for (long long col0 = blockIdx.x * (long long)SIDE; col0 < cols; col0 += gridDim.x * (long long)SIDE) {
            Pack<T> from[WIDTH];
#pragma unroll
            for (int r = 0; r < WIDTH; ++r) {  // trick: all loads before the first use
                const long long row = row0 + WIDTH * y + r, col = col0 + WIDTH * x, at = row * cols + col;
                if (in_aligned && row < rows && col < cols) from[r] = reinterpret_cast<const Pack<T>*>(in)[at / WIDTH];
#pragma unroll
                for (int e = 0; e < WIDTH; ++e)
                    if (!in_aligned && row < rows && col + e < cols) from[r].elements[e] = in[at + e];
            }
            // Trick: where a pack lies in its row depends on the row (a swizzle), so that neighbours, whose rows lie
            // WIDTH apart, store to different banks, without padding.
#pragma unroll
            for (int c = 0; c < WIDTH; ++c) {
                Pack<T> column;
#pragma unroll
                for (int r = 0; r < WIDTH; ++r) column.elements[r] = from[r].elements[c];
                tile[(WIDTH * x + c) * PACKS + (y ^ x)] = column;
            }
            __syncthreads();
#pragma unroll
            for (int i = y; i < SIDE; i += PACKS) {
                const long long col = col0 + i, row = row0 + WIDTH * x, at = col * rows + row;
                const Pack<T> column = tile[i * PACKS + (x ^ i / WIDTH)];
                if (out_aligned && col < cols && row < rows) reinterpret_cast<Pack<T>*>(out)[at / WIDTH] = column;
#pragma unroll
                for (int e = 0; e < WIDTH; ++e)
                    if (!out_aligned && col < cols && row + e < rows) out[at + e] = column.elements[e];
            }
            __syncthreads();  // before the tile after this one overwrites it
        }
    }
}

extern "C" __global__ void transpose_naive_f32(float* __restrict__ out, const float* __restrict__ in, long long rows,
                                               long long cols) {
    transpose_naive(out, in, rows, cols);
}
extern "C" __global__ void transpose_naive_f16(__half* __restrict__ out, const __half* __restrict__ in, long long rows,
                                               long long cols) {
    transpose_naive(out, in, rows, cols);
}
extern "C" __global__ void transpose_tiled_f32(float* __restrict__ out, const float* __restrict__ in, long long rows,
                                               long long cols) {
    transpose_tiled(out, in, rows, cols);
}
extern "C" __global__ void transpose_tiled_f16(__half* __restrict__ out, const __half* __restrict__ in, long long rows,
                                               long long cols) {
    transpose_tiled(out, in, rows, cols);
}
extern "C" __global__ void transpose_wide_f32(float* __restrict__ out, const float* __restrict__ in, long long rows,
                                              long long cols) {
    transpose_wide(out, in, rows, cols);
}
extern "C" __global__ void transpose_wide_f16(__half* __restrict__ out, const __half* __restrict__ in, long long rows,
                                              long long cols) {
    transpose_wide(reinterpret_cast<unsigned short*>(out), reinterpret_cast<const unsigned short*>(in), rows, cols);
}

template <typename T>
__device__ __forceinline__ void batch_naive(T* out, const T* in, long long batch, long long rows, long long cols) {
    for (long long matrix = blockIdx.z; matrix < batch; matrix += gridDim.z)
        transpose_naive(out + matrix * rows * cols, in + matrix * rows * cols, rows, cols);
}
template <typename T>
__device__ __forceinline__ void batch_wide(T* out, const T* in, long long batch, long long rows, long long cols) {
    for (long long matrix = blockIdx.z; matrix < batch; matrix += gridDim.z)
        transpose_wide(out + matrix * rows * cols, in + matrix * rows * cols, rows, cols);
}

extern "C" __global__ void transpose_batch_naive_f32(float* __restrict__ out, const float* __restrict__ in,
                                                     long long batch, long long rows, long long cols) {
    batch_naive(out, in, batch, rows, cols);
}
extern "C" __global__ void transpose_batch_naive_f16(__half* __restrict__ out, const __half* __restrict__ in,
                                                     long long batch, long long rows, long long cols) {
    batch_naive(out, in, batch, rows, cols);
}
// Blocks at once on a multiprocessor: 64 KiB under way of each type, or all that Turing has registers for.
extern "C" __global__ void __launch_bounds__(256, 4)
    transpose_batch_wide_f32(float* __restrict__ out, const float* __restrict__ in, long long batch, long long rows,
                             long long cols) {
    batch_wide(out, in, batch, rows, cols);
}
extern "C" __global__ void __launch_bounds__(256, 2)
    transpose_batch_wide_f16(__half* __restrict__ out, const __half* __restrict__ in, long long batch, long long rows,
                             long long cols) {
    batch_wide(reinterpret_cast<unsigned short*>(out), reinterpret_cast<const unsigned short*>(in), batch, rows, cols);
}
