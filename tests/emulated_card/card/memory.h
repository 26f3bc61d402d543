/* The card's memory: sparse, mapped twice. Host code sees each device's range with no access, so that touching it
 * crashes as it should; kernels and copies use the alias at address + CARD_ALIAS. Pinned memory is readable by both. */
#pragma once

#include "kernel_abi.h"

#include <stddef.h>

#define CARD_ALIAS (1ll << 44)

enum card_memory { CARD_NOWHERE, CARD_ON_DEVICE, CARD_PINNED };

typedef struct card_range {
    uint64_t first, bytes;
    enum card_memory kind;
    int device; /* which it was allocated on, or for */
} card_range;

/* Address of new memory, or 0 where there is no room. */
uint64_t card_allocate(enum card_memory kind, int device, uint64_t bytes);
/* 0, or CUDA's error. */
int card_release(uint64_t address);

/* The allocation that holds the address; kind CARD_NOWHERE where none does. */
card_range card_range_of(uint64_t address);
uint64_t card_bytes_used(int device);

/* Where the host reaches these bytes; NULL where they are in a card's range but not all allocated. */
void *card_reach(uint64_t address, uint64_t bytes);

/* What kernels of the device may touch; valid until the next allocation or release. */
const card_window *card_windows_of(int device, uint32_t *count);
void card_allow_peer(int device, int peer, int allowed);
int card_peer_allowed(int device, int peer);
