/* Stream-ordered memory. A pool keeps nothing: what is freed is free once the stream has come to it. */
#include "memory.h"
#include "runtime.h"

struct CUmemPoolHandle_st {
    int device;
    uint64_t threshold, used, high;
};

static struct CUmemPoolHandle_st default_pools[8];
static struct CUmemPoolHandle_st *current_pools[8];

static cudaMemPool_t default_pool(int device) {
    default_pools[device].device = device;
    return &default_pools[device];
}

static cudaMemPool_t current_pool(int device) {
    return current_pools[device] ? current_pools[device] : default_pool(device);
}

typedef struct freed {
    card_work work;
    uint64_t address;
} freed;

static int run_free(card_work *work, card_stream *stream, double start_ns, double *end_ns) {
    (void)stream;
    *end_ns = start_ns;
    return card_release(((freed *)work)->address) ? 700 : 0;
}

cudaError_t cudaMallocAsync(void **address, size_t bytes, cudaStream_t handle) {
    ENTER(CARD_CALL_NS);
    STREAM(stream, handle);
    *address = NULL;
    if (!bytes) LEAVE(cudaSuccess);
    *address = (void *)card_allocate(CARD_ON_DEVICE, stream->device, bytes);
    if (!*address) { /* what is freed already, but not yet run, makes room */
        const int status = card_wait_stream(stream);
        if (status) LEAVE(status);
        *address = (void *)card_allocate(CARD_ON_DEVICE, stream->device, bytes);
    }
    if (!*address) LEAVE(cudaErrorMemoryAllocation);
    cudaMemPool_t pool = current_pool(stream->device);
    pool->used += bytes;
    if (pool->used > pool->high) pool->high = pool->used;
    LEAVE(cudaSuccess);
}

cudaError_t cudaFreeAsync(void *address, cudaStream_t handle) {
    ENTER(0);
    if (!address) LEAVE(cudaSuccess);
    STREAM(stream, handle);
    const card_range range = card_range_of((uint64_t)address);
    if (range.kind != CARD_ON_DEVICE) LEAVE(cudaErrorInvalidValue);
    struct CUmemPoolHandle_st *pool = current_pool(range.device);
    pool->used -= range.bytes < pool->used ? range.bytes : pool->used;
    freed *work = card_work_new(sizeof *work, run_free, NULL);
    work->address = (uint64_t)address;
    LEAVE(card_queue(stream, &work->work));
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
    ENTER(CARD_CALL_NS);
    *pool = default_pool(device);
    LEAVE(cudaSuccess);
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int device) {
    ENTER(CARD_CALL_NS);
    *pool = current_pool(device);
    LEAVE(cudaSuccess);
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
    ENTER(CARD_CALL_NS);
    current_pools[device] = pool;
    LEAVE(cudaSuccess);
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) {
    (void)pool, (void)keep;
    ENTER(CARD_CALL_NS);
    LEAVE(cudaSuccess);
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
    ENTER(CARD_CALL_NS);
    if (attribute == cudaMemPoolAttrReleaseThreshold) pool->threshold = *(uint64_t *)value;
    LEAVE(cudaSuccess);
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
    ENTER(CARD_CALL_NS);
    switch (attribute) {
        case cudaMemPoolReuseFollowEventDependencies:
        case cudaMemPoolReuseAllowOpportunistic:
        case cudaMemPoolReuseAllowInternalDependencies: *(int *)value = 1; break;
        case cudaMemPoolAttrReleaseThreshold: *(uint64_t *)value = pool->threshold; break;
        case cudaMemPoolAttrReservedMemCurrent:
        case cudaMemPoolAttrUsedMemCurrent: *(uint64_t *)value = pool->used; break;
        case cudaMemPoolAttrReservedMemHigh:
        case cudaMemPoolAttrUsedMemHigh: *(uint64_t *)value = pool->high; break;
        default: LEAVE(cudaErrorInvalidValue);
    }
    LEAVE(cudaSuccess);
}
