// Key-value cache of a decoder: appending new tokens, and attending to all of it with one new token.
//
//   kernel      bytes moved                                              FLOP
//   kv_append   4*batch*tokens*kv_heads*d*s                              0
//   kv_decode   2*batch*tokens*kv_heads*d*s + 2*batch*query_heads*d*s    4*batch*tokens*query_heads*d
//
// Layout: caches (batch, kv_heads, capacity, d), new keys and values (batch, kv_heads, tokens, d), query and result
// (batch, query_heads, d). With grouped-query attention query_heads / kv_heads query heads share the keys and values of
// one; query_heads is a multiple of kv_heads.
//
// Versions of decode:
//   kv_decode                     one block per query head walks all tokens. Too few blocks to fill a device when the
//                                 batch is small.
//   kv_decode_split + _combine    the tokens are split over `splits` blocks per query head, which leave partial results
//                                 that a second launch merges (flash-decoding).
// Both ask for the cache once per query head; heads that share it mostly meet it in L2.
//
// Append: one-dimensional blocks. Decode: blocks of 128 threads (four warps), d <= 128; a larger d gives NaN.
// Combine: one-dimensional blocks of any size. Any grid; any sizes, 0 included: without tokens the result is 0.
// Tokens that would fall past the capacity are neither written nor read. f16: float arithmetic, float partial results.
//
// Reference: Shazeer, https://arxiv.org/abs/1911.02150; Ainslie et al., GQA, https://arxiv.org/abs/2305.13245;
// Dao et al., Flash-Decoding, https://crfm.stanford.edu/2023/10/12/flashdecoding.html.

#if defined(__HIPCC_RTC__) || defined(__HIP_PLATFORM_AMD__)
#ifndef __HIPCC_RTC__  // which has halves built in
#include <hip/hip_fp16.h>
#endif
#define SHUFFLE_XOR(value, lanes) __shfl_xor(value, lanes, 32)
#else
#include <cuda_fp16.h>
#define SHUFFLE_XOR(value, lanes) __shfl_xor_sync(0xffffffffu, value, lanes)
#endif

__device__ __forceinline__ long long thread_index() { return blockIdx.x * (long long)blockDim.x + threadIdx.x; }
__device__ __forceinline__ long long thread_count() { return gridDim.x * (long long)blockDim.x; }

template <typename T>
__device__ __forceinline__ void append(T* k_cache, T* v_cache, const T* k_new, const T* v_new, long long position,
                                       long long matrices, long long tokens, long long d, long long capacity) {
    for (long long i = thread_index(); i < matrices * tokens * d; i += thread_count()) {
        long long matrix = i / (tokens * d), token = i / d % tokens, column = i % d;
        if (position + token >= capacity) continue;
        long long at = (matrix * capacity + position + token) * d + column;
        k_cache[at] = k_new[i];
        v_cache[at] = v_new[i];
    }
}

static constexpr int WARPS = 4;
static constexpr int LANES = 32;
static constexpr int MAX_HEAD = 128;
static constexpr int COLS_PER_LANE = MAX_HEAD / LANES;  // columns lane, lane + 32, lane + 64, lane + 96
static constexpr float LOWEST = -3.402823466e+38f;

// Attention to some tokens, not yet normalised: the maximum score, the sum of exp(score - max), and that of
// exp(score - max)*value.
struct Partial {
    float max, sum, result;  // result: of the column that is this thread's number
};

