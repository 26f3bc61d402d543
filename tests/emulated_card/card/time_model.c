#include "time_model.h"

#include <stddef.h>
#include <string.h>

#define GIB << 30
#define MIB << 20

/* The first row is no card: small, so that five times its cache is soon written; its figures are round ones.
 *
 * Sources. Name, memory, clocks: what NVML reports, by the cards' data sheets
 * (pytest_bandwidth/devices/datasheets.csv). Cache, multiprocessors: NVIDIA's architecture white papers (T4 Turing,
 * A100 Ampere, H100 Hopper, Ada). Operations a cycle: CUDA C++ Programming Guide, "Arithmetic Instructions", twice
 * the results of add, multiply and fused multiply-add, which are two operations here. L2: 5120 bytes a cycle on
 * A100 (its white paper), microbenchmarks elsewhere, roughly. Bus: PCIe 3 to 5 with 16 lanes, less a fifth; its
 * latency is CARD_BUS_NS. Shares of the peak: an A100-40's (96, 99 and 89 %); others' are like it.
 */
const card_model card_models[] = {
    {"Emulated GPU", 9, 0, 10, 16ull GIB, 1ull MIB, 5000, 64, 1500, 512, 256, 4, 64, 16, 250, 3, 0.96, 0.99, 0.89},
    {"NVIDIA H200", 9, 0, 132, 141ull GIB, 50ull MIB, 3201, 6144, 1980, 512, 256, 128, 64, 16, 5700, 50,
     0.96, 0.99, 0.89},
    {"NVIDIA H100 80GB HBM3", 9, 0, 132, 80ull GIB, 50ull MIB, 2619, 5120, 1980, 512, 256, 128, 64, 16, 5700, 50,
     0.96, 0.99, 0.89},
    {"NVIDIA A100-SXM4-40GB", 8, 0, 108, 40ull GIB, 40ull MIB, 1215, 5120, 1410, 512, 128, 64, 64, 16, 5600, 25,
     0.96, 0.99, 0.89},
    {"NVIDIA GeForce RTX 4090", 8, 9, 128, 24ull GIB, 72ull MIB, 10501, 384, 2520, 256, 256, 4, 64, 16, 5000, 25,
     0.96, 0.99, 0.89},
    {"NVIDIA L4", 8, 9, 58, 24ull GIB, 48ull MIB, 6251, 192, 2040, 256, 256, 4, 64, 16, 2000, 25, 0.96, 0.99, 0.89},
    {"Tesla T4", 7, 5, 40, 16ull GIB, 4ull MIB, 5001, 256, 1590, 256, 128, 4, 64, 16, 1200, 12, 0.96, 0.99, 0.89},
    {.name = NULL},
};

/* A multiprocessor issues so many warp instructions a cycle (compute capability 7 and later). */
enum { SCHEDULERS = 4 };

const card_model *card_model_named(const char *name) {
    for (const card_model *model = card_models; model->name; ++model)
        if (!strcmp(model->name, name)) return model;
    return NULL;
}

double card_peak_gb_s(const card_model *model) { return 2.0 * model->memory_clock_mhz * model->bus_bits / 8 / 1e3; }

/* What a mix of reads and writes reaches of the peak: straight lines from reads to copies to writes. */
static double share_of_peak(const card_model *model, const card_dram *dram) {
    const double all = (double)(dram->sectors_read + dram->sectors_written);
    const double written = all > 0 ? (double)dram->sectors_written / all : 0.0;
    const double pure = written < 0.5 ? model->read_share : model->write_share;
    const double mixed = written < 0.5 ? written / 0.5 : (1.0 - written) / 0.5;
    return pure + (model->copy_share - pure) * mixed;
}

static double dram_ns(const card_model *model, const card_pace *pace, const card_dram *dram) {
    const double bytes = (double)(dram->sectors_read + dram->sectors_written) * CARD_SECTOR_BYTES;
    return bytes / (card_peak_gb_s(model) * pace->memory * share_of_peak(model, dram));
}

static void at_least(double *ns, double other) {
    if (other > *ns) *ns = other;
}

double card_kernel_ns(const card_model *model, const card_pace *pace, const card_account *account) {
    const double ghz = model->sm_clock_mhz * pace->clock / 1e3, sms = model->sm_count;
    const double l2_share = pace->clock; /* the cache runs with the multiprocessors */
    const uint64_t bus = account->bus_bytes_read > account->bus_bytes_written ? account->bus_bytes_read
                                                                              : account->bus_bytes_written;
    double ns = pace->launch_ns > 0 ? 0 : CARD_LAUNCH_NS;
    at_least(&ns, dram_ns(model, pace, &account->dram));
    at_least(&ns, (double)account->l2_sectors * CARD_SECTOR_BYTES / (model->l2_gb_s * l2_share));
    at_least(&ns, (double)bus / model->bus_gb_s); /* both ways at once */
    at_least(&ns, (double)account->warp_instructions / (sms * SCHEDULERS * ghz));
    at_least(&ns, (double)account->shared_passes / (sms * ghz));
    at_least(&ns, (double)account->flop16 / (sms * model->flop16 * ghz));
    at_least(&ns, (double)account->flop32 / (sms * model->flop32 * ghz));
    at_least(&ns, (double)account->flop64 / (sms * model->flop64 * ghz));
    at_least(&ns, (double)account->integer / (sms * model->integer * ghz));
    at_least(&ns, (double)account->special / (sms * model->special * ghz));
    at_least(&ns, (double)account->longest_warp_cycles / ghz + (double)account->waited_ns);
    return pace->launch_ns + ns;
}

double card_copy_ns(
    const card_model *model, const card_pace *pace, const card_dram *dram, uint64_t l2_bytes, uint64_t bus_bytes) {
    double ns = CARD_LAUNCH_NS;
    at_least(&ns, dram_ns(model, pace, dram));
    at_least(&ns, (double)l2_bytes / (model->l2_gb_s * pace->clock));
    at_least(&ns, (double)bus_bytes / model->bus_gb_s);
    return ns;
}
