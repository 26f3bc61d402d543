/* Copies and fills, by rows: plain ones have one row. */
#pragma once

#include "streams.h"

#include <stdint.h>

typedef struct card_rows {
    uint64_t to, from, to_pitch, from_pitch, width, height;
} card_rows;

/* Returns CUDA's error. `asynchronous` is what the caller asked for; memory of the host that is not pinned is read at
 * once, or waited for, as CUDA does ("API synchronization behavior"). */
int card_copy(card_rows rows, card_stream *stream, int asynchronous);
/* Fills rows of `to` with an item of 1, 2, or 4 bytes. */
int card_fill(card_rows rows, uint32_t value, uint32_t item_bytes, card_stream *stream);
