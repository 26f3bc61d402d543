/* Where each lane of an atomic operation finds its place; the translator writes the operation itself, lane after
 * lane.
 */
#pragma once

#include "global_memory.h"

void shared_atomic_places(
    struct run *k, uint32_t mask, const uint64_t *offset, unsigned width, char **place);
void atomic_places(
    struct run *k, enum space space, uint32_t mask, const uint64_t *address, unsigned width, char **place,
    uint32_t *hint);
