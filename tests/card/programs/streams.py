"""Order and virtual time: streams, events, a kernel that waits for the host, callbacks, a graph."""

import json
import time

import cupy
import numpy as np

runtime = cupy.cuda.runtime
seen: dict[str, object] = {}

SOURCE = """
extern "C" __global__ void add(int* x, int v) { *x = *x * 10 + v; }
extern "C" __global__ void spin(long long cycles) { long long s = clock64(); while (clock64() - s < cycles) {} }
extern "C" __global__ void wait_for(const volatile int* flag, volatile int* gave_up, long long allowed) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    while (!*flag) {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        if (now - start > allowed) { *gave_up = 1; return; }
    }
}
"""
module = cupy.RawModule(code=SOURCE)
add, spin, wait_for = (module.get_function(name) for name in ("add", "spin", "wait_for"))
x = cupy.zeros(1, np.int32)
one, other = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
flags_memory = cupy.cuda.alloc_pinned_memory(64)
flags = np.frombuffer(flags_memory, np.int32, 2)
flags[:] = 0


def milliseconds(start: object, end: object) -> float:
    return float(cupy.cuda.get_elapsed_time(start, end))


# A stream that waits for another's event runs behind it, and takes its time into account.
with one:
    spin((1,), (1,), (np.int64(15_000_000),))  # 10 ms at 1500 MHz
    add((1,), (1,), (x, np.int32(1)))
    done = one.record()
with other:
    start = other.record()
    other.wait_event(done)
    add((1,), (1,), (x, np.int32(2)))
    end = other.record()
other.synchronize()
seen["order"] = int(x.get()[0])
seen["waited ms"] = milliseconds(start, end)

# Streams that do not wait run side by side.
with one:
    spin((1,), (1,), (np.int64(15_000_000),))
before = time.perf_counter()
with other:
    add((1,), (1,), (x, np.int32(3)))
other.synchronize()
seen["not blocked s"] = time.perf_counter() - before
seen["busy"] = one.done
one.synchronize()
seen["done"] = one.done

# The legacy default stream and a stream that was made to block wait for each other.
blocking = cupy.cuda.Stream()
add((1,), (1,), (x, np.int32(4)))
with blocking:
    add((1,), (1,), (x, np.int32(5)))
blocking.synchronize()
seen["legacy"] = int(x.get()[0])

# A kernel that waits for the host: what is behind it starts when it was released.
with one:
    wait_for((1,), (1,), (np.uint64(flags_memory.ptr), np.uint64(flags_memory.ptr + 4), np.int64(10**9)))
    start = one.record()
    add((1,), (1,), (x, np.int32(6)))
    end = one.record()
time.sleep(0.02)  # the card's time passes: what waits has not ended all the same
seen["held"] = one.done
flags[0] = 1
one.synchronize()
seen["gave up"] = int(flags[1])
seen["behind the hold ms"] = milliseconds(start, end)

# Nobody releases it: it gives up, in virtual time.
flags[:] = 0
before = time.perf_counter()
with one:
    wait_for((1,), (1,), (np.uint64(flags_memory.ptr), np.uint64(flags_memory.ptr + 4), np.int64(250_000_000)))
one.synchronize()
seen["gave up after s"] = time.perf_counter() - before
seen["gave up alone"] = int(flags[1])

told: list[str] = []
one.launch_host_func(told.append, "called")
seen["not yet"] = len(told)
one.synchronize()
seen["host function"] = told

x.fill(0)
runtime.deviceSynchronize()
with one:
    one.begin_capture()
    add((1,), (1,), (x, np.int32(7)))
    add((1,), (1,), (x, np.int32(8)))
    graph = one.end_capture()
    seen["captured, not run"] = True
one.synchronize()
untouched = int(x.get()[0])
graph.launch(one)
graph.launch(one)
one.synchronize()
seen["graph"] = [untouched, int(x.get()[0])]

before = time.perf_counter()
time.sleep(0.01)  # in virtual time, as is asked below
seen["slept"] = time.perf_counter() - before
print(json.dumps(seen))
