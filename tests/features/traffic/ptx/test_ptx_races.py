"""Missing barriers are found, one by one, although lockstep makes the results come out right; nothing else is."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_sources import GEMM, REDUCTION, SOFTMAX, TRANSPOSES, line_of, run

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.traffic import ptx


def reduction(text: str) -> ptx.Execution:
    source = np.random.default_rng(1).standard_normal(4096).astype(np.float32)
    return run(text, "total", (4,), (256,), np.zeros(4, np.float32), source, 4096, faulty=True)


def transpose(text: str) -> ptx.Execution:
    source = np.random.default_rng(1).standard_normal((64, 64)).astype(np.float32)
    return run(text, "tiled", (2, 2), (32, 8), np.zeros((64, 64), np.float32), source, 64, faulty=True)


def gemm(text: str) -> ptx.Execution:
    a, b = np.random.default_rng(1).standard_normal((2, 64, 64)).astype(np.float32)
    return run(text, "gemm_f32", (4, 4), (16, 16), np.zeros((64, 64), np.float32), a, b, 64, faulty=True)


def half_gemm(text: str) -> ptx.Execution:
    a, b = np.random.default_rng(1).standard_normal((2, 64, 64)).astype(np.float16)
    return run(text, "gemm_f16", (4, 4), (16, 16), np.zeros((64, 64), np.float16), a, b, 64, faulty=True)


def softmax(text: str) -> ptx.Execution:
    source = np.random.default_rng(1).standard_normal((3, 1000)).astype(np.float32)
    return run(text, "softmax", (3,), (256,), np.zeros_like(source), source, 1000, faulty=True)


CASES = {
    "reduction": (REDUCTION, reduction),
    "transpose": (
        TRANSPOSES[
            TRANSPOSES.index('extern "C" __global__ void tiled') : TRANSPOSES.index(
                'extern "C" __global__ void unpadded'
            )
        ],
        transpose,
    ),
    "gemm": (GEMM, gemm),
    "half gemm": (GEMM, half_gemm),
    "softmax": (SOFTMAX, softmax),
}
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
    assert len(REMOVALS) == 11
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


def warp_exchange(sync: str) -> str:
    return rf"""
    extern "C" __global__ void rotate(int* out) {{
        __shared__ int box[64];
        int value = threadIdx.x, next = (threadIdx.x & ~31) | ((threadIdx.x + 1) & 31);
        for (int i = 0; i < 3; i++) {{
            box[threadIdx.x] = value;
            {sync}
            value = box[next];
            {sync}
        }}
        out[threadIdx.x] = value;
    }}
    """


def test_a_warp_barrier_orders_a_warp() -> None:
    out = np.zeros(64, np.int32)
    run(warp_exchange("__syncwarp();"), "rotate", (1,), (64,), out)
    np.testing.assert_array_equal(out, (np.arange(64) & ~31) | ((np.arange(64) + 3) & 31))
    faults = run(warp_exchange(""), "rotate", (1,), (64,), out, faulty=True).faults
    assert {fault.code for fault in faults} == {"race"}


def test_a_warp_barrier_does_not_order_two_warps() -> None:
    text = r"""
    extern "C" __global__ void across(int* out) {
        __shared__ int box[64];
        box[threadIdx.x] = threadIdx.x;
        __syncwarp();
        out[threadIdx.x] = box[63 - threadIdx.x];
    }
    """
    assert {f.code for f in run(text, "across", (1,), (64,), np.zeros(64, np.int32), faulty=True).faults} == {"race"}


def test_everyone_writing_the_same_value_is_no_race() -> None:
    text = r"""
    extern "C" __global__ void flag(int* out, int* any, int same) {
        __shared__ int seen;
        seen = same ? 7 : (int)threadIdx.x;
        __syncthreads();
        out[threadIdx.x] = seen;
        *any = same ? 1 : (int)blockIdx.x;
    }
    """
    assert run(text, "flag", (4,), (64,), np.zeros(64, np.int32), np.zeros(1, np.int32), 1, faulty=True).faults == ()
    faults = run(text, "flag", (4,), (64,), np.zeros(64, np.int32), np.zeros(1, np.int32), 0, faulty=True).faults
    assert {(f.code, f.array) for f in faults} >= {("race", "seen"), ("race", "any")}


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


def test_atomics_do_not_race() -> None:
    text = r"""
    extern "C" __global__ void add(float* out, const float* in) {
        __shared__ float sum;
        if (threadIdx.x == 0) sum = 0;
        __syncthreads();
        atomicAdd(&sum, in[blockIdx.x * blockDim.x + threadIdx.x]);
        __syncthreads();
        if (threadIdx.x == 0) atomicAdd(out, sum);
    }
    """
    source = np.random.default_rng(1).standard_normal(512).astype(np.float32)
    out = np.zeros(1, np.float32)
    run(text, "add", (4,), (128,), out, source)
    np.testing.assert_allclose(out[0], source.astype(np.float64).sum(), rtol=1e-4, atol=1e-5)


def test_threads_at_different_barriers_are_reported() -> None:
    text = r"""
    extern "C" __global__ void apart(int* out) {
        __shared__ int box[64];
        box[threadIdx.x] = out[threadIdx.x];
        if (threadIdx.x < 32) {
            __syncthreads();
            out[threadIdx.x] = box[threadIdx.x + 1];
        } else {
            out[threadIdx.x] = box[threadIdx.x] * 2;
            __syncthreads();
        }
    }
    """
    faults = run(text, "apart", (1,), (64,), np.zeros(64, np.int32), faulty=True).faults
    assert "barrier" in {fault.code for fault in faults}


# ---- blocks that wait for others -------------------------------------------------------------------------------------

HANDED_OVER = r"""
extern "C" __global__ void handed(int* out, int* data, volatile int* flag) {
    int last = gridDim.x - 1, me = blockIdx.x;
    if (me == WRITER) {
        data[threadIdx.x] = threadIdx.x + 1;
        FENCE
        __syncthreads();
        if (threadIdx.x == 0) atomicExch((int*)flag, 1);
    } else {
        if (threadIdx.x == 0) while (atomicAdd((int*)flag, 0) == 0) {}
        __syncthreads();
        FENCE
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


def handed_over(writer: str, fence: str = FENCE) -> tuple[np.ndarray, ptx.Execution]:
    out, data, flag = np.zeros(5 * 64, np.int32), np.zeros(64, np.int32), np.zeros(1, np.int32)
    text = HANDED_OVER.replace("WRITER", writer).replace("FENCE", fence)
    return out.reshape(5, 64), run(text, "handed", (5,), (64,), out, data, flag, faulty=True)


@pytest.mark.parametrize("writer", ["0", "last"])
def test_blocks_wait_for_what_another_one_stores(writer: str) -> None:
    out, execution = handed_over(writer)
    assert not execution.faults
    assert (out.sum(axis=1) == 64 * 65 / 2).sum() == 4


def test_what_a_block_hands_over_without_a_fence_races() -> None:
    _, execution = handed_over("0", "")
    assert {fault.code for fault in execution.faults} == {"race"}


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
    text = HANDED_OVER.replace("WRITER", "last").replace("FENCE", FENCE)
    with pytest.raises(UsageError, match="a block cannot wait for one of a later part"):
        run(text, "handed", (blocks,), (1024,), out, data, flag)


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


COUNTED_UP = 'extern "C" __global__ void up(int* x) { while (atomicAdd(x, 1) < 500) {} }'


def test_a_loop_that_changes_what_it_polls_goes_on() -> None:
    x = np.zeros(1, np.int32)
    run(COUNTED_UP, "up", (1,), (1,), x)
    assert x[0] == 501


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
#include <cuda/atomic>
using flag_of = cuda::atomic_ref<int, cuda::thread_scope_device>;
extern "C" __global__ void k(int* x, int* flags) {
    int b = blockIdx.x, t = threadIdx.x, n = blockDim.x;
    if (t == 0 && b > 0) { WAIT }
    __syncthreads();
    x[b * n + t] = (b ? x[b * n - 1 - t] : 0) + 1;
    __syncthreads();
    if (t == 0) { POST }
}
"""
FLAGS = {
    "an atomic": ("while (atomicAdd(&flags[b], 0) == 0);", "__threadfence(); atomicExch(&flags[b + 1], 1);"),
    "a volatile flag": (
        "while (((volatile int*)flags)[b] == 0); __threadfence();",
        "__threadfence(); ((volatile int*)flags)[b + 1] = 1;",
    ),
    "acquire and release": (
        "flag_of flag(flags[b]); while (flag.load(cuda::memory_order_acquire) == 0);",
        "flag_of flag(flags[b + 1]); flag.store(1, cuda::memory_order_release);",
    ),
    "a reduction that releases": (
        'int s = 0; while (!s) asm volatile("ld.acquire.gpu.s32 %0, [%1];" : "=r"(s) : "l"(flags + b) : "memory");',
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


@pytest.mark.parametrize("blocks", [1, 5, 600])
def test_a_barrier_of_the_grid_orders_its_blocks(blocks: int) -> None:
    """600 blocks are more than one batch of others."""
    n = blocks * 128
    x, y = np.zeros(n, np.int32), np.zeros(n, np.int32)
    run(GRID_BARRIER, "k", (blocks,), (128,), x, y)
    np.testing.assert_array_equal(x, np.arange(n) + 1)
    if blocks > 1:
        assert run(GRID_BARRIER.replace("grid.sync();", "", 1), "k", (blocks,), (128,), x, y, faulty=True).faults


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


@pytest.mark.parametrize("pause", ["", "__nanosleep(20);"])
@pytest.mark.parametrize(
    "meet",
    ["__syncwarp(); out[b * 32 + t] = box;", "out[b * 32 + t] = __shfl_sync(~0u, e, 0);"],
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


@pytest.mark.parametrize(("between", "codes"), [("", ["race"]), ("__syncthreads();", [])])
def test_atomics_of_shared_memory_come_after_it_was_cleared(between: str, codes: list[str]) -> None:
    source = f"""extern "C" __global__ void k(int* out, const int* x) {{
    __shared__ int counts[64];
    counts[threadIdx.x] = 0;
    {between}
    atomicAdd(&counts[x[threadIdx.x]], 1);
    __syncthreads();
    out[threadIdx.x] = counts[threadIdx.x];
}}"""
    x, out = np.arange(64, dtype=np.int32) * 7 % 64, np.zeros(64, np.int32)
    found = run(source, "k", (1,), (64,), out, x.astype(np.int32), faulty=True)
    assert [fault.code for fault in found.faults] == codes


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
