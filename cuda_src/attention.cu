// Attention: out = softmax(scale*Q*K^T)*V for each of `heads` (batch x heads) independent matrices Q, K, V (n x d).
//
//   version    launches                                       bytes moved                       FLOP
//   standard   attention_scores, a softmax of softmax.cu,     4*heads*n*d*s + 4*heads*n^2*s     4*heads*n^2*d
//              attention_output
//   flash      attention_flash                                4*heads*n*d*s                     4*heads*n^2*d
//
// Standard writes the n x n scores to memory, reads and rewrites them in the softmax, and reads them once more: four
// passes over n^2 elements. Flash keeps a running maximum, sum and weighted result per query (the online softmax), so
// that the scores of 32 queries x 32 keys at a time never leave the block. K and V are then asked for once per 32
// queries, most of which caches meet.
//
// Blocks of (32, 8) threads. Standard: any three-dimensional grid (x: columns, y: rows, z: heads). Flash: any
// two-dimensional grid (x: query tiles, y: heads), and d <= 128; a larger d writes NaN throughout, because the result
// must not look like one. Any n and d, 0 included. f16: float arithmetic; scores and results are rounded in memory.
//
// Reference: Dao et al., FlashAttention, https://arxiv.org/abs/2205.14135.

#if defined(__HIPCC_RTC__) || defined(__HIP_PLATFORM_AMD__)
#ifndef __HIPCC_RTC__  // which has halves built in
#include <hip/hip_fp16.h>
#endif
#define SHUFFLE(value, lane) __shfl(value, lane, 32)
#define SHUFFLE_XOR(value, lanes) __shfl_xor(value, lanes, 32)
#else
#include <cuda_fp16.h>
#define SHUFFLE(value, lane) __shfl_sync(0xffffffffu, value, lane)
#define SHUFFLE_XOR(value, lanes) __shfl_xor_sync(0xffffffffu, value, lanes)
#endif

static constexpr int TILE = 32;
static constexpr int WARPS = 8;                     // threads along y
static constexpr int ROWS_PER_WARP = TILE / WARPS;  // rows y, y + 8, y + 16, y + 24 of a tile
static constexpr int MAX_HEAD = 128;
static constexpr int COLS_PER_LANE = MAX_HEAD / TILE;  // columns x, x + 32, x + 64, x + 96 of the result

// S = scale*Q*K^T of one matrix: a tiled product whose second operand is read by rows.
template <typename T>
__device__ __forceinline__ void scores(T* s, const T* q, const T* k, float scale, long long n, long long d) {
    __shared__ float q_tile[TILE][TILE];
    __shared__ float k_tile[TILE][TILE + 1];  // read down a column: one more keeps its rows in different banks
    const int x = threadIdx.x, y = threadIdx.y;
    for (long long row0 = blockIdx.y * (long long)TILE; row0 < n; row0 += gridDim.y * (long long)TILE) {
        for (long long col0 = blockIdx.x * (long long)TILE; col0 < n; col0 += gridDim.x * (long long)TILE) {
            float sum[ROWS_PER_WARP] = {};
            for (long long d0 = 0; d0 < d; d0 += TILE) {
#pragma unroll
                for (int r = y; r < TILE; r += WARPS) {
                    bool col_inside = d0 + x < d;
                    q_tile[r][x] = col_inside && row0 + r < n ? static_cast<float>(q[(row0 + r) * d + d0 + x]) : 0.0f;
                    k_tile[r][x] = col_inside && col0 + r < n ? static_cast<float>(k[(col0 + r) * d + d0 + x]) : 0.0f;
                }
                __syncthreads();
#pragma unroll
                for (int i = 0; i < TILE; ++i) {
#pragma unroll
                    for (int j = 0; j < ROWS_PER_WARP; ++j) sum[j] += q_tile[y + j * WARPS][i] * k_tile[x][i];
                }
                __syncthreads();
            }
#pragma unroll
            for (int j = 0; j < ROWS_PER_WARP; ++j) {
                long long row = row0 + y + j * WARPS;
                if (row < n && col0 + x < n) s[row * n + col0 + x] = static_cast<T>(scale * sum[j]);
            }
        }
    }
}

