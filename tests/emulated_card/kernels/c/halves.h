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
/* binary32 → e4m3, to the nearest, ties to even; what is too large becomes the largest, 448. */
static inline uint8_t e4m3_of_f32(float a) {
    const float size = fminf(fabsf(a), 448.0f);
    const int exponent = size < 0x1p-6f ? -6 : (int)(bits32(size) >> 23) - 127;
    /* A binade has eight codes; a carry moves on to the next by itself. */
    const int code = (int)rintf(ldexpf(size, 3 - exponent)) + 8 * (exponent + 6);
    return (uint8_t)(a != a ? 0x7F : code | (bits32(a) >> 24 & 0x80));
}
