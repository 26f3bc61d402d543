/* A warp's virtual time. */
#pragma once

#include "run.h"

static inline uint64_t warp_ns(const struct run *k, const struct warp_common *w) {
    const double mhz = k->launch->clock_mhz > 0 ? k->launch->clock_mhz : 1000.0;
    return k->launch->start_ns + w->waited_ns + (uint64_t)((double)w->cycles * 1000.0 / mhz);
}

static inline uint64_t warp_cycles(const struct run *k, const struct warp_common *w) {
    return k->launch->start_cycles + w->cycles + (uint64_t)((double)w->waited_ns * k->launch->clock_mhz / 1000.0);
}
