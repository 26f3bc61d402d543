#include "streams.h"

#include <stdlib.h>

enum { CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_UNJOINED = 904, CAPTURE_IMPLICIT = 906 };

int card_capture_begin(card_stream *stream, bool may_allocate) {
    if (stream->legacy) return CAPTURE_UNSUPPORTED;
    card_graph *graph = calloc(1, sizeof *graph);
    graph->may_allocate = may_allocate;
    card_capture_join(stream, graph);
    return 0;
}

void card_capture_join(card_stream *stream, card_graph *graph) {
    stream->capture = graph;
    stream->captured = stream->joined = 0;
    ++graph->references;
}

int card_refuse_allocation(void) {
    int status = 0;
    for (card_stream *stream = card_streams(); stream; stream = stream->next)
        if (stream->capture && !stream->capture->may_allocate) {
            stream->capture->invalid = true;
            status = CAPTURE_UNSUPPORTED;
        }
    return status;
}

int card_refuse_legacy(const card_stream *stream) {
    int status = 0;
    for (card_stream *other = card_streams(); stream->legacy && other; other = other->next)
        if (other->capture && other->waits_for_legacy && other->device == stream->device) {
            other->capture->invalid = true;
            status = CAPTURE_IMPLICIT;
        }
    return status;
}

int card_capture_end(card_stream *stream, card_graph **graph) {
    card_graph *captured = stream->capture;
    if (!captured) return 1;
    int status = captured->invalid ? CAPTURE_INVALIDATED : 0;
    for (card_stream *other = card_streams(); other; other = other->next)
        if (other->capture == captured) {
            other->capture = NULL;
            if (other == stream) continue;
            --captured->references;
            if (!status && other->captured > other->joined) status = CAPTURE_UNJOINED;
        }
    *graph = captured;
    if (!status) return 0;
    card_graph_release(captured);
    *graph = NULL;
    return status;
}

void card_graph_release(card_graph *graph) {
    if (--graph->references) return;
    for (uint64_t i = 0; i < graph->count; ++i) card_work_release(graph->works[i]);
    free(graph->works);
    free(graph);
}

int card_graph_launch(card_graph *graph, card_stream *stream) {
    for (uint64_t i = 0; i < graph->count; ++i) {
        ++graph->works[i]->references;
        card_queue(stream, graph->works[i]);
    }
    return 0;
}
