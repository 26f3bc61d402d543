/* What the entries of libnvidia-ml share. EMULATED_CARD_NVML=function=error,… makes functions fail: 3 not supported,
 * 4 no permission, 13 not in the library. */
#pragma once

#include "settings.h"

/* slice: a MIG slice of the card. */
typedef struct nvml_device {
    int physical, slice;
} nvml_device;

enum { INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };

#define BEGIN \
    do { const int refused_ = (int)card_setting_of("NVML", __func__, 0); if (refused_) return refused_; } while (0)
/* What a MIG slice does not answer. */
#define WHOLE_CARD_ONLY do { if (device->slice) return NOT_SUPPORTED; } while (0)

/* Copies a text with its end, where it fits. */
int nvml_text(char *to, unsigned length, const char *text);
