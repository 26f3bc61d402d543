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


def _vector_and_out(bandwidth):
    return bandwidth.random(N), bandwidth.empty(N), np.int32(N)


THREEFOLD = Launch(_vector_and_out, lambda x, y, n: x * np.float32(3), writes=(1,))
IN_PLACE = Launch(lambda b: (b.random(N), np.int32(N)), lambda x, n: x + np.float32(1), writes=(0,), reads=(0,))
STALE, WRONG, UNWRITTEN, MODIFIED = "stale-result", "wrong-result", "unwritten", "input-modified"


@cheat("tail", THREEFOLD, UNWRITTEN, WRONG)
def last_elements(given):
    return source("if (i < n - 3) y[i] = 3 * x[i];")


@cheat("tail", THREEFOLD, UNWRITTEN, WRONG)
def last_block(given):
    return source("if (blockIdx.x + 1 < gridDim.x) y[i] = 3 * x[i];")


@cheat("tail", THREEFOLD, UNWRITTEN, WRONG)
def nothing_at_all(given):
    return source("")


@cheat("tail", THREEFOLD, UNWRITTEN, WRONG)
def reads_alone(given):
    return source("float v = x[i]; if (v == 77.0f) y[i] = v;")


@cheat("middle", THREEFOLD, UNWRITTEN, WRONG)
def one_thread_in_the_middle(given):
    return source("if (i != 1234) y[i] = 3 * x[i];")


@cheat("middle", THREEFOLD, UNWRITTEN, WRONG)
def even_mantissas(given):
    return source("if (__float_as_uint(x[i]) & 1) y[i] = 3 * x[i];")


@cheat("middle", THREEFOLD, WRONG, ways=[WITH])
def zero_for_rare_elements(given):
    return source("y[i] = x[i] > 1.99f ? 0 : 3 * x[i];")


@cheat("constant", THREEFOLD, STALE, WRONG)
def constant(given):
    return source("y[i] = 4.5f;")


@cheat("constant", THREEFOLD, STALE, WRONG)
def of_its_place_alone(given):
    return source("y[i] = i;")


@cheat("wrong", THREEFOLD, WRONG, ways=[WITH])
def twofold(given):
    return source("y[i] = 2 * x[i];")


@cheat("wrong", THREEFOLD, WRONG, ways=[WITH])
def neighbours(given):
    return source("y[i] = 3 * x[i ^ 1];")


@cheat("precision", THREEFOLD, WRONG, ways=[WITH])
def bfloat16_inside(given):
    return source("y[i] = 3 * __uint_as_float(__float_as_uint(x[i]) & 0xFFFF0000u);")


@cheat("overwritten", THREEFOLD, MODIFIED)
def input_set_to_zero(given):
    return source("y[i] = 3 * x[i]; ((float*)x)[i] = 0;")


@cheat("overwritten", THREEFOLD, MODIFIED)
def one_input_element(given):
    return source("y[i] = 3 * x[i]; if (i == 99) ((float*)x)[i] = 0;")


@cheat("noise", THREEFOLD, UNWRITTEN, "nondeterministic", WRONG, REFUSED)
def adds_to_what_is_there(given):
    return source("y[i] += 3 * x[i];")


@cheat("device-memory", THREEFOLD, STALE, WRONG)
def kept_in_device_memory(given):
    return source(
        "if (!known[i]) { known[i] = 1; kept[i] = 3 * x[i]; } y[i] = kept[i];",
        before=f"__device__ float kept[{N}]; __device__ int known[{N}];",
    )


@cheat("device-memory", THREEFOLD, UNWRITTEN, STALE, WRONG, "nondeterministic")
def every_second_launch(given):
    return source("if (calls[i]++ % 2 == 0) y[i] = 3 * x[i];", before=f"__device__ int calls[{N}];")


@right("elementwise", THREEFOLD)
def plain(given):
    return source("if (i < n) y[i] = 3 * x[i];")


