// Attention: out = softmax(scale*Q*K^T)*V for each of `heads` (batch x heads) independent matrices Q, K, V (n x d).
//
//   version    launches                                       bytes moved                       FLOP
//   standard   attention_scores, a softmax of softmax.cu,     4*heads*n*d*s + 4*heads*n^2*s     4*heads*n^2*d
//              attention_output
//   flash      attention_flash                                4*heads*n*d*s                     4*heads*n^2*d
//   flash2     attention_flash2                               4*heads*n*d*s                     4*heads*n^2*d
//
// What bounds it: arithmetic, where the scores do not go through memory. Standard writes the n x n scores, reads and
// rewrites them in the softmax, and reads them once more: four passes over n^2 elements. Flash keeps a running maximum,
// sum and weighted result per query (the online softmax), so that the scores of 32 queries x 32 keys at a time never
// leave the block. K and V are then asked for once per tile of queries, most of which caches meet.
//
// Copy attention_flash2. What attention_flash does wrong: it computes heads of 128 elements whatever d is, reads shared
// memory five times for four multiply-adds, reduces every row of scores over a warp, and waits for each tile of keys.
//   _f32   a thread has 8 queries x 4 keys of the scores and 8 x 8 of the result in registers. It waits for each tile.
//   _f16, _bf16   tensor cores (mma.sync): 128 queries, and tiles of keys by cp.async while the one before is computed.
//          They need sm_80, 64_f16 sm_75; before that, and on AMD, they compute as attention_flash does.
// Heads of up to 64 elements, and of up to 128, have kernels of their own: flash2_64 and flash2_128.
//
// Blocks of (32, 8) threads, of (32, 2) for flash2_f32. Standard: any three-dimensional grid (x: columns, y: rows, z:
// heads). Flash: any two-dimensional grid (x: query tiles, y: heads), and d <= 128; a larger d writes NaN throughout,
// because the result must not look like one. Any n and d, 0 included. Halves: float arithmetic; scores and results are
// rounded in memory, and the weights of flash2 for its second product.
//
// Reference: Dao et al., FlashAttention, https://arxiv.org/abs/2205.14135; Dao, FlashAttention-2,
// https://arxiv.org/abs/2307.08691.

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

// bfloat16 is the upper half of a float, which needs no header.
struct bf16 {
    unsigned short bits;
    bf16() = default;
    __device__ explicit bf16(float value) {  // to the nearest, ties to even; NaN stays one
        unsigned int all = __float_as_uint(value);
        bits = value == value ? (all + 0x7fff + (all >> 16 & 1)) >> 16 : 0x7fff;
    }
    __device__ operator float() const { return __uint_as_float(static_cast<unsigned int>(bits) << 16); }
};

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

// All results of heads that are too wide.
template <typename T>
__device__ __forceinline__ void not_a_number(T* o, long long heads, long long n, long long d) {
    for (long long row = blockIdx.y; row < heads * n; row += gridDim.y)
        for (long long c = (blockIdx.x * blockDim.y + threadIdx.y) * 32 + threadIdx.x; c < d;
             c += gridDim.x * blockDim.y * 32)
            o[row * d + c] = static_cast<T>(__int_as_float(0x7fffffff));
}

template <typename T>
__device__ __forceinline__ void flash_all(T* o, const T* q, const T* k, const T* v, float scale, long long heads,
                                          long long n, long long d) {
    if (d > MAX_HEAD) {
        not_a_number(o, heads, n, d);
        return;
    }
    for (long long head = blockIdx.y; head < heads; head += gridDim.y) {
        long long at = head * n * d;
        for (long long row0 = blockIdx.x * (long long)TILE; row0 < n; row0 += gridDim.x * (long long)TILE)
            flash(o + at, q + at, k + at, v + at, scale, row0, n, d);
    }
}

// ---- flash2 ---------------------------------------------------------------------------------------------------------

static constexpr float LOG2_E = 1.4426950408889634f;
static constexpr float LOWEST = -3.402823466e+38f;

__device__ __forceinline__ int within(long long left, int most) {
    return static_cast<int>(left < most ? left : most);
}

