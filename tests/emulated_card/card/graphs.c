#include "streams.h"

#include <stdlib.h>

enum { CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_IMPLICIT = 906 };

int card_capture_begin(card_stream *stream, bool may_allocate) {
    if (stream->legacy) return CAPTURE_UNSUPPORTED;
    stream->capture = calloc(1, sizeof *stream->capture);
    stream->capture->references = 1;
    stream->capture->may_allocate = may_allocate;
    return 0;
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
    for (card_stream *other = card_streams(); other; other = other->next)
        if (other->capture == captured) {
            other->capture = NULL;
            if (other != stream) --captured->references;
        }
    *graph = captured;
    if (!captured->invalid) return 0;
    card_graph_release(captured);
    *graph = NULL;
    return CAPTURE_INVALIDATED;
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
