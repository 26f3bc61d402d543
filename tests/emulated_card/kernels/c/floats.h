/* binary32 and binary64, as the interpreter's opcodes/floats.py has them. */
#pragma once

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum rounding { NEAREST, ZERO, DOWN, UP };

static inline float f32_of(uint32_t bits) { float a; memcpy(&a, &bits, 4); return a; }
static inline double f64_of(uint64_t bits) { double a; memcpy(&a, &bits, 8); return a; }
static inline uint32_t bits32(float a) { uint32_t bits; memcpy(&bits, &a, 4); return bits; }
static inline uint64_t bits64(double a) { uint64_t bits; memcpy(&bits, &a, 8); return bits; }

static inline float flush_f32(float a) {
    const uint32_t bits = bits32(a);
    return f32_of(bits & 0x7F800000u ? bits : bits & 0x80000000u);
}
static inline double flush_f64(double a) {
    const uint64_t bits = bits64(a);
    return f64_of(bits & 0x7FF0000000000000ull ? bits : bits & 0x8000000000000000ull);
}
/* [0, 1]; NaN and −0 become +0. */
static inline float sat_f32(float a) { return a > 0.0f ? (a < 1.0f ? a : 1.0f) : 0.0f; }
static inline double sat_f64(double a) { return a > 0.0 ? (a < 1.0 ? a : 1.0) : 0.0; }

static inline float abs_f32(float a) { return f32_of(bits32(a) & 0x7FFFFFFFu); }
static inline double abs_f64(double a) { return f64_of(bits64(a) & 0x7FFFFFFFFFFFFFFFull); }
static inline float neg_f32(float a) { return f32_of(bits32(a) ^ 0x80000000u); }
static inline double neg_f64(double a) { return f64_of(bits64(a) ^ 0x8000000000000000ull); }
static inline int sign_f32(float a) { return (int)(bits32(a) >> 31); }
static inline int sign_f64(double a) { return (int)(bits64(a) >> 63); }
static inline double copysign_f64(double size, double sign) {
    return f64_of((bits64(size) & 0x7FFFFFFFFFFFFFFFull) | (bits64(sign) & 0x8000000000000000ull));
}

/* A number beats a NaN unless `nan` asks for it; −0 is less than +0. */
#define MINMAX(NAME, T)                                                                                              \
    static inline T min_##NAME(T a, T b, bool nan) {                                                                 \
        if (a != a) return nan ? a : b;                                                                              \
        if (b != b) return nan ? b : a;                                                                              \
        return a < b || (a == b && sign_##NAME(a)) ? a : b;                                                          \
    }                                                                                                                \
    static inline T max_##NAME(T a, T b, bool nan) {                                                                 \
        if (a != a) return nan ? a : b;                                                                              \
        if (b != b) return nan ? b : a;                                                                              \
        return a > b || (a == b && !sign_##NAME(a)) ? a : b;                                                         \
    }
MINMAX(f32, float)
MINMAX(f64, double)

/* Comparisons: ordered ones are false on NaN, those that end in u true. */
#define eq_float(a, b) ((a) == (b))
#define ne_float(a, b) ((a) < (b) || (a) > (b))
#define lt_float(a, b) ((a) < (b))
#define le_float(a, b) ((a) <= (b))
#define gt_float(a, b) ((a) > (b))
#define ge_float(a, b) ((a) >= (b))
#define equ_float(a, b) (!((a) < (b) || (a) > (b)))
#define neu_float(a, b) ((a) != (b))
#define ltu_float(a, b) (!((a) >= (b)))
#define leu_float(a, b) (!((a) > (b)))
#define gtu_float(a, b) (!((a) <= (b)))
#define geu_float(a, b) (!((a) < (b)))
#define num_float(a, b) ((a) == (a) && (b) == (b))
#define nan_float(a, b) ((a) != (a) || (b) != (b))

/* Directed rounding: the nearest, moved one place where the exact error says that it lies on the wrong side. */
static inline double two_sum_error(double a, double b, double total) {
    const double virtual = total - a;
    return (a - (total - virtual)) + (b - virtual);
}
static inline bool too_high(double error, int mode, bool positive) {
    return error < 0 && (mode == DOWN || (mode == ZERO && positive));
}
static inline bool too_low(double error, int mode, bool negative) {
    return error > 0 && (mode == UP || (mode == ZERO && negative));
}
static inline float directed32(float nearest, double error, int mode) {
    if (too_high(error, mode, nearest > 0)) return nextafterf(nearest, -INFINITY);
    return too_low(error, mode, nearest < 0) ? nextafterf(nearest, INFINITY) : nearest;
}
/* a + b where it is exactly 0: of unlike signs −0 downwards, +0 otherwise (IEEE 754, §6.3). */
static inline double exact_zero(double a, double b, int mode) {
    return sign_f64(a) == sign_f64(b) ? copysign_f64(0.0, a) : mode == DOWN ? -0.0 : 0.0;
}
static inline float fma_directed_f32(float a, float b, float c, int mode) {
    const double product = (double)a * (double)b, addend = c, total = product + addend;
    const float nearest = (float)total;
    if (total != total || isinf(total)) return nearest;
    double difference = isinf(nearest) ? -(double)nearest : total - (double)nearest;
    if (difference == 0) difference = two_sum_error(product, addend, total);
    if (total == 0 && difference == 0) return (float)exact_zero(product, addend, mode);
    return directed32(nearest, difference, mode);
}
/* .approx: through binary64, within one unit in the last place. */
static inline float rsqrt_approx_f32(float a) { return (float)(1.0 / sqrt((double)a)); }
static inline float sin_approx_f32(float a) { return (float)sin((double)a); }
static inline float cos_approx_f32(float a) { return (float)cos((double)a); }
static inline float lg2_approx_f32(float a) { return (float)log2((double)a); }
