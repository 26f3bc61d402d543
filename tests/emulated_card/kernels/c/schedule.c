/* Runs the warps of a block and the blocks of a grid.
 *
 * A warp runs until all its lanes have left, or wait at a barrier, or it has jumped backwards so often that it may be
 * waiting for another. Blocks run one after the other; only where a whole block waits does the next begin beside it. */
#include "run.h"

#define MOST_BLOCKS_AT_ONCE 1024
#define OF_WARP(w, offset, type) ((type *)((char *)(w) + (offset)))

struct block {
    uint64_t number;
    char *memory, *warps, *shared;
    uint32_t count;
};

static size_t rounded(size_t bytes) { return (bytes + 63) / 64 * 64; }

static struct warp_common *warp_of(const struct run *k, const struct block *b, uint32_t number) {
    return (struct warp_common *)(b->warps + number * k->kernel->warp_bytes);
}

static bool is_ready(const struct run *k, struct warp_common *w) {
    const uint64_t *ready = OF_WARP(w, k->kernel->ready, uint64_t);
    for (uint32_t i = 0; i < k->kernel->ready_words; ++i)
        if (ready[i]) return true;
    return false;
}

static void make_ready(const struct run *k, struct warp_common *w, uint32_t rank, uint32_t lanes) {
    OF_WARP(w, k->kernel->at, uint32_t)[rank] |= lanes;
    OF_WARP(w, k->kernel->ready, uint64_t)[rank >> 6] |= 1ull << (rank & 63);
}

static void free_block(struct block *b) {
    if (b) free(b->memory);
    free(b);
}

static struct block *new_block(const struct run *k) {
    const uint32_t *size = k->launch->block;
    const uint32_t threads = size[0] * size[1] * size[2], count = (threads + 31) / 32;
    const size_t warps = rounded(count * k->kernel->warp_bytes), local = rounded(32 * (size_t)k->kernel->local_bytes);
    const size_t shared = rounded(k->shared_bytes), bytes = warps + shared + count * local;
    struct block *b = calloc(1, sizeof *b);
    if (b) b->memory = aligned_alloc(64, bytes + 64);
    if (!b || !b->memory) return free_block(b), NULL;
    memset(b->memory, 0, bytes);
    b->warps = b->memory;
    b->shared = b->memory + warps;
    b->count = count;
    for (uint32_t n = 0; n < count; ++n) {
        struct warp_common *w = warp_of(k, b, n);
        w->number = n;
        w->local = b->shared + shared + n * local;
        LANES {
            const uint32_t thread = 32 * n + (uint32_t)l;
            w->present |= (uint32_t)(thread < threads) << l;
            w->tid[0][l] = thread % size[0];
            w->tid[1][l] = thread / size[0] % size[1];
            w->tid[2][l] = thread / (size[0] * size[1]);
        }
    }
    return b;
}

static void begin_block(const struct run *k, struct block *b, uint64_t number) {
    b->number = number;
    memset(b->shared, 0, k->shared_bytes);
    for (uint32_t n = 0; n < b->count; ++n) {
        struct warp_common *w = warp_of(k, b, n);
        w->cycles = w->waited_ns = 0;
        if (k->kernel->local_bytes) memset(w->local, 0, 32 * (size_t)k->kernel->local_bytes);
        k->kernel->begin_warp(w);
        make_ready(k, w, k->kernel->entry, w->present);
    }
}

/* Lets all lanes go on that wait at a barrier. */
static bool pass_barriers(const struct run *k, struct block *b) {
    bool any = false;
    for (uint32_t n = 0; n < k->kernel->barrier_count; ++n) {
        for (uint32_t i = 0; i < b->count; ++i) {
            struct warp_common *w = warp_of(k, b, i);
            uint32_t *held = &OF_WARP(w, k->kernel->held, uint32_t)[n];
            if (!*held) continue;
            any = true;
            make_ready(k, w, k->kernel->barriers[n], *held);
            *held = 0;
        }
    }
    return any;
}

enum progress { ENDED, WAITS };

static enum progress run_block(struct run *k, struct block *b) {
    const uint32_t *grid = k->launch->grid;
    k->block = b->number;
    k->ctaid[0] = (uint32_t)(b->number % grid[0]);
    k->ctaid[1] = (uint32_t)(b->number / grid[0] % grid[1]);
    k->ctaid[2] = (uint32_t)(b->number / ((uint64_t)grid[0] * grid[1]));
    k->shared = b->shared;
    for (;;) {
        bool waits = false;
        for (uint32_t n = 0; n < b->count; ++n) {
            struct warp_common *w = warp_of(k, b, n);
            if (!is_ready(k, w)) continue;
            k->kernel->run_warp(k, w);
            if (k->status) return ENDED;
            waits |= is_ready(k, w);
        }
        if (k->launch->max_warp_instructions && k->account.warp_instructions > k->launch->max_warp_instructions) {
            k->status = CARD_OUT_OF_TURNS;
            return ENDED;
        }
        if (waits) return WAITS;
        if (!pass_barriers(k, b)) return ENDED;
    }
}

static void settle(card_account *total, const card_account *own) {
    const size_t counters = offsetof(card_account, waited_ns) / sizeof(uint64_t);
    for (size_t i = 0; i < counters; ++i) ((uint64_t *)total)[i] += ((const uint64_t *)own)[i];
    if (own->waited_ns > total->waited_ns) total->waited_ns = own->waited_ns;
    if (own->longest_warp_cycles > total->longest_warp_cycles) total->longest_warp_cycles = own->longest_warp_cycles;
    if (!total->error_line && !total->error_address) {
        total->error_address = own->error_address;
        total->error_line = own->error_line;
    }
}

int run_launch(const struct kernel *kernel, const card_launch *launch, card_account *account) {
    struct run run = {.launch = launch, .kernel = kernel}, *k = &run;
    const uint64_t total = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    struct block *active[MOST_BLOCKS_AT_ONCE] = {NULL};
    unsigned count = 0;
    uint64_t next = 0;
    if (launch->abi != CARD_ABI) return CARD_LAUNCH_FAILED;
    run.shared_bytes = kernel->static_shared + launch->dynamic_shared_bytes;
    while (!k->status && (next < total || count)) {
        if (next < total && count < MOST_BLOCKS_AT_ONCE) { /* here all active blocks wait, or there are none */
            if (!active[count]) active[count] = new_block(k);
            if (!active[count]) {
                k->status = CARD_OUT_OF_TURNS;
                break;
            }
            begin_block(k, active[count++], next++);
        }
        for (unsigned n = 0; n < count && !k->status; ++n) {
            if (run_block(k, active[n]) == WAITS) continue;
            struct block *ended = active[n]; /* its memory serves the next */
            active[n--] = active[--count];
            active[count] = ended;
        }
    }
    for (unsigned n = 0; n < MOST_BLOCKS_AT_ONCE; ++n) free_block(active[n]);
    settle(account, &k->account);
    return k->status;
}
