#include "streams.h"

#include <stdlib.h>

enum { CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901 };

int card_capture_begin(card_stream *stream) {
    if (stream->legacy) return CAPTURE_UNSUPPORTED;
    stream->capture = calloc(1, sizeof *stream->capture);
    stream->capture->references = 1;
    return 0;
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