// Whether rows begin at multiples of 16 bytes.
template <typename T>
__device__ __forceinline__ bool aligned(const T* o, const T* q, const T* k, const T* v, long long d) {
    unsigned long long all = reinterpret_cast<unsigned long long>(o) | reinterpret_cast<unsigned long long>(q) |
                             reinterpret_cast<unsigned long long>(k) | reinterpret_cast<unsigned long long>(v);
    return (all | d * sizeof(T)) % 16 == 0;
}

// Two warps have QUERIES queries. In the scores a thread has ROWS of them and four keys, in the result ROWS of them and
// an eighth of the columns, so that each 16 bytes read from shared memory serve 11 to 16 multiply-adds. Threads of
// one y have the same queries.
template <int HEAD>
struct __align__(16) F32 {
    static constexpr int QUERIES = HEAD == 64 ? 64 : 32, KEYS = 32, ROWS = QUERIES / 8, COLS = HEAD / 8;
    float q[HEAD * QUERIES];    // transposed
    float kv[HEAD * KEYS];      // the keys, transposed, then the values
    float weights[KEYS * QUERIES];
};

// Trick: where a row of a transposed tile lies depends on its column (a swizzle): the 32 lanes that store 8 columns of
// four rows, or read 16 bytes each, then meet all banks, without padding.
template <int ROWS>
__device__ __forceinline__ int transposed_place(int column, int row) {
    return column * ROWS + (row ^ (column % 8 * 4));
}

__device__ __forceinline__ float4 four(const float* at, int inside, bool is_aligned) {
    if (is_aligned) return inside > 0 ? *reinterpret_cast<const float4*>(at) : float4{};
    return {inside > 0 ? at[0] : 0.0f, inside > 1 ? at[1] : 0.0f, inside > 2 ? at[2] : 0.0f, inside > 3 ? at[3] : 0.0f};
}

template <int HEAD, int ROWS>
__device__ __forceinline__ void load_transposed_rows(float* tile, const float* in, int rows, int d, bool is_aligned) {
    const int thread = threadIdx.y * 32 + threadIdx.x;
#pragma unroll
    for (int row = thread / 2; row < ROWS; row += 32) {
#pragma unroll 4
        for (int column = thread % 2 * 4; column < HEAD; column += 8) {
            float4 from = four(in + (long long)row * d + column, row < rows ? d - column : 0, is_aligned);
            tile[transposed_place<ROWS>(column, row)] = from.x;
            tile[transposed_place<ROWS>(column + 1, row)] = from.y;
            tile[transposed_place<ROWS>(column + 2, row)] = from.z;
            tile[transposed_place<ROWS>(column + 3, row)] = from.w;
        }
    }
}

template <int HEAD>
__device__ __forceinline__ void flash2(F32<HEAD>& tiles, float* o, const float* q, const float* k, const float* v,
                                       float scale, long long row0, long long n, int d, bool is_aligned) {
    typedef F32<HEAD> Tiles;
    constexpr int QUERIES = Tiles::QUERIES, KEYS = Tiles::KEYS, ROWS = Tiles::ROWS, COLS = Tiles::COLS;
    const int thread = threadIdx.y * 32 + threadIdx.x, x = thread % 8, y = thread / 8;
    float result[ROWS][COLS] = {}, max[ROWS], sum[ROWS] = {};
#pragma unroll
    for (int r = 0; r < ROWS; ++r) max[r] = LOWEST;
    load_transposed_rows<HEAD, QUERIES>(tiles.q, q + row0 * d, within(n - row0, QUERIES), d, is_aligned);
    for (long long key0 = 0; key0 < n; key0 += KEYS) {
        const int keys = within(n - key0, KEYS);
        load_transposed_rows<HEAD, KEYS>(tiles.kv, k + key0 * d, keys, d, is_aligned);
        __syncthreads();
        float score[ROWS][4] = {};
#pragma unroll 8
        for (int c = 0; c < HEAD; ++c) {
            float of_q[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; r += 4)
                *reinterpret_cast<float4*>(of_q + r) =
                    *reinterpret_cast<const float4*>(tiles.q + transposed_place<QUERIES>(c, 4 * y + 8 * r));
            float4 of_k = *reinterpret_cast<const float4*>(tiles.kv + transposed_place<KEYS>(c, 4 * x));
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                score[r][0] += of_q[r] * of_k.x;
                score[r][1] += of_q[r] * of_k.y;
                score[r][2] += of_q[r] * of_k.z;
                score[r][3] += of_q[r] * of_k.w;
            }
        }
        __syncthreads();  // before the values overwrite the keys
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            float new_max = max[r];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                // Trick: with log2(e) in the scale exp2f will do: one instruction with -ftz=true, as CuPy compiles.
                score[r][i] = 4 * x + i < keys ? scale * LOG2_E * score[r][i] : LOWEST;
                new_max = fmaxf(new_max, score[r][i]);
            }
