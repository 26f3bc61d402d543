/* The driver's entries that CuPy and this project look up by name. */
#define _GNU_SOURCE
#include "devices.h"
#include "errors.h"
#include "identity.h"
#include "kernels.h"
#include "memory.h"
#include "settings.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ENTER(ns) do { const int lost_ = card_enter(ns); if (lost_) return card_leave(lost_); } while (0)
#define LEAVE(status) return card_leave(status)

/* NVRTC 13.5 asks the driver too, and crashes beside one that it did not come with. */
static int called_by_nvrtc(const void *caller) {
    Dl_info where;
    return dladdr(caller, &where) && where.dli_fname && strstr(where.dli_fname, "libnvrtc");
}

CUresult cuInit(unsigned int flags) {
    (void)flags;
    if (called_by_nvrtc(__builtin_return_address(0))) return CUDA_ERROR_NO_DEVICE;
    return card_settings_now()->devices ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cuDriverGetVersion(int *version) {
    *version = card_settings_now()->cuda_version;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
    *count = card_visible_devices();
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    if (ordinal < 0 || ordinal >= card_visible_devices()) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    if (device < 0 || device >= card_visible_devices()) return CUDA_ERROR_INVALID_DEVICE;
    card_cuda_uuid(card_physical(device), (unsigned char *)uuid->bytes);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    (void)device;
    if (length > 0) {
        strncpy(name, card_settings_now()->model.name, (size_t)length);
        name[length - 1] = 0;
    }
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **text) {
    *text = card_error_name(error, 1);
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    *text = card_error_text(error);
    return CUDA_SUCCESS;
}

/* A context is a device's primary one: its number plus one. */
CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = (CUcontext)(uint64_t)(card_current_device() + 1);
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
    if (context) card_make_current((int)(uint64_t)context - 1);
    return CUDA_SUCCESS;
}

/* The card keeps no lines against a flush; it says that it was asked. */
CUresult cuCtxResetPersistingL2Cache(void) {
    if (card_setting("LOG", NULL)) fprintf(stderr, "emulated card: persisting lines of L2 are ordinary again\n");
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) {
    *device = card_current_device();
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    (void)device;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context) {
    ENTER(CARD_CALL_NS);
    const card_stream *known = card_stream_of(stream);
    if (!known) LEAVE(CUDA_ERROR_INVALID_HANDLE);
    *context = (CUcontext)(uint64_t)(known->device + 1);
    LEAVE(CUDA_SUCCESS);
}

static CUresult load(CUmodule *module, const void *image, uint64_t bytes) {
    const int lost = card_enter(CARD_CALL_NS);
    card_leave(0);
    if (lost) return (CUresult)lost;
    /* Without the lock: Python's part waits for its own. */
    return (CUresult)card_module_load(image, bytes, (card_module **)module);
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) { return load(module, image, 0); }

CUresult cuModuleLoad(CUmodule *module, const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
    struct stat known;
    char *image = fstat(fileno(file), &known) ? NULL : calloc(1, (size_t)known.st_size + 1);
    const size_t bytes = image ? fread(image, 1, (size_t)known.st_size, file) : 0;
    fclose(file);
    const CUresult status = bytes < 4 ? CUDA_ERROR_INVALID_IMAGE : load(module, image, bytes);
    free(image);
    return status;
}

CUresult cuModuleUnload(CUmodule module) {
    ENTER(0);
    LEAVE(card_module_unload((card_module *)module));
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    const int lost = card_enter(CARD_CALL_NS);
    card_leave(0);
    if (lost) return (CUresult)lost;
    return (CUresult)card_module_function((card_module *)module, name, (card_function **)function);
}

CUresult cuModuleGetGlobal(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name) {
    uint64_t at = 0, size = 0;
    ENTER(CARD_CALL_NS);
    const int status = card_module_variable((card_module *)module, name, &at, &size);
    *address = at;
    if (bytes) *bytes = size;
    LEAVE(status);
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction handle) {
    const card_function *function = (const card_function *)handle;
    const card_model *model = &card_settings_now()->model;
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = function->max_threads; break;
        case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = function->static_shared_bytes; break;
        case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = function->local_bytes; break;
        case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = function->registers; break;
        case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = (int)(10 * model->major + model->minor); break;
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = function->dynamic_shared_bytes_at_most; break;
        case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: *value = -1; break;
        case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
        case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA: *value = 0; break;
        default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
    card_function *function = (card_function *)handle;
    if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) return CUDA_SUCCESS;
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_ERROR_INVALID_VALUE;
    if (value < 0 || value > CARD_SHARED_OPTIN - function->static_shared_bytes) return CUDA_ERROR_INVALID_VALUE;
    function->dynamic_shared_bytes_at_most = value;
    return CUDA_SUCCESS;
}

static CUresult launch(
    CUfunction function, const uint32_t grid[3], const uint32_t block[3], unsigned shared, CUstream handle,
    void **parameters) {
    ENTER(CARD_LAUNCH_CALL_NS);
    card_stream *stream = card_stream_of(handle);
    if (!stream) LEAVE(CUDA_ERROR_INVALID_HANDLE);
    LEAVE(card_function_launch((card_function *)function, grid, block, shared, stream, parameters));
}

CUresult cuLaunchKernel(
    CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
    CUstream stream, void **parameters, void **extra) {
    if (extra) return CUDA_ERROR_NOT_SUPPORTED;
    return launch(function, (uint32_t[]){gx, gy, gz}, (uint32_t[]){bx, by, bz}, shared, stream, parameters);
}

CUresult cuLaunchCooperativeKernel(
    CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
    CUstream stream, void **parameters) {
    (void)function, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream;
    (void)parameters;
    return CUDA_ERROR_NOT_SUPPORTED; /* blocks run one after another here, so none could wait for the next */
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads, size_t shared) {
    *blocks = card_blocks_per_sm((const card_function *)function, threads, shared);
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(
    const char *name, void **function, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *found) {
    (void)version, (void)flags;
    *function = dlsym(RTLD_DEFAULT, name);
    if (found) *found = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