// O = P*V of one matrix: a tiled product, n x n by n x d.
template <typename T>
__device__ __forceinline__ void output(T* o, const T* p, const T* v, long long n, long long d) {
    __shared__ float p_tile[TILE][TILE], v_tile[TILE][TILE];
    const int x = threadIdx.x, y = threadIdx.y;
    for (long long row0 = blockIdx.y * (long long)TILE; row0 < n; row0 += gridDim.y * (long long)TILE) {
        for (long long col0 = blockIdx.x * (long long)TILE; col0 < d; col0 += gridDim.x * (long long)TILE) {
            float sum[ROWS_PER_WARP] = {};
            for (long long n0 = 0; n0 < n; n0 += TILE) {
#pragma unroll
                for (int r = y; r < TILE; r += WARPS) {
                    bool p_inside = row0 + r < n && n0 + x < n, v_inside = n0 + r < n && col0 + x < d;
                    p_tile[r][x] = p_inside ? static_cast<float>(p[(row0 + r) * n + n0 + x]) : 0.0f;
                    v_tile[r][x] = v_inside ? static_cast<float>(v[(n0 + r) * d + col0 + x]) : 0.0f;
                }
                __syncthreads();
#pragma unroll
                for (int i = 0; i < TILE; ++i) {
#pragma unroll
                    for (int j = 0; j < ROWS_PER_WARP; ++j) sum[j] += p_tile[y + j * WARPS][i] * v_tile[i][x];
                }
                __syncthreads();
            }
#pragma unroll
            for (int j = 0; j < ROWS_PER_WARP; ++j) {
                long long row = row0 + y + j * WARPS;
                if (row < n && col0 + x < d) o[row * d + col0 + x] = static_cast<T>(sum[j]);
            }
        }
    }
}

__device__ __forceinline__ float warp_max(float value) {
    for (int lanes = 16; lanes > 0; lanes /= 2) value = fmaxf(value, SHUFFLE_XOR(value, lanes));
    return value;
}
__device__ __forceinline__ float warp_sum(float value) {
    for (int lanes = 16; lanes > 0; lanes /= 2) value += SHUFFLE_XOR(value, lanes);
    return value;
}

// 32 rows of a matrix, from row0 on, into shared memory; rows and columns outside of it as zeros.
template <typename T, int PITCH>
__device__ __forceinline__ void load_rows(float (*tile)[PITCH], const T* in, long long row0, long long n, long long d) {
    for (int r = threadIdx.y; r < TILE; r += WARPS)
        for (int c = threadIdx.x; c < MAX_HEAD; c += TILE)
            tile[r][c] = row0 + r < n && c < d ? static_cast<float>(in[(row0 + r) * d + c]) : 0.0f;
}

// 32 queries of one matrix. A warp has four of them. In the scores a lane stands for a key, in the result for columns.
template <typename T>
__device__ __forceinline__ void flash(T* o, const T* q, const T* k, const T* v, float scale, long long row0,
                                      long long n, long long d) {
    __shared__ float q_tile[TILE][MAX_HEAD];
    __shared__ float kv_tile[TILE][MAX_HEAD + 1];  // the keys, then the values; read down columns by the scores
    const int lane = threadIdx.x, warp = threadIdx.y;
    float max[ROWS_PER_WARP], sum[ROWS_PER_WARP], result[ROWS_PER_WARP][COLS_PER_LANE];
#pragma unroll
    for (int j = 0; j < ROWS_PER_WARP; ++j) {
        max[j] = -3.402823466e+38f;
        sum[j] = 0.0f;
#pragma unroll
        for (int c = 0; c < COLS_PER_LANE; ++c) result[j][c] = 0.0f;
    }
    load_rows(q_tile, q, row0, n, d);

    for (long long key0 = 0; key0 < n; key0 += TILE) {
        load_rows(kv_tile, k, key0, n, d);
        __syncthreads();
        float score[ROWS_PER_WARP] = {};  // of this lane's key
#pragma unroll 4
        for (int c = 0; c < d; ++c) {
#pragma unroll
            for (int j = 0; j < ROWS_PER_WARP; ++j) score[j] += q_tile[warp + j * WARPS][c] * kv_tile[lane][c];
        }
        __syncthreads();
        load_rows(kv_tile, v, key0, n, d);
        __syncthreads();

        bool is_key = key0 + lane < n;
#pragma unroll
        for (int j = 0; j < ROWS_PER_WARP; ++j) {
            score[j] = is_key ? scale * score[j] : -3.402823466e+38f;
            float new_max = fmaxf(max[j], warp_max(score[j]));
            float weight = is_key ? expf(score[j] - new_max) : 0.0f;
            float shrink = expf(max[j] - new_max);  // what has been summed up so far was relative to the old maximum
            max[j] = new_max;
            sum[j] = sum[j] * shrink + warp_sum(weight);
#pragma unroll
            for (int c = 0; c < COLS_PER_LANE; ++c) result[j][c] *= shrink;
#pragma unroll 4
            for (int key = 0; key < TILE; ++key) {
                float weight_of_key = SHUFFLE(weight, key);
#pragma unroll
                for (int c = 0; c < COLS_PER_LANE; ++c) result[j][c] += weight_of_key * kv_tile[key][lane + c * TILE];
            }
        }
        __syncthreads();  // before the next keys overwrite the values
    }

#pragma unroll
    for (int j = 0; j < ROWS_PER_WARP; ++j) {
        long long row = row0 + warp + j * WARPS;
#pragma unroll
        for (int c = 0; c < COLS_PER_LANE; ++c)
            if (row < n && lane + c * TILE < d) o[row * d + lane + c * TILE] = static_cast<T>(result[j][c] / sum[j]);
    }
    __syncthreads();  // before the next queries overwrite these
}

