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
    card_rows rows;
    uint32_t value, item_bytes; /* item_bytes 0: a copy */
    char *staged;               /* what pageable memory held at the call */
} copy;

typedef struct moved {
    card_dram dram;
    uint64_t l2_bytes, bus_bytes;
} moved;

static bool on_card(uint64_t address, int *device) {
    const card_range range = card_range_of(address);
    *device = range.device;
    return range.kind == CARD_ON_DEVICE || range.kind == CARD_MANAGED;
}

static bool on_host(uint64_t address) {
    int device;
    return !on_card(address, &device);
}

/* Sends one side of a row through its card's L2, or over the bus. Returns the bytes that took the bus. */
static uint64_t account_for(uint64_t address, uint64_t bytes, enum card_l2_access access, moved *sum) {
    int device;
    if (!on_card(address, &device)) return bytes;
    card_l2_range(card_device(device)->l2, address, bytes, access, &sum->dram);
    sum->l2_bytes += bytes;
    return 0;
}

static void fill_row(char *to, uint64_t width, uint32_t value, uint32_t item_bytes) {
    if (item_bytes == 1) {
        memset(to, (int)value, width);
        return;
    }
    for (uint64_t at = 0; at < width; at += item_bytes) memcpy(to + at, &value, item_bytes);
}

static int run_copy(card_work *work, card_stream *stream, double start_ns, double *end_ns) {
    const copy *this = (const copy *)work;
    const card_rows *rows = &this->rows;
    const card_settings *settings = card_settings_now();
    moved sum = {{0, 0}, 0, 0};
    int to_device, from_device;
    const bool peers = !this->item_bytes && on_card(rows->to, &to_device) && on_card(rows->from, &from_device)
                       && to_device != from_device;
    for (uint64_t row = 0; row < rows->height && rows->width; ++row) {
        const uint64_t to = rows->to + row * rows->to_pitch, from = rows->from + row * rows->from_pitch;
        char *target = card_reach(to, rows->width);
        if (!target) return 700; /* freed since */
        if (this->item_bytes) {
            fill_row(target, rows->width, this->value, this->item_bytes);
        } else {
            const char *source = this->staged ? this->staged + row * rows->width : card_reach(from, rows->width);
            if (!source) return 700;
            memmove(target, source, rows->width);
            uint64_t bus = this->staged ? rows->width : account_for(from, rows->width, CARD_L2_READ, &sum);
            if (peers) bus = rows->width;
            sum.bus_bytes += bus;
        }
        const uint64_t bus = account_for(to, rows->width, CARD_L2_WRITE, &sum);
        if (!this->item_bytes) sum.bus_bytes += bus;
    }
    *end_ns = start_ns + card_copy_ns(&settings->model, &settings->pace, &sum.dram, sum.l2_bytes, sum.bus_bytes);
    card_activity_note(this->item_bytes ? CARD_MEMSET : CARD_MEMCPY, NULL, stream, start_ns, *end_ns);
    card_publish_work(stream->device);
    return 0;
}

static void drop_copy(card_work *work) { free(((copy *)work)->staged); }

static uint64_t reach_of(uint64_t pitch, uint64_t width, uint64_t height) {
    return height ? pitch * (height - 1) + width : 0;
}

static bool valid(uint64_t address, uint64_t bytes) { return !bytes || card_reach(address, bytes) != NULL; }

int card_copy(card_rows rows, card_stream *stream, int asynchronous) {
    const uint64_t bytes = rows.width * rows.height;
    if (!valid(rows.to, reach_of(rows.to_pitch, rows.width, rows.height))) return INVALID_VALUE;
    if (!valid(rows.from, reach_of(rows.from_pitch, rows.width, rows.height))) return INVALID_VALUE;
    const bool pageable_source = card_range_of(rows.from).kind == CARD_NOWHERE;
    const bool pageable_target = card_range_of(rows.to).kind == CARD_NOWHERE;
    copy *asked = card_work_new(sizeof *asked, run_copy, drop_copy);
    asked->rows = rows;
    if (pageable_source && (bytes <= STAGED_AT_MOST || stream->capture)) {
        asked->staged = malloc(bytes + 1);
        for (uint64_t row = 0; row < rows.height; ++row)
            memcpy(asked->staged + row * rows.width, (const char *)rows.from + row * rows.from_pitch, rows.width);
    }
    const int status = card_queue(stream, &asked->work);
    if (status || stream->capture) return status;
    const bool both_on_card = !on_host(rows.to) && !on_host(rows.from);
    const bool waits = pageable_target || (pageable_source && !asked->staged) || (!asynchronous && !both_on_card);
    return waits ? card_wait_stream(stream) : 0;
}

int card_fill(card_rows rows, uint32_t value, uint32_t item_bytes, card_stream *stream) {
    if (!valid(rows.to, reach_of(rows.to_pitch, rows.width, rows.height))) return INVALID_VALUE;
    if (rows.width % item_bytes) return INVALID_VALUE;
    copy *asked = card_work_new(sizeof *asked, run_copy, drop_copy);
    asked->rows = rows;
    asked->value = value;
    asked->item_bytes = item_bytes;
    return card_queue(stream, &asked->work);
}
