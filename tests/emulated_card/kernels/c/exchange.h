/* Shuffles between the lanes of a warp, as the interpreter's warp.py has them. */
#pragma once

#include "run.h"

enum shuffle { SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_BFLY, SHUFFLE_IDX };

void shuffle(
    enum shuffle mode, const uint32_t *value, const uint32_t *by, const uint32_t *control, uint32_t *out,
    uint32_t *inside);
uint32_t mask_of(const uint32_t *predicate);