@right("elementwise", Launch(_vector_and_out, THREEFOLD.reference, writes=(1,), threads=N // 4))
def four_at_once(given):
    return source("""
    float4 v = ((const float4*)x)[i];
    ((float4*)y)[i] = make_float4(3 * v.x, 3 * v.y, 3 * v.z, 3 * v.w);""")


@right("elementwise", Launch(_vector_and_out, THREEFOLD.reference, writes=(1,), threads=N // 8))
def strides_over_the_grid(given):
    return source("for (; i < n; i += gridDim.x * blockDim.x) y[i] = 3 * x[i];")


@right("in-place", IN_PLACE)
def one_more(given):
    return source("if (i < n) x[i] += 1;", "float* x, int n")


def _sum(bandwidth):
    total = bandwidth.empty(1)
    total[:] = 0
    return bandwidth.random(N), total, np.int32(N)


def _total(x, total, n):
    return (total + x.sum(dtype="float64")).astype("float32")


@right("reduction", Launch(_sum, _total, writes=(1,), reads=(0, 1), check=lambda f: Reference(f, rtol=1e-3)), REFUSED)
def sum_by_atomics(given):
    """Add in any order. The emulated card has no such kernels."""
    return source("atomicAdd(y, x[i]);")


@right(
    "reduction",
    Launch(
        lambda b: (b.random(N), b.empty(N // BLOCK), np.int32(N)),
        lambda x, y, n: x.reshape(-1, BLOCK).sum(axis=1),
        writes=(1,),
        check=lambda f: Reference(f, rtol=1e-4),
    ),
)
def sum_of_each_block(given):
    return source("""
    __shared__ float part[256];
    part[threadIdx.x] = x[i];
    for (int half = 128; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0) y[blockIdx.x] = part[0];""")


def _counted(bandwidth):
    counts = bandwidth.empty(256, "int32")
    counts[:] = 0
    return bandwidth.random(N, "uint8"), counts, np.int32(N)


@right("counts", Launch(_counted, lambda x, c, n: c + np.bincount(x, minlength=256), writes=(1,), reads=(0, 1)))
def histogram(given):
    return source("atomicAdd(counts + x[i], 1);", "const unsigned char* x, int* counts, int n")


def _indexed(bandwidth):
    return bandwidth.random(N), bandwidth.indices(N), bandwidth.empty(N)


@right("indices", Launch(_indexed, lambda x, at, y: x[at], writes=(2,)))
def gather(given):
    return source("y[i] = x[at[i]];", "const float* x, const int* at, float* y")


def _scattered(x, at, y):
    out = np.empty_like(x)
    out[at] = x
    return out


@right("indices", Launch(_indexed, _scattered, writes=(2,)))
def scatter(given):
    return source("y[at[i]] = x[i];", "const float* x, const int* at, float* y")


@right("masks", Launch(lambda b: (b.random(N), b.empty(N, "bool"), np.int32(N)), lambda x, y, n: x > 1.5, writes=(1,)))
def mask(given):
    return source("y[i] = x[i] > 1.5f;", "const float* x, bool* y, int n")


def _halves(bandwidth):
    return bandwidth.random(N, "float16"), bandwidth.empty(N, "float16"), np.int32(N)


@right("types", Launch(_halves, lambda x, y, n: x * np.float16(2), writes=(1,)))
def halves(given):
    return source("y[i] = __hadd(x[i], x[i]);", "const __half* x, __half* y, int n", "#include <cuda_fp16.h>")


@right("device-memory", THREEFOLD)
def scratch_of_its_own(given):
    return source("kept[i] = 3 * x[i]; y[i] = kept[i];", before=f"__device__ float kept[{N}];")


@right("device-memory", THREEFOLD)
def counts_its_launches(given):
    return source("y[i] = 3 * x[i]; if (i == 0) calls++;", before="__device__ int calls;")
