/* Loads and stores of global memory, and generic ones: find the window, count, go through the L2, move the bytes. */
#pragma once

#include "coalesce.h"
#include "run.h"

enum space { GLOBAL, GENERIC, CONSTANT };

/* What the lanes of one instruction ask for, all in one window. */
struct request {
    uint32_t mask;
    const uint64_t *address;
    unsigned width;       /* bytes a lane */
    enum shape shape;
    enum card_l2_access access;
};

void load_global(
    struct run *k, struct warp_common *w, enum space space, bool ordered, uint32_t mask, const uint64_t *address,
    unsigned width, char *out, uint32_t *hint);
void store_global(
    struct run *k, struct warp_common *w, enum space space, uint32_t mask, const uint64_t *address, unsigned width,
    const char *in, uint32_t *hint);
bool aligned(struct run *k, uint32_t mask, const uint64_t *address, unsigned width);
uint32_t same_window(
    struct run *k, uint32_t left, const uint64_t *address, unsigned width, const card_window **window, uint32_t *hint);
void account_for(struct run *k, const card_window *window, const struct request *r);
