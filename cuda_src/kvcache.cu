// Key-value cache of a decoder: appending new tokens, and attending to all of it with one new token.
//
//   kernel      bytes moved                                              FLOP
//   kv_append   4*batch*tokens*kv_heads*d*s                              0
//   kv_decode   2*batch*tokens*kv_heads*d*s + 2*batch*query_heads*d*s    4*batch*tokens*query_heads*d
//   _paged      the same + 4*batch*tokens/16                             the same
//
// What bounds it: memory. A copy computes nothing, and decoding does a multiply-add per query head that shares a key.
//
// Layout: caches (batch, kv_heads, capacity, d), new keys and values (batch, kv_heads, tokens, d), query and result
// (batch, query_heads, d). With grouped-query attention query_heads / kv_heads query heads share the keys and values of
// one; query_heads is a multiple of kv_heads.
//
// Paged: a server gives memory to a sequence 16 tokens at a time. Its caches are (pages, kv_heads, 16, d), and `table`
// (batch, pages of a sequence) names those of each sequence in order. All that it names have to exist.
//
// Versions of append: plain (kv_append_f32, _f16) divides 64-bit numbers three times for each element. Copy the wide
// one (_f32x4, _f16x8, which copies bfloat16 as well): 16 bytes a thread, and no division.
//
// Versions of decode:
//   kv_decode                       one block per query head walks all tokens. Too few blocks to fill a device when the
//                                   batch is small.
//   kv_decode_split + _combine      the tokens are split over `splits` blocks per query head, which leave partial
//                                   results that a second launch merges (flash-decoding).
//   kv_decode_grouped + _combine    copy this one. As split, and a block serves up to four query heads that share the
//                                   keys and values, which it asks for once; a lane loads 16 bytes of four tokens' keys
//                                   and values before it uses the first.
//   kv_decode_paged, kv_decode_paged_grouped   the first and the last of these in pages. The first looks a page up for
//                                   every token, and its keys wait for the answer. Copy the other: a warp asks for 32
//                                   numbers at once, and every 512th token waits.
// The first two ask for the cache once per query head, 2 or 4 bytes a lane; heads that share it mostly meet it in L2.
// Each token costs a warp five dependent shuffles and two exponentials. Give grouped as many splits as make the three
// blocks of each multiprocessor that it has registers for: 3 * multiprocessors / (batch * kv_heads).
//
// Plain append: one-dimensional blocks. Wide append: two-dimensional ones, (16 bytes of a head's new tokens, heads).
// Decode: blocks of 128 threads (four warps), d <= 128; a larger d gives NaN. Combine: one-dimensional blocks of any
// size. Any grid; any sizes, 0 included: without tokens the result is 0. Tokens that would fall past the capacity are
// neither written nor read. Halves: float arithmetic, float partial results.
//
// Reference: Shazeer, https://arxiv.org/abs/1911.02150; Ainslie et al., GQA, https://arxiv.org/abs/2305.13245;
// Dao et al., Flash-Decoding, https://crfm.stanford.edu/2023/10/12/flashdecoding.html.

#if defined(__HIPCC_RTC__) || defined(__HIP_PLATFORM_AMD__)
#ifndef __HIPCC_RTC__  // which has halves built in
#include <hip/hip_fp16.h>
#endif
#define SHUFFLE_XOR(value, lanes) __shfl_xor(value, lanes, 32)
#define SHUFFLE(value, lane) __shfl(value, lane, 32)
#else
#include <cuda_fp16.h>
#define SHUFFLE_XOR(value, lanes) __shfl_xor_sync(0xffffffffu, value, lanes)
#define SHUFFLE(value, lane) __shfl_sync(0xffffffffu, value, lane)
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

__device__ __forceinline__ long long thread_index() { return blockIdx.x * (long long)blockDim.x + threadIdx.x; }
__device__ __forceinline__ long long thread_count() { return gridDim.x * (long long)blockDim.x; }

