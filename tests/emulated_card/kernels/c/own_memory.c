#include "own_memory.h"

#include "coalesce.h"

/* Counts passes over the 32 four-byte banks as the interpreter's loops/sectors.py does: a bank serves one word a
 * pass, to any number of lanes; 8-byte accesses go by half warps, 16-byte ones by quarters.
 */
static unsigned passes_of_group(uint32_t mask, const uint64_t *offset, unsigned width, unsigned first) {
    const unsigned group = width <= 4 ? 32 : 32 * 4 / width;
    uint8_t depth[32] = {0}, last[32];
    uint64_t words[128];
    uint8_t before[128]; /* the word of the same bank that was met before */
    unsigned n = 0, most = 0;
    for (unsigned l = first; l < first + group; ++l) {
        if (!(mask >> l & 1)) continue;
        for (uint64_t word = offset[l] >> 2; word < (offset[l] + width + 3) >> 2; ++word) {
            const unsigned bank = word & 31;
            bool known = false;
            for (unsigned d = depth[bank], i = last[bank]; d && !known; --d, i = before[i]) known = words[i] == word;
            if (known) continue;
            words[n] = word;
            before[n] = last[bank];
            last[bank] = (uint8_t)n++;
            if (++depth[bank] > most) most = depth[bank];
        }
    }
    return most;
}

/* Tells whether no bank is asked for two words: a row of words, one word for all, or a bank for each lane. */
static bool without_conflict(const uint64_t *offset, unsigned width) {
    uint64_t same = 0;
    uint32_t banks = 0;
    LANES same |= offset[l] ^ offset[0];
    if (!same || is_unit(offset, width)) return true;
    if (width != 4) return false;
    LANES banks |= 1u << (offset[l] >> 2 & 31);
    return banks == ALL;
}

void count_banks(struct run *k, uint32_t mask, const uint64_t *offset, unsigned width) {
    const unsigned group = width <= 4 ? 32 : 32 * 4 / width;
    const bool once = mask == ALL && without_conflict(offset, width);
    for (unsigned first = 0; first < 32; first += group)
        k->account.shared_passes += once ? 1 : passes_of_group(mask, offset, width, first);
}

/* The lanes' place in shared memory: NULL, and an error, where one lies outside or is misaligned. */
char *shared_place(struct run *k, uint32_t mask, const uint64_t *offset, unsigned width) {
    uint64_t together = 0, beyond = 0;
    if (mask == ALL && width <= k->shared_bytes) { /* the usual case, without a branch a lane */
        const uint64_t most = k->shared_bytes - width;
        LANES together |= offset[l], beyond |= offset[l] > most;
        if (!(together & (width - 1)) && !beyond) return k->shared;
    }
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        const uint64_t at = offset[__builtin_ctz(rest)];
        if (UNLIKELY(at & (width - 1))) return (void)fail(k, CARD_MISALIGNED, at), NULL;
        if (UNLIKELY(at + width > k->shared_bytes || at + width < at))
            return (void)fail(k, CARD_ILLEGAL_ADDRESS, at), NULL;
    }
    return k->shared;
}

void load_shared(struct run *k, uint32_t mask, const uint64_t *offset, unsigned width, char *out) {
    if (mask != ALL) memset(out, 0, 32 * width);
    if (!mask) return;
    const char *shared = shared_place(k, mask, offset, width);
    if (!shared) return;
    count_banks(k, mask, offset, width);
    if (mask == ALL) {
        BY_WIDTH(width, LANES memcpy(out + l * W, shared + offset[l], W))
    } else {
        BY_WIDTH(width, LANES if (mask >> l & 1) memcpy(out + l * W, shared + offset[l], W))
    }
}

void store_shared(struct run *k, uint32_t mask, const uint64_t *offset, unsigned width, const char *in) {
    if (!mask) return;
    char *shared = shared_place(k, mask, offset, width);
    if (!shared) return;
    count_banks(k, mask, offset, width);
    BY_WIDTH(width, LANES if (mask >> l & 1) memcpy(shared + offset[l], in + l * W, W))
}

/* Local memory: `bytes` a thread, one thread after the other. */
static inline char *local_place(
    struct run *k, struct warp_common *w, int lane, uint64_t offset, unsigned width, uint32_t bytes) {
    if (UNLIKELY(offset & (width - 1))) return (void)fail(k, CARD_MISALIGNED, offset), NULL;
    if (UNLIKELY(offset + width > bytes || offset + width < offset))
        return (void)fail(k, CARD_ILLEGAL_ADDRESS, offset), NULL;
    return w->local + (uint64_t)lane * bytes + offset;
}

void load_local(
    struct run *k, struct warp_common *w, uint32_t mask, const uint64_t *offset, unsigned width, char *out) {
    memset(out, 0, 32 * width);
    LANES if (mask >> l & 1) {
        const char *place = local_place(k, w, l, offset[l], width, k->kernel->local_bytes);
        if (!place) return;
        memcpy(out + l * width, place, width);
    }
}

void store_local(
    struct run *k, struct warp_common *w, uint32_t mask, const uint64_t *offset, unsigned width, const char *in) {
    LANES if (mask >> l & 1) {
        char *place = local_place(k, w, l, offset[l], width, k->kernel->local_bytes);
        if (!place) return;
        memcpy(place, in + l * width, width);
    }
}

/* The parameters, read by an address that was computed. */
void load_parameters(
    struct run *k, uint32_t mask, const uint64_t *offset, unsigned width, char *out) {
    memset(out, 0, 32 * width);
    LANES if (mask >> l & 1) {
        if (UNLIKELY(offset[l] + width > k->kernel->parameter_bytes || offset[l] + width < offset[l]))
            return (void)fail(k, CARD_ILLEGAL_ADDRESS, offset[l]);
        memcpy(out + l * width, (const char *)k->launch->parameters + offset[l], width);
    }
}

/* Serves the lanes of a generic access that lie in a window of their own; returns those that are left. */
uint32_t own_lanes(uint32_t mask, const uint64_t *address, unsigned region, uint64_t *offset) {
    uint32_t here = 0;
    LANES {
        offset[l] = address[l] - REGION(region);
        here |= (uint32_t)((mask >> l & 1) && address[l] >> REGION_SHIFT == region) << l;
    }
    return here;
}

static inline void merge_lanes(uint32_t mask, unsigned width, const char *from, char *to) {
    LANES if (mask >> l & 1) memcpy(to + l * width, from + l * width, width);
}

uint32_t load_own(
    struct run *k, struct warp_common *w, uint32_t mask, const uint64_t *address, unsigned width, char *out) {
    for (unsigned region = SHARED_REGION; region <= PARAM_REGION; ++region) {
        uint64_t offset[32];
        char part[32 * 32];
        const uint32_t here = own_lanes(mask, address, region, offset);
        if (!here) continue;
        if (region == SHARED_REGION) load_shared(k, here, offset, width, part);
        else if (region == LOCAL_REGION) load_local(k, w, here, offset, width, part);
        else load_parameters(k, here, offset, width, part);
        merge_lanes(here, width, part, out);
        mask &= ~here;
    }
    return mask;
}

uint32_t store_own(
    struct run *k, struct warp_common *w, uint32_t mask, const uint64_t *address, unsigned width, const char *in) {
    uint64_t offset[32];
    uint32_t here = own_lanes(mask, address, SHARED_REGION, offset);
    if (here) store_shared(k, here, offset, width, in);
    mask &= ~here;
    here = own_lanes(mask, address, LOCAL_REGION, offset);
    if (here) store_local(k, w, here, offset, width, in);
    return mask & ~here;
}

