// Key-value cache of a decoder: appending new tokens, and attending to all of it with one new token.
//
//   kernel      bytes moved                                              FLOP
//   kv_append   4*batch*tokens*kv_heads*d*s                              0
//   kv_decode   2*batch*tokens*kv_heads*d*s + 2*batch*query_heads*d*s    4*batch*tokens*query_heads*d
//   _paged      the same + 4*batch*tokens/16                             the same
//   kv_append_fp8   2*batch*tokens*kv_heads*(d*s + d + 4)                6*batch*tokens*kv_heads*d
//   kv_decode_fp8   2*batch*tokens*kv_heads*(d + 4)                      as kv_decode
//                   + 2*batch*query_heads*d*s
//
// What bounds it: memory. A copy computes nothing, and decoding does a multiply-add per query head that shares a key.
// From 8 bits, a byte costs twice the instructions, which may bound it instead: no card has shown it yet.
//
// Layout: caches (batch, kv_heads, capacity, d), new keys and values (batch, kv_heads, tokens, d), query and result
// (batch, query_heads, d). With grouped-query attention query_heads / kv_heads query heads share the keys and values of
// one; query_heads is a multiple of kv_heads.
//
// Paged: a server gives memory to a sequence 16 tokens at a time. Its caches are (pages, kv_heads, 16, d), and `table`
// (batch, pages of a sequence) names those of each sequence in order. All that it names have to exist.
//
// In 8 bits: a token's key or value of a head becomes FP8 (e4m3) with a float scale, in (batch, kv_heads, capacity),
// that makes its largest element 448. Decoding then reads half of what halves take. FP8 and not int8, since engines
// keep caches in it (vLLM, TensorRT-LLM), and since a code is a half but for a shift: nothing has to be converted. A
// NaN makes the scale NaN, and so all that is read by it; the codes 0x7f and 0xff by themselves count as 480.
//
// Versions of append: plain (kv_append_f32, _f16) divides 64-bit numbers three times for each element. Copy the wide
// one (_f32x4, _f16x8, which copies bfloat16 as well): 16 bytes a thread, and no division. In 8 bits
// plain gives a warp to a row, reads it twice and converts one by one; the wide one (also _bf16x8) keeps it in as many
// lanes as it has 16 bytes, keys and values under way together.
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
//   kv_decode_fp8, kv_decode_fp8_grouped   the same two from 8 bits. In the first each lane loads each scale. Copy the
//                   other: a lane loads 8 bytes of eight tokens, and one scale for its warp.
// The first two ask for the cache once per query head, 2 or 4 bytes a lane; heads that share it mostly meet it in L2.
// Each token costs a warp five dependent shuffles and two exponentials. Give grouped as many splits as make the three
// blocks of each multiprocessor that it has registers for: 3 * multiprocessors / (batch * kv_heads * groups), where a
// group is up to four of the query heads that share a key.
//
// Plain append: one-dimensional blocks, in 8 bits of whole warps. Wide append: two-dimensional ones, x for every 16
// bytes of a head's new tokens, y for heads. In 8 bits a row of d elements has the next power of two of d * s / 16
// threads; blocks whose x is no multiple of it, and rows of other sizes, take the way of plain.
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

// ---- append in 8 bits ----------------------------------------------------------------------------------------------

static constexpr int LANES = 32;
static constexpr float LARGEST_FP8 = 448.0f;

// A code of e4m3: a sign, 4 bits of exponent (127 becomes 7) and 3 of mantissa, as quantize.cu makes it.
struct Fp8 {
    unsigned char bits;
    static __device__ unsigned int code(float x) {
        const float size = fminf(fabsf(x), LARGEST_FP8);
        const unsigned int sign = __float_as_uint(x) >> 24 & 0x80, all = __float_as_uint(size);
        const unsigned int small = __float_as_uint(size + 16384.0f) - __float_as_uint(16384.0f);
        const unsigned int large = (all + 0x7ffff + (all >> 20 & 1) - (120u << 23)) >> 20;
        return sign | (size < 0.015625f ? small : large);
    }
    static __device__ unsigned int codes(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
        unsigned short both;
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(high), "f"(low));
        return both;
#else
        return code(low) | code(high) << 8;
#endif
    }
    // Trick: in the places of a half's bits they are 2^8 times too small, which the scale puts right.
    __device__ operator float() const {
        const unsigned short half = (bits & 0x80) << 8 | (bits & 0x7f) << 7;
        return __half2float(__ushort_as_half(half));
    }
};
static constexpr float TOO_SMALL = 256.0f;

