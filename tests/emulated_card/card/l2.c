#include "l2_touch.h"

#include <stdlib.h>

card_l2 *card_l2_new(uint64_t bytes) {
    card_l2 *l2 = calloc(1, sizeof *l2);
    if (!l2) return NULL;
    l2->sets = bytes / (CARD_LINE_BYTES * CARD_WAYS);
    if (l2->sets == 0) l2->sets = 1;
    l2->set = calloc(l2->sets, sizeof *l2->set);
    l2->bytes = calloc(l2->sets, sizeof *l2->bytes);
    if (l2->set && l2->bytes) return l2;
    card_l2_free(l2);
    return NULL;
}

void card_l2_free(card_l2 *l2) {
    if (!l2) return;
    free(l2->set);
    free(l2->bytes);
    free(l2);
}

uint64_t card_l2_bytes(const card_l2 *l2) { return l2->sets * CARD_LINE_BYTES * CARD_WAYS; }

void card_l2_range(card_l2 *l2, uint64_t address, uint64_t bytes, enum card_l2_access access, card_dram *dram) {
    if (bytes) card_l2_span(l2, address, address + bytes, access, dram);
}

void card_l2_flush(card_l2 *l2, card_dram *dram) {
    for (uint64_t n = 0; n < l2->sets; ++n)
        for (unsigned way = 0; way < CARD_WAYS; ++way) card_l2_evict(&l2->set[n], way, dram);
}

void card_l2_drop(card_l2 *l2, uint64_t address, uint64_t bytes) {
    card_dram ignored = {0, 0};
    for (uint64_t n = 0; n < l2->sets; ++n)
        for (unsigned way = 0; way < CARD_WAYS; ++way) {
            if (!l2->set[n].tag[way]) continue;
            const uint64_t line = (l2->set[n].tag[way] - 1) * l2->sets + n;
            if (line * CARD_LINE_BYTES >= address && (line + 1) * CARD_LINE_BYTES <= address + bytes)
                card_l2_evict(&l2->set[n], way, &ignored);
        }
}