#pragma unroll
            for (int lanes = 1; lanes < 8; lanes *= 2) new_max = fmaxf(new_max, SHUFFLE_XOR(new_max, lanes));
            const float shrink = exp2f(max[r] - new_max);  // what was summed up was relative to the old maximum
            max[r] = new_max;
            sum[r] *= shrink;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                score[r][i] = exp2f(score[r][i] - new_max);
                sum[r] += score[r][i];  // trick: of this lane's keys alone; lanes add up at the end
            }
#pragma unroll
            for (int c = 0; c < COLS; ++c) result[r][c] *= shrink;
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
            for (int r = 0; r < ROWS; r += 4)
                *reinterpret_cast<float4*>(tiles.weights + (4 * x + i) * QUERIES + ((4 * y + 8 * r) ^ (4 * x))) =
                    make_float4(score[r][i], score[r + 1][i], score[r + 2][i], score[r + 3][i]);
        }
        for (int i = thread; i < KEYS * HEAD / 4; i += 64) {
            const int key = i / (HEAD / 4), column = i % (HEAD / 4) * 4;
            reinterpret_cast<float4*>(tiles.kv)[i] =
                four(v + (key0 + key) * d + column, key < keys ? d - column : 0, is_aligned);
        }
        __syncthreads();
#pragma unroll 8
        for (int key = 0; key < KEYS; ++key) {
            float weight[ROWS], value[COLS];
#pragma unroll
            for (int r = 0; r < ROWS; r += 4)
                *reinterpret_cast<float4*>(weight + r) = *reinterpret_cast<const float4*>(
                    tiles.weights + key * QUERIES + ((4 * y + 8 * r) ^ (key / 4 * 4)));
#pragma unroll
            for (int c = 0; c < COLS; c += 4)
                *reinterpret_cast<float4*>(value + c) =
                    *reinterpret_cast<const float4*>(tiles.kv + key * HEAD + 4 * x + 8 * c);
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
#pragma unroll
                for (int c = 0; c < COLS; ++c) result[r][c] += weight[r] * value[c];
            }
        }
        __syncthreads();  // before the next keys overwrite the values
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
        for (int lanes = 1; lanes < 8; lanes *= 2) sum[r] += SHUFFLE_XOR(sum[r], lanes);
        const long long row = row0 + 4 * y + r % 4 + r / 4 * 32;
        if (row >= n) continue;
#pragma unroll
        for (int c = 0; c < COLS; c += 4) {
            const int column = 4 * x + 8 * c;
            const long long at = row * d + column;
            const float values[4] = {result[r][c] / sum[r], result[r][c + 1] / sum[r], result[r][c + 2] / sum[r],
                                     result[r][c + 3] / sum[r]};
            if (is_aligned && column < d)
                reinterpret_cast<float4*>(o)[at / 4] = make_float4(values[0], values[1], values[2], values[3]);
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (!is_aligned && column + i < d) o[at + i] = values[i];
        }
    }
    __syncthreads();  // before the next queries overwrite these
}

template <int HEAD>
__device__ __forceinline__ void flash2_heads(F32<HEAD>& tiles, float* o, const float* q, const float* k, const float* v,
                                             float scale, long long heads, long long n, int d) {
    constexpr int QUERIES = F32<HEAD>::QUERIES;
    const bool is_aligned = aligned(o, q, k, v, d);
    for (long long head = blockIdx.y; head < heads; head += gridDim.y)
        for (long long row0 = blockIdx.x * (long long)QUERIES; row0 < n; row0 += gridDim.x * (long long)QUERIES)
            flash2(tiles, o + head * n * d, q + head * n * d, k + head * n * d, v + head * n * d, scale, row0, n, d,
                   is_aligned);
}

#if defined(__CUDA_ARCH__)  // AMD's matrix instructions are others

