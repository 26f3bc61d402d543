/* Integer and bit operations, one function a type: add wraps (gcc is told -fwrapv), shifts clamp, division by 0
 * gives ones.
 */
#pragma once

#include <stdint.h>

#define LOW_MASK(U, BITS, length) ((length) >= (BITS) ? (U)~(U)0 : (U)(((U)1 << (length)) - 1))

/* NAME: PTX's type. T: the C type. U: unsigned of that width. WIDE: the type of twice the width. */
#define INTEGER(NAME, T, U, WIDE, BITS)                                                                              \
    static inline T min_##NAME(T a, T b) { return a < b ? a : b; }                                                   \
    static inline T max_##NAME(T a, T b) { return a > b ? a : b; }                                                   \
    static inline T mul_hi_##NAME(T a, T b) { return (T)(((WIDE)a * (WIDE)b) >> BITS); }                             \
    static inline T sad_##NAME(T a, T b, T c) { return (T)(c + (a < b ? b - a : a - b)); }                           \
    static inline T div_##NAME(T a, T b) {                                                                           \
        return b == 0 ? (T)~(T)0 : (T)-1 < 0 && b == (T)-1 ? (T)((U)0 - (U)a) : (T)(a / b);                          \
    }                                                                                                                \
    static inline T rem_##NAME(T a, T b) { return b == 0 ? a : (T)-1 < 0 && b == (T)-1 ? 0 : (T)(a % b); }           \
    static inline T shl_##NAME(T a, uint32_t n) { return n >= BITS ? 0 : (T)((U)a << n); }                           \
    static inline T shr_##NAME(T a, uint32_t n) {                                                                    \
        return n >= BITS ? ((T)-1 < 0 ? (T)(a >> (BITS - 1)) : 0) : (T)(a >> n);                                     \
    }                                                                                                                \
    static inline T bfe_##NAME(T a, uint32_t start, uint32_t length) {                                               \
        start &= 255, length &= 255;                                                                                 \
        const U field = (start >= BITS ? 0 : (U)((U)a >> start)) & LOW_MASK(U, BITS, length);                        \
        if ((T)-1 > 0 || length == 0) return (T)field;                                                               \
        const uint32_t sign_at = start + length - 1 < BITS - 1 ? start + length - 1 : BITS - 1;                      \
        const uint32_t kept = start >= BITS ? 0 : length < BITS - start ? length : BITS - start;                     \
        return (T)((U)a >> sign_at & 1 ? field | (U)~LOW_MASK(U, BITS, kept) : field);                               \
    }

INTEGER(u16, uint16_t, uint16_t, uint32_t, 16)
INTEGER(u32, uint32_t, uint32_t, uint64_t, 32)
INTEGER(u64, uint64_t, uint64_t, unsigned __int128, 64)
INTEGER(s16, int16_t, uint16_t, int32_t, 16)
INTEGER(s32, int32_t, uint32_t, int64_t, 32)
INTEGER(s64, int64_t, uint64_t, __int128, 64)

#define shl_b16 shl_u16
#define shl_b32 shl_u32
#define shl_b64 shl_u64
#define shr_b16 shr_u16
#define shr_b32 shr_u32
#define shr_b64 shr_u64

static inline int32_t clamp_s32(int64_t a) {
    return a < INT32_MIN ? INT32_MIN : a > INT32_MAX ? INT32_MAX : (int32_t)a;
}

#define FIELDS(NAME, U, BITS)                                                                                        \
    static inline U bfi_##NAME(U a, U b, uint32_t start, uint32_t length) {                                          \
        start &= 255, length &= 255;                                                                                 \
        const U mask = start >= BITS ? 0 : (U)(LOW_MASK(U, BITS, length) << start);                                  \
        return (U)((b & ~mask) | ((start >= BITS ? 0 : (U)(a << start)) & mask));                                    \
    }                                                                                                                \
    static inline U brev_##NAME(U a) {                                                                               \
        U out = 0;                                                                                                   \
        for (int i = 0; i < BITS; ++i) out |= (U)((a >> i & 1) << (BITS - 1 - i));                                   \
        return out;                                                                                                  \
    }
FIELDS(b32, uint32_t, 32)
FIELDS(b64, uint64_t, 64)

static inline uint32_t popc_b32(uint32_t a) { return (uint32_t)__builtin_popcount(a); }
static inline uint32_t popc_b64(uint64_t a) { return (uint32_t)__builtin_popcountll(a); }
static inline uint32_t clz_b32(uint32_t a) { return a ? (uint32_t)__builtin_clz(a) : 32; }
static inline uint32_t clz_b64(uint64_t a) { return a ? (uint32_t)__builtin_clzll(a) : 64; }
/* The highest bit that differs from the sign, or its distance from the top; all ones where there is none. */
static inline uint32_t bfind_u32(uint32_t a, int distance) {
    return !a ? ~0u : distance ? clz_b32(a) : 31 - clz_b32(a);
}
static inline uint32_t bfind_u64(uint64_t a, int distance) {
    return !a ? ~0u : distance ? clz_b64(a) : 63 - clz_b64(a);
}
static inline uint32_t bfind_s32(int32_t a, int distance) { return bfind_u32((uint32_t)(a < 0 ? ~a : a), distance); }
static inline uint32_t bfind_s64(int64_t a, int distance) { return bfind_u64((uint64_t)(a < 0 ? ~a : a), distance); }

