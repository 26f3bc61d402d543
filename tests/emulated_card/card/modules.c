#define _GNU_SOURCE
#include "devices.h"
#include "kernels.h"
#include "memory.h"
#include "settings.h"

#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static card_describe *describe;
static card_build *build;
static card_disassemble *disassemble;

enum {
    INVALID_IMAGE = 200,
    NO_BINARY_FOR_GPU = 209,
    INVALID_PTX = 218,
    UNSUPPORTED_PTX_VERSION = 222,
    NOT_FOUND = 500,
    NO_MEMORY = 2,
    NOT_INITIALIZED = 3
};

void card_register_translator(card_describe *describes, card_build *builds, card_disassemble *disassembles) {
    describe = describes;
    build = builds;
    disassemble = disassembles;
}

/* Each minor version of CUDA 13 brings one of PTX 9 (PTX ISA, "Release Notes"). */
static int check_version(const char *text) {
    int major = 0, minor = 0;
    sscanf(strstr(text, ".version") + strlen(".version"), "%d.%d", &major, &minor);
    const int driver = card_settings_now()->cuda_version, ours = 100 * (driver / 1000 - 4) + driver % 1000 / 10;
    if (100 * major + minor > ours) return UNSUPPORTED_PTX_VERSION;
    const char *entry = strstr(text, ".entry ");
    char name[256] = "";
    if (entry) sscanf(entry, ".entry %255[A-Za-z0-9_$%%]", name);
    /* NEEDS_PTX stands in for instructions that a version of PTX brought. */
    const double needed = card_setting_of("NEEDS_PTX", name, 0);
    return needed > major + 0.1 * minor + 0.01 ? INVALID_PTX : 0;
}

/* The bytes of an ELF file, by its own tables; 0 where they do not say. bytes: how many there are, 0: not known. */
static uint64_t elf_bytes(const char *image, uint64_t bytes) {
    Elf64_Ehdr head;
    if (bytes && bytes < sizeof head) return 0;
    memcpy(&head, image, sizeof head);
    uint64_t end = head.e_shoff + (uint64_t)head.e_shnum * sizeof(Elf64_Shdr);
    if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_shentsize != sizeof(Elf64_Shdr) || !head.e_shoff) return 0;
    if (bytes && end > bytes) return 0;
    for (int i = 0; i < head.e_shnum; ++i) {
        Elf64_Shdr section;
        memcpy(&section, image + head.e_shoff + i * sizeof section, sizeof section);
        if (section.sh_type != SHT_NOBITS && section.sh_offset + section.sh_size > end)
            end = section.sh_offset + section.sh_size;
    }
    if (head.e_phnum && head.e_phoff + (uint64_t)head.e_phnum * head.e_phentsize > end)
        end = head.e_phoff + (uint64_t)head.e_phnum * head.e_phentsize;
    return bytes && end > bytes ? 0 : end;
}

/* Machine code of another architecture's is refused: second byte of an ELF file's flags, the number of the SM. */
static int assembled(card_module *module, const char *image, uint64_t bytes) {
    const uint64_t size = elf_bytes(image, bytes);
    if (!size) return INVALID_IMAGE;
    const card_model *model = &card_settings_now()->model;
    if ((unsigned char)image[0x31] != 10 * model->major + model->minor) return NO_BINARY_FOR_GPU;
    return disassemble(module, image, size);
}

int card_module_load(const char *image, uint64_t bytes, card_module **loaded) {
    if (!describe) return NOT_INITIALIZED;
    const int is_elf = !strncmp(image, "\177ELF", 4);
    if (!is_elf && strstr(image, ".version") == NULL) return INVALID_IMAGE;
    card_module *module = calloc(1, sizeof *module);
    module->device = card_current_device();
    if (!is_elf) module->text = strdup(image);
    int status = is_elf ? assembled(module, image, bytes) : check_version(image);
    if (!status) status = describe(module, module->text);
    if (status) {
        card_module_unload(module);
        return status;
    }
    *loaded = module;
    return 0;
}

void card_set_disassembled(card_module *module, const char *text, const char *digest) {
    module->text = strdup(text);
    snprintf(module->cubin, sizeof module->cubin, "%s", digest);
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
