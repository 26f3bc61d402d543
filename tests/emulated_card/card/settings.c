#include "settings.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

const char *card_setting(const char *name, const char *otherwise) {
    char variable[96];
    snprintf(variable, sizeof variable, "EMULATED_CARD_%s", name);
    const char *value = getenv(variable);
    return value && *value ? value : otherwise;
}

double card_setting_number(const char *name, double otherwise) {
    const char *text = card_setting(name, NULL);
    if (!text) return otherwise;
    char *end;
    const double value = strtod(text, &end);
    if (*end) {
        fprintf(stderr, "emulated card: EMULATED_CARD_%s=%s is no number\n", name, text);
        exit(2);
    }
    return value;
}

static const char *entry_of(const char *name, const char *key) {
    const size_t length = strlen(key);
    for (const char *at = card_setting(name, ""); *at; at += *at == ',') {
        if (!strncmp(at, key, length) && (at[length] == '=' || at[length] == ',' || !at[length])) return at + length;
        at += strcspn(at, ",");
    }
    return NULL;
}

double card_setting_of(const char *name, const char *key, double otherwise) {
    const char *found = entry_of(name, key);
    return found && *found == '=' ? strtod(found + 1, NULL) : otherwise;
}

int card_setting_lists(const char *name, const char *key) { return entry_of(name, key) != NULL; }

static card_settings read_settings(void) {
    card_settings s = {0};
    const char *name = card_setting("MODEL", card_models[0].name);
    const card_model *model = card_model_named(name);
    if (!model) {
        fprintf(stderr, "emulated card: no model %s\n", name);
        exit(2);
    }
    s.model = *model;
    s.model.memory_bytes = (uint64_t)card_setting_number("MEMORY_BYTES", (double)model->memory_bytes);
    s.model.l2_bytes = (uint64_t)card_setting_number("L2_BYTES", (double)model->l2_bytes);
    s.model.sm_count = (uint32_t)card_setting_number("SM_COUNT", model->sm_count);
    s.model.bus_bits = (uint32_t)card_setting_number("BUS_BITS", model->bus_bits);
    s.devices = (int)card_setting_number("DEVICES", 1);
    if (s.devices < 0 || s.devices > CARD_DEVICES_AT_MOST) s.devices = CARD_DEVICES_AT_MOST;
    s.cuda_version = (int)card_setting_number("CUDA_VERSION", 13090);
    s.driver_version = card_setting("DRIVER_VERSION", "595.45.04");
    s.timer_step_ns = (int)card_setting_number("TIMER_STEP_NS", 32);
    s.pace.memory = card_setting_number("MEMORY_PACE", 1);
    s.pace.clock = card_setting_number("CLOCK_PACE", 1);
    s.pace.launch_ns = card_setting_number("LAUNCH_NS", 0);
    s.event_step_ns = card_setting_number("EVENT_STEP_NS", 0);
    s.clock_in_use_mhz = s.model.sm_clock_mhz * s.pace.clock;
    s.jitter = card_setting_number("JITTER", 0.003);
    s.process_jitter = card_setting_number("PROCESS_JITTER", 0.002);
    s.seed = (uint64_t)card_setting_number("SEED", 1);
    return s;
}

const card_settings *card_settings_now(void) {
    static card_settings settings;
    static int known;
    if (!known) {
        settings = read_settings();
        known = 1;
    }
    return &settings;
}

static uint64_t next_number(const char *folder) {
    char path[4096], text[32] = "";
    snprintf(path, sizeof path, "%s/processes", folder);
    const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) return 0;
    flock(file, LOCK_EX);
    const uint64_t number = read(file, text, sizeof text - 1) > 0 ? strtoull(text, NULL, 10) : 0;
    const int length = snprintf(text, sizeof text, "%llu", (unsigned long long)number + 1);
    if (pwrite(file, text, (size_t)length, 0) != length) perror(path);
    close(file);
    return number;
}

uint64_t card_process_number(void) {
    static uint64_t number;
    static pid_t of;
    if (of != getpid()) {
        const char *folder = card_setting("STATE", NULL);
        number = folder ? next_number(folder) : 0;
        of = getpid();
    }
    return number;
}

/* splitmix64's mixing: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014. */
static uint64_t mixed(uint64_t z) {
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

double card_uniform(uint64_t stream, uint64_t number) {
    return (double)(mixed(mixed(mixed(card_settings_now()->seed) ^ stream) ^ number) >> 11) * 0x1p-53;
}

double card_normal(uint64_t stream, uint64_t number) {
    double sum = -6;
    for (uint64_t i = 0; i < 12; ++i) sum += card_uniform(stream, 12 * number + i);
    return sum;
}

uint64_t card_hash(const char *text) { /* FNV-1a */
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text; ++text) hash = (hash ^ (uint8_t)*text) * 0x100000001b3u;
    return hash;
}
