/* What the runtime's entries share. They are linked into CuPy's own module, where ../cudart.py makes them jump here. */
#pragma once

#include "devices.h"
#include "streams.h"

#include <cuda_runtime_api.h>

/* Enters, or returns the error after which nothing works any more. */
#define ENTER(ns) do { const int lost_ = card_begin(ns); if (lost_) return (cudaError_t)card_leave(lost_); } while (0)
#define LEAVE(status) return (cudaError_t)card_leave(status)
/* The stream of a handle; leaves where there is none. */
#define STREAM(name, handle) \
    card_stream *name = card_stream_of(handle); \
    if (!name) LEAVE(cudaErrorInvalidResourceHandle)

/* card_enter, and what is wrong from the start: no driver that is new enough, no device. */
int card_begin(double host_ns);
