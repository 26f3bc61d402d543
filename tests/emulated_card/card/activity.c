#include "activity.h"

#include <stdio.h>
#include <stdlib.h>

static unsigned enabled; /* a bit for each kind */
static card_activity *noted;
static uint64_t count, room;

void card_activity_enable(int kind, int is_on) {
    if (is_on) enabled |= 1u << kind;
    else enabled &= ~(1u << kind);
}

void card_activity_note(int kind, const char *name, const card_stream *stream, double start_ns, double end_ns) {
    if (!(enabled >> kind & 1)) return;
    if (count == room) noted = realloc(noted, (room = 2 * room + 64) * sizeof *noted);
    card_activity *one = &noted[count++];
    *one = (card_activity){(uint64_t)start_ns, (uint64_t)end_ns, kind, stream->device, (uint64_t)stream, ""};
    if (name) snprintf(one->name, sizeof one->name, "%s", name);
}

/* Hands over the oldest record; returns whether there was one. */
int card_activity_take(card_activity *into) {
    static uint64_t taken;
    if (taken == count) {
        taken = count = 0;
        return 0;
    }
    *into = noted[taken++];
    return 1;
}
