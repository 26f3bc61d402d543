#define _GNU_SOURCE
#include "devices.h"

#include "memory.h"
#include "settings.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static card_device_state devices[CARD_DEVICES_AT_MOST];
static _Thread_local int current;
static double host_ns = 1e9;
static int lost;
static card_process *own;

card_device_state *card_device(int number) {
    card_device_state *device = &devices[number];
    if (!device->l2) device->l2 = card_l2_new(card_settings_now()->model.l2_bytes);
    return device;
}

int card_current_device(void) { return current; }
void card_make_current(int number) { current = number; }

int card_enter(double ns) {
    pthread_mutex_lock(&lock);
    host_ns += ns;
    return lost;
}

int card_leave(int status) {
    pthread_mutex_unlock(&lock);
    return status;
}

double card_host_ns(void) { return host_ns; }
void card_host_waits_until(double ns) { host_ns = ns > host_ns ? ns : host_ns; }
void card_lose_context(int status) { lost = status; }
int card_lost(void) { return lost; }

/* For Python's clocks. */
double card_read_clock(void) {
    pthread_mutex_lock(&lock);
    const double now = host_ns += CARD_READ_CLOCK_NS;
    pthread_mutex_unlock(&lock);
    return now;
}

void card_host_sleeps(double seconds) {
    pthread_mutex_lock(&lock);
    host_ns += seconds * 1e9;
    pthread_mutex_unlock(&lock);
}

/* A file a process, in the folder that all on this card share: mapped, so that a killed one leaves what it had. */
static card_process *published(void) {
    const char *folder = card_setting("STATE", NULL);
    if (own && own->pid == getpid()) return own;
    static card_process alone;
    own = &alone;
    own->pid = getpid();
    if (!folder) return own;
    char path[4096];
    snprintf(path, sizeof path, "%s/process-%d", folder, (int)getpid());
    const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, sizeof *own)) return own;
    void *at = mmap(NULL, sizeof *own, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (at == MAP_FAILED) return own;
    own = at;
    *own = alone;
    return own;
}

int card_processes(card_process *found, int at_most) {
    const char *folder = card_setting("STATE", NULL);
    DIR *listing = folder ? opendir(folder) : NULL;
    int number = 0;
    if (!listing) {
        found[number++] = *published();
        return number;
    }
    for (struct dirent *entry; (entry = readdir(listing)) && number < at_most;) {
        int pid;
        if (sscanf(entry->d_name, "process-%d", &pid) != 1 || (kill(pid, 0) && pid != getpid())) continue;
        const int file = openat(dirfd(listing), entry->d_name, O_RDONLY | O_CLOEXEC);
        if (file < 0) continue;
        if (read(file, &found[number], sizeof *found) == sizeof *found) ++number;
        close(file);
    }
    closedir(listing);
    return number;
}

uint64_t card_used_by_all(int device) {
    static card_process all[256];
    uint64_t used = card_bytes_used(device);
    const int number = card_processes(all, 256);
    for (int i = 0; i < number; ++i)
        if (all[i].pid != getpid()) used += all[i].bytes[device];
    return used;
}

void card_publish_use(int device, uint64_t bytes) { published()->bytes[device] = bytes; }

void card_publish_work(int device) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    published()->last_work_us[device] = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Where the entries of cudart end that the card lacks. */
int card_not_done(const char *name) {
    static const char *named[512];
    for (int i = 0; i < 512; ++i) {
        if (named[i] == name) return 801;
        if (named[i]) continue;
        named[i] = name;
        fprintf(stderr, "emulated card: %s is not done\n", name);
        return 801;
    }
    return 801;
}
