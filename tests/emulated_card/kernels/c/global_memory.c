#include "global_memory.h"

#include "clocks.h"
#include "own_memory.h"

int fail(struct run *k, int status, uint64_t address) {
    if (!k->status) {
        k->status = status;
        k->account.error_address = address;
        k->account.error_line = k->site_line;
    }
    return k->status;
}


/* The window that holds [low, high), or NULL. hint: where the same instruction found its last one. */
static inline const card_window *window_of(const struct run *k, uint64_t low, uint64_t high, uint32_t *hint) {
    const card_window *windows = k->launch->windows;
    uint32_t count = k->launch->window_count;
    if (*hint < count && windows[*hint].first <= low && high <= windows[*hint].end) return &windows[*hint];
    uint32_t from = 0;
    while (count) { /* the last window that begins at or before low */
        const uint32_t half = count / 2;
        if (windows[from + half].first <= low) {
            from += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    if (from == 0 || high > windows[from - 1].end || high < low) return NULL;
    *hint = from - 1;
    return &windows[from - 1];
}

/* Counts the request's sectors and sends it through the L2, or over the bus. */
void account_for(struct run *k, const card_window *window, const struct request *r) {
    const bool own = window->kind == CARD_DEVICE;
    uint64_t sectors;
    if (r->shape != SCATTERED) {
        const uint64_t first = r->address[0], end = r->address[r->shape == UNIT ? 31 : 0] + r->width;
        sectors = ((end - 1) >> 5) - (first >> 5) + 1;
        if (own) card_l2_span(k->launch->l2, first, end, r->access, &k->account.dram);
    } else {
        const struct card_touch touch = {own ? k->launch->l2 : NULL, own ? &k->account.dram : NULL, r->access};
        sectors = count_scattered(r->mask, r->address, r->width, &touch);
    }
    if (own) k->account.l2_sectors += sectors;
    else if (r->access == CARD_L2_READ) k->account.bus_bytes_read += 32 * sectors;
    else k->account.bus_bytes_written += 32 * sectors;
}

/* Waits for the host as a spinning kernel does. Returns whether the kernel may go on. */
static inline bool wait_for_host(struct run *k, struct warp_common *w, uint64_t address) {
    k->account.polls += 1;
    w->waited_ns += CARD_BUS_NS;
    if (w->waited_ns > k->account.waited_ns) k->account.waited_ns = w->waited_ns;
    if (!k->launch->poll || k->launch->poll(k->launch->context, address, warp_ns(k, w)) == 0) return true;
    fail(k, CARD_STOPPED, address);
    return false;
}

/* The lanes of `left` that lie in one window with its lowest lane, and that window; reports what lies in none. */
uint32_t same_window(
    struct run *k, uint32_t left, const uint64_t *address, unsigned width, const card_window **window, uint32_t *hint) {
    const uint64_t first = address[__builtin_ctz(left)];
    *window = window_of(k, first, first + width, hint);
    if (!*window) {
        fail(k, CARD_ILLEGAL_ADDRESS, first);
        return 0;
    }
    const uint64_t start = (*window)->first, room = (*window)->end - start - width;
    uint32_t together = 0;
    LANES together |= (uint32_t)(address[l] - start <= room) << l;
    return together & left;
}

bool aligned(struct run *k, uint32_t mask, const uint64_t *address, unsigned width) {
    uint64_t any = 0;
    LANES any |= address[l];
    if (!(any & (width - 1))) return true;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        const uint64_t at = address[__builtin_ctz(rest)];
        if (at & (width - 1)) {
            fail(k, CARD_MISALIGNED, at);
            return false;
        }
    }
    return true;
}

/* out[lane * count + element]: elements of `size` bytes, `count` a lane; lanes that take no part get 0. */
static __attribute__((noinline)) void load_scattered(
    struct run *k, struct warp_common *w, enum space space, bool ordered, uint32_t mask, const uint64_t *address,
    unsigned width, char *out, uint32_t *hint) {
    memset(out, 0, 32 * width);
    if (!aligned(k, mask, address, width)) return;
    uint32_t left = mask;
    if (space == GENERIC) left = load_own(k, w, left, address, width, out);
    while (left && !k->status) {
        const card_window *window;
        const uint32_t here = same_window(k, left, address, width, &window, hint);
        left &= ~here;
        if (!here || (ordered && window->kind == CARD_HOST && !wait_for_host(k, w, address[__builtin_ctz(here)])))
            return;
        const struct request r = {here, address, width, shape_of(here, address, width), CARD_L2_READ};
        if (space != CONSTANT) account_for(k, window, &r);
        const char *shift = (const char *)window->shift;
        BY_WIDTH(width, LANES if (here >> l & 1) memcpy(out + l * W, shift + address[l], W))
    }
}

void load_global(
    struct run *k, struct warp_common *w, enum space space, bool ordered, uint32_t mask, const uint64_t *address,
    unsigned width, char *out, uint32_t *hint) {
    if (!mask) return (void)memset(out, 0, 32 * width);
    if (mask == ALL && !ordered && space == GLOBAL && is_unit(address, width) && !(address[0] & (width - 1))) {
        const card_window *window = window_of(k, address[0], address[31] + width, hint);
        if (window) {
            const struct request r = {mask, address, width, UNIT, CARD_L2_READ};
            account_for(k, window, &r);
            memcpy(out, (const char *)(address[0] + (uint64_t)window->shift), 32 * width);
            return;
        }
    }
    load_scattered(k, w, space, ordered, mask, address, width, out, hint);
}

static __attribute__((noinline)) void store_scattered(
    struct run *k, struct warp_common *w, enum space space, uint32_t mask, const uint64_t *address, unsigned width,
    const char *in, uint32_t *hint) {
    if (!aligned(k, mask, address, width)) return;
    uint32_t left = mask;
    if (space == GENERIC) left = store_own(k, w, left, address, width, in);
    while (left && !k->status) {
        const card_window *window;
        const uint32_t here = same_window(k, left, address, width, &window, hint);
        left &= ~here;
        if (!here) return;
        if (window->read_only) return (void)fail(k, CARD_ILLEGAL_ADDRESS, address[__builtin_ctz(here)]);
        const struct request r = {here, address, width, shape_of(here, address, width), CARD_L2_WRITE};
        account_for(k, window, &r);
        char *shift = (char *)window->shift;
        BY_WIDTH(width, LANES if (here >> l & 1) memcpy(shift + address[l], in + l * W, W))
    }
}

void store_global(
    struct run *k, struct warp_common *w, enum space space, uint32_t mask, const uint64_t *address, unsigned width,
    const char *in, uint32_t *hint) {
    if (!mask) return;
    if (mask == ALL && space == GLOBAL && is_unit(address, width) && !(address[0] & (width - 1))) {
        const card_window *window = window_of(k, address[0], address[31] + width, hint);
        if (window && !window->read_only) {
            const struct request r = {mask, address, width, UNIT, CARD_L2_WRITE};
            account_for(k, window, &r);
            memcpy((char *)(address[0] + (uint64_t)window->shift), in, 32 * width);
            return;
        }
    }
    store_scattered(k, w, space, mask, address, width, in, hint);
}