// The instructions: D += A*B of 16x8x16 elements, four or eight of each in a lane (PTX ISA has a figure).
__device__ __forceinline__ void multiply(float (&d)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1,
                                         const __half*) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b0));
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
}
__device__ __forceinline__ void multiply(float (&d)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1,
                                         const bf16*) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two floats as halves in a word, the first in its lower half.
__device__ __forceinline__ unsigned int packed(float first, float second, const __half*) {
    __half2 pair = __floats2half2_rn(first, second);
    return *reinterpret_cast<unsigned int*>(&pair);
}
__device__ __forceinline__ unsigned int packed(float first, float second, const bf16*) {
    unsigned int pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

__device__ __forceinline__ unsigned int shared_address(const uint4* at) {
    return static_cast<unsigned int>(__cvta_generic_to_shared(at));
}

// Four 8x8 matrices of halves, whose rows are 16 bytes each; lane i gives the address of row i of them all.
__device__ __forceinline__ void load_matrices(unsigned int (&to)[4], const uint4* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}
__device__ __forceinline__ void load_transposed(unsigned int (&to)[4], const uint4* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// Trick: the copy goes past the registers, and runs on while the warp computes. Turing has none, and waits.
__device__ __forceinline__ void copy_16_bytes(uint4* to, const void* from) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
#else
    *to = *static_cast<const uint4*>(from);
#endif
}
__device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

static constexpr int CHUNK = 8;           // halves in 16 bytes
static constexpr int BLOCK_QUERIES = 128;  // 16 of a warp
static constexpr int THREADS = TILE * WARPS;

// Where a chunk lies in its row depends on the row, so that the eight rows that one matrix load reads lie in different
// banks.
template <int HEAD>
__device__ __forceinline__ int place(int row, int chunk) {
    return row * (HEAD / CHUNK) + (chunk ^ row % 8);
}

// ROWS rows of a matrix; what is outside of it counts as zeros.
template <int HEAD, int ROWS, typename T>
__device__ __forceinline__ void copy_rows(uint4* tile, const T* in, int rows, int d, bool is_aligned) {
    constexpr int CHUNKS = HEAD / CHUNK;
#pragma unroll 1
    for (int i = threadIdx.y * 32 + threadIdx.x; i < ROWS * CHUNKS; i += THREADS) {
        const int row = i / CHUNKS, column = i % CHUNKS * CHUNK, inside = row < rows ? d - column : 0;
        const T* from = in + (long long)row * d + column;
        uint4* to = tile + place<HEAD>(row, i % CHUNKS);
        if (is_aligned && inside > 0)
            copy_16_bytes(to, from);
        else
            for (int j = 0; j < CHUNK; ++j)
                reinterpret_cast<unsigned short*>(to)[j] =
                    j < inside ? reinterpret_cast<const unsigned short*>(from)[j] : 0;
    }
}

// tiles: of keys and values twice, 32 KiB; at the start, of the queries.
template <int HEAD, typename T>
__device__ __forceinline__ void flash2(uint4* tiles, T* o, const T* q, const T* k, const T* v, float scale,
                                       long long row0, long long n, int d, bool is_aligned) {
    constexpr int KEYS = HEAD == 64 ? 64 : 32, MATRIX = KEYS * HEAD / CHUNK;
    const int lane = threadIdx.x, warp_row = threadIdx.y * 16;
    copy_rows<HEAD, BLOCK_QUERIES>(tiles, q + row0 * d, within(n - row0, BLOCK_QUERIES), d, is_aligned);
    wait_for_copies();
    __syncthreads();
    unsigned int of_q[HEAD / 16][4];  // trick: a warp's queries stay in its registers
#pragma unroll
    for (int c = 0; c < HEAD / 16; ++c)
        load_matrices(of_q[c], tiles + place<HEAD>(warp_row + lane % 16, 2 * c + lane / 16));
    __syncthreads();
    auto load = [&](long long key0, uint4* stage) {
        const int keys = within(n - key0, KEYS);
        copy_rows<HEAD, KEYS>(stage, k + key0 * d, keys, d, is_aligned);
        copy_rows<HEAD, KEYS>(stage + MATRIX, v + key0 * d, keys, d, is_aligned);
    };
    load(0, tiles);
    // A lane has two rows, lane/4 and that plus 8, of which it has two neighbouring columns in every eight.
    float result[HEAD / 8][4] = {}, max[2] = {LOWEST, LOWEST}, sum[2] = {};
    int stage = 0;
    for (long long key0 = 0; key0 < n; key0 += KEYS, stage ^= 1) {
        wait_for_copies();
        __syncthreads();  // these keys are there, and the other stage is read by nobody any more
        if (key0 + KEYS < n) load(key0 + KEYS, tiles + (stage ^ 1) * 2 * MATRIX);
        const uint4 *keys = tiles + stage * 2 * MATRIX, *values = keys + MATRIX;
        float score[KEYS / 8][4] = {};
#pragma unroll
        for (int c = 0; c < HEAD / 16; ++c) {
#pragma unroll
            for (int j = 0; j < KEYS / 16; ++j) {
                unsigned int of_k[4];
                load_matrices(of_k, keys + place<HEAD>(16 * j + lane / 16 * 8 + lane % 8, 2 * c + lane / 8 % 2));
                multiply(score[2 * j], of_q[c], of_k[0], of_k[1], o);
                multiply(score[2 * j + 1], of_q[c], of_k[2], of_k[3], o);
            }
        }
        if (key0 + KEYS > n) {
#pragma unroll
            for (int j = 0; j < KEYS / 8; ++j) {
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    if (key0 + 8 * j + lane % 4 * 2 + i % 2 >= n) score[j][i] = LOWEST;
            }
        }
        const float factor = scale * LOG2_E;  // trick: with log2(e) in it exp2f will do
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float new_max = LOWEST;
#pragma unroll
            for (int j = 0; j < KEYS / 8; ++j)
                new_max = fmaxf(new_max, fmaxf(score[j][2 * half], score[j][2 * half + 1]));
            new_max = fmaxf(new_max, SHUFFLE_XOR(new_max, 1));
            new_max = fmaxf(max[half], fmaxf(new_max, SHUFFLE_XOR(new_max, 2)));
            const float shrink = exp2f(factor * (max[half] - new_max)), shift = factor * new_max;
            max[half] = new_max;
            sum[half] *= shrink;
#pragma unroll
            for (int j = 0; j < KEYS / 8; ++j) {
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; ++i) {
                    score[j][i] = exp2f(factor * score[j][i] - shift);
                    sum[half] += score[j][i];  // trick: of this lane's columns alone; lanes add up at the end
                }
            }
#pragma unroll
            for (int c = 0; c < HEAD / 8; ++c) {
                result[c][2 * half] *= shrink;
                result[c][2 * half + 1] *= shrink;
            }
        }
#pragma unroll
        for (int j = 0; j < KEYS / 16; ++j) {
            // Trick: a lane's scores of 16 keys are what it needs of the next product's left side.
            const float *low = score[2 * j], *high = score[2 * j + 1];
            const unsigned int weights[4] = {packed(low[0], low[1], o), packed(low[2], low[3], o),
                                             packed(high[0], high[1], o), packed(high[2], high[3], o)};
#pragma unroll
            for (int c = 0; c < HEAD / 16; ++c) {
                unsigned int of_v[4];
                load_transposed(of_v, values + place<HEAD>(16 * j + lane % 16, 2 * c + lane / 16));
                multiply(result[2 * c], weights, of_v[0], of_v[1], o);
                multiply(result[2 * c + 1], weights, of_v[2], of_v[3], o);
            }
        }
    }
    __syncthreads();
    // The result goes through shared memory, each warp's rows through its own: rows are then written 16 bytes a lane.
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        sum[half] += SHUFFLE_XOR(sum[half], 1);
        sum[half] += SHUFFLE_XOR(sum[half], 2);
        const float inverse = 1.0f / sum[half];
