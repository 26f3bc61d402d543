/* libnvidia-ml.so.1 as nvidia-ml-py calls it, as far as this project reads it: who the card is, and how it is. */
#include "nvml.h"

#include "identity.h"

#include <stdio.h>
#include <string.h>

enum { CLOCK_GRAPHICS, CLOCK_SM, CLOCK_MEM };

static nvml_device handles[2][CARD_DEVICES_AT_MOST];

static int give(nvml_device **device, int physical, int slice) {
    if (physical < 0 || physical >= card_settings_now()->devices) return NOT_FOUND;
    *device = &handles[slice][physical];
    **device = (nvml_device){physical, slice};
    return 0;
}

int nvml_text(char *to, unsigned length, const char *text) {
    if (strlen(text) >= length) return INSUFFICIENT_SIZE;
    strcpy(to, text);
    return 0;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    BEGIN;
    return 0;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return 0; }

const char *nvmlErrorString(int error) {
    static const char *texts[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions",
        "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power", "Driver Not Loaded",
        "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found",
        "Corrupted infoROM", "GPU is lost",
    };
    return error >= 0 && error < 16 ? texts[error] : "Unknown Error";
}

int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    BEGIN;
    return nvml_text(version, length, card_settings_now()->driver_version);
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *text, nvml_device **device) {
    BEGIN;
    return give(device, card_by_pci_bus_id(text), 0);
}

static void uuid_of(const nvml_device *device, char *text) {
    unsigned char uuid[16];
    if (device->slice) card_cuda_uuid(device->physical, uuid);
    else card_uuid(device->physical, uuid);
    card_uuid_text(device->slice ? "MIG-" : "GPU-", uuid, text);
}

int nvmlDeviceGetHandleByUUID(const char *asked, nvml_device **device) {
    BEGIN;
    char text[64];
    for (int slice = 0; slice < (card_setting("MIG", NULL) ? 2 : 1); ++slice)
        for (int i = 0; i < card_settings_now()->devices; ++i) {
            uuid_of(&(nvml_device){i, slice}, text);
            if (!strcmp(text, asked)) return give(device, i, slice);
        }
    return NOT_FOUND;
}

int nvmlDeviceGetUUID(const nvml_device *device, char *text, unsigned length) {
    BEGIN;
    char whole[64];
    uuid_of(device, whole);
    return nvml_text(text, length, whole);
}

int nvmlDeviceGetName(const nvml_device *device, char *name, unsigned length) {
    BEGIN;
    char whole[256];
    const char *profile = card_setting("MIG", "");
    snprintf(whole, sizeof whole, device->slice ? "%s MIG %s" : "%s", card_settings_now()->model.name, profile);
    return nvml_text(name, length, whole);
}

int nvmlDeviceGetMigMode(const nvml_device *device, unsigned *current, unsigned *pending) {
    BEGIN;
    WHOLE_CARD_ONLY;
    *current = *pending = card_setting("MIG", NULL) != NULL;
    return 0;
}

static int clock_of(int which, double pace, unsigned *mhz) {
    const card_model *model = &card_settings_now()->model;
    if (which != CLOCK_MEM && which != CLOCK_SM && which != CLOCK_GRAPHICS) return INVALID_ARGUMENT;
    *mhz = which == CLOCK_MEM ? model->memory_clock_mhz : (unsigned)(model->sm_clock_mhz * pace + 0.5);
    return 0;
}

int nvmlDeviceGetMaxClockInfo(const nvml_device *device, int which, unsigned *mhz) {
    BEGIN;
    WHOLE_CARD_ONLY;
    return clock_of(which, 1, mhz);
}

/* EMULATED_CARD_DRIVER_CLOCK_PACE: what the driver says where the hardware skips cycles without telling it. */
int nvmlDeviceGetClockInfo(const nvml_device *device, int which, unsigned *mhz) {
    BEGIN;
    WHOLE_CARD_ONLY;
    const int status = clock_of(which, card_setting_number("DRIVER_CLOCK_PACE", card_settings_now()->pace.clock), mhz);
    if (!status && which == CLOCK_MEM) *mhz = (unsigned)(*mhz * card_setting_number("MEMORY_CLOCK_PACE", 1) + 0.5);
    return status;
}

int nvmlDeviceGetDefaultApplicationsClock(const nvml_device *device, int which, unsigned *mhz) {
    BEGIN;
    WHOLE_CARD_ONLY;
    const double pace = card_setting_number("DEFAULT_CLOCK_PACE", 0);
    return pace == 0 ? NOT_SUPPORTED : clock_of(which, pace, mhz);
}

int nvmlDeviceGetMemoryBusWidth(const nvml_device *device, unsigned *bits) {
    BEGIN;
    WHOLE_CARD_ONLY;
    *bits = card_settings_now()->model.bus_bits;
    return 0;
}

int nvmlDeviceGetEccMode(const nvml_device *device, unsigned *current, unsigned *pending) {
    BEGIN;
    (void)device;
    *current = *pending = card_setting_number("ECC_MODE", 1) != 0;
    return 0;
}

/* EMULATED_CARD_ECC: errors that come between one reading and the next. */
int nvmlDeviceGetTotalEccErrors(const nvml_device *device, int type, int counter, unsigned long long *count) {
    BEGIN;
    (void)device, (void)type, (void)counter;
    static unsigned long long errors;
    *count = errors;
    errors += (unsigned long long)card_setting_number("ECC", 0);
    return 0;
}

int nvmlDeviceGetPersistenceMode(const nvml_device *device, unsigned *mode) {
    BEGIN;
    (void)device;
    *mode = 1;
    return 0;
}

int nvmlDeviceGetVirtualizationMode(const nvml_device *device, unsigned *mode) {
    BEGIN;
    (void)device;
    *mode = (unsigned)card_setting_number("VIRTUALIZATION", 0);
    return 0;
}

int nvmlDeviceGetEnforcedPowerLimit(const nvml_device *device, unsigned *milliwatts) {
    BEGIN;
    WHOLE_CARD_ONLY;
    *milliwatts = (unsigned)(1000 * card_setting_number("POWER_LIMIT_W", 300) + 0.5);
    return 0;
}

int nvmlDeviceGetPowerUsage(const nvml_device *device, unsigned *milliwatts) {
    BEGIN;
    WHOLE_CARD_ONLY;
    *milliwatts = 180000;
    return 0;
}

int nvmlDeviceGetTemperature(const nvml_device *device, int sensor, unsigned *celsius) {
    BEGIN;
    (void)device, (void)sensor;
    *celsius = 48;
    return 0;
}

int nvmlDeviceGetCurrPcieLinkGeneration(const nvml_device *device, unsigned *generation) {
    BEGIN;
    WHOLE_CARD_ONLY;
    *generation = 5;
    return 0;
}

int nvmlDeviceGetCurrPcieLinkWidth(const nvml_device *device, unsigned *width) {
    BEGIN;
    WHOLE_CARD_ONLY;
    *width = 16;
    return 0;
}

int nvmlDeviceGetCurrentClocksEventReasons(const nvml_device *device, unsigned long long *reasons) {
    BEGIN;
    (void)device;
    *reasons = (unsigned long long)card_setting_number("EVENT_REASONS", 0);
    return 0;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(const nvml_device *device, unsigned long long *reasons) {
    BEGIN;
    return nvmlDeviceGetCurrentClocksEventReasons(device, reasons);
}
