"""Missing barriers are found, one by one, although lockstep makes the results come out right; nothing else is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from ptx_sources import GEMM, REDUCTION, kernel_of, line_of, program, run

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.traffic import ptx


def reduction(text: str) -> ptx.Execution:
    source = np.random.default_rng(1).standard_normal(4096).astype(np.float32)
    return run(text, "total", (4,), (256,), np.zeros(4, np.float32), source, 4096, faulty=True)


def gemm(text: str) -> ptx.Execution:
    a, b = np.random.default_rng(1).standard_normal((2, 64, 64)).astype(np.float16)
    return run(text, "gemm", (4, 4), (16, 16), np.zeros((64, 64), np.float16), a, b, 64, faulty=True)


CASES = {"reduction": (REDUCTION, reduction), "gemm of halves": (GEMM, gemm)}
REMOVALS = [(name, number) for name, (text, _) in CASES.items() for number in range(text.count("__syncthreads();"))]


def without(text: str, number: int) -> str:
    parts = text.split("__syncthreads();")
    return (
        "__syncthreads();".join(parts[: number + 1]) + "              " + "__syncthreads();".join(parts[number + 1 :])
    )


@pytest.mark.parametrize("name", CASES)
def test_originals_have_no_fault(name: str) -> None:
    text, launch = CASES[name]
    assert launch(text).faults == ()


@pytest.mark.parametrize(("name", "number"), REMOVALS)
def test_each_removed_barrier_is_a_race(name: str, number: int) -> None:
    text, launch = CASES[name]
    assert len(REMOVALS) == 4
    faults = launch(without(text, number)).faults
    assert faults
    assert {fault.code for fault in faults} == {"race"}
    assert all(fault.line > 0 and fault.thread and fault.array for fault in faults)


def test_a_race_names_both_sides() -> None:
    text = r"""
    extern "C" __global__ void next(int* out) {
        __shared__ int box[64];
        box[threadIdx.x] = threadIdx.x;  // write
        out[threadIdx.x] = box[(threadIdx.x + 1) % 64];  // read
    }
    """
    (fault,) = run(text, "next", (2,), (64,), np.zeros(64, np.int32), faulty=True).faults[:1]
    assert (fault.code, fault.array, fault.line) == ("race", "box", line_of(text, "// read"))
    assert f"line {line_of(text, '// write')}" in fault.text
    assert "thread (0, 0, 0) of block (0, 0, 0) reads box" in fault.text


SHARED = r"""
extern "C" __global__ void k(int* out) {
    __shared__ int box[64];
    int t = threadIdx.x;
    BODY
    __syncthreads();
    out[t] = box[t];
}
"""


@pytest.mark.parametrize(
    ("body", "codes"),
    [
        ("box[t] = t; __syncwarp(); out[t + 64] = box[t ^ 1];", set()),
        ("box[t] = t; __syncwarp(); out[t + 64] = box[63 - t];", {"race"}),
        ("box[t] = t; box[1] = 7;", {"race"}),
        ("box[t] = t; __syncthreads(); box[1] = 7;", set()),  # all of them write the same
        ("box[t] = t; __syncthreads(); box[1] = t;", {"race"}),
        ("box[t] = 0; atomicAdd(&box[t * 7 % 64], 1);", {"race"}),
        ("box[t] = 0; __syncthreads(); atomicAdd(&box[t * 7 % 64], 1);", set()),
        ("if (t < 32) { __syncthreads(); box[t] = t; } else { box[t] = 2; __syncthreads(); }", {"barrier"}),
    ],
)
def test_shared_memory_of_a_block(body: str, codes: set[str]) -> None:
    found = run(SHARED.replace("BODY", body), "k", (4,), (64,), np.zeros(128, np.int32), faulty=True).faults
    assert {fault.code for fault in found if fault.array != "out"} == codes


def test_blocks_that_share_global_memory_race() -> None:
    text = r"""
    extern "C" __global__ void smooth(float* data, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        float sum = data[i] + (i + 1 < n ? data[i + 1] : 0.0f);
        BARRIER
        data[i] = sum;  // in place
    }
    """
    in_order = text.replace("BARRIER", "__syncthreads();")
    faults = run(in_order, "smooth", (8,), (64,), np.ones(512, np.float32), 512, faulty=True).faults
    assert {fault.code for fault in faults} == {"race"}
    assert "of the same launch" in faults[0].text
    assert run(in_order, "smooth", (1,), (512,), np.ones(512, np.float32), 512, faulty=True).faults == ()
    without_order = text.replace("BARRIER", "")
    (fault,) = run(without_order, "smooth", (1,), (512,), np.ones(512, np.float32), 512, faulty=True).faults
    assert "which several threads of warp 0 accessed with no barrier between" in fault.text


LAST_BLOCK = r"""
__device__ unsigned ticket = 0;
extern "C" __global__ void total(float* out, float* parts, const float* in) {
    __shared__ bool last;
    float sum = in[blockIdx.x * blockDim.x + threadIdx.x];
    for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = sum;
        FENCE
        last = atomicInc(&ticket, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float all = 0;
        for (int i = 0; i < gridDim.x; i++) all += parts[i];
        *out = all;
    }
}
"""


def test_fence_and_ticket_order_blocks() -> None:
    source = np.random.default_rng(1).standard_normal(32 * 50).astype(np.float32)
    out = np.zeros(1, np.float32)
    run(LAST_BLOCK.replace("FENCE", "__threadfence();"), "total", (50,), (32,), out, np.zeros(50, np.float32), source)
    np.testing.assert_allclose(out[0], source.astype(np.float64).sum(), rtol=1e-4)
    faults = run(
        LAST_BLOCK.replace("FENCE", ""), "total", (50,), (32,), out, np.zeros(50, np.float32), source, faulty=True
    ).faults
    assert {(fault.code, fault.array) for fault in faults} == {("race", "parts")}


# ---- blocks that wait for others -------------------------------------------------------------------------------------

HEAD = """
extern "C" __global__ void k(int* x, int* flag) {
    volatile int* v = flag;
    int t = threadIdx.x, b = blockIdx.x, n = blockDim.x, last = gridDim.x - 1;
    BODY
}
"""
CHAIN = """if (!t && b) { WAIT } __syncthreads(); x[b * n + t] = (b ? x[b * n - 1 - t] : 0) + 1;
    __syncthreads(); if (!t) { POST }"""
ACQUIRED = 'int s = 0; while (!s) asm volatile("ld.acquire.gpu.s32 %0, [%1];" : "=r"(s) : "l"(flag + b) : "memory");'
LOCKED = (
    "if (!t) { while (atomicCAS(flag, 0, 1)); __threadfence(); *x += b + 1; __threadfence(); atomicExch(flag, 0); }"
)
FROM_THE_LAST = """if (b == last) { if (!t) *x = 9; __threadfence(); __syncthreads(); if (!t) atomicExch(flag, 1); }
    else { if (!t) while (!atomicAdd(flag, 0)); __syncthreads(); __threadfence(); x[1 + b * n + t] = *x; }"""
ONE_LANE = "__shared__ int box; int e = 0; if (!t) { while (*v != b) PAUSE; e = box = b; __threadfence(); *v = b + 1; }"
COUNTED = "if (b) { x[1] = 1; __threadfence(); atomicExch(flag, 1); } else"
# What waits, the blocks and threads that do, and what is in `x` at the end.
WAITS = {
    "for what a later block stores": (FROM_THE_LAST, 5, 64, [9] * (1 + 4 * 64)),
    "for a lock, in turns": (LOCKED, 40, 64, [40 * 41 // 2]),
    # Each turn of the loop begins with the same registers; the counter in memory goes on.
    "a queue of work": ("for (int i; (i = atomicAdd(flag, 1)) < 999;) x[i] = i;", 2, 64, [*range(999)]),
    "for a volatile flag": (
        CHAIN.replace("WAIT", "while (!v[b]); __threadfence();").replace("POST", "__threadfence(); v[b + 1] = 1;"),
        4,
        64,
        np.repeat([1, 2, 3, 4], 64).tolist(),
    ),
    "for a store that releases": (
        CHAIN.replace("WAIT", ACQUIRED).replace(
            "POST", 'asm volatile("st.release.gpu.s32 [%0], 1;" :: "l"(flag + b + 1) : "memory");'
        ),
        4,
        64,
        np.repeat([1, 2, 3, 4], 64).tolist(),
    ),
    "for a lane that polls, at a warp's barrier": (
        ONE_LANE.replace("PAUSE", "") + "__syncwarp(); x[b * 32 + t] = box;",
        3,
        32,
        np.repeat([0, 1, 2], 32).tolist(),
    ),
    "for a lane that polls, at a shuffle": (
        ONE_LANE.replace("PAUSE", "__nanosleep(20)") + "x[b * 32 + t] = __shfl_sync(~0u, e, 0);",
        3,
        32,
        np.repeat([0, 1, 2], 32).tolist(),
    ),
    # The count leaves the registers of blocks that poll.
    "at a barrier that counts": (
        "if (b == 1 && !t) while (!v[0]); int m = __syncthreads_count(1); if (t) return;"
        "if (b) v[1] = 1; else { v[0] = 1; while (!v[1]); } x[b] = m;",
        2,
        64,
        [64, 64],
    ),
    "and counts its rounds": (
        COUNTED + "{ int i = 0; while (!atomicAdd(flag, 0)) if (++i > 1000) __trap(); x[0] = 1; }",
        2,
        1,
        [1, 1],
    ),
    "for none: the last warp resets what it counted": (
        "__shared__ int c, part[4]; if (!t) c = 0; __syncthreads();"
        "if (t % 32 == 0) { part[t / 32] = t; __threadfence_block(); if (atomicAdd(&c, 1) == 3) {"
        " __threadfence_block(); c = 0; x[0] = part[0] + part[1] + part[2] + part[3]; } }",
        1,
        128,
        [32 + 64 + 96],
    ),
}


def waited(body: str, blocks: int, threads: int) -> tuple[np.ndarray, set[str]]:
    text, kernel = kernel_of(HEAD, body, tuple(body for body, *_ in WAITS.values()))
    x = np.zeros(1 + blocks * threads + 1000, np.int32)
    found = run(text, kernel, (blocks,), (threads,), x, np.zeros(8, np.int32), faulty=True).faults
    return x, {fault.code for fault in found}


@pytest.mark.parametrize("name", WAITS)
def test_what_is_waited_for_comes_and_is_ordered(name: str) -> None:
    body, blocks, threads, expected = WAITS[name]
    x, codes = waited(body, blocks, threads)
    assert not codes
    assert x[: len(expected)].tolist() == expected


@pytest.mark.parametrize(
    ("name", "old", "new", "code"),
    [
        ("for a lock, in turns", "__threadfence();", "", "race"),
        ("for a volatile flag", "__threadfence();", "", "race"),
        ("for a store that releases", "release", "relaxed", "race"),
        ("for none: the last warp resets what it counted", "__threadfence_block();", "", "race"),
        ("and counts its rounds", "atomicExch(flag, 1);", "", "trap"),
    ],
)
def test_what_orders_is_needed(name: str, old: str, new: str, code: str) -> None:
    body, blocks, threads, _ = WAITS[name]
    assert old in body
    assert waited(body.replace(old, new), blocks, threads)[1] == {code}


def test_what_no_thread_stores_is_waited_for_for_ever_and_that_is_said_at_once() -> None:
    with pytest.raises(UsageError, match=r"kernel k waits forever at kernel\.cu:5: no running thread stores the value"):
        waited(LOCKED.replace("atomicExch(flag, 0);", ""), 3, 32)


def test_a_block_of_a_later_batch_is_not_waited_for() -> None:
    """A grid of more blocks than run at once, the last of which writes."""
    with pytest.raises(UsageError, match="a block cannot wait for one of a later part"):
        waited(FROM_THE_LAST, 200, 1024)


STORED_BY_ALL = 'extern "C" __global__ void store(int* x, int a, int b) { *x = blockIdx.x ? a : b; }'


@pytest.mark.parametrize(
    ("a", "b", "races"),
    [
        (0x7FC00000, 0x7FC00000 - (1 << 31), False),  # NaN of either sign
        (-1, -2, True),  # bits of NaN as well, and numbers
        (0x7FC00000, 0x7FC00001 - (1 << 31), True),
    ],
)
def test_of_two_stores_only_those_of_one_value_are_no_race(a: int, b: int, races: bool) -> None:
    faults = run(STORED_BY_ALL, "store", (2,), (1,), np.zeros(1, np.int32), a, b, faulty=True).faults
    assert bool(faults) is races


GRID_BARRIER = """
#include <cooperative_groups.h>
extern "C" __global__ void k(int* x, int* y) {
    cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    x[i] = i;
    grid.sync();
    y[i] = x[n - 1 - i];
    grid.sync();
    x[i] = y[n - 1 - i] + 1;
}
"""


def test_a_barrier_of_the_grid_orders_its_blocks() -> None:
    """600 blocks are more than one batch of others."""
    n = 600 * 128
    x, y = np.zeros(n, np.int32), np.zeros(n, np.int32)
    run(GRID_BARRIER, "k", (600,), (128,), x, y)
    np.testing.assert_array_equal(x, np.arange(n) + 1)
    assert run(GRID_BARRIER.replace("grid.sync();", "", 1), "k", (600,), (128,), x, y, faulty=True).faults


def test_lanes_may_meet_without_the_one_that_polls_for_them() -> None:
    source = """extern "C" __global__ void k(int* out, int* flag) {
    int t = threadIdx.x;
    if (t == 0) { while (*(volatile int*)flag == 0); out[0] = *(volatile int*)flag; return; }
    int fifth = __shfl_sync(0xfffffffe, t, 5);
    out[t] = fifth;
    if (t == 1) *(volatile int*)flag = fifth;
}"""
    out, flag = np.zeros(32, np.int32), np.zeros(1, np.int32)
    found = run(source, "k", (1,), (32,), out, flag, faulty=True)
    np.testing.assert_array_equal(out, np.full(32, 5))
    assert {fault.code for fault in found.faults} <= {"race"}  # a volatile flag inside a block


# ---- threads of one block in global memory ---------------------------------------------------------------------------

ONE_BLOCK = r"""
extern "C" __global__ void k(int* x, const int* index) {
    int t = threadIdx.x, n = blockDim.x;
    BODY
}
"""
RACES = {
    "the next one's place": "x[t] = x[t + 1];",
    "all to one place": "x[0] = t;",
    "read by all, written by one": "x[t + 128] = x[0]; if (t == 5) x[0] = 9;",
    "a warp barrier between two warps": "x[t] = t; __syncwarp(); x[t + 128] = x[(t + 32) % n];",
    "half a warp writes": "if (t < 16) x[t] = t + 9; else x[t + 128] = x[t - 16];",
    "bytes of a word": "((short*)x)[t] = 3; x[t + 128] = x[t / 2];",
    "only the second round": "for (int i = 0; i < 2; i++) { x[t] = x[(t + i) % n] + 1; __syncthreads(); }",
    "after two tickets of one thread": (
        "if (!t) { __threadfence(); atomicAdd(x + 300, 1); __threadfence(); atomicAdd(x + 300, 1); } x[t] = x[t + 1];"
    ),
    "after two tickets of all, and a barrier": (
        "for (int i = 0; i < 2; i++) { __threadfence(); atomicAdd(x + 300, 1); } __syncthreads(); x[t] = x[t + 1];"
    ),
    "read by the last, without a fence": (
        "x[t] = t; if (atomicAdd(x + 300, 1) == n - 1) for (int i = 0; i < n; i++) x[400] += x[i];"
    ),
    "read by one that took no ticket": (
        "x[t] = t; if (t < 9) { __threadfence(); atomicAdd(x + 300, 1); } else x[t + 128] = x[t % 9];"
    ),
    "read by one that was not the last": (
        "x[t] = t; __threadfence(); if (atomicAdd(x + 300, 1) == n / 2) for (int i = 0; i < n; i++) x[400] += x[i];"
    ),
    "handed over by one of a warp that did not wait": (
        "x[t] = t; if (t == 0) { __threadfence(); atomicExch(x + 300, 1); }"
        "if (t == 32) { while (atomicAdd(x + 300, 0) == 0) {} x[400] = x[7]; }"
    ),
    "volatile": "volatile int* v = x; v[t] = v[(t + 1) % n] + 1;",
}
ORDERED = {
    "a barrier": "x[t] = t; __syncthreads(); x[t + 128] = x[(t + 1) % n];",
    "a warp barrier in a warp": "x[t] = t; __syncwarp(); x[t + 128] = x[t ^ 1];",
    "atomics": "atomicAdd(&x[index[t] & 7], 1);",
    "the same value": "x[0] = 7; x[t / 2 + 1] = t / 2;",
    "many rounds": (
        "for (int i = 0; i < 50; i++) { int v = x[(t + i) % n]; __syncthreads(); x[t] = v; __syncthreads(); }"
    ),
    "read by all, then written by one": "int first = x[0]; __syncthreads(); if (t == 5) x[0] = first + 1;",
    "places of its own": "for (int i = 0; i < 4; i++) x[t * 4 + i] = x[t * 4 + 3 - i];",
    "read by the last": (
        "x[t] = t; __threadfence(); if (atomicAdd(x + 300, 1) == n - 1) for (int i = 0; i < n; i++) x[400] += x[i];"
    ),
    "read by the last, and written": (
        "x[128 + t] = x[t] + x[0]; __threadfence(); if (atomicAdd(x + 300, 1) == n - 1) x[0] = 9;"
    ),
    "handed over by a warp": (
        "if (t < 32) { x[t] = t; __syncwarp(); if (!t) { __threadfence(); atomicExch(x + 300, 1); } }"
        "else { if (t == 32) while (atomicAdd(x + 300, 0) == 0) {} __syncwarp(); x[t + 128] = x[t ^ 33]; }"
    ),
    "taking turns at a lock": (
        "int* lock = x + 300; bool done = false;"
        "while (!done) if (atomicCAS(lock, 0, 1) == 0) {"
        " __threadfence(); x[0] += 1; __threadfence(); atomicExch(lock, 0); done = true; }"
    ),
}


def of_one_block(body: str) -> list[str]:
    x, index = np.arange(512, dtype=np.int32), np.arange(512, dtype=np.int32)
    x[300] = 0
    text, kernel = kernel_of(ONE_BLOCK, body, (*RACES.values(), *ORDERED.values()))
    found = run(text, kernel, (1,), (64,), x, index, faulty=True).faults
    return [fault.code for fault in found]


@pytest.mark.parametrize("name", RACES)
def test_what_nothing_orders_in_a_block_is_a_race(name: str) -> None:
    assert set(of_one_block(RACES[name])) == {"race"}


@pytest.mark.parametrize("name", ORDERED)
def test_what_is_ordered_is_no_race(name: str) -> None:
    assert not of_one_block(ORDERED[name])


def test_a_barrier_ends_what_was_published_in_the_blocks_that_pass_it() -> None:
    tickets = "for (int i = 0; i < 2; i++) { __threadfence(); atomicAdd(x + 300, 1); }"
    text = ONE_BLOCK.replace(
        "BODY", f"if (blockIdx.x == 0) return; {tickets} __syncthreads(); x[t] = x[t + 1] + blockIdx.x;"
    )
    x = np.arange(512, dtype=np.int32)
    assert {fault.code for fault in run(text, "k", (2,), (64,), x, x, faulty=True).faults} == {"race"}


@pytest.mark.parametrize(
    ("stores", "codes"),
    [("shared[t & 1] = t;", set()), ("shared[t & 1] = t; if (t == 70) shared[0] = 9;", {"race"})],
    ids=["one", "two"],
)
def test_copies_that_one_instruction_of_triton_stores_may_differ(stores: str, codes: set[str]) -> None:
    """Each thread adds the parts of a sum in an order of its own, and stores its copy to shared memory."""
    text = ONE_BLOCK.replace("BODY", f"__shared__ int shared[2]; {stores} __syncthreads(); x[t] = shared[t & 1];")
    made = ptx.Program(replace(program(text).compiled, for_blocks=True))
    x = np.zeros(512, np.int32)
    assert {fault.code for fault in ptx.execute(made, "k", (1,), (128,), (x, x)).faults} == codes


def test_of_triton_only_races_between_blocks_are_told() -> None:
    """It gives one element to several threads: all of them read it, one writes it."""
    text = ONE_BLOCK.replace("BODY", "x[t + 128] = x[0]; if (t == 0) x[0] = blockIdx.x + 9;")
    made = ptx.Program(replace(program(text).compiled, for_blocks=True))
    x = np.zeros(512, np.int32)
    assert not ptx.execute(made, "k", (1,), (64,), (x, x)).faults
    assert {fault.code for fault in ptx.execute(made, "k", (2,), (64,), (x, x)).faults} == {"race"}