#pragma unroll
        for (int c = 0; c < HEAD / 8; ++c)
            reinterpret_cast<unsigned int*>(tiles + place<HEAD>(warp_row + lane / 4 + 8 * half, c))[lane % 4] =
                packed(result[c][2 * half] * inverse, result[c][2 * half + 1] * inverse, o);
    }
    __syncwarp();
    for (int i = lane; i < 16 * HEAD / CHUNK; i += 32) {
        const int row = warp_row + i / (HEAD / CHUNK), column = i % (HEAD / CHUNK) * CHUNK;
        if (row0 + row >= n) break;
        const uint4* from = tiles + place<HEAD>(row, i % (HEAD / CHUNK));
        T* to = o + (row0 + row) * d + column;
        if (is_aligned && column < d) *reinterpret_cast<uint4*>(to) = *from;
        for (int j = 0; !is_aligned && j < CHUNK && column + j < d; ++j) to[j] = reinterpret_cast<const T*>(from)[j];
    }
    __syncthreads();  // before the next queries overwrite these
}

template <int HEAD, typename T>
__device__ __forceinline__ void flash2_heads(uint4* tiles, T* o, const T* q, const T* k, const T* v, float scale,
                                             long long heads, long long n, int d) {
    const bool is_aligned = aligned(o, q, k, v, d);
    for (long long head = blockIdx.y; head < heads; head += gridDim.y) {
        const long long at = head * n * d;
        for (long long row0 = blockIdx.x * (long long)BLOCK_QUERIES; row0 < n;
             row0 += gridDim.x * (long long)BLOCK_QUERIES)
            flash2<HEAD>(tiles, o + at, q + at, k + at, v + at, scale, row0, n, d, is_aligned);
    }
}

