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

#define FIELDS(NAME, U, BITS)                                                                                        \
    static inline U bfi_##NAME(U a, U b, uint32_t start, uint32_t length) {                                          \
        start &= 255, length &= 255;                                                                                 \
        const U mask = start >= BITS ? 0 : (U)(LOW_MASK(U, BITS, length) << start);                                  \
        return (U)((b & ~mask) | ((start >= BITS ? 0 : (U)(a << start)) & mask));                                    \
    }
FIELDS(b32, uint32_t, 32)
FIELDS(b64, uint64_t, 64)

static inline uint32_t popc_b32(uint32_t a) { return (uint32_t)__builtin_popcount(a); }
static inline uint32_t popc_b64(uint64_t a) { return (uint32_t)__builtin_popcountll(a); }
static inline uint32_t clz_b32(uint32_t a) { return a ? (uint32_t)__builtin_clz(a) : 32; }
static inline uint64_t brev_b64(uint64_t a) {
    uint64_t reversed = 0;
    for (int bit = 0; bit < 64; ++bit) reversed |= (a >> bit & 1) << (63 - bit);
    return reversed;
}
static inline uint32_t brev_b32(uint32_t a) { return (uint32_t)(brev_b64(a) >> 32); }
static inline uint32_t clz_b64(uint64_t a) { return a ? (uint32_t)__builtin_clzll(a) : 64; }
static inline uint32_t lop3(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
    uint32_t out = 0;
    for (int i = 0; i < 8; ++i)
        out |= table >> i & 1 ? (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c) : 0;
    return out;
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
static inline int32_t dp4a(int32_t a, int32_t b, int32_t c) {
    uint32_t sum = (uint32_t)c;
    for (int i = 0; i < 4; ++i) sum += (uint32_t)((int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i));
    return (int32_t)sum;
}
