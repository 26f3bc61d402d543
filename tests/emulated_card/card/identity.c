#include "identity.h"

#include "settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int visible[CARD_DEVICES_AT_MOST], count = -1;

/* By number or by the beginning of a UUID; the first that names none ends the list (CUDA C++ Programming Guide). */
static int named(const char *item) {
    char *end, text[48];
    const long number = strtol(item, &end, 10);
    if (end != item && !*end) return number >= 0 && number < card_settings_now()->devices ? (int)number : -1;
    for (int i = 0; i < card_settings_now()->devices; ++i) {
        unsigned char uuid[16];
        card_cuda_uuid(i, uuid);
        card_uuid_text(card_setting("MIG", NULL) ? "MIG-" : "GPU-", uuid, text);
        if (*item && !strncasecmp(text, item, strlen(item))) return i;
    }
    return -1;
}

static void find_visible(void) {
    const char *asked = getenv("CUDA_VISIBLE_DEVICES");
    count = 0;
    if (!asked) {
        for (; count < card_settings_now()->devices; ++count) visible[count] = count;
        return;
    }
    char *list = strdup(asked), *rest = list;
    for (char *item; (item = strtok_r(rest, ", ", &rest)) && count < CARD_DEVICES_AT_MOST;) {
        const int found = named(item);
        if (found < 0) break;
        visible[count++] = found;
    }
    free(list);
}

int card_visible_devices(void) {
    if (count < 0) find_visible();
    return count;
}

int card_physical(int device) { return device >= 0 && device < card_visible_devices() ? visible[device] : 0; }

void card_uuid(int physical, unsigned char uuid[16]) {
    const uint64_t name = card_hash(card_settings_now()->model.name);
    for (int i = 0; i < 16; ++i) uuid[i] = (unsigned char)(256 * card_uniform(name, (uint64_t)(16 * physical + i)));
    uuid[5] = 0; /* some have a zero byte, which ends a string */
}

void card_cuda_uuid(int physical, unsigned char uuid[16]) {
    card_uuid(physical, uuid);
    if (card_setting("MIG", NULL)) uuid[15] ^= 0x5a;
}

void card_pci_bus_id(int physical, char *text) { snprintf(text, 16, "0000:%02x:00.0", 0x3b + physical); }

int card_by_pci_bus_id(const char *text) {
    unsigned domain, bus, slot, function;
    if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4) return -1;
    const int physical = (int)bus - 0x3b;
    return physical >= 0 && physical < card_settings_now()->devices ? physical : -1;
}

void card_uuid_text(const char *kind, const unsigned char uuid[16], char *text) {
    text += sprintf(text, "%s", kind);
    for (int i = 0; i < 16; ++i) {
        if (i == 4 || i == 6 || i == 8 || i == 10) *text++ = '-';
        text += sprintf(text, "%02x", uuid[i]);
    }
}
