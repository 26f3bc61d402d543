#include "neighbour.h"

#include "settings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NANOSECONDS = 1000 };

typedef struct neighbour {
    double busy_ns, period_ns; /* busy 0: there is none */
} neighbour;

static neighbour read_neighbour(void) {
    neighbour found = {0, 1};
    const char *text = card_setting("NEIGHBOUR", NULL);
    if (!text) return found;
    char *end;
    found.busy_ns = strtod(text, &end) * NANOSECONDS;
    found.period_ns = *end == '/' ? strtod(end + 1, &end) * NANOSECONDS : 0;
    if (*end || !(found.busy_ns >= 0 && found.busy_ns < found.period_ns)) {
        fprintf(stderr, "emulated card: EMULATED_CARD_NEIGHBOUR=%s is no busy/period in microseconds\n", text);
        exit(2);
    }
    return found;
}

static const neighbour *neighbour_now(void) {
    static neighbour known;
    static int read;
    if (!read) {
        known = read_neighbour();
        read = 1;
    }
    return &known;
}

/* When the slice begins that lies in the period of this number. */
static double slice_ns(const neighbour *other, double period) {
    const uint64_t stream = card_hash("neighbour") ^ card_process_number();
    return (period + card_uniform(stream, (uint64_t)period) * (1 - other->busy_ns / other->period_ns)) *
           other->period_ns;
}

double card_turn_begins(double ns) {
    const neighbour *other = neighbour_now();
    if (other->busy_ns <= 0) return ns;
    const double begins = slice_ns(other, floor(ns / other->period_ns));
    return ns >= begins && ns < begins + other->busy_ns ? begins + other->busy_ns : ns;
}

double card_turn_ends(double start_ns, double end_ns) {
    const neighbour *other = neighbour_now();
    if (other->busy_ns <= 0) return end_ns;
    for (double period = floor(start_ns / other->period_ns); period * other->period_ns < end_ns; ++period) {
        const double begins = slice_ns(other, period);
        if (begins >= start_ns && begins < end_ns) end_ns += other->busy_ns;
    }
    return end_ns;
}