// Tokens begin to end - 1 for one query head, by the whole block. A warp takes every fourth token, a lane 4 columns.
template <typename T>
__device__ __forceinline__ Partial attend(const T* q, const T* keys, const T* values, float scale, long long d,
                                          long long begin, long long end) {
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    float query[COLS_PER_LANE], result[COLS_PER_LANE], max = LOWEST, sum = 0.0f;
#pragma unroll
    for (int c = 0; c < COLS_PER_LANE; ++c) {
        query[c] = lane + c * LANES < d ? scale * static_cast<float>(q[lane + c * LANES]) : 0.0f;
        result[c] = 0.0f;
    }
    for (long long token = begin + warp; token < end; token += WARPS) {
        float value[COLS_PER_LANE], score = 0.0f;
#pragma unroll
        for (int c = 0; c < COLS_PER_LANE; ++c) {
            bool inside = lane + c * LANES < d;
            score += inside ? query[c] * static_cast<float>(keys[token * d + lane + c * LANES]) : 0.0f;
            value[c] = inside ? static_cast<float>(values[token * d + lane + c * LANES]) : 0.0f;
        }
        for (int lanes = LANES / 2; lanes > 0; lanes /= 2) score += SHUFFLE_XOR(score, lanes);
        float new_max = fmaxf(max, score);
        float weight = expf(score - new_max), shrink = expf(max - new_max);
        max = new_max;
        sum = sum * shrink + weight;
#pragma unroll
        for (int c = 0; c < COLS_PER_LANE; ++c) result[c] = result[c] * shrink + weight * value[c];
    }

    // The four warps' results become one.
    __shared__ float warp_max[WARPS], warp_sum[WARPS], warp_result[WARPS][MAX_HEAD];
    if (lane == 0) {
        warp_max[warp] = max;
        warp_sum[warp] = sum;
    }
#pragma unroll
    for (int c = 0; c < COLS_PER_LANE; ++c) warp_result[warp][lane + c * LANES] = result[c];
    __syncthreads();
    Partial all = {LOWEST, 0.0f, 0.0f};
    for (int w = 0; w < WARPS; ++w) all.max = fmaxf(all.max, warp_max[w]);
    for (int w = 0; w < WARPS; ++w) {
        float shrink = expf(warp_max[w] - all.max);
        all.sum += warp_sum[w] * shrink;
        all.result += warp_result[w][threadIdx.x] * shrink;
    }
    __syncthreads();  // before the next query head overwrites these
    return all;
}

__device__ __forceinline__ float divided(float result, float sum) { return sum > 0.0f ? result / sum : 0.0f; }

template <typename T>
__device__ __forceinline__ void decode(T* out, const T* q, const T* k_cache, const T* v_cache, float scale,
                                       long long batch, long long query_heads, long long kv_heads, long long d,
                                       long long tokens, long long capacity) {
    tokens = tokens < capacity ? tokens : capacity;
    for (long long head = blockIdx.x; head < batch * query_heads; head += gridDim.x) {
        if (d > MAX_HEAD) {
            for (long long c = threadIdx.x; c < d; c += blockDim.x)
                out[head * d + c] = static_cast<T>(__int_as_float(0x7fffffff));
            continue;
        }
        long long kv_head = head % query_heads / (query_heads / kv_heads);
        long long cache = (head / query_heads * kv_heads + kv_head) * capacity * d;
        Partial all = attend(q + head * d, k_cache + cache, v_cache + cache, scale, d, 0, tokens);
        if (threadIdx.x < d) out[head * d + threadIdx.x] = static_cast<T>(divided(all.result, all.sum));
    }
}

// partial_result (batch*query_heads, splits, d), partial_max and partial_sum (batch*query_heads, splits).
template <typename T>
__device__ __forceinline__ void decode_split(float* partial_result, float* partial_max, float* partial_sum, const T* q,
                                             const T* k_cache, const T* v_cache, float scale, long long batch,
                                             long long query_heads, long long kv_heads, long long d, long long tokens,
                                             long long capacity, long long splits) {
    tokens = tokens < capacity ? tokens : capacity;
    long long per_split = (tokens + splits - 1) / splits;
    for (long long part = blockIdx.x; part < batch * query_heads * splits; part += gridDim.x) {
        if (d > MAX_HEAD) {
            for (long long c = threadIdx.x; c < d; c += blockDim.x) partial_result[part * d + c] = 0.0f;
            if (threadIdx.x == 0) partial_max[part] = partial_sum[part] = __int_as_float(0x7fffffff);
            continue;
        }
        long long head = part / splits, begin = part % splits * per_split;
        long long end = begin + per_split < tokens ? begin + per_split : tokens;
        long long kv_head = head % query_heads / (query_heads / kv_heads);
        long long cache = (head / query_heads * kv_heads + kv_head) * capacity * d;
        Partial all = attend(q + head * d, k_cache + cache, v_cache + cache, scale, d, begin, end);
        if (threadIdx.x < d) partial_result[part * d + threadIdx.x] = all.result;
        if (threadIdx.x == 0) {
            partial_max[part] = all.max;
            partial_sum[part] = all.sum;
        }
    }
}

