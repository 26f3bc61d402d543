// Transpose: out (cols x rows) = in (rows x cols), both row-major.
//
//   bytes read rows*cols*s, bytes written rows*cols*s, 0 FLOP
//
// Versions:
//   transpose_naive   reads along rows, so writes down columns: a warp's store touches 32 different sectors.
//   transpose_tiled   passes a 32x32 tile through shared memory, so that both sides run along rows. The tile has one
//                     column more than it holds: without it, the 32 elements of a column would all lie in one of the 32
//                     shared-memory banks and be served one after the other.
//
// Blocks of (32, 8) threads; any two-dimensional grid; any shape, empty ones included.
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
