/* Streams are queues of work. Nothing runs at launch, or a stream that is held back would hang: work runs when somebody
 * waits for it, with all that it depends on, in virtual time. It starts at the later of its queueing and its
 * predecessor's end. Streams have the whole card each: that they share its bandwidth is not modelled. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct card_stream card_stream;

/* Something to run. Shared by a graph and the streams that it is launched on; dropped with its last reference. */
typedef struct card_work {
    int references;
    /* Returns 0, CUDA's error, or CARD_STOPPED where it has to wait for the host and nobody waits for it. */
    int (*run)(struct card_work *work, card_stream *stream, double start_ns, double *end_ns);
    void (*drop)(struct card_work *work);
} card_work;

typedef int card_run_work(card_work *work, card_stream *stream, double start_ns, double *end_ns);
typedef void card_drop_work(card_work *work);
void *card_work_new(uint64_t bytes, card_run_work *run, card_drop_work *drop);
void card_work_release(card_work *work);

struct card_stream {
    int device;
    bool legacy, waits_for_legacy, running;
    struct card_queued *first, *last;
    double end_ns; /* when what has run was done */
    struct card_graph *capture;
    uint64_t captured, joined; /* what it put into its capture, and how much of that another stream has waited for */
    card_stream *next;
};

card_stream *card_stream_new(int device, unsigned flags);
void card_stream_free(card_stream *stream);
/* What a handle stands for on the current device: 0 and 1 are the legacy default stream, 2 is the thread's. NULL: it
 * is none. */
card_stream *card_stream_of(const void *handle);

/* Puts work behind what the stream has, or into the graph that it captures; takes over the reference. */
int card_queue(card_stream *stream, card_work *work);

/* Waits for a stream, or for every stream of a device. Returns CUDA's error. */
int card_wait_stream(card_stream *stream);
int card_wait_device(int device);
/* Whether all is done by now; runs what can be run without waiting for the host. 600 where not. */
int card_query_stream(card_stream *stream);
/* Runs what was queued on the stream up to this number, and what that waits for. Returns CUDA's error, or
 * CARD_STOPPED. */
int card_run_until(card_stream *stream, uint64_t number);
uint64_t card_last_queued(void);
card_stream *card_streams(void);
void card_somebody_waits_now(bool waits);
/* Whether the kernel that runs now runs for somebody who waits. */
bool card_somebody_waits(void);

typedef struct card_event card_event;
card_event *card_event_new(unsigned flags);
void card_event_free(card_event *event);
int card_event_record(card_event *event, card_stream *stream);
int card_event_wait_for(card_event *event, card_stream *stream);
int card_event_query(card_event *event);
int card_event_synchronize(card_event *event);
int card_event_elapsed(card_event *start, card_event *end, float *milliseconds);

/* Graphs: the work that was queued while a stream captured, in that order. */
typedef struct card_graph {
    card_work **works;
    uint64_t count;
    int references;
    bool invalid, may_allocate;
} card_graph;
int card_capture_begin(card_stream *stream, bool may_allocate);
/* What a capture does not allow, which ends it: an allocation, work on the legacy stream beside a blocking one. */
int card_refuse_allocation(void);
int card_refuse_legacy(const card_stream *stream);
void card_capture_join(card_stream *stream, card_graph *graph);
int card_capture_end(card_stream *stream, card_graph **graph);
void card_graph_release(card_graph *graph);
int card_graph_launch(card_graph *graph, card_stream *stream);
