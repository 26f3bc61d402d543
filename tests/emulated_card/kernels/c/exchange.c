#include "exchange.h"

void shuffle(
    enum shuffle mode, const uint32_t *value, const uint32_t *by, const uint32_t *control, uint32_t *out,
    uint32_t *inside) {
    LANES {
        const int segment = control[l] >> 8 & 31, clamp = control[l] & 31, step = by[l] & 31;
        const int lowest = l & segment, highest = lowest | (clamp & ~segment);
        const int source = mode == SHUFFLE_UP ? l - step : mode == SHUFFLE_DOWN ? l + step
                         : mode == SHUFFLE_BFLY ? l ^ step : lowest | (step & ~segment);
        inside[l] = mode == SHUFFLE_UP ? source >= highest : source <= highest; /* with `up` it is a lower bound */
        out[l] = value[inside[l] ? source & 31 : l];
    }
}

uint32_t mask_of(const uint32_t *predicate) {
    uint32_t mask = 0;
    LANES mask |= (predicate[l] & 1) << l;
    return mask;
}
