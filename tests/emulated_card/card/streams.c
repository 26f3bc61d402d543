#include "streams.h"

#include "devices.h"
#include "neighbour.h"
#include "settings.h"

#include <stdlib.h>
#include <string.h>

struct card_queued {
    struct card_queued *next;
    card_work *work;
    uint64_t number; /* of all that was ever queued, on any stream: dependencies point to smaller ones */
    double queued_ns;
};

static card_stream *streams;
static uint64_t last_number;
static bool patient;

enum { STOPPED = -1, NOT_READY = 600, CAPTURE_UNSUPPORTED = 900, EVERYTHING = -1 };

void *card_work_new(uint64_t bytes, card_run_work *run, card_drop_work *drop) {
    card_work *work = calloc(1, bytes);
    work->references = 1;
    work->run = run;
    work->drop = drop;
    return work;
}

void card_work_release(card_work *work) {
    if (--work->references) return;
    if (work->drop) work->drop(work);
    free(work);
}

card_stream *card_stream_new(int device, unsigned flags) {
    card_stream *stream = calloc(1, sizeof *stream);
    stream->device = device;
    stream->waits_for_legacy = !(flags & 1);
    stream->next = streams;
    return streams = stream;
}

static card_stream *default_stream(int device, bool legacy) {
    static card_stream *found[CARD_DEVICES_AT_MOST][2];
    card_stream **stream = &found[device][legacy];
    if (!*stream) {
        *stream = card_stream_new(device, 0);
        (*stream)->legacy = legacy;
    }
    return *stream;
}

card_stream *card_stream_of(const void *handle) {
    const uint64_t number = (uint64_t)handle;
    if (number <= 2) return default_stream(card_current_device(), number != 2);
    for (card_stream *stream = streams; stream; stream = stream->next)
        if (stream == handle) return stream;
    return NULL;
}

int card_queue(card_stream *stream, card_work *work) {
    if (stream->capture) {
        card_graph *graph = stream->capture;
        graph->works = realloc(graph->works, (graph->count + 1) * sizeof *graph->works);
        graph->works[graph->count++] = work;
        ++stream->captured;
        return 0;
    }
    const int refused = card_refuse_legacy(stream);
    if (refused) {
        card_work_release(work);
        return refused;
    }
    struct card_queued *queued = calloc(1, sizeof *queued);
    queued->work = work;
    queued->number = ++last_number;
    queued->queued_ns = card_host_ns();
    if (stream->last) stream->last->next = queued;
    else stream->first = queued;
    stream->last = queued;
    return 0;
}

static void run_earlier(double ns);

/* The legacy default stream and the blocking streams of its device wait for each other. */
static int run_before(card_stream *stream, uint64_t number, double *start_ns) {
    if (!stream->legacy && !stream->waits_for_legacy) return 0;
    for (card_stream *other = streams; other; other = other->next) {
        if (other == stream || other->device != stream->device) continue;
        if (stream->legacy ? !other->waits_for_legacy : !other->legacy) continue;
        const int status = card_run_until(other, number);
        if (status) return status;
        if (other->end_ns > *start_ns) *start_ns = other->end_ns;
    }
    return 0;
}

static double start_of(const card_stream *stream) {
    return stream->first->queued_ns > stream->end_ns ? stream->first->queued_ns : stream->end_ns;
}

/* Runs the first work of a stream, and before it what other streams would have begun by then. */
static int run_first(card_stream *stream) {
    struct card_queued *queued = stream->first;
    double start = start_of(stream), end;
    stream->running = true;
    run_earlier(start);
    int status = run_before(stream, queued->number, &start);
    start = end = card_turn_begins(start);
    if (!status) status = queued->work->run(queued->work, stream, start, &end);
    stream->running = false;
    if (status == STOPPED) return status;
    if (status) card_lose_context(status);
    else stream->end_ns = card_turn_ends(start, end);
    stream->first = queued->next;
    if (!stream->first) stream->last = NULL;
    card_work_release(queued->work);
    free(queued);
    return status;
}

/* What other streams would have begun before then: nobody waits for it, but it may have left something in memory. */
static void run_earlier(double ns) {
    const bool waited = patient;
    patient = false;
    for (card_stream *other = streams; other; other = other->next)
        while (!other->running && other->first && start_of(other) < ns && !card_lost() && !run_first(other)) continue;
    patient = waited;
}

int card_run_until(card_stream *stream, uint64_t number) {
    while (stream->first && stream->first->number <= number) {
        if (card_lost()) return card_lost();
        const int status = stream->running ? STOPPED /* what asks was begun too early */ : run_first(stream);
        if (status) return status;
    }
    return card_lost();
}

bool card_somebody_waits(void) { return patient; }
void card_somebody_waits_now(bool waits) { patient = waits; }
uint64_t card_last_queued(void) { return last_number; }
card_stream *card_streams(void) { return streams; }

int card_wait_stream(card_stream *stream) {
    if (stream->capture) {
        stream->capture->invalid = true;
        return CAPTURE_UNSUPPORTED;
    }
    patient = true;
    const int status = card_run_until(stream, (uint64_t)EVERYTHING);
    card_host_waits_until(stream->end_ns);
    return status;
}

int card_wait_device(int device) {
    int status = card_lost();
    for (card_stream *stream = streams; stream && !status; stream = stream->next)
        if (stream->device == device) status = card_wait_stream(stream);
    return status;
}

int card_query_stream(card_stream *stream) {
    patient = false;
    const int status = card_run_until(stream, (uint64_t)EVERYTHING);
    if (status) return status == STOPPED ? NOT_READY : status;
    return stream->end_ns <= card_host_ns() ? 0 : NOT_READY;
}

void card_stream_free(card_stream *stream) {
    if (!card_lost()) card_wait_stream(stream); /* what it has still runs; the host need not wait, but may */
    for (card_stream **at = &streams; *at; at = &(*at)->next)
        if (*at == stream) {
            *at = stream->next;
            free(stream);
            return;
        }
}
