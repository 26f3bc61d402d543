"""CUDA kernels, cheats and right ones, for each device that launches them: a candidate makes its kernel's source."""

from dataclasses import dataclass

import numpy as np
from table import REFUSED, WITH, Task, cheat, right

from pytest_bandwidth import Reference

N, BLOCK = 1 << 12, 256


@dataclass(frozen=True)
class Launch(Task):
    """Work that is one kernel's, `work`, of so many threads; scalars among its arguments are its own."""

    threads: int = N

    def measure(self, bandwidth, work, args, **more):
        reads = [place for place, value in enumerate(args) if getattr(value, "ndim", 0) and place not in self.writes]
        places = reads if self.reads is None else self.reads
        declared = {"reads": [args[place] for place in places], "writes": [args[place] for place in self.writes]}
        kernel = bandwidth.kernel(work, "work")
        bandwidth.launch(kernel, self.threads // BLOCK, BLOCK, args, **{**declared, **more})


def source(body, parameters="const float* x, float* y, int n", before=""):
    """Return a kernel whose threads each have an element, `i`."""
    return f"""{before}
extern "C" __global__ void work({parameters}) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    {body}
}}"""


def threefold(threads=N):
    return Launch(arrays(), lambda x, y, n: x * np.float32(3), writes=(1,), threads=threads)


def arrays(dtype="float32", out="float32", size=N, zeroed=False):
    """Return what makes an array to read, one to write or to add to, and the first one's size."""

    def make(bandwidth):
        written = bandwidth.empty(size, out)
        if zeroed:
            written[:] = 0
        return bandwidth.random(N, dtype), written, np.int32(N)

    return make


THREEFOLD = threefold()
IN_PLACE = Launch(lambda b: (b.random(N), np.int32(N)), lambda x, n: x + np.float32(1), writes=(0,), reads=(0,))
STALE, WRONG, UNWRITTEN, MODIFIED = "stale-result", "wrong-result", "unwritten", "input-modified"


cheat("tail", THREEFOLD, UNWRITTEN, WRONG)(
    last_elements=source("if (i < n - 3) y[i] = 3 * x[i];"),
    nothing_at_all=source(""),
)
cheat("middle", THREEFOLD, UNWRITTEN, WRONG)(
    one_thread_in_the_middle=source("if (i != 1234) y[i] = 3 * x[i];"),
)
cheat("constant", THREEFOLD, STALE, WRONG)(constant=source("y[i] = 4.5f;"), of_its_place_alone=source("y[i] = i;"))
cheat("wrong", THREEFOLD, WRONG, ways=[WITH])(
    zero_for_rare_elements=source("y[i] = x[i] > 1.99f ? 0 : 3 * x[i];"),
    twofold=source("y[i] = 2 * x[i];"),
    bfloat16_inside=source("y[i] = 3 * __uint_as_float(__float_as_uint(x[i]) & 0xFFFF0000u);"),
)
cheat("overwritten", THREEFOLD, MODIFIED)(
    input_set_to_zero=source("y[i] = 3 * x[i]; ((float*)x)[i] = 0;"),
)
cheat("noise", THREEFOLD, UNWRITTEN, "nondeterministic", WRONG, REFUSED)(
    adds_to_what_is_there=source("y[i] += 3 * x[i];")
)
cheat("device-memory", THREEFOLD, STALE, WRONG)(
    kept_in_device_memory=source(
        "if (!known[i]) { known[i] = 1; kept[i] = 3 * x[i]; } y[i] = kept[i];",
        before=f"__device__ float kept[{N}]; __device__ int known[{N}];",
    )
)
cheat("device-memory", THREEFOLD, UNWRITTEN, STALE, WRONG, "nondeterministic")(
    every_second_launch=source("if (calls[i]++ % 2 == 0) y[i] = 3 * x[i];", before=f"__device__ int calls[{N}];")
)


right("elementwise", THREEFOLD)(plain=source("if (i < n) y[i] = 3 * x[i];"))
right("elementwise", threefold(N // 4))(
    four_at_once=source("""
    float4 v = ((const float4*)x)[i];
    ((float4*)y)[i] = make_float4(3 * v.x, 3 * v.y, 3 * v.z, 3 * v.w);""")
)
right("in-place", IN_PLACE)(one_more=source("if (i < n) x[i] += 1;", "float* x, int n"))


def _total(x, total, n):
    return (total + x.sum(dtype="float64")).astype("float32")


SUM = Launch(arrays(size=1, zeroed=True), _total, (1,), (0, 1), check=lambda f: Reference(f, rtol=1e-3))
# In any order. The emulated card has no such kernels.
right("reduction", SUM, REFUSED)(sum_by_atomics=source("atomicAdd(y, x[i]);"))


def _sums(x, y, n):
    return x.reshape(-1, BLOCK).sum(axis=1)


right("reduction", Launch(arrays(size=N // BLOCK), _sums, (1,), check=lambda f: Reference(f, rtol=1e-4)))(
    sum_of_each_block=source("""
    __shared__ float part[256];
    part[threadIdx.x] = x[i];
    for (int half = 128; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0) y[blockIdx.x] = part[0];""")
)


def _counts(x, counts, n):
    return counts + np.bincount(x, minlength=256)


right("counts", Launch(arrays("uint8", "int32", 256, zeroed=True), _counts, writes=(1,), reads=(0, 1)))(
    histogram=source("atomicAdd(counts + x[i], 1);", "const unsigned char* x, int* counts, int n")
)


def _indexed(bandwidth):
    return bandwidth.random(N), bandwidth.indices(N), bandwidth.empty(N)


def _scattered(x, at, y):
    out = np.empty_like(x)
    out[at] = x
    return out


BY_INDEX = "const float* x, const int* at, float* y"
right("indices", Launch(_indexed, lambda x, at, y: x[at], writes=(2,)))(gather=source("y[i] = x[at[i]];", BY_INDEX))
right("indices", Launch(_indexed, _scattered, writes=(2,)))(scatter=source("y[at[i]] = x[i];", BY_INDEX))
right("masks", Launch(arrays(out="bool"), lambda x, y, n: x > 1.5, writes=(1,)))(
    mask=source("y[i] = x[i] > 1.5f;", "const float* x, bool* y, int n")
)
right("types", Launch(arrays("float16", "float16"), lambda x, y, n: x * np.float16(2), writes=(1,)))(
    halves=source("y[i] = __hadd(x[i], x[i]);", "const __half* x, __half* y, int n", "#include <cuda_fp16.h>")
)
right("device-memory", THREEFOLD)(
    counts_its_launches=source("y[i] = 3 * x[i]; if (i == 0) calls++;", before="__device__ int calls;"),
)
