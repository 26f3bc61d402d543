/* cvt between integers and floats: floats clamp to the integer's range; NaN becomes 0, or the top bit alone where a
 * 64-bit type is involved. As the interpreter's opcodes/conversions.py has it.
 */
#pragma once

#include "halves.h"
#include "integers.h"

/* value: integral already. */
#define TO_INTEGER(NAME, T, LOW, HIGH)                                                                               \
    static inline T NAME##_of_f64(double value, bool sign_on_nan) {                                                  \
        const T top = (T)-1 < 0 ? (T)(LOW) : (T)((T)1 << (sizeof(T) * 8 - 1));                                       \
        if (value != value) return sign_on_nan ? top : 0;                                                            \
        return value >= (double)(HIGH) + 1.0 ? (T)(HIGH) : value < (double)(LOW) ? (T)(LOW) : (T)value;              \
    }
TO_INTEGER(u8, uint8_t, 0, UINT8_MAX)
TO_INTEGER(u16, uint16_t, 0, UINT16_MAX)
TO_INTEGER(u32, uint32_t, 0, UINT32_MAX)
TO_INTEGER(u64, uint64_t, 0, UINT64_MAX)
TO_INTEGER(s8, int8_t, INT8_MIN, INT8_MAX)
TO_INTEGER(s16, int16_t, INT16_MIN, INT16_MAX)
TO_INTEGER(s32, int32_t, INT32_MIN, INT32_MAX)
TO_INTEGER(s64, int64_t, INT64_MIN, INT64_MAX)

/* Truncates to the format's digits, then steps away from zero where bits were lost and the mode says so. */
static inline double directed_of_integer(uint64_t size, bool negative, int digits, int mode, float *single) {
    const int length = 64 - (int)clz_b64(size), shift = length > digits ? length - digits : 0;
    const uint64_t kept = size >> shift << shift;
    const bool away = kept != size && (negative ? mode == DOWN : mode == UP);
    *single = away ? nextafterf((float)kept, INFINITY) : (float)kept;
    if (negative) *single = -*single;
    const double value = away ? nextafter((double)kept, INFINITY) : (double)kept;
    return negative ? -value : value;
}
static inline float f32_of_u64(uint64_t a, bool negative, int mode) {
    float single;
    directed_of_integer(a, negative, 24, mode, &single);
    return single;
}
static inline double f64_of_u64(uint64_t a, bool negative, int mode) {
    float single;
    return directed_of_integer(a, negative, 53, mode, &single);
}
/* With a sticky last bit where 64-bit integers do not fit. */
static inline double odd_of_s64(int64_t a) {
    const int64_t high = a >> 11 << 11;
    return odd_sum((double)high, (double)(a - high));
}
static inline double odd_of_u64(uint64_t a) {
    const uint64_t high = a >> 11 << 11;
    return odd_sum((double)high, (double)(a - high));
}

static inline uint32_t tf32_of_f32(float a) {
    const uint32_t bits = bits32(a);
    return isfinite(a) ? (bits + 0x1000u) & 0xFFFFE000u : bits;
}
