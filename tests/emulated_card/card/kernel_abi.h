/* How a kernel that was translated to C is run, and what it tells.
 *
 * Each shared object that `emulated_card.kernels.build` makes exports one function, `card_kernel`. It runs a
 * whole launch in the calling thread, block after block, and returns when all have ended. It keeps nothing
 * between calls.
 */
#pragma once

#include <stdint.h>

#define CARD_ABI 3

enum card_status { /* CUresult's numbers; the errors are sticky */
    CARD_SUCCESS = 0,
    CARD_ILLEGAL_ADDRESS = 700,
    CARD_MISALIGNED = 716,
    CARD_LAUNCH_FAILED = 719, /* a trap */
    /* Not CUDA's: nothing is known to be wrong, but the kernel was not run to its end. */
    CARD_STOPPED = -1,      /* `poll` asked for it */
    CARD_OUT_OF_TURNS = -2, /* `max_warp_instructions` are used up: it waits for a block that has not run, or hangs */
};

/* What lies behind a window decides which counters its bytes go to. */
enum card_window_kind {
    CARD_DEVICE, /* this card's memory: through its L2 to its DRAM */
    CARD_HOST,   /* pinned host memory: over the bus, past the L2 */
    CARD_PEER,   /* another card's memory: over the bus, past this card's L2 */
};

/* Addresses [first, end) that kernels may touch; host code reaches the same byte at address + shift. Shared,
 * local and parameter memory have windows of their own from 2^40 to 4 * 2^40: keep clear of those. */
typedef struct card_window {
    uint64_t first, end;
    int64_t shift;
    uint32_t kind;
    uint32_t read_only;
} card_window;

typedef struct card_l2 card_l2; /* l2.h */

typedef struct card_launch {
    uint32_t abi; /* CARD_ABI */
    uint32_t grid[3], block[3];
    uint32_t dynamic_shared_bytes;
    const void *parameters;       /* packed as `Built.parameters` says */
    const uint64_t *variables;    /* addresses of the module's variables, in the order of `Module.variables` */
    const card_window *windows;   /* sorted by `first`, none overlapping; must not change while the kernel runs */
    uint32_t window_count;
    card_l2 *l2;                  /* NULL: every sector goes to DRAM */

    /* Clocks. A warp's time runs on by one cycle an instruction, and by CARD_BUS_NS for a load over the bus. */
    uint64_t start_ns;            /* %globaltimer at the start, not yet rounded down to its step */
    uint64_t start_cycles;        /* clock64() at the start */
    double clock_mhz;             /* cycles a microsecond */
    uint32_t timer_step_ns;       /* %globaltimer ticks in steps of so many nanoseconds, at least 1 */
    uint32_t sm_count;            /* block b runs on multiprocessor b % sm_count (%smid) */

    /* Called before each volatile, relaxed or acquire load from a CARD_HOST window: how a kernel waits for the host.
     * now_ns: the waiting warp's virtual time. The callee may release the flag, run other streams, or sleep.
     * Returns 0 to go on; anything else ends the kernel with CARD_STOPPED. NULL: go on. */
    int (*poll)(void *context, uint64_t address, uint64_t now_ns);
    void *context;
    uint64_t max_warp_instructions; /* 0: no limit */
} card_launch;

/* A load over the bus waits about a microsecond: a spinning kernel's time runs on by so much a turn. */
#define CARD_BUS_NS 1000

/* A sector is 32 bytes, aligned. */
typedef struct card_dram {
    uint64_t sectors_read, sectors_written; /* fetched for misses; written back for lines that had to leave */
} card_dram;

/* What launches have done: added to, never cleared, by card_kernel. */
typedef struct card_account {
    uint64_t warp_instructions;
    uint64_t shared_passes; /* of loads, stores and atomics: one serves each of 32 banks of 4 bytes once */
    uint64_t l2_sectors;    /* that this card's L2 was asked for: loads, stores, and atomics */
    card_dram dram;
    uint64_t bus_bytes_read, bus_bytes_written; /* whole sectors of CARD_HOST and CARD_PEER windows */
    /* Operations by threads; a fused multiply-add is two. special: exponentials, roots, reciprocals, divisions. */
    uint64_t flop16, flop32, flop64, special, integer;
    /* Waiting for the host: loads for which `poll` was called, and the longest time that a warp spent on them. A
     * kernel with polls ends no earlier than what it waited for. */
    uint64_t polls, waited_ns;
    uint64_t longest_warp_cycles; /* of one warp, an instruction a cycle: its own clock at its end */
    /* The first error: address and PTX line. */
    uint64_t error_address;
    uint32_t error_line;
} card_account;

typedef int card_kernel_function(const card_launch *launch, card_account *account);
