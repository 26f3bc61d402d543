#include "errors.h"
#include "identity.h"
#include "kernels.h"
#include "memory.h"
#include "runtime.h"
#include "settings.h"

#include <stdio.h>
#include <string.h>

/* What CuPy's wheels for CUDA 13 are built with. */
enum { RUNTIME_VERSION = 13020 };

int card_begin(double host_ns) {
    const int lost = card_enter(host_ns);
    if (lost) return lost;
    if (card_settings_now()->cuda_version / 1000 < RUNTIME_VERSION / 1000) return cudaErrorInsufficientDriver;
    return card_visible_devices() ? 0 : cudaErrorNoDevice;
}

cudaError_t cudaGetDeviceCount(int *count) {
    *count = 0;
    ENTER(0);
    *count = card_visible_devices();
    LEAVE(cudaSuccess);
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = card_settings_now()->cuda_version;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = RUNTIME_VERSION;
    return cudaSuccess;
}

const char *cudaGetErrorName(cudaError_t error) { return card_error_name(error, 0); }
const char *cudaGetErrorString(cudaError_t error) { return card_error_text(error); }
cudaError_t cudaGetLastError(void) { return (cudaError_t)card_lost(); }
cudaError_t cudaPeekAtLastError(void) { return (cudaError_t)card_lost(); }

/* With a lost context these two fail as well ("may also return error codes from previous launches", CUDA Runtime
 * API). */
cudaError_t cudaGetDevice(int *device) {
    ENTER(0);
    *device = card_current_device();
    LEAVE(cudaSuccess);
}

cudaError_t cudaSetDevice(int device) {
    ENTER(0);
    if (device < 0 || device >= card_visible_devices()) LEAVE(cudaErrorInvalidDevice);
    card_make_current(device);
    LEAVE(cudaSuccess);
}

cudaError_t cudaDeviceSynchronize(void) {
    ENTER(CARD_WAIT_CALL_NS);
    LEAVE(card_wait_device(card_current_device()));
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
    ENTER(CARD_CALL_NS);
    if (device < 0 || device >= card_visible_devices()) LEAVE(cudaErrorInvalidDevice);
    const card_model *model = &card_settings_now()->model;
    struct cudaDeviceProp *p = memset(properties, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "%s", model->name);
    card_cuda_uuid(card_physical(device), (unsigned char *)p->uuid.bytes);
    p->totalGlobalMem = model->memory_bytes;
    p->sharedMemPerBlock = CARD_SHARED_BYTES;
    p->sharedMemPerBlockOptin = CARD_SHARED_OPTIN;
    p->sharedMemPerMultiprocessor = CARD_SHARED_PER_SM;
    p->reservedSharedMemPerBlock = CARD_SHARED_RESERVED;
    p->regsPerBlock = p->regsPerMultiprocessor = CARD_REGISTERS;
    p->warpSize = 32;
    p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 0x7fffffff;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->totalConstMem = 65536;
    p->memPitch = 0x7fffffff;
    p->textureAlignment = 512;
    p->texturePitchAlignment = 32;
    p->major = (int)model->major;
    p->minor = (int)model->minor;
    p->multiProcessorCount = (int)model->sm_count;
    p->l2CacheSize = (int)model->l2_bytes;
    p->memoryBusWidth = (int)model->bus_bits;
    p->maxThreadsPerMultiProcessor = CARD_THREADS_PER_SM;
    p->maxBlocksPerMultiProcessor = CARD_BLOCKS_PER_SM;
    p->canMapHostMemory = p->concurrentKernels = p->unifiedAddressing = 1;
    p->streamPrioritiesSupported = p->globalL1CacheSupported = p->localL1CacheSupported = 1;
    p->memoryPoolsSupported = 1;
    p->asyncEngineCount = 2;
    p->pciBusID = 0x3b + card_physical(device);
    p->ECCEnabled = card_setting_number("ECC_MODE", 1) != 0;
    LEAVE(cudaSuccess);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    struct cudaDeviceProp p;
    const cudaError_t status = cudaGetDeviceProperties(&p, device);
    if (status) return status;
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
        case cudaDevAttrMaxBlockDimX: *value = p.maxThreadsDim[0]; break;
        case cudaDevAttrMaxBlockDimY: *value = p.maxThreadsDim[1]; break;
        case cudaDevAttrMaxBlockDimZ: *value = p.maxThreadsDim[2]; break;
        case cudaDevAttrMaxGridDimX: *value = p.maxGridSize[0]; break;
        case cudaDevAttrMaxGridDimY: *value = p.maxGridSize[1]; break;
        case cudaDevAttrMaxGridDimZ: *value = p.maxGridSize[2]; break;
        case cudaDevAttrMaxSharedMemoryPerBlock: *value = CARD_SHARED_BYTES; break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = CARD_SHARED_OPTIN; break;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = CARD_SHARED_PER_SM; break;
        case cudaDevAttrMaxRegistersPerBlock: *value = CARD_REGISTERS; break;
        case cudaDevAttrTotalConstantMemory: *value = 65536; break;
        case cudaDevAttrWarpSize: *value = 32; break;
        case cudaDevAttrClockRate: *value = 1000 * (int)card_settings_now()->model.sm_clock_mhz; break;
        case cudaDevAttrMemoryClockRate: *value = 1000 * (int)card_settings_now()->model.memory_clock_mhz; break;
        case cudaDevAttrGlobalMemoryBusWidth: *value = p.memoryBusWidth; break;
        case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
        case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
        case cudaDevAttrMaxThreadsPerMultiProcessor: *value = CARD_THREADS_PER_SM; break;
        case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
        case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
        case cudaDevAttrPciBusId: *value = p.pciBusID; break;
        case cudaDevAttrEccEnabled: *value = p.ECCEnabled; break;
        case cudaDevAttrTextureAlignment: *value = (int)p.textureAlignment; break;
        case cudaDevAttrUnifiedAddressing:
        case cudaDevAttrMemoryPoolsSupported:
        case cudaDevAttrCanMapHostMemory:
        case cudaDevAttrConcurrentKernels: *value = 1; break;
        default: *value = 0; break;
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device) {
    char whole[16];
    ENTER(CARD_CALL_NS);
    if (device < 0 || device >= card_visible_devices() || length < 13) LEAVE(cudaErrorInvalidDevice);
    card_pci_bus_id(card_physical(device), whole);
    memcpy(text, whole, 13); /* the end of the text included */
    LEAVE(cudaSuccess);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    ENTER(CARD_CALL_NS);
    const int all = card_visible_devices();
    if (device < 0 || peer < 0 || device >= all || peer >= all) LEAVE(cudaErrorInvalidDevice);
    *can = device != peer && card_setting_number("PEERS", 1) != 0;
    LEAVE(cudaSuccess);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    int can = 0;
    (void)flags;
    const cudaError_t status = cudaDeviceCanAccessPeer(&can, card_current_device(), peer);
    if (status) return status;
    ENTER(CARD_CALL_NS);
    if (!can) LEAVE(cudaErrorPeerAccessUnsupported);
    if (card_peer_allowed(card_current_device(), peer)) LEAVE(cudaErrorPeerAccessAlreadyEnabled);
    card_allow_peer(card_current_device(), peer, 1);
    LEAVE(cudaSuccess);
}
