#include "devices.h"
#include "settings.h"
#include "streams.h"

#include <math.h>
#include <stdlib.h>

enum { STOPPED = -1, NOT_READY = 600, INVALID_HANDLE = 400, CAPTURED_EVENT = 907, EVENT_NS = 500, DISABLE_TIMING = 2 };

/* What a record notes outlives the event's next record, since other streams may wait for it. */

typedef struct record {
    card_work work;
    card_stream *stream;
    uint64_t number;
    const card_graph *capture; /* that it is part of, if any: then it is done at no time */
    double ns, told_ns; /* as it was, and as the card's clock steps */
    bool done;
} record;

struct card_event {
    unsigned flags;
    record *last;
};

static int run_record(card_work *work, card_stream *stream, double start_ns, double *end_ns) {
    record *noted = (record *)work;
    (void)stream;
    *end_ns = noted->ns = start_ns + EVENT_NS;
    const double step = card_settings_now()->event_step_ns;
    noted->told_ns = step > 0 ? step * floor(noted->ns / step) : noted->ns;
    noted->done = true;
    return 0;
}

card_event *card_event_new(unsigned flags) {
    card_event *event = calloc(1, sizeof *event);
    event->flags = flags;
    return event;
}

void card_event_free(card_event *event) {
    if (event->last) card_work_release(&event->last->work);
    free(event);
}

int card_event_record(card_event *event, card_stream *stream) {
    if (event->last) card_work_release(&event->last->work);
    record *noted = event->last = card_work_new(sizeof *noted, run_record, NULL);
    noted->stream = stream;
    noted->capture = stream->capture;
    if (stream->capture) { /* a graph's nodes run in order here, so this adds nothing */
        noted->number = stream->captured;
        noted->done = true;
        return 0;
    }
    noted->work.references = 2;
    card_queue(stream, &noted->work);
    noted->number = card_last_queued();
    return 0;
}

typedef struct wait {
    card_work work;
    record *for_this;
} wait;

static int run_wait(card_work *work, card_stream *stream, double start_ns, double *end_ns) {
    record *noted = ((wait *)work)->for_this;
    (void)stream;
    const int status = noted->done ? 0 : card_run_until(noted->stream, noted->number);
    *end_ns = noted->ns > start_ns ? noted->ns : start_ns;
    return status;
}

static void drop_wait(card_work *work) { card_work_release(&((wait *)work)->for_this->work); }

int card_event_wait_for(card_event *event, card_stream *stream) {
    if (!event->last) return 0;
    card_stream *other = event->last->stream;
    if (event->last->capture && other->capture == event->last->capture && other != stream) {
        if (!stream->capture) card_capture_join(stream, other->capture);
        else ++stream->captured; /* what it waited for has to be waited for in turn */
        if (event->last->number > other->joined) other->joined = event->last->number;
    }
    if (stream->capture) return 0;
    wait *waiting = card_work_new(sizeof *waiting, run_wait, drop_wait);
    waiting->for_this = event->last;
    ++event->last->work.references;
    return card_queue(stream, &waiting->work);
}

/* Returns CUDA's error for what a capture recorded: it happens in no stream, and asking for it ends the capture. */
static int refuse_captured(card_event *event) {
    for (card_stream *stream = card_streams(); stream; stream = stream->next)
        if (stream->capture == event->last->capture) stream->capture->invalid = true;
    return CAPTURED_EVENT;
}

static int bring_about(card_event *event, bool waits) {
    card_somebody_waits_now(waits);
    if (event->last && event->last->capture) return refuse_captured(event);
    if (!event->last || event->last->done) return card_lost();
    return card_run_until(event->last->stream, event->last->number);
}

int card_event_query(card_event *event) {
    const int status = bring_about(event, false);
    if (status) return status == STOPPED ? NOT_READY : status;
    return !event->last || event->last->ns <= card_host_ns() ? 0 : NOT_READY;
}

int card_event_synchronize(card_event *event) {
    const int status = bring_about(event, true);
    if (!status && event->last) card_host_waits_until(event->last->ns);
    return status;
}

int card_event_elapsed(card_event *start, card_event *end, float *milliseconds) {
    if (!start->last || !end->last || (start->flags | end->flags) & DISABLE_TIMING) return INVALID_HANDLE;
    if (start->last->capture || end->last->capture) return CAPTURED_EVENT;
    if (!start->last->done || !end->last->done) return NOT_READY;
    *milliseconds = (float)((end->last->told_ns - start->last->told_ns) * 1e-6);
    return 0;
}
