// Matrix product: C (m x n) = A (m x k) * B (k x n), all row-major.
//
//   bytes read (mk + kn)*s, bytes written mn*s, 2mnk FLOP
//
// Versions compute the same and differ in how often they ask for an element:
//
//   kernel         bytes asked for by loads            how
//   gemm_naive     2mnk*s                              one thread per element of C, operands straight from memory
//   gemm_tiled     (mk*ceil(n/32) + kn*ceil(m/32))*s   a block computes 32x32 of C from tiles in shared memory
//   gemm_blocked   (mk*ceil(n/64) + kn*ceil(m/64))*s   64x64 of C, a thread computes 4x4 in registers, so that each
//                                                      value read from shared memory serves four multiply-adds
//
// Blocks of (32, 8) threads for naive and tiled, (16, 16) for blocked; any two-dimensional grid; any shape: parts of a
// tile outside the matrices count as zeros, and are neither read nor written. f16: products and sums in float, one
// rounding at the end. Tensor cores are left to the libraries: a matmul of CuPy stands beside these in the suite.
//
// Reference: CUDA C++ Programming Guide, "Shared Memory"; Boehm, How to Optimize a CUDA Matmul Kernel,
// https://siboehm.com/articles/22/CUDA-MMM.

#if defined(__HIPCC_RTC__) || defined(__HIP_PLATFORM_AMD__)
#ifndef __HIPCC_RTC__  // which has halves built in
#include <hip/hip_fp16.h>
#endif
#else
#include <cuda_fp16.h>
#endif

template <typename T>
__device__ __forceinline__ void gemm_naive(T* c, const T* a, const T* b, long long m, long long n, long long k) {
    long long row_step = gridDim.y * (long long)blockDim.y, col_step = gridDim.x * (long long)blockDim.x;
    for (long long row = blockIdx.y * (long long)blockDim.y + threadIdx.y; row < m; row += row_step) {
        for (long long col = blockIdx.x * (long long)blockDim.x + threadIdx.x; col < n; col += col_step) {
            float sum = 0.0f;
            for (long long i = 0; i < k; ++i)
                sum += static_cast<float>(a[row * k + i]) * static_cast<float>(b[i * n + col]);
            c[row * n + col] = static_cast<T>(sum);
        }
    }
}

static constexpr int TILE = 32;
static constexpr int BLOCK_ROWS = 8;                       // threads along y
static constexpr int ROWS_PER_THREAD = TILE / BLOCK_ROWS;  // rows y, y + 8, y + 16, y + 24 of the tile

template <typename T>
__device__ __forceinline__ void gemm_tiled(T* c, const T* a, const T* b, long long m, long long n, long long k) {
    __shared__ float a_tile[TILE][TILE], b_tile[TILE][TILE];
    const int x = threadIdx.x, y = threadIdx.y;
    for (long long row0 = blockIdx.y * (long long)TILE; row0 < m; row0 += gridDim.y * (long long)TILE) {
        for (long long col0 = blockIdx.x * (long long)TILE; col0 < n; col0 += gridDim.x * (long long)TILE) {
            float sum[ROWS_PER_THREAD] = {};
            for (long long k0 = 0; k0 < k; k0 += TILE) {
#pragma unroll
                for (int r = y; r < TILE; r += BLOCK_ROWS) {
                    bool a_inside = row0 + r < m && k0 + x < k, b_inside = k0 + r < k && col0 + x < n;
                    a_tile[r][x] = a_inside ? static_cast<float>(a[(row0 + r) * k + k0 + x]) : 0.0f;
                    b_tile[r][x] = b_inside ? static_cast<float>(b[(k0 + r) * n + col0 + x]) : 0.0f;
                }
                __syncthreads();
#pragma unroll
                for (int i = 0; i < TILE; ++i) {
#pragma unroll
                    for (int j = 0; j < ROWS_PER_THREAD; ++j) sum[j] += a_tile[y + j * BLOCK_ROWS][i] * b_tile[i][x];
                }
                __syncthreads();  // before the next tiles overwrite these
            }
#pragma unroll
            for (int j = 0; j < ROWS_PER_THREAD; ++j) {
                long long row = row0 + y + j * BLOCK_ROWS;
                if (row < m && col0 + x < n) c[row * n + col0 + x] = static_cast<T>(sum[j]);
            }
        }
    }
}

static constexpr int BLOCKED_TILE = 64;   // rows and columns of C per block
static constexpr int BLOCKED_DEPTH = 16;  // columns of A and rows of B per step
static constexpr int PER_THREAD = 4;      // rows and columns of C per thread
static constexpr int THREADS = (BLOCKED_TILE / PER_THREAD) * (BLOCKED_TILE / PER_THREAD);