// Trick: without their sign, floats are in the order of their bits, and NaN is the largest, which fmaxf would drop.
__device__ __forceinline__ unsigned int size_of(float x) { return __float_as_uint(x) & 0x7fffffff; }
__device__ __forceinline__ unsigned int largest_of(unsigned int mine, int lanes) {
    for (int apart = lanes / 2; apart > 0; apart /= 2) {
        const unsigned int other = SHUFFLE_XOR(mine, apart);
        mine = mine > other ? mine : other;
    }
    return mine;
}
// Bounded, so that zeros stay what they are.
__device__ __forceinline__ float factor_of(float largest) { return fminf(LARGEST_FP8 / largest, 3.402823466e38f); }

template <typename T>
__device__ __forceinline__ void quantize_row(unsigned char* codes, float* scale, const T* row, long long d, int lane) {
    unsigned int size = 0;
#pragma unroll 1
    for (long long c = lane; c < d; c += LANES) {
        const unsigned int other = size_of(row[c]);
        size = size > other ? size : other;
    }
    const float largest = __uint_as_float(largest_of(size, LANES)), factor = factor_of(largest);
    if (lane == 0) *scale = largest / LARGEST_FP8;
#pragma unroll 1
    for (long long c = lane; c < d; c += LANES) codes[c] = Fp8::code(static_cast<float>(row[c]) * factor);
}

template <typename T>
__device__ __forceinline__ void append_fp8(unsigned char* k_cache, unsigned char* v_cache, float* k_scales,
                                           float* v_scales, const T* k_new, const T* v_new, long long position,
                                           long long matrices, long long tokens, long long d, long long capacity) {
    const int thread = threadIdx.y * blockDim.x + threadIdx.x, warps = blockDim.x * blockDim.y / LANES;
    const long long first = (blockIdx.y * (long long)gridDim.x + blockIdx.x) * warps + thread / LANES;
#pragma unroll 1
    for (long long row = first; row < matrices * tokens; row += gridDim.x * (long long)gridDim.y * warps) {
        const long long token = position + row % tokens, to = row / tokens * capacity + token;
        if (token >= capacity) continue;
        quantize_row(k_cache + to * d, k_scales + to, k_new + row * d, d, thread % LANES);
        quantize_row(v_cache + to * d, v_scales + to, v_new + row * d, d, thread % LANES);
    }
}

// 16 bytes of elements, and what as many take in codes.
template <typename T>
struct alignas(16) Pack {
    static constexpr int WIDTH = 16 / sizeof(T);
    T lane[WIDTH];
};
template <typename T>
struct alignas(Pack<T>::WIDTH) Codes {
    unsigned int four[Pack<T>::WIDTH / 4];
};

// `lanes` neighbours, a power of two, have a row.
template <typename T>
__device__ __forceinline__ void store_row(unsigned char* codes, float* scale, const Pack<T>& pack, int lanes, int lane,
                                          bool inside) {
    unsigned int size = 0;
#pragma unroll
    for (int j = 0; j < Pack<T>::WIDTH; ++j) {
        const unsigned int other = size_of(pack.lane[j]);
        size = size > other ? size : other;
    }
    const float largest = __uint_as_float(largest_of(size, lanes)), factor = factor_of(largest);
    Codes<T> result;
    auto codes_at = [&](int j) {
        return Fp8::codes(static_cast<float>(pack.lane[j]) * factor, static_cast<float>(pack.lane[j + 1]) * factor);
    };
#pragma unroll
    for (int j = 0; j < Pack<T>::WIDTH; j += 4) result.four[j / 4] = codes_at(j) | codes_at(j + 2) << 16;
    if (inside) reinterpret_cast<Codes<T>*>(codes)[lane] = result;
    if (inside && lane == 0) *scale = largest / LARGEST_FP8;
}

