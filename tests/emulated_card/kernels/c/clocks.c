#include "clocks.h"

uint64_t read_special(const struct run *k, const struct warp_common *w, enum special which) {
    const uint64_t step = k->launch->timer_step_ns ? k->launch->timer_step_ns : 1;
    const uint64_t sms = k->launch->sm_count ? k->launch->sm_count : 1;
    switch (which) {
        case GLOBALTIMER: return warp_ns(k, w) / step * step;
        case GLOBALTIMER_LO: return (uint32_t)(warp_ns(k, w) / step * step);
        case GLOBALTIMER_HI: return warp_ns(k, w) / step * step >> 32;
        case CLOCK: return (uint32_t)warp_cycles(k, w);
        case CLOCK_HI: return warp_cycles(k, w) >> 32;
        case CLOCK64: return warp_cycles(k, w);
        case SMID: return k->block % sms;
        case NSMID: return sms;
        default: return 0;
    }
}

