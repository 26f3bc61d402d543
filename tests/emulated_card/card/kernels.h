/* Modules and functions as the driver hands them out, and their launches. Python describes and builds what PTX
 * holds. */
#pragma once

#include "kernel_abi.h"
#include "streams.h"

typedef struct card_variable {
    struct card_variable *next;
    char *name;
    uint64_t bytes, number;
} card_variable;

typedef struct card_function {
    struct card_function *next;
    struct card_module *module;
    char *name;
    card_kernel_function *code; /* NULL until it is built */
    uint32_t parameters, parameter_bytes, *offsets, *sizes;
    int static_shared_bytes, local_bytes, max_threads, registers, dynamic_shared_bytes_at_most;
    uint64_t runs; /* so far, for the jitter */
} card_function;

typedef struct card_module {
    int device;
    char *text, cubin[40]; /* cubin: the hash of the machine code that it was loaded from, else empty */
    card_variable *variables;
    uint64_t variable_count, *addresses, *parameter_addresses;
    card_function *functions;
} card_module;

/* Python's part, registered when the card is started. Each returns CUDA's error. */
typedef int card_describe(card_module *module, const char *text);
typedef int card_build(card_module *module, const char *text, const char *entry);
typedef int card_disassemble(card_module *module, const void *cubin, uint64_t bytes);
void card_register_translator(card_describe *describe, card_build *build, card_disassemble *disassemble);

/* What Python calls back. */
void card_set_disassembled(card_module *module, const char *text, const char *digest);
int card_add_variable(card_module *module, const char *name, uint64_t bytes, uint64_t align, const void *initial);
int card_add_function(
    card_module *module, const char *name, const char *path, uint32_t parameters, const uint32_t *offsets,
    const uint32_t *sizes, uint32_t parameter_bytes, const int *attributes);

/* bytes: of the image, 0 where that is not known. */
int card_module_load(const char *image, uint64_t bytes, card_module **module);
int card_module_unload(card_module *module);
int card_module_function(card_module *module, const char *name, card_function **function);
int card_module_variable(card_module *module, const char *name, uint64_t *address, uint64_t *bytes);

int card_function_launch(
    card_function *function, const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
    card_stream *stream, void **parameters);
/* Blocks of so many threads that fit one multiprocessor at a time. */
int card_blocks_per_sm(const card_function *function, int threads, uint64_t dynamic_shared_bytes);

enum { CARD_SHARED_BYTES = 48 * 1024, CARD_SHARED_OPTIN = 227 * 1024, CARD_SHARED_PER_SM = 228 * 1024,
       CARD_SHARED_RESERVED = 1024, CARD_REGISTERS = 65536, CARD_THREADS_PER_SM = 2048, CARD_BLOCKS_PER_SM = 32 };
