"""Missing barriers are found, one by one, although lockstep makes the results come out right; nothing else is."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_sources import GEMM, REDUCTION, line_of, run

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.traffic import ptx


def reduction(text: str) -> ptx.Execution:
    source = np.random.default_rng(1).standard_normal(4096).astype(np.float32)
    return run(text, "total", (4,), (256,), np.zeros(4, np.float32), source, 4096, faulty=True)


def gemm(text: str) -> ptx.Execution:
    a, b = np.random.default_rng(1).standard_normal((2, 64, 64)).astype(np.float16)
    return run(text, "gemm_f16", (4, 4), (16, 16), np.zeros((64, 64), np.float16), a, b, 64, faulty=True)


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

HANDED_OVER = r"""
extern "C" __global__ void handed(int* out, int* data, volatile int* flag) {
    int last = gridDim.x - 1, me = blockIdx.x;
    if (me == last) {
        data[threadIdx.x] = threadIdx.x + 1;
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) atomicExch((int*)flag, 1);
    } else {
        if (threadIdx.x == 0) while (atomicAdd((int*)flag, 0) == 0) {}
        __syncthreads();
        __threadfence();
        out[me * blockDim.x + threadIdx.x] = data[threadIdx.x];
    }
}
"""
LOCKED = r"""
extern "C" __global__ void locked(int* total, int* lock) {
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        FENCE
        *total += blockIdx.x + 1;
        FENCE
        atomicExch(lock, 0);
    }
}
"""
FENCE = "__threadfence();"


def test_blocks_wait_for_what_a_later_one_stores() -> None:
    out, data, flag = np.zeros((5, 64), np.int32), np.zeros(64, np.int32), np.zeros(1, np.int32)
    run(HANDED_OVER, "handed", (5,), (64,), out, data, flag)
    assert out.sum(axis=1).tolist() == [64 * 65 // 2] * 4 + [0]


@pytest.mark.parametrize(("fence", "codes"), [(FENCE, set()), ("", {"race"})])
def test_blocks_take_turns_at_a_lock(fence: str, codes: set[str]) -> None:
    total, lock = np.zeros(1, np.int32), np.zeros(1, np.int32)
    execution = run(LOCKED.replace("FENCE", fence), "locked", (40,), (64,), total, lock, faulty=True)
    assert {fault.code for fault in execution.faults} == codes
    assert total[0] == 40 * 41 / 2


def test_what_no_thread_stores_is_waited_for_for_ever_and_that_is_said_at_once() -> None:
    text = LOCKED.replace("atomicExch(lock, 0);", "").replace("FENCE", FENCE)
    with pytest.raises(
        UsageError, match=r"kernel locked waits forever at \w+\.cu:4: no running thread stores the value"
    ):
        run(text, "locked", (3,), (32,), np.zeros(1, np.int32), np.zeros(1, np.int32))


def test_a_block_of_a_later_batch_is_not_waited_for() -> None:
    """A grid of more blocks than run at once, the last of which writes."""
    blocks = 200
    out, data, flag = np.zeros(blocks * 1024, np.int32), np.zeros(1024, np.int32), np.zeros(1, np.int32)
    with pytest.raises(UsageError, match="a block cannot wait for one of a later part"):
        run(HANDED_OVER, "handed", (blocks,), (1024,), out, data, flag)


QUEUE = r"""
extern "C" __global__ void queue(int* out, int* next, int n) {
    while (true) {
        int ticket = atomicAdd(next, 1);
        if (ticket >= n) break;
        out[ticket] = ticket + 1;
    }
}
"""


def test_a_queue_of_work_ends_when_its_work_does() -> None:
    """Each turn of the loop begins with the same registers; the counter in memory goes on."""
    out, following = np.zeros(1000, np.int32), np.zeros(1, np.int32)
    run(QUEUE, "queue", (2,), (64,), out, following, 1000)
    np.testing.assert_array_equal(out, np.arange(1000) + 1)
    assert following[0] == 1000 + 2 * 64


PING_PONG = r"""
extern "C" __global__ void rally(int* flag, int* hits, int rounds) {
    int me = blockIdx.x;
    for (int i = 0; i < rounds; i++) {
        while (atomicAdd(flag, 0) != me) {}
        __threadfence();
        *hits += 1;
        __threadfence();
        atomicExch(flag, 1 - me);
    }
}
"""


def test_two_blocks_take_many_turns() -> None:
    flag, hits = np.zeros(1, np.int32), np.zeros(1, np.int32)
    run(PING_PONG, "rally", (2,), (1,), flag, hits, 25)
    assert (flag[0], hits[0]) == (0, 50)


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


BY_FLAG = """
extern "C" __global__ void k(int* x, int* flags) {
    int b = blockIdx.x, t = threadIdx.x, n = blockDim.x;
    if (t == 0 && b > 0) { WAIT }
    __syncthreads();
    x[b * n + t] = (b ? x[b * n - 1 - t] : 0) + 1;
    __syncthreads();
    if (t == 0) { POST }
}
"""
ACQUIRED = 'int s = 0; while (!s) asm volatile("ld.acquire.gpu.s32 %0, [%1];" : "=r"(s) : "l"(flags + b) : "memory");'
FLAGS = {
    "a volatile flag": (
        "while (((volatile int*)flags)[b] == 0); __threadfence();",
        "__threadfence(); ((volatile int*)flags)[b + 1] = 1;",
    ),
    "a store that releases": (
        ACQUIRED,
        'asm volatile("st.release.gpu.s32 [%0], 1;" :: "l"(flags + b + 1) : "memory");',
    ),
    "a reduction that releases": (
        ACQUIRED,
        'asm volatile("red.release.gpu.add.s32 [%0], 1;" :: "l"(flags + b + 1) : "memory");',
    ),
}


def by_flag(wait: str, post: str) -> tuple[np.ndarray, list[str]]:
    x, flags = np.zeros(4 * 64, np.int32), np.zeros(5, np.int32)
    found = run(BY_FLAG.replace("WAIT", wait).replace("POST", post), "k", (4,), (64,), x, flags, faulty=True)
    return x, [fault.code for fault in found.faults]


@pytest.mark.parametrize("name", FLAGS)
def test_blocks_hand_over_by_a_flag(name: str) -> None:
    x, codes = by_flag(*FLAGS[name])
    assert codes == []
    np.testing.assert_array_equal(x.reshape(4, 64), np.repeat([[1], [2], [3], [4]], 64, axis=1))


@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_without_a_fence_orders_nothing(name: str) -> None:
    wait, post = FLAGS[name]
    assert "race" in by_flag(wait, post.replace("__threadfence(); ", "").replace("release", "relaxed"))[1]


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


ONE_WAITS = """
extern "C" __global__ void k(int* out, int* flag) {
    __shared__ int box;
    int t = threadIdx.x, b = blockIdx.x, e = -1;
    if (t == 0) {
        while (*(volatile int*)flag != b) { PAUSE }
        e = box = b;
        __threadfence();
        *(volatile int*)flag = b + 1;
    }
    MEET
}
"""


@pytest.mark.parametrize(
    ("meet", "pause"),
    [
        ("__syncwarp(); out[b * 32 + t] = box;", ""),
        ("out[b * 32 + t] = __shfl_sync(~0u, e, 0);", "__nanosleep(20);"),
    ],
    ids=["syncwarp", "shfl"],
)
def test_a_warp_waits_for_its_lane_that_polls(meet: str, pause: str) -> None:
    out, flag = np.full(96, -1, np.int32), np.zeros(1, np.int32)
    run(ONE_WAITS.replace("MEET", meet).replace("PAUSE", pause), "k", (3,), (32,), out, flag)
    np.testing.assert_array_equal(out, np.repeat([0, 1, 2], 32))


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


def test_a_count_at_a_barrier_leaves_the_registers_of_blocks_that_poll() -> None:
    source = """extern "C" __global__ void k(int* out, volatile int* flags) {
    if (blockIdx.x == 1 && !threadIdx.x) while (!flags[0]);
    int n = __syncthreads_count(1);
    if (threadIdx.x) return;
    if (blockIdx.x) flags[1] = 1; else { flags[0] = 1; while (!flags[1]); }
    out[blockIdx.x] = n;
}"""
    out, flags = np.zeros(2, np.int32), np.zeros(2, np.int32)
    run(source, "k", (2,), (64,), out, flags)
    assert out.tolist() == [64, 64]


def test_a_wait_that_counts_its_rounds_gives_way() -> None:
    source = """extern "C" __global__ void k(int* out, int* flag) {
    if (blockIdx.x == 0) {
        int rounds = 0;
        while (atomicAdd(flag, 0) == 0) if (++rounds > 1000) __trap();
        out[0] = 1;
    } else { out[1] = 1; __threadfence(); atomicExch(flag, 1); }
}"""
    out, flag = np.zeros(2, np.int32), np.zeros(1, np.int32)
    run(source, "k", (2,), (1,), out, flag)
    assert out.tolist() == [1, 1]
    alone = source.replace("atomicExch(flag, 1);", "")
    assert [fault.code for fault in run(alone, "k", (2,), (1,), out, flag * 0, faulty=True).faults] == ["trap"]


def test_the_last_warp_resets_what_it_counted_in_shared_memory() -> None:
    source = """extern "C" __global__ void k(int* out) {
    __shared__ int n, part[4];
    if (threadIdx.x == 0) n = 0;
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        part[threadIdx.x / 32] = threadIdx.x;
        __threadfence_block();
        if (atomicAdd(&n, 1) == 3) { __threadfence_block(); n = 0; out[0] = part[0] + part[1] + part[2] + part[3]; }
    }
}"""
    out = np.zeros(1, np.int32)
    run(source, "k", (1,), (128,), out)
    assert out[0] == 32 + 64 + 96
    assert run(source.replace("__threadfence_block();", ""), "k", (1,), (128,), out, faulty=True).faults
