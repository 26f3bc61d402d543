#include "activity.h"
#include "devices.h"
#include "kernels.h"
#include "memory.h"
#include "settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INVALID_VALUE = 1, LAUNCH_TIMEOUT = 702 };
#define TURNS_AT_MOST 400000000ull /* warp instructions of a launch: a second, for a kernel that never ends */

typedef struct launch {
    card_work work;
    card_function *function;
    uint32_t grid[3], block[3], shared_bytes;
    void *parameters;
} launch;

static int go_on_polling(void *context, uint64_t address, uint64_t now_ns) {
    (void)context, (void)address, (void)now_ns;
    return !card_somebody_waits();
}

/* How much longer than the model says this run of the kernel takes. */
static double factor(const card_settings *settings, card_function *function) {
    const uint64_t name = card_hash(function->name);
    const double process = settings->process_jitter * card_normal(~name, card_process_number());
    const double run = settings->jitter * card_normal(name ^ card_process_number() << 32, function->runs++);
    const double slow = card_setting_of("SLOW_KERNELS", function->name, 1);
    return slow * card_setting_of("SLOW_CUBINS", function->module->cubin, 1) * (1 + process + run);
}

static int run_launch(card_work *work, card_stream *stream, double start_ns, double *end_ns) {
    const launch *this = (const launch *)work;
    const card_settings *settings = card_settings_now();
    card_function *function = this->function;
    card_launch asked = {
        .abi = CARD_ABI,
        .dynamic_shared_bytes = this->shared_bytes,
        .parameters = this->parameters,
        .variables = function->module->addresses,
        .l2 = card_device(stream->device)->l2,
        .start_ns = (uint64_t)start_ns,
        .start_cycles = (uint64_t)(start_ns * settings->clock_in_use_mhz / 1000),
        .clock_mhz = settings->clock_in_use_mhz,
        .timer_step_ns = (uint32_t)settings->timer_step_ns,
        .sm_count = settings->model.sm_count,
        .poll = go_on_polling,
        .max_warp_instructions = TURNS_AT_MOST,
    };
    memcpy(asked.grid, this->grid, sizeof asked.grid);
    memcpy(asked.block, this->block, sizeof asked.block);
    asked.windows = card_windows_of(stream->device, &asked.window_count);
    card_account account = {0};
    const int status = function->code(&asked, &account);
    if (status == CARD_STOPPED) return status;
    card_publish_work(stream->device);
    double ns = card_kernel_ns(&settings->model, &settings->pace, &account) * factor(settings, function);
    if (account.polls) { /* what it read of the host was written by now, but not when: it ends no earlier */
        if (account.waited_ns > ns) ns = (double)account.waited_ns;
        if (account.polls == 1 && card_host_ns() - start_ns > ns) ns = card_host_ns() - start_ns;
    }
    *end_ns = start_ns + ns;
    /* Start and drain of a launch are no part of a record. */
    card_activity_note(CARD_KERNEL, function->name, stream, start_ns + settings->pace.launch_ns, *end_ns);
    if (card_setting("LOG", NULL))
        fprintf(stderr, "emulated card: %s %u×%u %.0f ns, DRAM %llu + %llu sectors\n", function->name, this->grid[0],
                this->block[0], ns, (unsigned long long)account.dram.sectors_read,
                (unsigned long long)account.dram.sectors_written);
    if (status == CARD_OUT_OF_TURNS) {
        fprintf(stderr, "emulated card: %s does not end\n", function->name);
        return LAUNCH_TIMEOUT;
    }
    if (status)
        fprintf(stderr, "emulated card: %s: error %d at address %#llx, line %u of the PTX\n", function->name, status,
                (unsigned long long)account.error_address, account.error_line);
    return status;
}

static void drop_launch(card_work *work) { free(((launch *)work)->parameters); }

int card_function_launch(
    card_function *function, const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
    card_stream *stream, void **parameters) {
    const uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    if (!grid[0] || !grid[1] || !grid[2] || !threads || grid[1] > 65535 || grid[2] > 65535 || block[2] > 64)
        return INVALID_VALUE;
    if (threads > (uint64_t)function->max_threads || (int64_t)shared_bytes > function->dynamic_shared_bytes_at_most)
        return INVALID_VALUE;
    launch *asked = card_work_new(sizeof *asked, run_launch, drop_launch);
    asked->function = function;
    memcpy(asked->grid, grid, sizeof asked->grid);
    memcpy(asked->block, block, sizeof asked->block);
    asked->shared_bytes = shared_bytes;
    asked->parameters = calloc(1, function->parameter_bytes + 8);
    for (uint32_t i = 0; i < function->parameters; ++i)
        memcpy((char *)asked->parameters + function->offsets[i], parameters[i], function->sizes[i]);
    const int refused = card_queue(stream, &asked->work);
    if (refused) return refused;
    const char *blocking = getenv("CUDA_LAUNCH_BLOCKING");
    return blocking && *blocking && strcmp(blocking, "0") && !stream->capture ? card_wait_stream(stream) : 0;
}

int card_blocks_per_sm(const card_function *function, int threads, uint64_t dynamic_shared_bytes) {
    if (threads <= 0 || threads > function->max_threads) return 0;
    const int warps = (threads + 31) / 32, per_warp = (function->registers * 32 + 255) / 256 * 256;
    const uint64_t shared = function->static_shared_bytes + dynamic_shared_bytes + CARD_SHARED_RESERVED;
    int blocks = CARD_THREADS_PER_SM / (32 * warps);
    if (per_warp && CARD_REGISTERS / per_warp / warps < blocks) blocks = CARD_REGISTERS / per_warp / warps;
    if ((uint64_t)blocks > CARD_SHARED_PER_SM / shared) blocks = (int)(CARD_SHARED_PER_SM / shared);
    return blocks < CARD_BLOCKS_PER_SM ? blocks : CARD_BLOCKS_PER_SM;
}
