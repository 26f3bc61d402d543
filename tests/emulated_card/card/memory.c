#define _GNU_SOURCE
#include "memory.h"

#include "devices.h"
#include "settings.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BASE (1ull << 45)
#define APART (1ull << 40)         /* between the ranges of two devices */
#define HOST_SIDE (CARD_DEVICES_AT_MOST) /* the number of the range of pinned memory */
#define SPACES (CARD_DEVICES_AT_MOST + 1)
#define HOST_BYTES (1ull << 36)
#define GRAIN 512ull
/* What the card maps at a time: an access outside of an allocation, but in the same page, is no error. */
#define PAGE (2ull << 20)

static struct space {
    int file; /* 0: not mapped yet */
    uint64_t bytes;
} spaces[SPACES];
static card_range *ranges; /* sorted by address, all kinds */
static size_t count, room;
static unsigned char peers[CARD_DEVICES_AT_MOST][CARD_DEVICES_AT_MOST];
static card_window *windows;
static uint32_t window_count;
static int windows_for = -1;

static uint64_t start_of(int space) { return BASE + (uint64_t)space * APART; }

static void open_space(int number) {
    struct space *space = &spaces[number];
    if (space->file) return;
    space->bytes = number < HOST_SIDE ? card_settings_now()->model.memory_bytes : HOST_BYTES;
    space->file = memfd_create("emulated card", MFD_CLOEXEC);
    if (space->file <= 0 || ftruncate(space->file, (off_t)space->bytes)) goto failed;
    const int seen = number < HOST_SIDE ? PROT_NONE : PROT_READ | PROT_WRITE;
    const int flags = MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    void *at = (void *)start_of(number), *alias = (void *)(start_of(number) + CARD_ALIAS);
    if (mmap(at, space->bytes, seen, flags, space->file, 0) != at) goto failed;
    if (mmap(alias, space->bytes, PROT_READ | PROT_WRITE, flags, space->file, 0) != alias) goto failed;
    return;
failed:
    perror("emulated card: its memory cannot be mapped");
    exit(2);
}

static size_t after(uint64_t address) { /* index of the first range that begins behind the address */
    size_t low = 0, high = count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (ranges[middle].first <= address) low = middle + 1;
        else high = middle;
    }
    return low;
}

static void insert(card_range range) {
    if (count == room) ranges = realloc(ranges, (room = 2 * room + 64) * sizeof *ranges);
    const size_t at = after(range.first);
    memmove(ranges + at + 1, ranges + at, (count - at) * sizeof *ranges);
    ranges[at] = range;
    ++count;
    windows_for = -1;
}

static void take_out(size_t at) {
    memmove(ranges + at, ranges + at + 1, (--count - at) * sizeof *ranges);
    windows_for = -1;
}

static uint64_t rounded(uint64_t bytes) {
    const uint64_t grain = bytes < PAGE / 2 ? GRAIN : PAGE;
    return (bytes + grain - 1) / grain * grain;
}

static uint64_t first_fit(int number, uint64_t bytes) {
    const uint64_t end = start_of(number) + spaces[number].bytes, grain = bytes < PAGE ? GRAIN : PAGE;
    uint64_t at = start_of(number);
    for (size_t i = after(at - 1); i < count && ranges[i].first < end; ++i) {
        if (at + bytes <= ranges[i].first) break;
        at = (ranges[i].first + rounded(ranges[i].bytes) + grain - 1) / grain * grain;
    }
    return at + bytes <= end ? at : 0;
}

uint64_t card_allocate(enum card_memory kind, int device, uint64_t bytes) {
    const int number = kind == CARD_ON_DEVICE ? device : HOST_SIDE;
    open_space(number);
    if (bytes > spaces[number].bytes) return 0;
    const uint64_t whole = rounded(bytes);
    if (kind == CARD_ON_DEVICE && card_used_by_all(device) + whole > spaces[number].bytes) return 0;
    const uint64_t at = first_fit(number, whole);
    if (!at) return 0;
    insert((card_range){at, bytes, kind, device});
    if (kind == CARD_ON_DEVICE) card_publish_use(device, card_bytes_used(device));
    return at;
}

int card_release(uint64_t address) {
    const size_t at = after(address) - 1;
    if (at >= count || ranges[at].first != address) return 1;
    const card_range gone = ranges[at];
    const int number = (int)((address - BASE) / APART);
    take_out(at);
    if (rounded(gone.bytes) >= PAGE) /* whole pages are given back to the host; what they held is lost, as on a card */
        fallocate(spaces[number].file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(address - start_of(number)),
                  (off_t)rounded(gone.bytes));
    if (gone.kind == CARD_ON_DEVICE) {
        card_l2_drop(card_device(gone.device)->l2, address, rounded(gone.bytes));
        card_publish_use(gone.device, card_bytes_used(gone.device));
    }
    return 0;
}

card_range card_range_of(uint64_t address) {
    const size_t at = after(address) - 1;
    if (at < count && address < ranges[at].first + (ranges[at].bytes ? ranges[at].bytes : 1)) return ranges[at];
    return (card_range){0, 0, CARD_NOWHERE, -1};
}

uint64_t card_bytes_used(int device) {
    uint64_t used = 0;
    for (size_t i = 0; i < count; ++i)
        if (ranges[i].kind == CARD_ON_DEVICE && ranges[i].device == device) used += rounded(ranges[i].bytes);
    return used;
}

void *card_reach(uint64_t address, uint64_t bytes) {
    if (address < BASE || address >= BASE + SPACES * APART) return (void *)address; /* the host's own */
    const card_range range = card_range_of(address);
    if (range.kind == CARD_NOWHERE || address + bytes > range.first + range.bytes) return NULL;
    return (void *)(address + CARD_ALIAS);
}

/* Appends, or lengthens the last window where this one follows it. */
static void add_window(uint64_t first, uint64_t end, uint32_t kind) {
    card_window *last = window_count ? &windows[window_count - 1] : NULL;
    if (last && last->end >= first && last->kind == kind) {
        if (end > last->end) last->end = end;
        return;
    }
    windows[window_count++] = (card_window){first, end, CARD_ALIAS, kind, 0};
}

const card_window *card_windows_of(int device, uint32_t *found) {
    if (windows_for != device) {
        windows = realloc(windows, (count + 1) * sizeof *windows);
        window_count = 0;
        for (size_t i = 0; i < count; ++i) {
            const card_range *range = &ranges[i];
            const uint64_t end = range->first + rounded(range->bytes);
            if (range->kind == CARD_PINNED) {
                add_window(range->first, end, CARD_HOST);
            } else if (range->device == device) {
                add_window(range->first / PAGE * PAGE, (end + PAGE - 1) / PAGE * PAGE, CARD_DEVICE);
            } else if (peers[device][range->device]) {
                add_window(range->first / PAGE * PAGE, (end + PAGE - 1) / PAGE * PAGE, CARD_PEER);
            }
        }
        windows_for = device;
    }
    *found = window_count;
    return windows;
}

void card_allow_peer(int device, int peer, int allowed) {
    peers[device][peer] = (unsigned char)allowed;
    windows_for = -1;
}

int card_peer_allowed(int device, int peer) { return peers[device][peer]; }
