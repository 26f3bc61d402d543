/* What ran, as CUPTI records it: kept from the call on that enables its kind. */
#pragma once

#include "streams.h"

enum { CARD_MEMCPY = 1, CARD_MEMSET = 2, CARD_KERNEL = 10 }; /* as CUpti_ActivityKind has them */

typedef struct card_activity {
    uint64_t start_ns, end_ns;
    int32_t kind, device;
    uint64_t stream;
    char name[128];
} card_activity;

/* name: NULL for what is no kernel. */
void card_activity_note(int kind, const char *name, const card_stream *stream, double start_ns, double end_ns);
