/* ldmatrix and mma.sync, as the interpreter's matrices.py has them: `group` = lane / 4 is a row, and the four lanes of a
 * group hold a row's eight columns.
 */
#pragma once

#include "halves.h"

/* words: those of the row of eight halves that each lane has read; lanes 8 m and on have matrix m. */
static inline void distribute(int count, bool transposed, const uint32_t *words[4], uint32_t out[][32]) {
    for (int m = 0; m < count; ++m)
        for (int l = 0; l < 32; ++l) {
            const int group = l / 4, pair = l % 4;
            if (!transposed) {
                out[m][l] = words[pair][8 * m + group];
                continue;
            }
            const uint32_t low = words[group / 2][8 * m + 2 * pair] >> 16 * (group % 2) & 0xFFFF;
            const uint32_t high = words[group / 2][8 * m + 2 * pair + 1] >> 16 * (group % 2) & 0xFFFF;
            out[m][l] = low | high << 16;
        }
}

/* D = A*B + C of 16 rows, 8 columns and any depth.
 * words: registers of A, two for each 16 bytes of the depth, the second of which has rows 8 and on, then those of B.
 * Sums of products are exact in `wide`.
 */
#define MULTIPLY(kind, element, per_word, value_of, wide, result)                                                    \
    static inline void multiply_##kind(                                                                              \
        int depth, const uint32_t *words[], const result *added[4], result out[4][32]) {                             \
        wide a[16][32], b[8][32];                                                                                    \
        const int of_chunk = 4 * per_word, chunks = depth / of_chunk;                                                \
        for (int k = 0; k < depth; ++k) {                                                                            \
            const int lane = k % of_chunk / per_word, shift = 32 / per_word * (k % per_word);                        \
            for (int row = 0; row < 16; ++row)                                                                       \
                a[row][k] = value_of((element)(words[k / of_chunk * 2 + row / 8][row % 8 * 4 + lane] >> shift));     \
            for (int column = 0; column < 8; ++column)                                                               \
                b[column][k] = value_of((element)(words[2 * chunks + k / of_chunk][column * 4 + lane] >> shift));    \
        }                                                                                                            \
        for (int row = 0; row < 16; ++row)                                                                           \
            for (int column = 0; column < 8; ++column) {                                                             \
                const int place = row / 8 * 2 + column % 2, lane = row % 8 * 4 + column / 2;                         \
                wide sum = 0;                                                                                        \
                for (int k = 0; k < depth; ++k) sum += a[row][k] * b[column][k];                                     \
                out[place][lane] = (result)(sum + added[place][lane]);                                               \
            }                                                                                                        \
    }
MULTIPLY(f16, uint16_t, 2, f32_of_f16, double, float)
MULTIPLY(bf16, uint16_t, 2, f32_of_bf16, double, float)
MULTIPLY(s8, int8_t, 4, (int64_t), int64_t, int32_t)
