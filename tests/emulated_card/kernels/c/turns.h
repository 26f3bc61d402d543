/* How `run_warp` walks from basic block to basic block. Lanes wait at blocks; those at the block of the lowest rank
 * run next, so that lanes which parted meet again. While all lanes that are left are together, one block jumps
 * straight to the next.
 */
#pragma once

#define BEGIN_TURN                                                                                                   \
    uint32_t mask = 0, lanes = 0, rank = 0, waiting = 0, spread_for = 0;                                             \
    uint64_t issued = w->common.cycles;                                                                              \
    const uint64_t issued_before = issued;                                                                           \
    int32_t turns = TURNS;                                                                                           \
    bool last_first = w->paused; /* who has been spinning shall not be the first again */                           \
    _Alignas(64) uint32_t lane[32];                                                                                  \
    w->paused = 0;                                                                                                   \
    for (int i = 0; i < READY_WORDS; ++i) waiting += (uint32_t)__builtin_popcountll(w->ready[i]);                    \
    (void)lane, (void)spread_for, (void)lanes;

#define NEXT_RANK                                                                                                    \
    if (UNLIKELY(!waiting)) goto leave;                                                                              \
    if (UNLIKELY(--turns <= 0)) {                                                                                    \
        w->paused = 1;                                                                                               \
        goto leave;                                                                                                  \
    }                                                                                                                \
    if (UNLIKELY(last_first)) {                                                                                      \
        int i = READY_WORDS - 1;                                                                                     \
        while (!w->ready[i]) --i;                                                                                    \
        rank = 64u * (uint32_t)i + 63u - (uint32_t)__builtin_clzll(w->ready[i]);                                     \
        last_first = false;                                                                                          \
    } else {                                                                                                         \
        int i = 0;                                                                                                   \
        while (!w->ready[i]) ++i;                                                                                    \
        rank = 64u * (uint32_t)i + (uint32_t)__builtin_ctzll(w->ready[i]);                                           \
    }                                                                                                                \
    w->ready[rank >> 6] &= ~(1ull << (rank & 63));                                                                   \
    mask = w->at[rank];                                                                                              \
    w->at[rank] = 0;                                                                                                 \
    --waiting;

#define PUT(to, who)                                                                                                 \
    if (!w->at[to]) {                                                                                                \
        w->ready[(to) >> 6] |= 1ull << ((to) & 63);                                                                  \
        ++waiting;                                                                                                   \
    }                                                                                                                \
    w->at[to] |= (who);

#define GO(to)                                                                                                       \
    if (!waiting) goto B##to;                                                                                        \
    PUT(to, mask)                                                                                                    \
    goto next;

#define GO_BACK(to)                                                                                                  \
    if (!waiting && --turns > 0) goto B##to;                                                                         \
    PUT(to, mask)                                                                                                    \
    goto next;

#define COUNT(steps)                                                                                                 \
    lanes = (uint32_t)__builtin_popcount(mask);                                                                      \
    issued += steps;

/* lane[l]: all ones where the lane takes part. */
#define SPREAD_MASK                                                                                                  \
    if (mask != spread_for) {                                                                                        \
        LANES lane[l] = 0u - (mask >> l & 1);                                                                        \
        spread_for = mask;                                                                                           \
    }

#define END_TURN                                                                                                     \
    w->common.cycles = issued;                                                                                       \
    k->account.warp_instructions += issued - issued_before;                                                          \
    if (issued > k->account.longest_warp_cycles) k->account.longest_warp_cycles = issued;
