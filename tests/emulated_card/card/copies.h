/* Copies and fills. */
#pragma once

#include "streams.h"

#include <stdint.h>

/* Returns CUDA's error. `asynchronous` is what the caller asked for; memory of the host that is not pinned is read at
 * once, or waited for, as CUDA does ("API synchronization behavior"). */
int card_copy(uint64_t to, uint64_t from, uint64_t bytes, card_stream *stream, int asynchronous);
int card_fill(uint64_t to, uint8_t value, uint64_t bytes, card_stream *stream);