#endif

template <int HEAD, int LEAST_ARCH, typename T>
__device__ __forceinline__ void flash2_or_flash(T* o, const T* q, const T* k, const T* v, float scale, long long heads,
                                                long long n, long long d) {
    if (d > HEAD) {
        not_a_number(o, heads, n, d);
        return;
    }
#if defined(__CUDA_ARCH__)
    if (__CUDA_ARCH__ >= LEAST_ARCH) {
        __shared__ uint4 tiles[2048];
        flash2_heads<HEAD>(tiles, o, q, k, v, scale, heads, n, static_cast<int>(d));
        return;
    }
#endif
    flash_all(o, q, k, v, scale, heads, n, d);
}

template <int HEAD>
__device__ __forceinline__ void flash2_f32(float* o, const float* q, const float* k, const float* v, float scale,
                                           long long heads, long long n, long long d) {
    __shared__ F32<HEAD> tiles;
    if (d > HEAD)
        not_a_number(o, heads, n, d);
    else
        flash2_heads(tiles, o, q, k, v, scale, heads, n, static_cast<int>(d));
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
// Heads of up to 64 elements, and of up to 128: a kernel gets the registers of the largest code in it.
extern "C" __global__ void __launch_bounds__(64, 6)
    attention_flash2_64_f32(float* __restrict__ o, const float* __restrict__ q,
                                                   const float* __restrict__ k, const float* __restrict__ v,
                                                   float scale, long long heads, long long n, long long d) {
    flash2_f32<64>(o, q, k, v, scale, heads, n, d);
}
extern "C" __global__ void __launch_bounds__(64, 6)
    attention_flash2_128_f32(float* __restrict__ o, const float* __restrict__ q,
                                                   const float* __restrict__ k, const float* __restrict__ v,
                                                   float scale, long long heads, long long n, long long d) {
    flash2_f32<128>(o, q, k, v, scale, heads, n, d);
}
extern "C" __global__ void __launch_bounds__(TILE* WARPS)
    attention_flash2_64_f16(__half* __restrict__ o, const __half* __restrict__ q, const __half* __restrict__ k,
                             const __half* __restrict__ v, float scale, long long heads, long long n, long long d) {
    flash2_or_flash<64, 750>(o, q, k, v, scale, heads, n, d);
}
extern "C" __global__ void __launch_bounds__(TILE* WARPS)
    attention_flash2_64_bf16(bf16* __restrict__ o, const bf16* __restrict__ q, const bf16* __restrict__ k,
                             const bf16* __restrict__ v, float scale, long long heads, long long n, long long d) {
    flash2_or_flash<64, 800>(o, q, k, v, scale, heads, n, d);
}
extern "C" __global__ void __launch_bounds__(TILE* WARPS)
    attention_flash2_128_f16(__half* __restrict__ o, const __half* __restrict__ q, const __half* __restrict__ k,
                             const __half* __restrict__ v, float scale, long long heads, long long n, long long d) {
    flash2_or_flash<128, 800>(o, q, k, v, scale, heads, n, d);
}
extern "C" __global__ void __launch_bounds__(TILE* WARPS)
    attention_flash2_128_bf16(bf16* __restrict__ o, const bf16* __restrict__ q, const bf16* __restrict__ k,
                             const bf16* __restrict__ v, float scale, long long heads, long long n, long long d) {
    flash2_or_flash<128, 800>(o, q, k, v, scale, heads, n, d);
}
