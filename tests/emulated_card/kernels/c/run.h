/* What a launch's warps share while it runs, and what each warp has of its own. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_abi.h"
#include "l2_touch.h"

#define ALL 0xFFFFFFFFu
#define LANES for (int l = 0; l < 32; ++l)
/* Runs a statement with W as a constant, by which copies become single instructions. */
#define BY_WIDTH(width, statement)                                                                                   \
    switch (width) {                                                                                                 \
        case 1: { enum { W = 1 }; statement; break; }                                                                \
        case 2: { enum { W = 2 }; statement; break; }                                                                \
        case 4: { enum { W = 4 }; statement; break; }                                                                \
        case 8: { enum { W = 8 }; statement; break; }                                                                \
        case 16: { enum { W = 16 }; statement; break; }                                                              \
        default: { enum { W = 32 }; statement; break; }                                                              \
    }
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Windows of state spaces that each block or thread has of its own, where the interpreter's memory.py has
 * them.
 */
#define REGION_SHIFT 40
#define REGION(number) (((uint64_t)(number) << REGION_SHIFT) + (1ull << (REGION_SHIFT - 1)))
enum { SHARED_REGION = 1, LOCAL_REGION = 2, PARAM_REGION = 3 };
/* Addresses that stand for special registers whose value changes: the translator reads them as loads. */
#define SPECIAL_BASE ((uint64_t)PARAM_REGION << REGION_SHIFT)
enum special { GLOBALTIMER, GLOBALTIMER_LO, GLOBALTIMER_HI, CLOCK, CLOCK_HI, CLOCK64, SMID, NSMID, GRIDID };

struct warp_common;
struct run;

/* What a translated kernel is. A warp is a `struct warp_common` with arrays behind it: `ready`, a bit a basic block
 * where lanes wait to run (by the blocks' ranks), `at`, those lanes, and `held`, the lanes that wait at barriers.
 * barriers: of each, the rank where lanes go on.
 */
struct kernel {
    size_t warp_bytes;
    size_t ready, at, held; /* offsets in the warp */
    uint32_t ready_words, entry, barrier_count;
    const uint32_t *barriers;
    uint32_t local_bytes, parameter_bytes, static_shared;
    void (*begin_warp)(struct warp_common *w);
    void (*run_warp)(struct run *k, struct warp_common *w);
};

struct run {
    const card_launch *launch;
    const struct kernel *kernel;
    card_account account;
    char *shared;
    uint32_t shared_bytes;
    uint32_t ctaid[3];
    uint64_t block; /* linear number */
    int status;
    uint32_t site_line; /* the PTX line that runs, for errors */
};

/* The part of `struct warp` that does not depend on the kernel. tid and present last as long as the block's memory. */
struct warp_common {
    _Alignas(64) uint32_t tid[3][32];
    uint32_t number, present;
    uint64_t cycles, waited_ns;
    char *local;
};

/* Notes the first error. */
int fail(struct run *k, int status, uint64_t address);

/* The value of a special register that changes; `cycles` of the warp has to be up to date. */
uint64_t read_special(const struct run *k, const struct warp_common *w, enum special which);

/* Runs a launch: what `card_kernel` does. */
int run_launch(const struct kernel *kernel, const card_launch *launch, card_account *account);
