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
        found->type = range.kind == CARD_ON_DEVICE ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
        if (range.kind == CARD_ON_DEVICE) found->hostPointer = NULL;
    }
    LEAVE(cudaSuccess);
}

static cudaError_t copy(void *to, const void *from, size_t bytes, void *handle, int asynchronous) {
    ENTER(CARD_CALL_NS);
    STREAM(stream, handle);
    LEAVE(card_copy((uint64_t)to, (uint64_t)from, bytes, stream, asynchronous));
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    (void)kind;
    return copy(to, from, bytes, NULL, 0);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    (void)kind;
    return copy(to, from, bytes, stream, 1);
}

cudaError_t cudaMemcpyPeerAsync(
    void *to, int to_device, const void *from, int from_device, size_t bytes, cudaStream_t stream) {
    (void)to_device, (void)from_device;
    return copy(to, from, bytes, stream, 1);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t handle) {
    ENTER(CARD_CALL_NS);
    STREAM(stream, handle);
    LEAVE(card_fill((uint64_t)to, (uint8_t)value, bytes, stream));
}

cudaError_t cudaMemset(void *to, int value, size_t bytes) { return cudaMemsetAsync(to, value, bytes, NULL); }