static inline uint32_t shf_l(uint32_t a, uint32_t b, uint32_t n) {
    return (uint32_t)(((((uint64_t)b << 32) | a) << n) >> 32);
}
static inline uint32_t shf_r(uint32_t a, uint32_t b, uint32_t n) { return (uint32_t)((((uint64_t)b << 32) | a) >> n); }

static inline uint32_t lop3(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
    uint32_t out = 0;
    for (int i = 0; i < 8; ++i)
        out |= table >> i & 1 ? (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c) : 0;
    return out;
}

static inline uint32_t bmsk(uint32_t start, uint32_t length) {
    return shl_u32(LOW_MASK(uint32_t, 32, length), start);
}

/* Bytes picked from (b:a); the selectors are computed by the translator's mode. */
static inline uint32_t pick_byte(uint32_t a, uint32_t b, uint32_t pick, uint32_t sign) {
    const uint32_t byte = (uint32_t)(((((uint64_t)b << 32) | a) >> (8 * pick)) & 0xFF);
    return sign ? (byte & 0x80 ? 0xFF : 0) : byte;
}
static inline uint32_t prmt(uint32_t a, uint32_t b, uint32_t s) {
    uint32_t out = 0;
    for (int i = 0; i < 4; ++i) out |= pick_byte(a, b, s >> (4 * i) & 7, s >> (4 * i + 3) & 1) << (8 * i);
    return out;
}
enum prmt_mode { F4E, B4E, RC8, ECL, ECR, RC16 };
static inline uint32_t prmt_mode(uint32_t a, uint32_t b, uint32_t s, enum prmt_mode mode) {
    uint32_t out = 0;
    s &= 3;
    for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t pick = mode == F4E ? s + i : mode == B4E ? (s - i) & 7 : mode == RC8 ? s
                            : mode == ECL ? (s > i ? s : i) : mode == ECR ? (s < i ? s : i) : (s & 1) * 2 + (i & 1);
        out |= pick_byte(a, b, pick, 0) << (8 * i);
    }
    return out;
}

static inline int64_t low24_s(int32_t a) { return (int64_t)((uint64_t)(int64_t)a << 40) >> 40; }
static inline int64_t low24_u(uint32_t a) { return a & 0xFFFFFF; }

static inline uint32_t byte_differences(uint32_t a, uint32_t b) {
    uint32_t out = 0;
    for (int i = 0; i < 32; i += 8) {
        const uint32_t x = a >> i & 255, y = b >> i & 255;
        out |= (x > y ? x - y : y - x) << i;
    }
    return out;
}
static inline uint32_t byte_difference_sum(uint32_t a, uint32_t b, uint32_t c) {
    const uint32_t d = byte_differences(a, b);
    return c + (d & 255) + (d >> 8 & 255) + (d >> 16 & 255) + (d >> 24);
}

/* dp4a and dp2a: `bits` 8 or 16 of the left operand, bytes of the right one from `first_byte` on. */
static inline uint32_t dot(
    uint32_t a, uint32_t b, uint32_t c, int bits, int first_byte, int left_signed, int right_signed) {
    int64_t total = c;
    for (int part = 0; part < 32 / bits; ++part) {
        const uint32_t x = a >> (bits * part), y = b >> (8 * (part + first_byte));
        const int64_t left = bits == 8 ? (left_signed ? (int64_t)(int8_t)x : (int64_t)(uint8_t)x)
                                       : (left_signed ? (int64_t)(int16_t)x : (int64_t)(uint16_t)x);
        total += left * (right_signed ? (int64_t)(int8_t)y : (int64_t)(uint8_t)y);
    }
    return (uint32_t)total;
}

/* Both 16-bit halves of a word; relu: negative results become 0. */
#define PAIRS(NAME, T, EXPRESSION)                                                                                   \
    static inline uint32_t NAME(uint32_t a, uint32_t b, int relu) {                                                  \
        uint32_t out = 0;                                                                                            \
        for (int i = 0; i < 32; i += 16) {                                                                           \
            const T x = (T)(a >> i), y = (T)(b >> i);                                                                \
            const T z = (T)(EXPRESSION);                                                                             \
            out |= (uint32_t)(uint16_t)(relu && z < 0 ? 0 : z) << i;                                                 \
        }                                                                                                            \
        return out;                                                                                                  \
    }
PAIRS(add_u16x2, uint16_t, x + y)
PAIRS(add_s16x2, int16_t, x + y)
PAIRS(min_u16x2, uint16_t, x < y ? x : y)
PAIRS(min_s16x2, int16_t, x < y ? x : y)
PAIRS(max_u16x2, uint16_t, x > y ? x : y)
PAIRS(max_s16x2, int16_t, x > y ? x : y)
