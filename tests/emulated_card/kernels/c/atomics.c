#include "atomics.h"

#include "own_memory.h"

void shared_atomic_places(
    struct run *k, uint32_t mask, const uint64_t *offset, unsigned width, char **place) {
    char *shared = mask ? shared_place(k, mask, offset, width) : NULL;
    if (!shared) return;
    count_banks(k, mask, offset, width);
    LANES if (mask >> l & 1) place[l] = shared + offset[l];
}

void atomic_places(
    struct run *k, enum space space, uint32_t mask, const uint64_t *address, unsigned width, char **place,
    uint32_t *hint) {
    if (!aligned(k, mask, address, width)) return;
    uint32_t left = mask;
    if (space == GENERIC) {
        uint64_t offset[32];
        const uint32_t here = own_lanes(mask, address, SHARED_REGION, offset);
        shared_atomic_places(k, here, offset, width, place);
        left &= ~here;
    }
    while (left && !k->status) {
        const card_window *window;
        const uint32_t here = same_window(k, left, address, width, &window, hint);
        left &= ~here;
        if (!here) return;
        if (window->read_only) return (void)fail(k, CARD_ILLEGAL_ADDRESS, address[__builtin_ctz(here)]);
        const struct request r = {here, address, width, shape_of(here, address, width), CARD_L2_UPDATE};
        account_for(k, window, &r);
        LANES if (here >> l & 1) place[l] = (char *)(address[l] + (uint64_t)window->shift);
    }
}

