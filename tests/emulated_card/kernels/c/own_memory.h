/* Shared memory of a block, local memory of a thread, and the parameters: no cache, no card. */
#pragma once

#include "run.h"

char *shared_place(struct run *k, uint32_t mask, const uint64_t *offset, unsigned width);
void count_banks(struct run *k, uint32_t mask, const uint64_t *offset, unsigned width);
void load_shared(struct run *k, uint32_t mask, const uint64_t *offset, unsigned width, char *out);
void store_shared(struct run *k, uint32_t mask, const uint64_t *offset, unsigned width, const char *in);
void load_local(
    struct run *k, struct warp_common *w, uint32_t mask, const uint64_t *offset, unsigned width, char *out);
void store_local(
    struct run *k, struct warp_common *w, uint32_t mask, const uint64_t *offset, unsigned width, const char *in);
void load_parameters(
    struct run *k, uint32_t mask, const uint64_t *offset, unsigned width, char *out);
uint32_t own_lanes(uint32_t mask, const uint64_t *address, unsigned region, uint64_t *offset);
uint32_t load_own(
    struct run *k, struct warp_common *w, uint32_t mask, const uint64_t *address, unsigned width, char *out);
uint32_t store_own(
    struct run *k, struct warp_common *w, uint32_t mask, const uint64_t *address, unsigned width, const char *in);