template <typename T>
__device__ __forceinline__ void gemm_blocked(T* c, const T* a, const T* b, long long m, long long n, long long k) {
    // A's tile lies transposed, so that a thread's four rows are neighbours; the padding spreads its stores over banks.
    __shared__ __align__(16) float a_tile[BLOCKED_DEPTH][BLOCKED_TILE + PER_THREAD];
    __shared__ __align__(16) float b_tile[BLOCKED_DEPTH][BLOCKED_TILE];
    const int thread = threadIdx.y * (BLOCKED_TILE / PER_THREAD) + threadIdx.x;
    const int row_in_tile = threadIdx.y * PER_THREAD, col_in_tile = threadIdx.x * PER_THREAD;
    for (long long row0 = blockIdx.y * (long long)BLOCKED_TILE; row0 < m; row0 += gridDim.y * (long long)BLOCKED_TILE) {
        for (long long col0 = blockIdx.x * (long long)BLOCKED_TILE; col0 < n;
             col0 += gridDim.x * (long long)BLOCKED_TILE) {
            float sum[PER_THREAD][PER_THREAD] = {};
            for (long long k0 = 0; k0 < k; k0 += BLOCKED_DEPTH) {
#pragma unroll
                for (int e = thread; e < BLOCKED_TILE * BLOCKED_DEPTH; e += THREADS) {
                    int a_row = e / BLOCKED_DEPTH, a_col = e % BLOCKED_DEPTH;
                    int b_row = e / BLOCKED_TILE, b_col = e % BLOCKED_TILE;
                    bool a_inside = row0 + a_row < m && k0 + a_col < k, b_inside = k0 + b_row < k && col0 + b_col < n;
                    a_tile[a_col][a_row] = a_inside ? static_cast<float>(a[(row0 + a_row) * k + k0 + a_col]) : 0.0f;
                    b_tile[b_row][b_col] = b_inside ? static_cast<float>(b[(k0 + b_row) * n + col0 + b_col]) : 0.0f;
                }
                __syncthreads();
#pragma unroll
                for (int i = 0; i < BLOCKED_DEPTH; ++i) {
                    float4 a4 = *reinterpret_cast<const float4*>(&a_tile[i][row_in_tile]);
                    float4 b4 = *reinterpret_cast<const float4*>(&b_tile[i][col_in_tile]);
                    const float rows[PER_THREAD] = {a4.x, a4.y, a4.z, a4.w};
                    const float cols[PER_THREAD] = {b4.x, b4.y, b4.z, b4.w};
#pragma unroll
                    for (int r = 0; r < PER_THREAD; ++r) {
#pragma unroll
                        for (int s = 0; s < PER_THREAD; ++s) sum[r][s] += rows[r] * cols[s];
                    }
                }
                __syncthreads();
            }
#pragma unroll
            for (int r = 0; r < PER_THREAD; ++r) {
#pragma unroll
                for (int s = 0; s < PER_THREAD; ++s) {
                    long long row = row0 + row_in_tile + r, col = col0 + col_in_tile + s;
                    if (row < m && col < n) c[row * n + col] = static_cast<T>(sum[r][s]);
                }
            }
        }
    }
}

extern "C" __global__ void gemm_naive_f32(float* __restrict__ c, const float* __restrict__ a,
                                          const float* __restrict__ b, long long m, long long n, long long k) {
    gemm_naive(c, a, b, m, n, k);
}
extern "C" __global__ void gemm_naive_f16(__half* __restrict__ c, const __half* __restrict__ a,
                                          const __half* __restrict__ b, long long m, long long n, long long k) {
    gemm_naive(c, a, b, m, n, k);
}
extern "C" __global__ void gemm_tiled_f32(float* __restrict__ c, const float* __restrict__ a,
                                          const float* __restrict__ b, long long m, long long n, long long k) {
    gemm_tiled(c, a, b, m, n, k);
}
extern "C" __global__ void gemm_tiled_f16(__half* __restrict__ c, const __half* __restrict__ a,
                                          const __half* __restrict__ b, long long m, long long n, long long k) {
    gemm_tiled(c, a, b, m, n, k);
}
extern "C" __global__ void gemm_blocked_f32(float* __restrict__ c, const float* __restrict__ a,
                                            const float* __restrict__ b, long long m, long long n, long long k) {
    gemm_blocked(c, a, b, m, n, k);
}
extern "C" __global__ void gemm_blocked_f16(__half* __restrict__ c, const __half* __restrict__ a,
                                            const __half* __restrict__ b, long long m, long long n, long long k) {
    gemm_blocked(c, a, b, m, n, k);
}
