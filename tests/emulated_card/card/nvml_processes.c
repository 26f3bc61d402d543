#include "devices.h"
#include "nvml.h"
#include "settings.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* The program behind a process; EMULATED_CARD_OTHERS names those that are not there. */
int nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length) {
    BEGIN;
    char path[64], text[1024] = "";
    snprintf(path, sizeof path, "%u", pid);
    if (card_setting_lists("OTHERS", path)) return nvml_text(name, length, "/usr/bin/other");
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "r");
    if (!file) return NOT_FOUND;
    const size_t got = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    return got ? nvml_text(name, length, text) : NOT_FOUND;
}

typedef struct process_info {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
} process_info;

int nvmlDeviceGetComputeRunningProcesses_v3(const nvml_device *device, unsigned *count, process_info *found) {
    BEGIN;
    card_process all[64];
    unsigned seen = 0;
    const int known = card_processes(all, 64);
    for (int i = 0; i < known; ++i) {
        if (!all[i].last_work_us[device->physical] && !all[i].bytes[device->physical]) continue;
        if (found && seen < *count)
            found[seen] = (process_info){(unsigned)all[i].pid, all[i].bytes[device->physical], ~0u, ~0u};
        ++seen;
    }
    const int status = seen > *count ? INSUFFICIENT_SIZE : 0;
    *count = seen;
    return status;
}

typedef struct sample {
    unsigned pid;
    unsigned long long time_us;
    unsigned sm, memory, encoder, decoder;
} sample;

static unsigned long long now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000;
}

/* Who worked since then: other processes on this card, and those that EMULATED_CARD_OTHERS=pid=percent,… invents. */
int nvmlDeviceGetProcessUtilization(
    const nvml_device *device, sample *found, unsigned *count, unsigned long long since_us) {
    BEGIN;
    if (card_setting("MIG", NULL)) return NOT_SUPPORTED;
    card_process all[64];
    unsigned seen = 0;
    const int known = card_processes(all, 64);
    for (int i = 0; i < known; ++i) {
        const unsigned long long at = all[i].last_work_us[device->physical];
        if (at <= since_us) continue;
        if (found && seen < *count) found[seen] = (sample){(unsigned)all[i].pid, at, 90, 60, 0, 0};
        ++seen;
    }
    unsigned pid, percent;
    for (const char *at = card_setting("OTHERS", ""); sscanf(at, "%u=%u", &pid, &percent) == 2;) {
        if (found && seen < *count) found[seen] = (sample){pid, now_us(), percent, percent, 0, 0};
        ++seen;
        at = strchr(at, ',');
        if (!at++) break;
    }
    const int status = !found && seen ? INSUFFICIENT_SIZE : seen ? 0 : NOT_FOUND;
    *count = seen;
    return status;
}
