/* Which sectors a warp's request needs, counted as the interpreter's loops/sectors.py counts them. */
#pragma once

#include "run.h"

enum shape { UNIT /* lane after lane, all 32 */, SAME /* one place for all, of which lane 0 is one */, SCATTERED };

static inline bool is_unit(const uint64_t *address, unsigned width) {
    uint64_t differ = 0;
    LANES differ |= address[l] ^ (address[0] + (uint64_t)l * width);
    return !differ;
}

static inline enum shape shape_of(uint32_t mask, const uint64_t *address, unsigned width) {
    if (mask == ALL && is_unit(address, width)) return UNIT;
    if (!(mask & 1)) return SCATTERED;
    for (uint32_t rest = mask; rest; rest &= rest - 1)
        if (address[__builtin_ctz(rest)] != address[0]) return SCATTERED;
    return SAME;
}

/* Where sectors go: an L2 (NULL: straight to DRAM), or nowhere where dram is NULL. */
struct card_touch {
    card_l2 *l2;
    card_dram *dram;
    enum card_l2_access access;
};

/* Bytes of one line that a request touches; sent on when the next line begins. */
struct pending_line {
    uint64_t line;
    uint32_t bytes[4];
};

static inline void send_line(const struct pending_line *p, const struct card_touch *touch) {
    uint32_t sectors = 0, partial = 0;
    for (unsigned s = 0; s < 4; ++s) {
        sectors |= (uint32_t)(p->bytes[s] != 0) << s;
        partial |= p->bytes[s] != 0 && p->bytes[s] != ~0u;
    }
    if (sectors && touch->dram)
        card_l2_touch(touch->l2, p->line, sectors, partial ? p->bytes : NULL, touch->access, touch->dram);
}

static inline uint64_t count_scattered(
    uint32_t mask, const uint64_t *address, unsigned width, const struct card_touch *touch) {
    uint64_t sorted[32];
    unsigned n = 0;
    bool rising = true;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        sorted[n] = address[__builtin_ctz(rest)];
        rising &= n == 0 || sorted[n] >= sorted[n - 1];
        ++n;
    }
    for (unsigned i = 1; !rising && i < n; ++i) {
        const uint64_t value = sorted[i];
        unsigned j = i;
        for (; j > 0 && sorted[j - 1] > value; --j) sorted[j] = sorted[j - 1];
        sorted[j] = value;
    }
    struct pending_line p = {sorted[0] / CARD_LINE_BYTES, {0, 0, 0, 0}};
    uint64_t found = 0, after_sector = sorted[0] >> 5;
    for (unsigned i = 0; i < n; ++i) {
        const uint64_t first = sorted[i] >> 5, end = sorted[i] + width, after = ((end - 1) >> 5) + 1;
        const uint64_t from = first > after_sector ? first : after_sector;
        if (after > from) found += after - from;
        if (after > after_sector) after_sector = after;
        /* An access is aligned to its width, so it lies inside one sector (or is a whole one). */
        if (sorted[i] / CARD_LINE_BYTES != p.line) {
            send_line(&p, touch);
            p = (struct pending_line){sorted[i] / CARD_LINE_BYTES, {0, 0, 0, 0}};
        }
        p.bytes[first & 3] |= (uint32_t)(((1ull << width) - 1) << (sorted[i] & 31));
    }
    send_line(&p, touch);
    return found;
}