template <typename T>
__device__ __forceinline__ void append(T* k_cache, T* v_cache, const T* k_new, const T* v_new, long long position,
                                       long long matrices, long long tokens, long long d, long long capacity) {
#pragma unroll 1  // unrolled, each thread would divide once more, for the trip count
    for (long long i = thread_index(); i < matrices * tokens * d; i += thread_count()) {
        long long matrix = i / (tokens * d), token = i / d % tokens, column = i % d;
        if (position + token >= capacity) continue;
        long long at = (matrix * capacity + position + token) * d + column;
        k_cache[at] = k_new[i];
        v_cache[at] = v_new[i];
    }
}

__device__ __forceinline__ bool aligned(const void* a, const void* b, const void* c) {
    return (reinterpret_cast<unsigned long long>(a) | reinterpret_cast<unsigned long long>(b) |
            reinterpret_cast<unsigned long long>(c)) % 16 == 0;
}

// Trick: the new tokens of one head lie one behind the other, and so they do in the cache: each head is a plain copy.
template <typename V>
__device__ __forceinline__ void append_by_head(V* k_cache, V* v_cache, const V* k_new, const V* v_new,
                                               long long matrices, long long from_pitch, long long to_pitch,
                                               long long offset, long long count) {
    for (long long matrix = blockIdx.y * (long long)blockDim.y + threadIdx.y; matrix < matrices;
         matrix += gridDim.y * (long long)blockDim.y) {
        const V *keys = k_new + matrix * from_pitch, *values = v_new + matrix * from_pitch;
        const long long to = matrix * to_pitch + offset;
#pragma unroll 1
        for (long long i = thread_index(); i < count; i += thread_count()) {
            const V key = keys[i], value = values[i];
            k_cache[to + i] = key;
            v_cache[to + i] = value;
        }
    }
}

template <typename T>
__device__ __forceinline__ void append_wide(T* k_cache, T* v_cache, const T* k_new, const T* v_new, long long position,
                                            long long matrices, long long tokens, long long d, long long capacity) {
    constexpr int WIDTH = 16 / sizeof(T);
    const long long left = capacity - position, count = (left < tokens ? left > 0 ? left : 0 : tokens) * d;
    if (d % WIDTH == 0 && aligned(k_cache, v_cache, k_new) && aligned(v_new, v_new, v_new))
        append_by_head(reinterpret_cast<uint4*>(k_cache), reinterpret_cast<uint4*>(v_cache),
                       reinterpret_cast<const uint4*>(k_new), reinterpret_cast<const uint4*>(v_new), matrices,
                       tokens * d / WIDTH, capacity * d / WIDTH, position * d / WIDTH, count / WIDTH);
    else
        append_by_head(k_cache, v_cache, k_new, v_new, matrices, tokens * d, capacity * d, position * d, count);
}

static constexpr int WARPS = 4;
static constexpr int LANES = 32;
static constexpr int MAX_HEAD = 128;
static constexpr int COLS_PER_LANE = MAX_HEAD / LANES;  // columns lane, lane + 32, lane + 64, lane + 96
static constexpr float LOWEST = -3.402823466e+38f;
static constexpr int PAGE = 16;  // tokens

// Where the keys or values of a head of the batch lie: all that attention needs to know of pages. enter() gives where
// its memory begins, at() where the token `first` + `next` follows, `first` being the same in the whole block for
// grouped kernels, which tell it to by_warp() before.
struct InOrder {
    static constexpr int TOGETHER = 1;  // a split begins with a multiple of so many tokens
    long long room;
    __device__ long long capacity() const { return room; }
    __device__ long long enter(long long head, long long d) { return head * room * d; }
    __device__ void by_warp(long long, long long, long long) {}
    template <typename Size>
    __device__ long long at(long long first, int next, Size d) const {
        return first * d + next * d;
    }
};
struct Paged {
    static constexpr int TOGETHER = PAGE;
    const int* table;
    long long pages, kv_heads;  // pages: of a sequence
    const int* of_sequence;
    long long kv_head;
    __device__ long long capacity() const { return pages * PAGE; }
    __device__ long long enter(long long head, long long) {
        of_sequence = table + head / kv_heads * pages;
        kv_head = head % kv_heads;
        return 0;
    }
    __device__ long long in_page(long long page, int token, long long d) const {
        return ((page * kv_heads + kv_head) * PAGE + token) * d;
    }
    __device__ long long at(long long first, int next, long long d) const {
        return in_page(of_sequence[(first + next) / PAGE], static_cast<int>((first + next) % PAGE), d);
    }
};
// Trick: each lane keeps the number of a page, a warp those of 512 tokens, and a shuffle looks one up.
struct PagedByWarp : Paged {
    int page, passed;
    __device__ void by_warp(long long begin, long long first, long long end) {
        passed = static_cast<int>((first - begin) % (PAGE * LANES));
        const long long mine = first / PAGE + threadIdx.x % LANES;
        if (passed == 0) page = mine * PAGE < end ? of_sequence[mine] : 0;
    }
    __device__ long long at(long long, int next, long long d) const {
        return in_page(SHUFFLE(page, (passed + next) / PAGE), (passed + next) % PAGE, d);
    }
};

