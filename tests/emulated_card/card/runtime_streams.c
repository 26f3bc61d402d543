#include "runtime.h"

#include <stdlib.h>

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
    (void)priority;
    ENTER(CARD_CALL_NS);
    *stream = (cudaStream_t)card_stream_new(card_current_device(), flags);
    LEAVE(cudaSuccess);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    ENTER(0);
    STREAM(stream, handle);
    card_stream_free(stream);
    LEAVE(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    ENTER(CARD_WAIT_CALL_NS);
    STREAM(stream, handle);
    LEAVE(card_wait_stream(stream));
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
    ENTER(CARD_WAIT_CALL_NS);
    STREAM(stream, handle);
    LEAVE(card_query_stream(stream));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    ENTER(CARD_CALL_NS);
    *event = (cudaEvent_t)card_event_new(flags);
    LEAVE(cudaSuccess);
}

cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    ENTER(0);
    card_event_free((card_event *)event);
    LEAVE(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
    ENTER(CARD_RECORD_NS);
    STREAM(stream, handle);
    LEAVE(card_event_record((card_event *)event, stream));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags) {
    (void)flags;
    ENTER(CARD_CALL_NS);
    STREAM(stream, handle);
    LEAVE(card_event_wait_for((card_event *)event, stream));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    ENTER(CARD_WAIT_CALL_NS);
    LEAVE(card_event_query((card_event *)event));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    ENTER(CARD_WAIT_CALL_NS);
    LEAVE(card_event_synchronize((card_event *)event));
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
    ENTER(CARD_CALL_NS);
    LEAVE(card_event_elapsed((card_event *)start, (card_event *)end, milliseconds));
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode) {
    ENTER(CARD_CALL_NS);
    STREAM(stream, handle);
    LEAVE(card_capture_begin(stream, mode == cudaStreamCaptureModeRelaxed));
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status) {
    ENTER(CARD_CALL_NS);
    STREAM(stream, handle);
    *status = !stream->capture           ? cudaStreamCaptureStatusNone
              : stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                         : cudaStreamCaptureStatusActive;
    LEAVE(cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph) {
    ENTER(CARD_CALL_NS);
    STREAM(stream, handle);
    LEAVE(card_capture_end(stream, (card_graph **)graph));
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *instance, cudaGraph_t graph, unsigned long long flags) {
    (void)flags;
    ENTER(CARD_CALL_NS);
    ++((card_graph *)graph)->references;
    *instance = (cudaGraphExec_t)graph;
    LEAVE(cudaSuccess);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t instance, cudaStream_t handle) {
    ENTER(CARD_LAUNCH_CALL_NS);
    STREAM(stream, handle);
    LEAVE(card_graph_launch((card_graph *)instance, stream));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t instance) {
    ENTER(0);
    card_graph_release((card_graph *)instance);
    LEAVE(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    ENTER(0);
    card_graph_release((card_graph *)graph);
    LEAVE(cudaSuccess);
}