template <typename T>
__device__ __forceinline__ void append_fp8_wide(unsigned char* k_cache, unsigned char* v_cache, float* k_scales,
                                                float* v_scales, const T* k_new, const T* v_new, long long position,
                                                long long matrices, long long tokens, long long d,
                                                long long capacity) {
    constexpr int WIDTH = Pack<T>::WIDTH;
    int shift = 0;
    while (WIDTH << shift < d && 1 << shift < LANES) ++shift;
    const int lanes = 1 << shift;
    if (d % WIDTH != 0 || d > lanes * WIDTH || blockDim.x % lanes != 0 || !aligned(k_cache, v_cache, k_new) ||
        !aligned(v_new, v_new, v_new))
        return append_fp8(k_cache, v_cache, k_scales, v_scales, k_new, v_new, position, matrices, tokens, d, capacity);
    const long long left = capacity - position, count = (left < tokens ? left > 0 ? left : 0 : tokens) << shift;
    // All threads of a block stay in the loops: the shuffles need every lane.
    for (long long y = blockIdx.y * (long long)blockDim.y; y < matrices; y += gridDim.y * (long long)blockDim.y) {
#pragma unroll 1
        for (long long x = blockIdx.x * (long long)blockDim.x; x < count; x += gridDim.x * (long long)blockDim.x) {
            const long long matrix = y + threadIdx.y, token = (x + threadIdx.x) >> shift;
            const int lane = threadIdx.x & (lanes - 1);
            const bool inside = matrix < matrices && x + threadIdx.x < count && lane * WIDTH < d;
            const long long from = (matrix * tokens + token) * d, to = matrix * capacity + position + token;
            Pack<T> key = {}, value = {};
            if (inside) {
                key = reinterpret_cast<const Pack<T>*>(k_new + from)[lane];
                value = reinterpret_cast<const Pack<T>*>(v_new + from)[lane];
            }
            store_row(k_cache + to * d, k_scales + to, key, lanes, lane, inside);
            store_row(v_cache + to * d, v_scales + to, value, lanes, lane, inside);
        }
    }
}

// ---- decode ---------------------------------------------------------------------------------------------------------

static constexpr int WARPS = 4;
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

// The scales of a head's keys and values: none, or one for each token. `first`: a head's place among all tokens.
struct Unscaled {
    __device__ void enter(long long) {}
    __device__ float key_at(long long) const { return 1.0f; }
    __device__ float value_at(long long) const { return 1.0f; }
    template <int TOGETHER, int AHEAD, typename Place>
    __device__ void by_warp(long long, int, const Place&) {}
    template <int TOGETHER>
    __device__ float key(int, int) const {
        return 1.0f;
    }
    template <int TOGETHER>
    __device__ float value(int, int) const {
        return 1.0f;
    }
};
struct Scaled {
    const float *k_scales, *v_scales;
    long long of_head;
    float of_key, of_value;  // of the token that this lane has loaded them for
    __device__ void enter(long long first) { of_head = first; }
    __device__ float key_at(long long at) const { return k_scales[of_head + at] * TOO_SMALL; }
    __device__ float value_at(long long at) const { return v_scales[of_head + at] * TOO_SMALL; }
    // Trick: each lane loads the scales of one of its warp's tokens, and a shuffle looks one up.
    template <int TOGETHER, int AHEAD, typename Place>
    __device__ void by_warp(long long first, int left, const Place& place) {
        const int lane = threadIdx.x % LANES;
        const int token = threadIdx.x / LANES * TOGETHER + lane % TOGETHER + lane / TOGETHER * WARPS * TOGETHER;
        const bool inside = lane < TOGETHER * AHEAD && token < left;
        const long long at = place.at(first, token, 1);
        of_key = inside ? key_at(at) : 0.0f;
        of_value = inside ? value_at(at) : 0.0f;
    }
    template <int TOGETHER>
    __device__ float key(int t, int among) const {
        return SHUFFLE(of_key, t * TOGETHER + among);
    }
    template <int TOGETHER>
    __device__ float value(int t, int among) const {
        return SHUFFLE(of_value, t * TOGETHER + among);
    }
};

// Attention to some tokens, not yet normalised: the maximum score, the sum of exp(score - max), and that of
// exp(score - max)*value.
struct Partial {
    float max, sum, result;  // result: of the column that is this thread's number
};