// Attention to some tokens, not yet normalised: the maximum score, the sum of exp(score - max), and that of
// exp(score - max)*value.
struct Partial {
    float max, sum, result;  // result: of the column that is this thread's number
};

// Tokens begin to end - 1 for one query head, by the whole block. A warp takes every fourth token, a lane 4 columns.
template <typename T, typename Place>
__device__ __forceinline__ Partial attend(const T* q, const T* keys, const T* values, float scale, long long d,
                                          long long begin, long long end, Place place) {
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    float query[COLS_PER_LANE], result[COLS_PER_LANE], max = LOWEST, sum = 0.0f;
#pragma unroll
    for (int c = 0; c < COLS_PER_LANE; ++c) {
        query[c] = lane + c * LANES < d ? scale * static_cast<float>(q[lane + c * LANES]) : 0.0f;
        result[c] = 0.0f;
    }
    for (long long token = begin + warp; token < end; token += WARPS) {
        const long long row = place.at(token, 0, d);
        float value[COLS_PER_LANE], score = 0.0f;
#pragma unroll
        for (int c = 0; c < COLS_PER_LANE; ++c) {
            bool inside = lane + c * LANES < d;
            score += inside ? query[c] * static_cast<float>(keys[row + lane + c * LANES]) : 0.0f;
            value[c] = inside ? static_cast<float>(values[row + lane + c * LANES]) : 0.0f;
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

template <typename T, typename Place>
__device__ __forceinline__ void decode(T* out, const T* q, const T* k_cache, const T* v_cache, float scale,
                                       long long batch, long long query_heads, long long kv_heads, long long d,
                                       long long tokens, Place place) {
    tokens = tokens < place.capacity() ? tokens : place.capacity();
    for (long long head = blockIdx.x; head < batch * query_heads; head += gridDim.x) {
        if (d > MAX_HEAD) {
            for (long long c = threadIdx.x; c < d; c += blockDim.x)
                out[head * d + c] = static_cast<T>(__int_as_float(0x7fffffff));
            continue;
        }
        long long kv_head = head % query_heads / (query_heads / kv_heads);
        long long cache = place.enter(head / query_heads * kv_heads + kv_head, d);
        Partial all = attend(q + head * d, k_cache + cache, v_cache + cache, scale, d, 0, tokens, place);
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
        Partial all = attend(q + head * d, k_cache + cache, v_cache + cache, scale, d, begin, end,
                             InOrder{capacity});
        if (threadIdx.x < d) partial_result[part * d + threadIdx.x] = all.result;
        if (threadIdx.x == 0) {
            partial_max[part] = all.max;
            partial_sum[part] = all.sum;
        }
    }
}

static constexpr int GROUP = 4;            // query heads that a block serves
static constexpr int TOKENS_AHEAD = 4;     // whose keys and values a lane loads before it uses the first
static constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;
#define MINUS_INFINITY __int_as_float(0xff800000)

__device__ __forceinline__ void unpack(float (&to)[4], uint4 words, const float*) {
    const unsigned int from[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = __uint_as_float(from[i]);
}
__device__ __forceinline__ void unpack(float (&to)[8], uint4 words, const __half*) {
    const unsigned int from[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&from[i]));
        to[2 * i] = pair.x;
        to[2 * i + 1] = pair.y;
    }
}
__device__ __forceinline__ void unpack(float (&to)[8], uint4 words, const bf16*) {
    const unsigned int from[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        to[2 * i] = __uint_as_float(from[i] << 16);
        to[2 * i + 1] = __uint_as_float(from[i] & 0xffff0000u);
    }
}

// 16 bytes, of which so many elements exist; the others count as zeros.
template <typename T>
__device__ __forceinline__ uint4 chunk(const T* at, int inside, bool is_aligned) {
    if (is_aligned) return inside > 0 ? *reinterpret_cast<const uint4*>(at) : uint4{};
    constexpr int IN_A_WORD = 4 / sizeof(T);
    unsigned int words[4] = {};
    for (int i = 0; i < 4 * IN_A_WORD; ++i) {
        if (i >= inside) continue;
        const unsigned int bits = sizeof(T) == 4 ? reinterpret_cast<const unsigned int*>(at)[i]
                                                 : reinterpret_cast<const unsigned short*>(at)[i];
        words[i / IN_A_WORD] |= bits << i % IN_A_WORD * 16;
    }
    return {words[0], words[1], words[2], words[3]};
}

struct Grouped {
    float max[16][GROUP], sum[16][GROUP], result[8 * GROUP * MAX_HEAD];
};

// Tokens begin to end - 1 for up to four query heads, by the whole block. A few lanes have a token, 16 bytes each.
template <int HEAD, typename T, typename Place>
__device__ __forceinline__ void attend_grouped(Grouped& all, float* partial_result, float* partial_max,
                                               float* partial_sum, const T* q, const T* keys, const T* values,
                                               float scale, int d, long long begin, long long end, int heads,
                                               long long splits, bool is_aligned, Place place) {
    constexpr int WIDTH = 16 / sizeof(T), LANES_A_TOKEN = HEAD / WIDTH, TOGETHER = LANES / LANES_A_TOKEN;
    constexpr int PARTS = WARPS * TOGETHER;
    const int part = threadIdx.x / LANES_A_TOKEN, column = threadIdx.x % LANES_A_TOKEN * WIDTH, inside = d - column;
    float query[GROUP][WIDTH], result[GROUP][WIDTH] = {}, max[GROUP], sum[GROUP] = {};
#pragma unroll
    for (int h = 0; h < GROUP; ++h) {
        unpack(query[h], chunk(q + h * d + column, h < heads ? inside : 0, is_aligned), q);
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) query[h][i] *= scale * LOG2_E;  // trick: exp2f is one instruction
        max[h] = LOWEST;
    }
    for (long long first = begin; first < end; first += PARTS * TOKENS_AHEAD) {
        const int left = static_cast<int>(end - first < PARTS * TOKENS_AHEAD ? end - first : PARTS * TOKENS_AHEAD);
        place.by_warp(begin, first, end);
        uint4 key[TOKENS_AHEAD], value[TOKENS_AHEAD];
#pragma unroll
        for (int t = 0; t < TOKENS_AHEAD; ++t) {
            const int token = part + t * PARTS;
            const long long at = place.at(first, token, d) + column;
            key[t] = chunk(keys + at, token < left ? inside : 0, is_aligned);
            value[t] = chunk(values + at, token < left ? inside : 0, is_aligned);
        }
        float score[GROUP][TOKENS_AHEAD] = {};
#pragma unroll
        for (int t = 0; t < TOKENS_AHEAD; ++t) {
            float of_key[WIDTH];
            unpack(of_key, key[t], q);
#pragma unroll
            for (int h = 0; h < GROUP; ++h) {
#pragma unroll
                for (int i = 0; i < WIDTH; ++i) score[h][t] += query[h][i] * of_key[i];
            }
        }
        // Trick: 16 sums over the lanes at once, none of which waits for another.
#pragma unroll
        for (int lanes = 1; lanes < LANES_A_TOKEN; lanes *= 2) {
#pragma unroll
            for (int h = 0; h < GROUP; ++h) {
#pragma unroll
                for (int t = 0; t < TOKENS_AHEAD; ++t)
                    score[h][t] += SHUFFLE_XOR(score[h][t], lanes);
            }
        }
        if (left < PARTS * TOKENS_AHEAD) {
#pragma unroll
            for (int t = 0; t < TOKENS_AHEAD; ++t) {
#pragma unroll
                for (int h = 0; h < GROUP; ++h)
                    if (part + t * PARTS >= left) score[h][t] = MINUS_INFINITY;  // below LOWEST: its power is 0
            }
        }
        // Trick: one rescaling for four tokens.
#pragma unroll
        for (int h = 0; h < GROUP; ++h) {
            float new_max = max[h];
#pragma unroll
            for (int t = 0; t < TOKENS_AHEAD; ++t) new_max = fmaxf(new_max, score[h][t]);
            const float shrink = exp2f(max[h] - new_max);
            max[h] = new_max;
            sum[h] *= shrink;
#pragma unroll
            for (int i = 0; i < WIDTH; ++i) result[h][i] *= shrink;
#pragma unroll
            for (int t = 0; t < TOKENS_AHEAD; ++t) {
                score[h][t] = exp2f(score[h][t] - new_max);
                sum[h] += score[h][t];
            }
        }
#pragma unroll
        for (int t = 0; t < TOKENS_AHEAD; ++t) {
            float of_value[WIDTH];
            unpack(of_value, value[t], q);
#pragma unroll
            for (int h = 0; h < GROUP; ++h) {
#pragma unroll
                for (int i = 0; i < WIDTH; ++i) result[h][i] += score[h][t] * of_value[i];
            }
        }
    }
    // What the lanes of one token each have becomes one.
#pragma unroll
    for (int h = 0; h < GROUP; ++h) {
        if (column == 0) {
            all.max[part][h] = max[h];
            all.sum[part][h] = sum[h];
        }
#pragma unroll
        for (int i = 0; i < WIDTH; i += 4)
            *reinterpret_cast<float4*>(all.result + (part * GROUP + h) * HEAD + column + i) =
                make_float4(result[h][i], result[h][i + 1], result[h][i + 2], result[h][i + 3]);
    }
    __syncthreads();
    for (int h = 0; h < heads; ++h) {
        float most = LOWEST, total = 0.0f, merged = 0.0f;
        for (int p = 0; p < PARTS; ++p) most = fmaxf(most, all.max[p][h]);
        for (int p = 0; p < PARTS; ++p) {
            const float shrink = exp2f(all.max[p][h] - most);
            total += all.sum[p][h] * shrink;
            if (threadIdx.x < HEAD) merged += all.result[(p * GROUP + h) * HEAD + threadIdx.x] * shrink;
        }
        if (threadIdx.x < d) partial_result[h * splits * d + threadIdx.x] = merged;
        if (threadIdx.x == 0) {
            partial_max[h * splits] = most * LN_2;
            partial_sum[h * splits] = total;
        }
    }
    __syncthreads();  // before the next part overwrites these
}

// partial_result (batch*query_heads, splits, d), partial_max and partial_sum (batch*query_heads, splits).
template <typename T, typename Place>
__device__ __forceinline__ void decode_grouped(float* partial_result, float* partial_max, float* partial_sum,
                                               const T* q, const T* k_cache, const T* v_cache, float scale,
                                               long long batch, long long query_heads, long long kv_heads, long long d,
                                               long long tokens, long long splits, Place place) {
    __shared__ __align__(16) Grouped all;
    tokens = tokens < place.capacity() ? tokens : place.capacity();
    const long long together = splits * Place::TOGETHER;
    const long long per_split = (tokens + together - 1) / together * Place::TOGETHER;
    const long long shared_by = kv_heads > 0 ? query_heads / kv_heads : 0;
    const long long groups = (shared_by + GROUP - 1) / GROUP;  // of the query heads that share a head of the cache
    const bool is_aligned = d * sizeof(T) % 16 == 0 && aligned(q, k_cache, v_cache);
    for (long long part = blockIdx.x; part < batch * kv_heads * groups * splits; part += gridDim.x) {
        const long long split = part % splits, group = part / splits % groups, kv_head = part / splits / groups;
        const int heads = static_cast<int>(shared_by - group * GROUP < GROUP ? shared_by - group * GROUP : GROUP);
        const long long head = kv_head * shared_by + group * GROUP, to = head * splits + split;
        const long long begin = split * per_split, end = begin + per_split < tokens ? begin + per_split : tokens;
        if (d > MAX_HEAD) {
            for (int h = 0; h < heads; ++h) {
                for (long long c = threadIdx.x; c < d; c += blockDim.x)
                    partial_result[(to + h * splits) * d + c] = 0.0f;
                if (threadIdx.x == 0)
                    partial_max[to + h * splits] = partial_sum[to + h * splits] = __int_as_float(0x7fffffff);
            }
            continue;
        }
        const long long cache = place.enter(kv_head, d);
        const T *keys = k_cache + cache, *values = v_cache + cache;
        if (d <= 64)
            attend_grouped<64>(all, partial_result + to * d, partial_max + to, partial_sum + to, q + head * d, keys,
                               values, scale, static_cast<int>(d), begin, end, heads, splits, is_aligned, place);
        else
            attend_grouped<128>(all, partial_result + to * d, partial_max + to, partial_sum + to, q + head * d, keys,
                                values, scale, static_cast<int>(d), begin, end, heads, splits, is_aligned, place);
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
extern "C" __global__ void kv_append_f32x4(float* __restrict__ k_cache, float* __restrict__ v_cache,
                                           const float* __restrict__ k_new, const float* __restrict__ v_new,
                                           long long position, long long batch, long long kv_heads, long long tokens,
                                           long long d, long long capacity) {
    append_wide(k_cache, v_cache, k_new, v_new, position, batch * kv_heads, tokens, d, capacity);
}
extern "C" __global__ void kv_append_f16x8(__half* __restrict__ k_cache, __half* __restrict__ v_cache,
                                           const __half* __restrict__ k_new, const __half* __restrict__ v_new,
                                           long long position, long long batch, long long kv_heads, long long tokens,
                                           long long d, long long capacity) {
    append_wide(k_cache, v_cache, k_new, v_new, position, batch * kv_heads, tokens, d, capacity);
}
extern "C" __global__ void kv_decode_f32(float* __restrict__ out, const float* __restrict__ q,
                                         const float* __restrict__ k_cache, const float* __restrict__ v_cache,
                                         float scale, long long batch, long long query_heads, long long kv_heads,
                                         long long d, long long tokens, long long capacity) {
    decode(out, q, k_cache, v_cache, scale, batch, query_heads, kv_heads, d, tokens, InOrder{capacity});
}
extern "C" __global__ void kv_decode_f16(__half* __restrict__ out, const __half* __restrict__ q,
                                         const __half* __restrict__ k_cache, const __half* __restrict__ v_cache,
                                         float scale, long long batch, long long query_heads, long long kv_heads,
                                         long long d, long long tokens, long long capacity) {
    decode(out, q, k_cache, v_cache, scale, batch, query_heads, kv_heads, d, tokens, InOrder{capacity});
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
extern "C" __global__ void __launch_bounds__(WARPS* LANES, 3)
    kv_decode_grouped_f32(float* __restrict__ partial_result, float* __restrict__ partial_max,
                          float* __restrict__ partial_sum, const float* __restrict__ q,
                          const float* __restrict__ k_cache, const float* __restrict__ v_cache, float scale,
                          long long batch, long long query_heads, long long kv_heads, long long d, long long tokens,
                          long long capacity, long long splits) {
    decode_grouped(partial_result, partial_max, partial_sum, q, k_cache, v_cache, scale, batch, query_heads, kv_heads,
                   d, tokens, splits, InOrder{capacity});
}
extern "C" __global__ void __launch_bounds__(WARPS* LANES, 3)
    kv_decode_grouped_f16(float* __restrict__ partial_result, float* __restrict__ partial_max,
                          float* __restrict__ partial_sum, const __half* __restrict__ q,
                          const __half* __restrict__ k_cache, const __half* __restrict__ v_cache, float scale,
                          long long batch, long long query_heads, long long kv_heads, long long d, long long tokens,
                          long long capacity, long long splits) {
    decode_grouped(partial_result, partial_max, partial_sum, q, k_cache, v_cache, scale, batch, query_heads, kv_heads,
                   d, tokens, splits, InOrder{capacity});
}
extern "C" __global__ void __launch_bounds__(WARPS* LANES, 3)
    kv_decode_grouped_bf16(float* __restrict__ partial_result, float* __restrict__ partial_max,
                          float* __restrict__ partial_sum, const bf16* __restrict__ q,
                          const bf16* __restrict__ k_cache, const bf16* __restrict__ v_cache, float scale,
                          long long batch, long long query_heads, long long kv_heads, long long d, long long tokens,
                          long long capacity, long long splits) {
    decode_grouped(partial_result, partial_max, partial_sum, q, k_cache, v_cache, scale, batch, query_heads, kv_heads,
                   d, tokens, splits, InOrder{capacity});
}
extern "C" __global__ void kv_decode_paged_f32(float* __restrict__ out, const float* __restrict__ q,
                                               const float* __restrict__ k_cache, const float* __restrict__ v_cache,
                                               const int* __restrict__ table, float scale, long long batch,
                                               long long query_heads, long long kv_heads, long long d, long long tokens,
                                               long long pages) {
    decode(out, q, k_cache, v_cache, scale, batch, query_heads, kv_heads, d, tokens, Paged{table, pages, kv_heads});
}
extern "C" __global__ void kv_decode_paged_f16(__half* __restrict__ out, const __half* __restrict__ q,
                                               const __half* __restrict__ k_cache, const __half* __restrict__ v_cache,
                                               const int* __restrict__ table, float scale, long long batch,
                                               long long query_heads, long long kv_heads, long long d, long long tokens,
                                               long long pages) {
    decode(out, q, k_cache, v_cache, scale, batch, query_heads, kv_heads, d, tokens, Paged{table, pages, kv_heads});
}
extern "C" __global__ void __launch_bounds__(WARPS* LANES, 3)
    kv_decode_paged_grouped_f32(float* __restrict__ partial_result, float* __restrict__ partial_max,
                                float* __restrict__ partial_sum, const float* __restrict__ q,
                                const float* __restrict__ k_cache, const float* __restrict__ v_cache,
                                const int* __restrict__ table, float scale, long long batch, long long query_heads,
                                long long kv_heads, long long d, long long tokens, long long pages, long long splits) {
    decode_grouped(partial_result, partial_max, partial_sum, q, k_cache, v_cache, scale, batch, query_heads, kv_heads,
                   d, tokens, splits, PagedByWarp{{table, pages, kv_heads}});
}
extern "C" __global__ void __launch_bounds__(WARPS* LANES, 3)
    kv_decode_paged_grouped_f16(float* __restrict__ partial_result, float* __restrict__ partial_max,
                                float* __restrict__ partial_sum, const __half* __restrict__ q,
                                const __half* __restrict__ k_cache, const __half* __restrict__ v_cache,
                                const int* __restrict__ table, float scale, long long batch, long long query_heads,
                                long long kv_heads, long long d, long long tokens, long long pages, long long splits) {
    decode_grouped(partial_result, partial_max, partial_sum, q, k_cache, v_cache, scale, batch, query_heads, kv_heads,
                   d, tokens, splits, PagedByWarp{{table, pages, kv_heads}});
}
extern "C" __global__ void __launch_bounds__(WARPS* LANES, 3)
    kv_decode_paged_grouped_bf16(float* __restrict__ partial_result, float* __restrict__ partial_max,
                                 float* __restrict__ partial_sum, const bf16* __restrict__ q,
                                 const bf16* __restrict__ k_cache, const bf16* __restrict__ v_cache,
                                 const int* __restrict__ table, float scale, long long batch, long long query_heads,
                                 long long kv_heads, long long d, long long tokens, long long pages, long long splits) {
    decode_grouped(partial_result, partial_max, partial_sum, q, k_cache, v_cache, scale, batch, query_heads, kv_heads,
                   d, tokens, splits, PagedByWarp{{table, pages, kv_heads}});
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
extern "C" __global__ void kv_decode_combine_bf16(bf16* __restrict__ out, const float* __restrict__ partial_result,
                                                  const float* __restrict__ partial_max,
                                                  const float* __restrict__ partial_sum, long long heads, long long d,
                                                  long long splits) {
    decode_combine(out, partial_result, partial_max, partial_sum, heads, d, splits);
}
