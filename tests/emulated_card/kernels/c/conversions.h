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
