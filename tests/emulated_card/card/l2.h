/* The last cache before memory: which lines it holds, which sectors of them are valid, and which are dirty.
 *
 * Set associative with 16 ways, least recently used first out; lines of 128 bytes in sectors of 32. It lives as
 * long as its card, across kernels; copies and memsets of the card go through it too (card_l2_range). A sector
 * that is written in part is not fetched: bytes are remembered, and only if the line has to leave before all 32
 * are written is the rest read. What it does not model: compression, residency controls, the two halves of A100
 * and later, write-back while idle.
 */
#pragma once

#include "kernel_abi.h"

enum { CARD_LINE_BYTES = 128, CARD_SECTOR_BYTES = 32, CARD_WAYS = 16 };
enum card_l2_access { CARD_L2_READ, CARD_L2_WRITE, CARD_L2_UPDATE /* an atomic: reads and writes */ };

/* Makes an empty cache of about so many bytes (whole sets); NULL where there is no memory. */
card_l2 *card_l2_new(uint64_t bytes);
void card_l2_free(card_l2 *l2);
uint64_t card_l2_bytes(const card_l2 *l2);

/* Reads or writes [address, address + bytes) of the card's own memory, as a copy or memset does. */
void card_l2_range(card_l2 *l2, uint64_t address, uint64_t bytes, enum card_l2_access access, card_dram *dram);

/* Writes back what is dirty and drops everything (the end of a context). */
void card_l2_flush(card_l2 *l2, card_dram *dram);

/* Drops [address, address + bytes) without writing it back (memory that was freed). */
void card_l2_drop(card_l2 *l2, uint64_t address, uint64_t bytes);