template <typename T>
__device__ __forceinline__ void flash_all(T* o, const T* q, const T* k, const T* v, float scale, long long heads,
                                          long long n, long long d) {
    for (long long head = blockIdx.y; head < heads; head += gridDim.y) {
        long long at = head * n * d;
        for (long long row0 = blockIdx.x * (long long)TILE; row0 < n; row0 += gridDim.x * (long long)TILE) {
            if (d <= MAX_HEAD) {
                flash(o + at, q + at, k + at, v + at, scale, row0, n, d);
                continue;
            }
            for (long long row = row0 + threadIdx.y; row < n && row < row0 + TILE; row += WARPS)
                for (long long c = threadIdx.x; c < d; c += TILE)
                    o[at + row * d + c] = static_cast<T>(__int_as_float(0x7fffffff));
        }
    }
}

template <typename T>
__device__ __forceinline__ void scores_all(T* s, const T* q, const T* k, float scale, long long heads, long long n,
                                           long long d) {
    for (long long head = blockIdx.z; head < heads; head += gridDim.z)
        scores(s + head * n * n, q + head * n * d, k + head * n * d, scale, n, d);
}

template <typename T>
__device__ __forceinline__ void output_all(T* o, const T* p, const T* v, long long heads, long long n, long long d) {
    for (long long head = blockIdx.z; head < heads; head += gridDim.z)
        output(o + head * n * d, p + head * n * n, v + head * n * d, n, d);
}

extern "C" __global__ void attention_scores_f32(float* __restrict__ s, const float* __restrict__ q,
                                                const float* __restrict__ k, float scale, long long heads, long long n,
                                                long long d) {
    scores_all(s, q, k, scale, heads, n, d);
}
extern "C" __global__ void attention_scores_f16(__half* __restrict__ s, const __half* __restrict__ q,
                                                const __half* __restrict__ k, float scale, long long heads, long long n,
                                                long long d) {
    scores_all(s, q, k, scale, heads, n, d);
}
extern "C" __global__ void attention_output_f32(float* __restrict__ o, const float* __restrict__ p,
                                                const float* __restrict__ v, long long heads, long long n,
                                                long long d) {
    output_all(o, p, v, heads, n, d);
}
extern "C" __global__ void attention_output_f16(__half* __restrict__ o, const __half* __restrict__ p,
                                                const __half* __restrict__ v, long long heads, long long n,
                                                long long d) {
    output_all(o, p, v, heads, n, d);
}
extern "C" __global__ void attention_flash_f32(float* __restrict__ o, const float* __restrict__ q,
                                               const float* __restrict__ k, const float* __restrict__ v, float scale,
                                               long long heads, long long n, long long d) {
    flash_all(o, q, k, v, scale, heads, n, d);
}
extern "C" __global__ void attention_flash_f16(__half* __restrict__ o, const __half* __restrict__ q,
                                               const __half* __restrict__ k, const __half* __restrict__ v, float scale,
                                               long long heads, long long n, long long d) {
    flash_all(o, q, k, v, scale, heads, n, d);
}