template <typename T>
__device__ __forceinline__ void decode_combine(T* out, const float* partial_result, const float* partial_max,
                                               const float* partial_sum, long long heads, long long d,
                                               long long splits) {
    for (long long i = thread_index(); i < heads * d; i += thread_count()) {
        long long first = i / d * splits;
        float max = LOWEST, sum = 0.0f, result = 0.0f;
        for (long long part = first; part < first + splits; ++part) max = fmaxf(max, partial_max[part]);
        for (long long part = first; part < first + splits; ++part) {
            float shrink = expf(partial_max[part] - max);
            sum += partial_sum[part] * shrink;
            result += partial_result[part * d + i % d] * shrink;
        }
        out[i] = static_cast<T>(sum == 0.0f ? 0.0f : result / sum);
    }
}

extern "C" __global__ void kv_append_f32(float* __restrict__ k_cache, float* __restrict__ v_cache,
                                         const float* __restrict__ k_new, const float* __restrict__ v_new,
                                         long long position, long long batch, long long kv_heads, long long tokens,
                                         long long d, long long capacity) {
    append(k_cache, v_cache, k_new, v_new, position, batch * kv_heads, tokens, d, capacity);
}
extern "C" __global__ void kv_append_f16(__half* __restrict__ k_cache, __half* __restrict__ v_cache,
                                         const __half* __restrict__ k_new, const __half* __restrict__ v_new,
                                         long long position, long long batch, long long kv_heads, long long tokens,
                                         long long d, long long capacity) {
    append(k_cache, v_cache, k_new, v_new, position, batch * kv_heads, tokens, d, capacity);
}
extern "C" __global__ void kv_decode_f32(float* __restrict__ out, const float* __restrict__ q,
                                         const float* __restrict__ k_cache, const float* __restrict__ v_cache,
                                         float scale, long long batch, long long query_heads, long long kv_heads,
                                         long long d, long long tokens, long long capacity) {
    decode(out, q, k_cache, v_cache, scale, batch, query_heads, kv_heads, d, tokens, capacity);
}
extern "C" __global__ void kv_decode_f16(__half* __restrict__ out, const __half* __restrict__ q,
                                         const __half* __restrict__ k_cache, const __half* __restrict__ v_cache,
                                         float scale, long long batch, long long query_heads, long long kv_heads,
                                         long long d, long long tokens, long long capacity) {
    decode(out, q, k_cache, v_cache, scale, batch, query_heads, kv_heads, d, tokens, capacity);
}
extern "C" __global__ void kv_decode_split_f32(float* __restrict__ partial_result, float* __restrict__ partial_max,
                                               float* __restrict__ partial_sum, const float* __restrict__ q,
                                               const float* __restrict__ k_cache, const float* __restrict__ v_cache,
                                               float scale, long long batch, long long query_heads, long long kv_heads,
                                               long long d, long long tokens, long long capacity, long long splits) {
    decode_split(partial_result, partial_max, partial_sum, q, k_cache, v_cache, scale, batch, query_heads, kv_heads, d,
                 tokens, capacity, splits);
}
extern "C" __global__ void kv_decode_split_f16(float* __restrict__ partial_result, float* __restrict__ partial_max,
                                               float* __restrict__ partial_sum, const __half* __restrict__ q,
                                               const __half* __restrict__ k_cache, const __half* __restrict__ v_cache,
                                               float scale, long long batch, long long query_heads, long long kv_heads,
                                               long long d, long long tokens, long long capacity, long long splits) {
    decode_split(partial_result, partial_max, partial_sum, q, k_cache, v_cache, scale, batch, query_heads, kv_heads, d,
                 tokens, capacity, splits);
}
extern "C" __global__ void kv_decode_combine_f32(float* __restrict__ out, const float* __restrict__ partial_result,
                                                 const float* __restrict__ partial_max,
                                                 const float* __restrict__ partial_sum, long long heads, long long d,
                                                 long long splits) {
    decode_combine(out, partial_result, partial_max, partial_sum, heads, d, splits);
}
extern "C" __global__ void kv_decode_combine_f16(__half* __restrict__ out, const float* __restrict__ partial_result,
                                                 const float* __restrict__ partial_max,
                                                 const float* __restrict__ partial_sum, long long heads, long long d,
                                                 long long splits) {
    decode_combine(out, partial_result, partial_max, partial_sum, heads, d, splits);
}
