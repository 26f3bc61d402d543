/* What a translated kernel includes before its own `struct warp`. */
#pragma once

#include "atomics.h"
#include "conversions.h"
#include "exchange.h"
#include "global_memory.h"
#include "integers.h"
#include "matrices.h"
#include "own_memory.h"
#include "run.h"

static inline uint32_t warps_of(const struct run *k) {
    const uint32_t *size = k->launch->block;
    return (size[0] * size[1] * size[2] + 31) / 32;
}
