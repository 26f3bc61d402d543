/* The part of the L2 that every access runs through, for inlining. */
#pragma once

#include "l2.h"

/* tag: the line's number ÷ sets, plus one; 0 is empty. used: when it was last touched. valid, dirty: a bit a sector;
 * a sector that is dirty but not valid holds the bytes that `l2->bytes` names, and no others. */
struct card_l2_set {
    uint32_t tag[CARD_WAYS], used[CARD_WAYS];
    uint8_t valid[CARD_WAYS], dirty[CARD_WAYS];
};

struct card_l2 {
    uint64_t sets;
    uint32_t clock;
    struct card_l2_set *set;
    uint32_t (*bytes)[CARD_WAYS][4];
};

/* Ages are 32 bits. Every 2^32 touches (512 GiB) all lines become equally old. */
static inline void card_l2_restart_clock(card_l2 *l2) {
    for (uint64_t n = 0; n < l2->sets; ++n)
        for (unsigned way = 0; way < CARD_WAYS; ++way) l2->set[n].used[way] = 0;
    l2->clock = 1;
}

static inline void card_l2_evict(struct card_l2_set *set, unsigned way, card_dram *dram) {
    dram->sectors_written += __builtin_popcount(set->dirty[way]);
    /* The rest of sectors that were written in part. */
    dram->sectors_read += __builtin_popcount(set->dirty[way] & ~set->valid[way]);
    set->tag[way] = set->used[way] = set->valid[way] = set->dirty[way] = 0;
}

/* The way that holds the line; room is made where none does. */
static inline unsigned card_l2_way(card_l2 *l2, struct card_l2_set *set, uint32_t tag, card_dram *dram) {
    unsigned found = CARD_WAYS, oldest = 0;
    for (unsigned way = 0; way < CARD_WAYS; ++way) found = set->tag[way] == tag ? way : found;
    if (found == CARD_WAYS) {
        for (unsigned way = 1; way < CARD_WAYS; ++way) oldest = set->used[way] < set->used[oldest] ? way : oldest;
        found = oldest;
        card_l2_evict(set, found, dram);
        set->tag[found] = tag;
    }
    if (++l2->clock == 0) card_l2_restart_clock(l2);
    set->used[found] = l2->clock;
    return found;
}

/* Touches sectors of one line. bytes: for writes, which bytes of each sector; NULL: all of them. */
static inline void card_l2_touch(
    card_l2 *l2, uint64_t line, uint32_t sectors, const uint32_t *bytes, enum card_l2_access access, card_dram *dram) {
    if (!l2) {
        if (access != CARD_L2_WRITE) dram->sectors_read += __builtin_popcount(sectors);
        if (access != CARD_L2_READ) dram->sectors_written += __builtin_popcount(sectors);
        return;
    }
    const uint64_t number = line % l2->sets;
    struct card_l2_set *set = &l2->set[number];
    const unsigned way = card_l2_way(l2, set, (uint32_t)(line / l2->sets) + 1, dram);
    uint32_t *held = l2->bytes[number][way];
    if (access != CARD_L2_WRITE) {
        dram->sectors_read += __builtin_popcount(sectors & ~set->valid[way]);
        set->valid[way] |= sectors;
    } else if (!bytes) {
        set->valid[way] |= sectors;
    } else {
        for (unsigned s = 0; s < 4; ++s) {
            if (!(sectors >> s & 1) || set->valid[way] >> s & 1) continue;
            held[s] = (set->dirty[way] >> s & 1 ? held[s] : 0) | bytes[s];
            if (held[s] == ~0u) set->valid[way] |= 1u << s;
        }
    }
    if (access != CARD_L2_READ) set->dirty[way] |= sectors;
}

/* Touches [first, end), which is not empty. */
static inline void card_l2_span(
    card_l2 *l2, uint64_t first, uint64_t end, enum card_l2_access access, card_dram *dram) {
    for (uint64_t line = first / CARD_LINE_BYTES; line <= (end - 1) / CARD_LINE_BYTES; ++line) {
        const uint64_t start = line * CARD_LINE_BYTES;
        const unsigned from = first > start ? first - start : 0;
        const unsigned to = end - start < CARD_LINE_BYTES ? end - start : CARD_LINE_BYTES;
        const uint32_t sectors = (2u << (to - 1) / 32) - (1u << from / 32);
        if (access != CARD_L2_WRITE || !((from | to) & 31)) {
            card_l2_touch(l2, line, sectors, 0, access, dram);
            continue;
        }
        uint32_t bytes[4];
        for (unsigned s = 0; s < 4; ++s) {
            const unsigned low = from > 32 * s ? from - 32 * s : 0, high = to < 32 * s + 32 ? to - 32 * s : 32;
            bytes[s] = sectors >> s & 1 ? (uint32_t)((1ull << high) - (1ull << low)) : 0;
        }
        card_l2_touch(l2, line, sectors, bytes, access, dram);
    }
}
