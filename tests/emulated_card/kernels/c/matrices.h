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

/* D = A*B + C of 16 rows, 8 columns and a depth of 8 or 16. halves: registers of A, two for each eight of the depth, the
 * second of which has rows 8 and on, then those of B.
 */
#define MULTIPLY(kind)                                                                                               \
    static inline void multiply_##kind(                                                                              \
        int depth, const uint32_t *halves[], const float *added[4], float out[4][32]) {                              \
        double a[16][16], b[8][16];                                                                                  \
        for (int k = 0; k < depth; ++k) {                                                                            \
            const int lane = k % 8 / 2, shift = 16 * (k % 2);                                                        \
            for (int row = 0; row < 16; ++row)                                                                       \
                a[row][k] = f32_of_##kind(                                                                           \
                    (uint16_t)(halves[k / 8 * 2 + row / 8][row % 8 * 4 + lane] >> shift));                           \
            for (int column = 0; column < 8; ++column)                                                               \
                b[column][k] = f32_of_##kind((uint16_t)(halves[depth / 4 + k / 8][column * 4 + lane] >> shift));     \
        }                                                                                                            \
        for (int row = 0; row < 16; ++row)                                                                           \
            for (int column = 0; column < 8; ++column) {                                                             \
                const int place = row / 8 * 2 + column % 2, lane = row % 8 * 4 + column / 2;                         \
                double sum = 0;                                                                                      \
                for (int k = 0; k < depth; ++k) sum += a[row][k] * b[column][k];                                     \
                out[place][lane] = (float)(sum + added[place][lane]);                                                \
            }                                                                                                        \
    }
MULTIPLY(f16)
MULTIPLY(bf16)
