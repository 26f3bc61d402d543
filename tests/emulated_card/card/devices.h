/* The devices of this process: which one is current, their caches, the host's clock, and the one lock. */
#pragma once

#include "l2.h"

#include <stdint.h>

typedef struct card_device_state {
    card_l2 *l2;
} card_device_state;

/* Nanoseconds of the host's own work, which is all that its virtual time holds besides waiting: about what a call takes
 * from Python, through CuPy and the driver. */
enum {
    CARD_CALL_NS = 5000,
    CARD_RECORD_NS = 4000,
    CARD_LAUNCH_CALL_NS = 8000,
    CARD_WAIT_CALL_NS = 30000,
    CARD_READ_CLOCK_NS = 50,
};

card_device_state *card_device(int number);
int card_current_device(void);
void card_make_current(int number);

/* Every entry begins by card_enter and ends by card_leave. card_enter: moves the host's clock on; returns CUDA's sticky
 * error, if there is one. */
int card_enter(double host_ns);
int card_leave(int status);

double card_host_ns(void);
void card_host_waits_until(double ns);
/* From now on almost every call returns this error: the context is lost. */
void card_lose_context(int status);
int card_lost(void);

/* Bytes of the device's memory that all processes on the card hold, as they have published them. */
uint64_t card_used_by_all(int device);
void card_publish_use(int device, uint64_t bytes);
void card_publish_work(int device);

/* What a process published. */
typedef struct card_process {
    int32_t pid;
    uint32_t padding;
    uint64_t bytes[8];
    uint64_t last_work_us[8]; /* of the host's real clock, since the epoch */
} card_process;
int card_processes(card_process *found, int at_most);
