#include "copies.h"

#include "activity.h"
#include "devices.h"
#include "memory.h"
#include "settings.h"

#include <stdlib.h>
#include <string.h>

enum { INVALID_VALUE = 1, STAGED_AT_MOST = 64 * 1024 };

typedef struct copy {
    card_work work;
    uint64_t to, from, bytes;
    int value;    /* of a fill; -1: a copy */
    char *staged; /* what pageable memory held at the call */
} copy;

typedef struct moved {
    card_dram dram;
    uint64_t l2_bytes, bus_bytes;
} moved;

static bool on_card(uint64_t address, int *device) {
    const card_range range = card_range_of(address);
    *device = range.device;
    return range.kind == CARD_ON_DEVICE;
}

static bool on_host(uint64_t address) {
    int device;
    return !on_card(address, &device);
}

/* Sends one side through its card's L2, or over the bus. Returns the bytes that took the bus. */
static uint64_t account_for(uint64_t address, uint64_t bytes, enum card_l2_access access, moved *sum) {
    int device;
    if (!on_card(address, &device)) return bytes;
    card_l2_range(card_device(device)->l2, address, bytes, access, &sum->dram);
    sum->l2_bytes += bytes;
    return 0;
}

static int run_copy(card_work *work, card_stream *stream, double start_ns, double *end_ns) {
    const copy *this = (const copy *)work;
    const card_settings *settings = card_settings_now();
    moved sum = {{0, 0}, 0, 0};
    const bool fills = this->value >= 0;
    if (this->bytes) {
        char *target = card_reach(this->to, this->bytes);
        const char *source = fills || this->staged ? this->staged : card_reach(this->from, this->bytes);
        if (!target || (!fills && !source)) return 700; /* freed since */
        int to_device, from_device;
        const bool peers =
            !fills && on_card(this->to, &to_device) && on_card(this->from, &from_device) && to_device != from_device;
        if (fills) memset(target, this->value, this->bytes);
        else {
            memmove(target, source, this->bytes);
            const uint64_t bus = this->staged ? this->bytes : account_for(this->from, this->bytes, CARD_L2_READ, &sum);
            sum.bus_bytes += peers ? this->bytes : bus;
        }
        const uint64_t bus = account_for(this->to, this->bytes, CARD_L2_WRITE, &sum);
        if (!fills) sum.bus_bytes += bus;
    }
    *end_ns = start_ns + card_copy_ns(&settings->model, &settings->pace, &sum.dram, sum.l2_bytes, sum.bus_bytes);
    card_activity_note(fills ? CARD_MEMSET : CARD_MEMCPY, NULL, stream, start_ns, *end_ns);
    card_publish_work(stream->device);
    return 0;
}

static void drop_copy(card_work *work) { free(((copy *)work)->staged); }

static bool valid(uint64_t address, uint64_t bytes) { return !bytes || card_reach(address, bytes) != NULL; }

static copy *new_copy(uint64_t to, uint64_t from, uint64_t bytes, int value) {
    copy *asked = card_work_new(sizeof *asked, run_copy, drop_copy);
    asked->to = to, asked->from = from, asked->bytes = bytes, asked->value = value;
    return asked;
}

int card_copy(uint64_t to, uint64_t from, uint64_t bytes, card_stream *stream, int asynchronous) {
    if (!valid(to, bytes) || !valid(from, bytes)) return INVALID_VALUE;
    const bool pageable_source = card_range_of(from).kind == CARD_NOWHERE;
    const bool pageable_target = card_range_of(to).kind == CARD_NOWHERE;
    copy *asked = new_copy(to, from, bytes, -1);
    if (pageable_source && (bytes <= STAGED_AT_MOST || stream->capture))
        asked->staged = memcpy(malloc(bytes + 1), (const void *)from, bytes);
    const int status = card_queue(stream, &asked->work);
    if (status || stream->capture) return status;
    const bool both_on_card = !on_host(to) && !on_host(from);
    const bool waits = pageable_target || (pageable_source && !asked->staged) || (!asynchronous && !both_on_card);
    return waits ? card_wait_stream(stream) : 0;
}

int card_fill(uint64_t to, uint8_t value, uint64_t bytes, card_stream *stream) {
    if (!valid(to, bytes)) return INVALID_VALUE;
    return card_queue(stream, &new_copy(to, 0, bytes, value)->work);
}
