#include "copies.h"
#include "memory.h"
#include "runtime.h"
#include "settings.h"
#include "streams.h"

static int allocate(void **address, size_t bytes, enum card_memory kind) {
    *address = NULL;
    if (!bytes) return cudaSuccess;
    *address = (void *)card_allocate(kind, card_current_device(), bytes);
    return *address ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaMalloc(void **address, size_t bytes) {
    ENTER(CARD_CALL_NS);
    const int refused = card_refuse_allocation();
    LEAVE(refused ? refused : allocate(address, bytes, CARD_ON_DEVICE));
}

cudaError_t cudaMallocManaged(void **address, size_t bytes, unsigned flags) {
    (void)flags;
    ENTER(CARD_CALL_NS);
    LEAVE(allocate(address, bytes, CARD_MANAGED));
}

cudaError_t cudaHostAlloc(void **address, size_t bytes, unsigned flags) {
    (void)flags;
    ENTER(CARD_CALL_NS);
    LEAVE(allocate(address, bytes, CARD_PINNED));
}

/* Frees take none of the host's virtual time: when Python collects garbage is no business of the figures. */
cudaError_t cudaFree(void *address) {
    ENTER(0);
    if (!address) LEAVE(cudaSuccess);
    const int status = card_wait_device(card_current_device()); /* as cudaFree does */
    LEAVE(status ? status : card_release((uint64_t)address));
}

cudaError_t cudaFreeHost(void *address) {
    ENTER(0);
    if (!address) LEAVE(cudaSuccess);
    const int status = card_wait_device(card_current_device());
    LEAVE(status ? status : card_release((uint64_t)address));
}

cudaError_t cudaHostRegister(void *address, size_t bytes, unsigned flags) {
    (void)flags;
    ENTER(CARD_CALL_NS);
    LEAVE(card_register((uint64_t)address, bytes));
}

cudaError_t cudaHostUnregister(void *address) {
    ENTER(0);
    LEAVE(card_unregister((uint64_t)address));
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
    ENTER(CARD_CALL_NS);
    *total = card_settings_now()->model.memory_bytes;
    const uint64_t used = card_used_by_all(card_current_device());
    *free = used < *total ? *total - used : 0;
    LEAVE(cudaSuccess);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *found, const void *address) {
    ENTER(0);
    const card_range range = card_range_of((uint64_t)address);
    void *same = (void *)address;
    *found = (struct cudaPointerAttributes){.type = cudaMemoryTypeUnregistered, .device = -2, .hostPointer = same};
    if (range.kind != CARD_NOWHERE) {
        found->device = range.device;
        found->devicePointer = same;
        found->type = range.kind == CARD_ON_DEVICE ? cudaMemoryTypeDevice
                      : range.kind == CARD_MANAGED ? cudaMemoryTypeManaged
                                                   : cudaMemoryTypeHost;
        if (range.kind == CARD_ON_DEVICE) found->hostPointer = NULL;
    }
    LEAVE(cudaSuccess);
}

static cudaError_t copy(
    void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, void *handle,
    int asynchronous) {
    ENTER(CARD_CALL_NS);
    STREAM(stream, handle);
    const card_rows rows = {(uint64_t)to, (uint64_t)from, to_pitch, from_pitch, width, height};
    LEAVE(card_copy(rows, stream, asynchronous));
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    (void)kind;
    return copy(to, bytes, from, bytes, bytes, 1, NULL, 0);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    (void)kind;
    return copy(to, bytes, from, bytes, bytes, 1, stream, 1);
}

cudaError_t cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t bytes) {
    (void)to_device, (void)from_device;
    return copy(to, bytes, from, bytes, bytes, 1, NULL, 0);
}

cudaError_t cudaMemcpyPeerAsync(
    void *to, int to_device, const void *from, int from_device, size_t bytes, cudaStream_t stream) {
    (void)to_device, (void)from_device;
    return copy(to, bytes, from, bytes, bytes, 1, stream, 1);
}

cudaError_t cudaMemcpy2D(
    void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
    enum cudaMemcpyKind kind) {
    (void)kind;
    return copy(to, to_pitch, from, from_pitch, width, height, NULL, 0);
}

cudaError_t cudaMemcpy2DAsync(
    void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
    enum cudaMemcpyKind kind, cudaStream_t stream) {
    (void)kind;
    return copy(to, to_pitch, from, from_pitch, width, height, stream, 1);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t handle) {
    ENTER(CARD_CALL_NS);
    STREAM(stream, handle);
    LEAVE(card_fill((card_rows){(uint64_t)to, 0, bytes, 0, bytes, 1}, (uint32_t)value & 255, 1, stream));
}

cudaError_t cudaMemset(void *to, int value, size_t bytes) { return cudaMemsetAsync(to, value, bytes, NULL); }

cudaError_t cudaMemPrefetchAsync(
    const void *address, size_t bytes, struct cudaMemLocation location, unsigned flags, cudaStream_t handle) {
    (void)bytes, (void)location, (void)flags;
    ENTER(CARD_CALL_NS);
    STREAM(stream, handle);
    (void)stream; /* where managed memory lies is not modelled: it is always the card's */
    LEAVE(card_range_of((uint64_t)address).kind == CARD_MANAGED ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMemAdvise(
    const void *address, size_t bytes, enum cudaMemoryAdvise advice, struct cudaMemLocation location) {
    (void)bytes, (void)advice, (void)location;
    ENTER(CARD_CALL_NS);
    LEAVE(card_range_of((uint64_t)address).kind == CARD_MANAGED ? cudaSuccess : cudaErrorInvalidValue);
}
