/* f16, bf16 and their packed pairs, as bits; 8-bit floats. As the interpreter's opcodes/halves.py and conversions.py
 * have them.
 */
#pragma once

#include "floats.h"

/* f16 → binary32: scaled by a power of two, so that subnormals come out right. */
static inline float f32_of_f16(uint16_t a) {
    const uint32_t size = (uint32_t)(a & 0x7FFF) << 13, sign = (uint32_t)(a & 0x8000) << 16;
    const float value = f32_of(size) * 0x1p112f;
    return f32_of(((a & 0x7C00) == 0x7C00 ? size | 0x7F800000u : bits32(value)) | sign);
}
/* binary32 → f16, to the nearest, ties to even. */
static inline uint16_t f16_of_f32(float a) {
    const uint32_t bits = bits32(a), size = bits & 0x7FFFFFFFu, sign = bits >> 16 & 0x8000u;
    const uint32_t normal = (size + 0xFFFu + (size >> 13 & 1) - (112u << 23)) >> 13;
    const uint32_t small = bits32(f32_of(size) + 0.5f) - 0x3F000000u; /* the adder rounds at 2^-24 */
    const uint32_t big = size > 0x7F800000u ? 0x7E00u : 0x7C00u;
    return (uint16_t)(sign | (size >= 0x477FF000u ? big : size < 0x38800000u ? small : normal));
}
static inline float f32_of_bf16(uint16_t a) { return f32_of((uint32_t)a << 16); }
static inline uint16_t bf16_of_f32(float a) {
    const uint32_t bits = bits32(a);
    return a != a ? 0x7FFF : (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}
static inline uint16_t bf16_of_f32_rz(float a) { return a != a ? 0x7FFF : (uint16_t)(bits32(a) >> 16); }

/* Rounded to odd: where inexact, the last bit is set on the side of the exact value. */
static inline double odd_sum(double a, double b) {
    const double total = a + b, error = two_sum_error(a, b, total);
    if (!isfinite(total) || error == 0 || bits64(total) & 1) return total;
    return nextafter(total, error > 0 ? INFINITY : -INFINITY);
}
static inline float odd_f32(double value) {
    const float nearest = (float)value;
    if (!isfinite(value) || (double)nearest == value) return nearest;
    /* One place towards zero where it is too far out. Not by nextafterf: a call for each lane, and no vectors. */
    const uint32_t inner = bits32(nearest) - (fabs((double)nearest) > fabs(value));
    return f32_of(inner | 1u);
}
static inline uint16_t f16_of_f64(double a) { return f16_of_f32(odd_f32(a)); }
static inline uint16_t bf16_of_f64(double a) { return bf16_of_f32(odd_f32(a)); }

/* .ftz of f16; the ISA has none for bf16. */
static inline uint16_t flush_f16(uint16_t a) { return a & 0x7C00 ? a : a & 0x8000; }
/* .relu: what is below zero, and −0, becomes +0; NaN stays. */
static inline float floored_f32(float a) { return a > 0 || a != a ? a : 0.0f; }
static inline double floored_f64(double a) { return a > 0 || a != a ? a : 0.0; }

/* One place up or down from a finite half. */
static inline uint16_t next_f16(uint16_t a, bool up) {
    if (!(a & 0x7FFF)) return up ? 0x0001 : 0x8001;
    return (uint16_t)(a + ((a & 0x8000) != 0 ? (up ? -1 : 1) : (up ? 1 : -1)));
}
static inline uint16_t f16_directed(double value, int mode) {
    const uint16_t nearest = f16_of_f64(value);
    const double back = f32_of_f16(nearest);
    if (back > value && (mode == DOWN || (mode == ZERO && value > 0))) return next_f16(nearest, false);
    if (back < value && (mode == UP || (mode == ZERO && value < 0))) return next_f16(nearest, true);
    return nearest;
}
static inline uint16_t bf16_directed(double value, int mode) {
    const float single = odd_f32(value);
    if (mode == NEAREST) return bf16_of_f32(single);
    const uint32_t bits = bits32(single);
    if (single != single) return 0x7FFF;
    const bool away = mode != ZERO && bits & 0xFFFF && sign_f32(single) == (mode == DOWN) && isfinite(single);
    return (uint16_t)((bits >> 16) + away);
}

/* Floats of 8, 6 and 4 bits; only e4m3 and e5m2 have NaN. */
static inline int small_lowest(int bits, int mantissa_bits) { return 2 - (1 << (bits - mantissa_bits - 2)); }
static inline uint16_t f16_of_small(unsigned code, int bits, int mantissa_bits) {
    const int size = (int)(code & ((1u << (bits - 1)) - 1)), biased = size >> mantissa_bits;
    const int mantissa = size & ((1 << mantissa_bits) - 1);
    const uint16_t sign = (uint16_t)((code >> (bits - 1) & 1) << 15);
    if (bits == 8 && (mantissa_bits == 3 ? size == 0x7F : biased == 31 && mantissa)) return sign | 0x7E00;
    if (bits == 8 && mantissa_bits == 2 && biased == 31) return sign | 0x7C00;
    const float value = ldexpf((float)(mantissa + (biased ? 1 << mantissa_bits : 0)),
                               (biased ? biased : 1) - 1 + small_lowest(bits, mantissa_bits) - mantissa_bits);
    return sign | f16_of_f32(value);
}
static inline unsigned small_of_f64(double value, int bits, int mantissa_bits, bool relu) {
    const int lowest = small_lowest(bits, mantissa_bits), top = 1 << (bits - mantissa_bits - 1);
    const double largest = bits == 8 ? (mantissa_bits == 3 ? 448.0 : 57344.0)
                                     : ldexp((2 << mantissa_bits) - 1, top - 2 + lowest - mantissa_bits);
    const bool negative = sign_f64(value) && value == value;
    if (value != value) return (1u << (bits - 1)) - 1;
    if (negative && relu) return 0;
    double size = fabs(value);
    if (size > largest) size = largest;
    int exponent = lowest;
    if (size > 0) frexp(size, &exponent);
    const int place = (exponent - 1 > lowest ? exponent - 1 : lowest) - mantissa_bits;
    const int code = (int)rint(ldexp(size, -place)) + (place + mantissa_bits - lowest) * (1 << mantissa_bits);
    return (unsigned)code | (negative ? 1u << (bits - 1) : 0);
}
static inline uint32_t f16x2_of_small(unsigned word, int step, int bits, int mantissa_bits, bool relu) {
    uint32_t out = 0;
    for (int i = 0; i < 2; ++i) {
        const uint16_t half = f16_of_small(word >> (step * i), bits, mantissa_bits);
        out |= (uint32_t)(relu ? f16_of_f32(floored_f32(f32_of_f16(half))) : half) << (16 * i);
    }
    return out;
}
/* ue8m0: the exponent of a power of two alone. */
static inline unsigned scale_of_f32(float value, bool up, bool satfinite) {
    if (value != value) return 255;
    int exponent;
    const double part = frexp(fabs((double)value), &exponent);
    unsigned code = 255;
    if (part == 0) code = 0;
    else if (!isinf(value)) {
        const int power = exponent - 1 + 127 + (up && part > 0.5);
        code = power < 0 ? 0 : (unsigned)power;
    }
    return satfinite && code > 254 ? 254 : code;
}
static inline uint32_t bf16x2_of_scales(uint16_t word) {
    uint32_t out = 0;
    for (int i = 0; i < 2; ++i) {
        const uint32_t code = (uint32_t)word >> (8 * i) & 255;
        out |= (code == 0 ? 0x40u : code == 255 ? 0x7FFFu : code << 7) << (16 * i);
    }
    return out;
}