// Tokens begin to end - 1 for one query head, by the whole block. A warp takes every fourth token, a lane 4 columns.
template <typename T, typename C, typename Place, typename Scales>
__device__ __forceinline__ Partial attend(const T* q, const C* keys, const C* values, float scale, long long d,
                                          long long begin, long long end, Place place, Scales scales) {
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
        score *= scales.key_at(place.at(token, 0, 1));
        float new_max = fmaxf(max, score);
        float weight = expf(score - new_max), shrink = expf(max - new_max);
        max = new_max;
        sum = sum * shrink + weight;
#pragma unroll
        for (int c = 0; c < COLS_PER_LANE; ++c)
            result[c] = result[c] * shrink + weight * scales.value_at(place.at(token, 0, 1)) * value[c];
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

__device__ __forceinline__ float divided(float result, float sum) { return sum == 0.0f ? 0.0f : result / sum; }

template <typename T, typename C, typename Place, typename Scales = Unscaled>
__device__ __forceinline__ void decode(T* out, const T* q, const C* k_cache, const C* v_cache, float scale,
                                       long long batch, long long query_heads, long long kv_heads, long long d,
                                       long long tokens, Place place, Scales scales = {}) {
    tokens = tokens < place.capacity() ? tokens : place.capacity();
    for (long long head = blockIdx.x; head < batch * query_heads; head += gridDim.x) {
        if (d > MAX_HEAD) {
            for (long long c = threadIdx.x; c < d; c += blockDim.x)
                out[head * d + c] = static_cast<T>(__int_as_float(0x7fffffff));
            continue;
        }
        long long kv_head = head % query_heads / (query_heads / kv_heads);
        kv_head += head / query_heads * kv_heads;
        long long cache = place.enter(kv_head, d);
        scales.enter(place.enter(kv_head, 1));
        Partial all = attend(q + head * d, k_cache + cache, v_cache + cache, scale, d, 0, tokens, place, scales);
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
                             InOrder{capacity}, Unscaled{});
        if (threadIdx.x < d) partial_result[part * d + threadIdx.x] = all.result;
        if (threadIdx.x == 0) {
            partial_max[part] = all.max;
            partial_sum[part] = all.sum;
        }
    }
}

static constexpr int GROUP = 4;            // query heads that a block serves
static constexpr int TOKENS = 4;           // whose scores a lane has at once
// What a lane loads of a token, and of how many tokens before it uses the first: 64 bytes of keys, as many of values.
template <typename C>
struct Reads {
    typedef uint4 Chunk;
    static constexpr int WIDTH = 16 / sizeof(C), AHEAD = 4;
};
template <>
struct Reads<Fp8> {
    typedef uint2 Chunk;
    static constexpr int WIDTH = 8, AHEAD = 8;
};
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

