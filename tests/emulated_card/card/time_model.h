/* How long an operation takes on a card: the longest of what it must wait for. Nothing else is modelled: no
 * overlap lost, no latency hidden too little, no waves, no L1. Jitter is the caller's: multiply what comes back. */
#pragma once

#include "kernel_abi.h"
#include "l2.h"

typedef struct card_model {
    const char *name; /* as the driver gives it */
    uint32_t major, minor, sm_count;
    uint64_t memory_bytes, l2_bytes;
    uint32_t memory_clock_mhz, bus_bits; /* 2 * clock * bits / 8 is the peak */
    uint32_t sm_clock_mhz;               /* the maximum */
    /* Operations a multiprocessor and cycle; a fused multiply-add is two. */
    uint32_t flop16, flop32, flop64, integer, special;
    double l2_gb_s, bus_gb_s;
    /* Shares of the peak that plain reads, writes, and copies (as much of each) reach. */
    double read_share, write_share, copy_share;
} card_model;

/* State that changes a card's speed; 1.0 everywhere is a healthy card. */
typedef struct card_pace {
    double memory; /* of the memory's bandwidth */
    double clock;  /* of the maximum SM clock: what throttling lowers */
    double launch_ns; /* start and drain, added to a kernel's work; 0: no kernel takes less than CARD_LAUNCH_NS */
} card_pace;

/* The model of that name, or NULL. card_models: all, ended by one without a name. */
const card_model *card_model_named(const char *name);
extern const card_model card_models[];

/* Peak of the memory in bytes a nanosecond (GB/s). */
double card_peak_gb_s(const card_model *model);

/* Nanoseconds of a kernel with this account (of the one launch alone). */
double card_kernel_ns(const card_model *model, const card_pace *pace, const card_account *account);

/* Nanoseconds of a copy or memset that moved `dram` and `l2_bytes` on the card and `bus_bytes` over the bus. */
double card_copy_ns(
    const card_model *model, const card_pace *pace, const card_dram *dram, uint64_t l2_bytes, uint64_t bus_bytes);

#define CARD_LAUNCH_NS 2000.0 /* start and drain: no kernel takes less */
