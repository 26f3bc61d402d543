#define _GNU_SOURCE
#include "devices.h"
#include "kernels.h"
#include "memory.h"
#include "settings.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static card_describe *describe;
static card_build *build;

enum { INVALID_IMAGE = 200, UNSUPPORTED_PTX_VERSION = 222, NOT_FOUND = 500, NO_MEMORY = 2, NOT_INITIALIZED = 3 };

void card_register_translator(card_describe *describes, card_build *builds) {
    describe = describes;
    build = builds;
}

int card_module_load(const char *image, card_module **loaded) {
    if (!describe) return NOT_INITIALIZED;
    if (!strncmp(image, "\177ELF", 4) || strstr(image, ".version") == NULL) {
        fprintf(stderr, "emulated card: it runs PTX, not cubins: CUPY_COMPILE_WITH_PTX=1 has to be set\n");
        return INVALID_IMAGE;
    }
    /* CUDA 12 brought version 8 of PTX, CUDA 13 version 9 (PTX ISA, "Release Notes"); minor versions pass. */
    const int ptx_major = atoi(strstr(image, ".version") + strlen(".version"));
    if (ptx_major > (int)card_settings_now()->cuda_version / 1000 - 4) return UNSUPPORTED_PTX_VERSION;
    card_module *module = calloc(1, sizeof *module);
    module->device = card_current_device();
    module->text = strdup(image);
    const int status = describe(module, module->text);
    if (status) {
        card_module_unload(module);
        return status;
    }
    *loaded = module;
    return 0;
}

int card_module_unload(card_module *module) {
    for (uint64_t i = 0; i < module->variable_count; ++i) card_release(module->addresses[i]);
    while (module->variables) {
        card_variable *gone = module->variables;
        module->variables = gone->next;
        free(gone->name);
        free(gone);
    }
    while (module->functions) { /* their code stays: launches may still be queued, and dlclose would gain nothing */
        card_function *gone = module->functions;
        module->functions = gone->next;
        free(gone->name);
        free(gone->offsets);
        free(gone->sizes);
        free(gone);
    }
    free(module->addresses);
    free(module->text);
    free(module);
    return 0;
}

int card_add_variable(card_module *module, const char *name, uint64_t bytes, uint64_t align, const void *initial) {
    (void)align; /* memory is aligned to 512 bytes */
    const uint64_t address = card_allocate(CARD_ON_DEVICE, module->device, bytes);
    if (!address) return NO_MEMORY;
    memcpy(card_reach(address, bytes), initial, bytes);
    card_variable *variable = calloc(1, sizeof *variable);
    *variable = (card_variable){module->variables, strdup(name), bytes, module->variable_count};
    module->variables = variable;
    module->addresses = realloc(module->addresses, (module->variable_count + 1) * sizeof *module->addresses);
    module->addresses[module->variable_count++] = address;
    return 0;
}

static uint32_t *copied(const uint32_t *numbers, uint32_t count) {
    uint32_t *copy = calloc(count + 1, sizeof *copy);
    if (count) memcpy(copy, numbers, count * sizeof *copy);
    return copy;
}

int card_add_function(
    card_module *module, const char *name, const char *path, uint32_t parameters, const uint32_t *offsets,
    const uint32_t *sizes, uint32_t parameter_bytes, const int *attributes) {
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *code = object ? dlsym(object, "card_kernel") : NULL;
    if (!code) {
        fprintf(stderr, "emulated card: %s: %s\n", path, dlerror());
        return INVALID_IMAGE;
    }
    card_function *function = calloc(1, sizeof *function);
    function->next = module->functions;
    function->module = module;
    function->name = strdup(name);
    function->code = (card_kernel_function *)code;
    function->parameters = parameters;
    function->parameter_bytes = parameter_bytes;
    function->offsets = copied(offsets, parameters);
    function->sizes = copied(sizes, parameters);
    function->static_shared_bytes = attributes[0];
    function->local_bytes = attributes[1];
    function->max_threads = attributes[2];
    function->registers = attributes[3];
    function->dynamic_shared_bytes_at_most = CARD_SHARED_BYTES - attributes[0];
    module->functions = function;
    return 0;
}

static card_function *built(card_module *module, const char *name) {
    for (card_function *function = module->functions; function; function = function->next)
        if (!strcmp(function->name, name)) return function;
    return NULL;
}

int card_module_function(card_module *module, const char *name, card_function **function) {
    *function = built(module, name);
    if (*function) return 0;
    const int status = build(module, module->text, name);
    if (status) return status;
    *function = built(module, name);
    return *function ? 0 : NOT_FOUND;
}

int card_module_variable(card_module *module, const char *name, uint64_t *address, uint64_t *bytes) {
    for (card_variable *variable = module->variables; variable; variable = variable->next)
        if (!strcmp(variable->name, name)) {
            *address = module->addresses[variable->number];
            *bytes = variable->bytes;
            return 0;
        }
    return NOT_FOUND;
}