// Trick: two codes become two halves by two masks and shifts.
__device__ __forceinline__ void unpack(float (&to)[8], uint2 words, const Fp8*) {
    const unsigned int from[2] = {words.x, words.y};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const unsigned int even = (from[i] & 0x00800080) << 8 | (from[i] & 0x007f007f) << 7;
        const unsigned int odd = (from[i] & 0x80008000) | (from[i] & 0x7f007f00) >> 1;
        const float2 evens = __half22float2(*reinterpret_cast<const __half2*>(&even));
        const float2 odds = __half22float2(*reinterpret_cast<const __half2*>(&odd));
        to[4 * i] = evens.x;
        to[4 * i + 1] = odds.x;
        to[4 * i + 2] = evens.y;
        to[4 * i + 3] = odds.y;
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
__device__ __forceinline__ uint2 chunk(const Fp8* at, int inside, bool is_aligned) {
    if (is_aligned) return inside > 0 ? *reinterpret_cast<const uint2*>(at) : uint2{};
    unsigned int words[2] = {};
    for (int i = 0; i < 8; ++i)
        if (i < inside) words[i / 4] |= static_cast<unsigned int>(at[i].bits) << i % 4 * 8;
    return {words[0], words[1]};
}

struct Grouped {
    float max[16][GROUP], sum[16][GROUP], result[8 * GROUP * MAX_HEAD];
};

// Tokens begin to end - 1 for up to four query heads, by the whole block. A few lanes have a token, a chunk each.
template <int HEAD, typename T, typename C, typename Place, typename Scales>
__device__ __forceinline__ void attend_grouped(Grouped& all, float* partial_result, float* partial_max,
                                               float* partial_sum, const T* q, const C* keys, const C* values,
                                               float scale, int d, long long begin, long long end, int heads,
                                               long long splits, bool is_aligned, Place place, Scales scales) {
    constexpr int WIDTH = Reads<C>::WIDTH, LANES_A_TOKEN = HEAD / WIDTH, TOGETHER = LANES / LANES_A_TOKEN;
    constexpr int PARTS = WARPS * TOGETHER, AHEAD = Reads<C>::AHEAD, OF_QUERY = 16 / sizeof(T);
    const int part = threadIdx.x / LANES_A_TOKEN, column = threadIdx.x % LANES_A_TOKEN * WIDTH, inside = d - column;
    float query[GROUP][WIDTH], result[GROUP][WIDTH] = {}, max[GROUP], sum[GROUP] = {};
#pragma unroll
    for (int h = 0; h < GROUP; ++h) {
#pragma unroll
        for (int i = 0; i < WIDTH; i += OF_QUERY)
            unpack(reinterpret_cast<float(&)[OF_QUERY]>(query[h][i]),
                   chunk(q + h * d + column + i, h < heads ? inside - i : 0, is_aligned), q);
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) query[h][i] *= scale * LOG2_E;  // trick: exp2f does
        max[h] = LOWEST;
    }
    for (long long first = begin; first < end; first += PARTS * AHEAD) {
        const int left = static_cast<int>(end - first < PARTS * AHEAD ? end - first : PARTS * AHEAD);
        place.by_warp(begin, first, end);
        scales.template by_warp<TOGETHER, AHEAD>(first, left, place);
        typename Reads<C>::Chunk key[AHEAD], value[AHEAD];
#pragma unroll
        for (int t = 0; t < AHEAD; ++t) {
            const int token = part + t * PARTS;
            const long long at = place.at(first, token, d) + column;
            key[t] = chunk(keys + at, token < left ? inside : 0, is_aligned);
            value[t] = chunk(values + at, token < left ? inside : 0, is_aligned);
        }
#pragma unroll 1  // unrolled, eight tokens would take more registers than three blocks leave
        for (int t0 = 0; t0 < AHEAD; t0 += TOKENS) {
            float score[GROUP][TOKENS] = {};
#pragma unroll
            for (int t = 0; t < TOKENS; ++t) {
                float of_key[WIDTH];
                unpack(of_key, key[t], keys);
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
                    for (int t = 0; t < TOKENS; ++t) score[h][t] += SHUFFLE_XOR(score[h][t], lanes);
                }
            }
#pragma unroll
            for (int t = 0; t < TOKENS; ++t) {
                const float key_scale = scales.template key<TOGETHER>(t0 + t, part % TOGETHER);
#pragma unroll
                for (int h = 0; h < GROUP; ++h) score[h][t] *= key_scale;
            }
            if (left < PARTS * AHEAD) {
#pragma unroll
                for (int t = 0; t < TOKENS; ++t) {
#pragma unroll
                    for (int h = 0; h < GROUP; ++h)  // below LOWEST: its power is 0
                        if (part + (t0 + t) * PARTS >= left) score[h][t] = MINUS_INFINITY;
                }
            }
            // Trick: one rescaling for four tokens.
#pragma unroll
            for (int h = 0; h < GROUP; ++h) {
                float new_max = max[h];
#pragma unroll
                for (int t = 0; t < TOKENS; ++t) new_max = fmaxf(new_max, score[h][t]);
                const float shrink = exp2f(max[h] - new_max);
                max[h] = new_max;
                sum[h] *= shrink;
#pragma unroll
                for (int i = 0; i < WIDTH; ++i) result[h][i] *= shrink;
#pragma unroll
                for (int t = 0; t < TOKENS; ++t) {
                    score[h][t] = exp2f(score[h][t] - new_max);
                    sum[h] += score[h][t];
                }
            }
#pragma unroll
            for (int t = 0; t < TOKENS; ++t) {
                float of_value[WIDTH];
                unpack(of_value, value[t], keys);
                const float value_scale = scales.template value<TOGETHER>(t0 + t, part % TOGETHER);
#pragma unroll
                for (int h = 0; h < GROUP; ++h) {
                    const float weight = score[h][t] * value_scale;
#pragma unroll
                    for (int i = 0; i < WIDTH; ++i) result[h][i] += weight * of_value[i];
                }
            }
#pragma unroll
            for (int t = 0; t < AHEAD - TOKENS; ++t) {
                key[t] = key[t + TOKENS];
                value[t] = value[t + TOKENS];
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
template <typename T, typename C, typename Place, typename Scales = Unscaled>
__device__ __forceinline__ void decode_grouped(float* partial_result, float* partial_max, float* partial_sum,
                                               const T* q, const C* k_cache, const C* v_cache, float scale,
                                               long long batch, long long query_heads, long long kv_heads, long long d,
                                               long long tokens, long long splits, Place place, Scales scales = {}) {
    __shared__ __align__(16) Grouped all;
    tokens = tokens < place.capacity() ? tokens : place.capacity();
    const long long together = splits * Place::TOGETHER;
    const long long per_split = (tokens + together - 1) / together * Place::TOGETHER;
    const long long shared_by = kv_heads > 0 ? query_heads / kv_heads : 0;
    const long long groups = (shared_by + GROUP - 1) / GROUP;  // of the query heads that share a head of the cache
    const bool is_aligned = d % Reads<C>::WIDTH == 0 && aligned(q, k_cache, v_cache);
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
        scales.enter(place.enter(kv_head, 1));
        const C *keys = k_cache + cache, *values = v_cache + cache;
        if (d <= 64)
            attend_grouped<64>(all, partial_result + to * d, partial_max + to, partial_sum + to, q + head * d, keys,
                               values, scale, static_cast<int>(d), begin, end, heads, splits, is_aligned, place,
                               scales);
        else
            attend_grouped<128>(all, partial_result + to * d, partial_max + to, partial_sum + to, q + head * d, keys,
                                values, scale, static_cast<int>(d), begin, end, heads, splits, is_aligned, place,
                                scales);
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
extern "C" __global__ void kv_append_fp8_f32(unsigned char* __restrict__ k_cache, unsigned char* __restrict__ v_cache,
                                             float* __restrict__ k_scales, float* __restrict__ v_scales,
                                             const float* __restrict__ k_new, const float* __restrict__ v_new,
                                             long long position, long long batch, long long kv_heads, long long tokens,
                                             long long d, long long capacity) {
    append_fp8(k_cache, v_cache, k_scales, v_scales, k_new, v_new, position, batch * kv_heads, tokens, d, capacity);
}
extern "C" __global__ void kv_append_fp8_f16(unsigned char* __restrict__ k_cache, unsigned char* __restrict__ v_cache,
                                             float* __restrict__ k_scales, float* __restrict__ v_scales,
                                             const __half* __restrict__ k_new, const __half* __restrict__ v_new,
                                             long long position, long long batch, long long kv_heads, long long tokens,
                                             long long d, long long capacity) {
    append_fp8(k_cache, v_cache, k_scales, v_scales, k_new, v_new, position, batch * kv_heads, tokens, d, capacity);
}
extern "C" __global__ void kv_append_fp8_f32x4(unsigned char* __restrict__ k_cache, unsigned char* __restrict__ v_cache,
                                               float* __restrict__ k_scales, float* __restrict__ v_scales,
                                               const float* __restrict__ k_new, const float* __restrict__ v_new,
                                               long long position, long long batch, long long kv_heads,
                                               long long tokens, long long d, long long capacity) {
    append_fp8_wide(k_cache, v_cache, k_scales, v_scales, k_new, v_new, position, batch * kv_heads, tokens, d,
                    capacity);
}
extern "C" __global__ void kv_append_fp8_f16x8(unsigned char* __restrict__ k_cache, unsigned char* __restrict__ v_cache,
                                               float* __restrict__ k_scales, float* __restrict__ v_scales,
                                               const __half* __restrict__ k_new, const __half* __restrict__ v_new,
                                               long long position, long long batch, long long kv_heads,
                                               long long tokens, long long d, long long capacity) {
    append_fp8_wide(k_cache, v_cache, k_scales, v_scales, k_new, v_new, position, batch * kv_heads, tokens, d,
                    capacity);
}
extern "C" __global__ void kv_append_fp8_bf16x8(unsigned char* __restrict__ k_cache,
                                                unsigned char* __restrict__ v_cache, float* __restrict__ k_scales,
                                                float* __restrict__ v_scales, const bf16* __restrict__ k_new,
                                                const bf16* __restrict__ v_new, long long position, long long batch,
                                                long long kv_heads, long long tokens, long long d, long long capacity) {
    append_fp8_wide(k_cache, v_cache, k_scales, v_scales, k_new, v_new, position, batch * kv_heads, tokens, d,
                    capacity);
}
extern "C" __global__ void kv_decode_fp8_f32(float* __restrict__ out, const float* __restrict__ q,
                                             const unsigned char* __restrict__ k_cache,
                                             const unsigned char* __restrict__ v_cache,
                                             const float* __restrict__ k_scales, const float* __restrict__ v_scales,
                                             float scale, long long batch, long long query_heads, long long kv_heads,
                                             long long d, long long tokens, long long capacity) {
    decode(out, q, reinterpret_cast<const Fp8*>(k_cache), reinterpret_cast<const Fp8*>(v_cache), scale, batch,
           query_heads, kv_heads, d, tokens, InOrder{capacity}, Scaled{k_scales, v_scales});
}
extern "C" __global__ void kv_decode_fp8_f16(__half* __restrict__ out, const __half* __restrict__ q,
                                             const unsigned char* __restrict__ k_cache,
                                             const unsigned char* __restrict__ v_cache,
                                             const float* __restrict__ k_scales, const float* __restrict__ v_scales,
                                             float scale, long long batch, long long query_heads, long long kv_heads,
                                             long long d, long long tokens, long long capacity) {
    decode(out, q, reinterpret_cast<const Fp8*>(k_cache), reinterpret_cast<const Fp8*>(v_cache), scale, batch,
           query_heads, kv_heads, d, tokens, InOrder{capacity}, Scaled{k_scales, v_scales});
}
extern "C" __global__ void __launch_bounds__(WARPS* LANES, 3)
    kv_decode_fp8_grouped_f32(float* __restrict__ partial_result, float* __restrict__ partial_max,
                              float* __restrict__ partial_sum, const float* __restrict__ q,
                              const unsigned char* __restrict__ k_cache, const unsigned char* __restrict__ v_cache,
                              const float* __restrict__ k_scales, const float* __restrict__ v_scales, float scale,
                              long long batch, long long query_heads, long long kv_heads, long long d, long long tokens,
                              long long capacity, long long splits) {
    decode_grouped(partial_result, partial_max, partial_sum, q, reinterpret_cast<const Fp8*>(k_cache),
                   reinterpret_cast<const Fp8*>(v_cache), scale, batch, query_heads, kv_heads, d, tokens, splits,
                   InOrder{capacity}, Scaled{k_scales, v_scales});
}
extern "C" __global__ void __launch_bounds__(WARPS* LANES, 3)
    kv_decode_fp8_grouped_f16(float* __restrict__ partial_result, float* __restrict__ partial_max,
                              float* __restrict__ partial_sum, const __half* __restrict__ q,
                              const unsigned char* __restrict__ k_cache, const unsigned char* __restrict__ v_cache,
                              const float* __restrict__ k_scales, const float* __restrict__ v_scales, float scale,
                              long long batch, long long query_heads, long long kv_heads, long long d, long long tokens,
                              long long capacity, long long splits) {
    decode_grouped(partial_result, partial_max, partial_sum, q, reinterpret_cast<const Fp8*>(k_cache),
                   reinterpret_cast<const Fp8*>(v_cache), scale, batch, query_heads, kv_heads, d, tokens, splits,
                   InOrder{capacity}, Scaled{k_scales, v_scales});
}
extern "C" __global__ void __launch_bounds__(WARPS* LANES, 3)
    kv_decode_fp8_grouped_bf16(float* __restrict__ partial_result, float* __restrict__ partial_max,
                               float* __restrict__ partial_sum, const bf16* __restrict__ q,
                               const unsigned char* __restrict__ k_cache, const unsigned char* __restrict__ v_cache,
                               const float* __restrict__ k_scales, const float* __restrict__ v_scales, float scale,
                               long long batch, long long query_heads, long long kv_heads, long long d,
                               long long tokens, long long capacity, long long splits) {
    decode_grouped(partial_result, partial_max, partial_sum, q, reinterpret_cast<const Fp8*>(k_cache),
                   reinterpret_cast<const Fp8*>(v_cache), scale, batch, query_heads, kv_heads, d, tokens, splits,
                   InOrder{capacity}, Scaled{k_scales, v_scales});
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
