/* Where each lane of an atomic operation finds its place; the translator writes the operation itself, lane after
 * lane.
 */
#pragma once

#include "global_memory.h"
#include "halves.h"

void shared_atomic_places(
    struct run *k, uint32_t mask, const uint64_t *offset, unsigned width, char **place);
void atomic_places(
    struct run *k, enum space space, uint32_t mask, const uint64_t *address, unsigned width, char **place,
    uint32_t *hint);

static inline uint16_t atomic_add_f16(uint16_t a, uint16_t b) { return f16_of_f32(f32_of_f16(a) + f32_of_f16(b)); }
static inline uint16_t atomic_add_bf16(uint16_t a, uint16_t b) { return bf16_of_f32(f32_of_bf16(a) + f32_of_bf16(b)); }
#define ATOMIC_MINMAX(KIND)                                                                                          \
    static inline uint16_t atomic_min_##KIND(uint16_t a, uint16_t b) {                                               \
        return KIND##_of_f32(min_f32(f32_of_##KIND(a), f32_of_##KIND(b), false));                                    \
    }                                                                                                                \
    static inline uint16_t atomic_max_##KIND(uint16_t a, uint16_t b) {                                               \
        return KIND##_of_f32(max_f32(f32_of_##KIND(a), f32_of_##KIND(b), false));                                    \
    }
ATOMIC_MINMAX(f16)
ATOMIC_MINMAX(bf16)
#define ATOMIC_PAIR(NAME, KIND)                                                                                      \
    static inline uint32_t NAME##_##KIND##x2(uint32_t a, uint32_t b) {                                               \
        const uint32_t low = NAME##_##KIND((uint16_t)a, (uint16_t)b);                                                \
        return low | (uint32_t)NAME##_##KIND((uint16_t)(a >> 16), (uint16_t)(b >> 16)) << 16;                        \
    }
ATOMIC_PAIR(atomic_add, f16)
ATOMIC_PAIR(atomic_min, f16)
ATOMIC_PAIR(atomic_max, f16)
ATOMIC_PAIR(atomic_add, bf16)
ATOMIC_PAIR(atomic_min, bf16)
ATOMIC_PAIR(atomic_max, bf16)
