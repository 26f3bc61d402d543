"""Copies, fills, pools, pinned and managed memory, two cards: what CuPy's calls do to the card's memory."""

import json

import cupy
import numpy as np

runtime = cupy.cuda.runtime
seen: dict[str, object] = {}

numbers = np.arange(1000, dtype=np.int32)
array = cupy.empty(1000, np.int32)
array.set(numbers)
seen["there and back"] = bool((array.get() == numbers).all())

array.data.memset_async(0xFF, 400, cupy.cuda.Stream.null)
seen["filled"] = [int(array.get()[99]), int(array.get()[100])]

host = cupy.cuda.alloc_pinned_memory(4000)
pinned = np.frombuffer(host, np.int32, 1000)
stream = cupy.cuda.Stream(non_blocking=True)
array.get(stream=stream, out=pinned, blocking=False)
stream.synchronize()
seen["pinned"] = pinned[[99, 100]].tolist()

with cupy.cuda.using_allocator(cupy.cuda.malloc_managed):
    managed = cupy.empty(10, np.int32)
runtime.memset(managed.data.ptr, 1, 40)
runtime.deviceSynchronize()
seen["managed type"] = runtime.pointerGetAttributes(managed.data.ptr).type

pool = cupy.cuda.MemoryAsyncPool()
with cupy.cuda.using_allocator(pool.malloc), stream:
    lent = cupy.empty(1 << 20, np.uint8)
    del lent
    again = cupy.empty(1 << 20, np.uint8)
    again.set(np.ones(1 << 20, np.uint8))
    seen["from the pool"] = int(again.get().sum())

square = np.arange(12, dtype=np.uint8).reshape(3, 4)
pitched = cupy.zeros((3, 16), np.uint8)
runtime.memcpy2D(pitched.data.ptr, 16, square.ctypes.data, 4, 4, 3, runtime.memcpyHostToDevice)
seen["by rows"] = bool((pitched.get()[:, :4] == square).all() and not pitched.get()[:, 4:].any())

free, total = runtime.memGetInfo()
address = runtime.malloc(1 << 30)
seen["taken"] = free - runtime.memGetInfo()[0]
runtime.free(address)
seen["given back"] = runtime.memGetInfo()[0] == free
try:
    cupy.empty(total + 1, np.uint8)
except cupy.cuda.memory.OutOfMemoryError:
    seen["too much"] = "out of memory"
try:
    runtime.memcpy(array.data.ptr, array.data.ptr + (1 << 36), 4, runtime.memcpyDeviceToDevice)
except runtime.CUDARuntimeError as error:
    seen["out of range"] = str(error)
seen["still works"] = int(array.get()[100])

seen["cards"] = runtime.getDeviceCount()
with cupy.cuda.Device(1):
    there = cupy.empty(1000, np.int32)
    runtime.memcpyPeer(there.data.ptr, 1, array.data.ptr, 0, 4000)
    seen["on the other card"] = [int(there.get()[100]), runtime.pointerGetAttributes(there.data.ptr).device]
seen["peers"] = runtime.deviceCanAccessPeer(0, 1)
print(json.dumps(seen))
