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

void vote(enum vote mode, uint32_t active, const uint32_t *predicate, const uint32_t *members, uint32_t *out) {
    const uint32_t truth = mask_of(predicate) & active, rest = ~truth & active;
    LANES {
        const bool every = !(rest & members[l]), some = truth & members[l];
        out[l] = mode == VOTE_ALL ? every : mode == VOTE_ANY ? some : every || !some;
    }
}

void ballot(uint32_t active, const uint32_t *predicate, const uint32_t *members, uint32_t *out) {
    const uint32_t truth = mask_of(predicate) & active;
    LANES out[l] = truth & members[l];
}

void match_any(uint32_t active, const uint64_t *value, const uint32_t *members, uint32_t *out) {
    LANES {
        uint32_t alike = 0;
        for (int other = 0; other < 32; ++other) alike |= (uint32_t)(value[other] == value[l]) << other;
        out[l] = alike & active & members[l];
    }
}

void match_all(
    uint32_t active, const uint64_t *value, const uint32_t *members, uint32_t *out, uint32_t *agree) {
    match_any(active, value, members, out);
    LANES {
        agree[l] = out[l] == (active & members[l]);
        out[l] = agree[l] ? active & members[l] : 0;
    }
}

void reduce(
    enum reduction mode, bool is_signed, uint32_t active, const uint32_t *value, const uint32_t *members,
    uint32_t *out) {
    const uint32_t flip = is_signed ? 0x80000000u : 0; /* orders signed numbers as unsigned ones */
    LANES {
        uint32_t total = mode == REDUCE_AND ? ~0u : mode == REDUCE_MIN ? ~0u : 0;
        for (uint32_t rest = active & members[l]; rest; rest &= rest - 1) {
            const uint32_t x = value[__builtin_ctz(rest)], y = x ^ flip;
            total = mode == REDUCE_ADD ? total + x : mode == REDUCE_AND ? total & x : mode == REDUCE_OR ? total | x
                  : mode == REDUCE_XOR ? total ^ x : mode == REDUCE_MIN ? (y < total ? y : total)
                  : y > total ? y : total;
        }
        out[l] = mode == REDUCE_MIN || mode == REDUCE_MAX ? total ^ flip : total;
    }
}

