/* What the environment asks of the card: which model, how many, and what is wrong with it. Read once a process;
 * ../README.md lists the variables. */
#pragma once

#include "time_model.h"

enum { CARD_DEVICES_AT_MOST = 8 };

typedef struct card_settings {
    card_model model;
    int devices, cuda_version, timer_step_ns;
    const char *driver_version;
    card_pace pace;
    double clock_in_use_mhz;
    double event_step_ns; /* by which events' times step; 0: they do not */
    double jitter, process_jitter; /* standard deviations: of a kernel's times, of a kernel's mean between processes */
    uint64_t seed;
} card_settings;

const card_settings *card_settings_now(void);

/* The value of EMULATED_CARD_<name>, or the default where it is unset or empty. */
const char *card_setting(const char *name, const char *otherwise);
double card_setting_number(const char *name, double otherwise);

/* The value for `key` in EMULATED_CARD_<name>, a list as in `key=2,other=1.5`; `otherwise` where it is not named. */
double card_setting_of(const char *name, const char *key, double otherwise);
/* Whether the list names `key`. */
int card_setting_lists(const char *name, const char *key);

/* Which process this is among those that used the card: 0, 1, … in the order of their first calls. */
uint64_t card_process_number(void);

/* A number in [0, 1) that depends on these and the seed only. */
double card_uniform(uint64_t stream, uint64_t number);
/* About normal, mean 0 and deviation 1. */
double card_normal(uint64_t stream, uint64_t number);
uint64_t card_hash(const char *text);
