"""Threads that hand values to each other by mbarriers or barriers for part of a block: what these order is no race."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_sources import MBARRIERS, kernel_of, run

from pytest_bandwidth.domain.errors import UsageError

HEAD = r"""
MBARRIERS
__device__ void relaxed_arrive(u64* b) {
    asm volatile("mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%0];" :: "r"(at(b)) : "memory");
}
extern "C" __global__ void k(int* o, int* x) {
    __shared__ int s[256]; __shared__ u64 full[2], empty[2]; int t = threadIdx.x, w = t / 32;
    o += blockIdx.x * 128, x += blockIdx.x * 256;
    if (t == 0) for (int i = 0; i < 2; i++) { init(&full[i], 32); init(&empty[i], 96); }
    __syncthreads();
    BODY
}
""".replace("MBARRIERS", MBARRIERS)
# Warp 0 produces, the three others consume.
PIPELINE = r"""
    if (w == 0) for (int i = 0; i < 8; i++) {
        if (i >= 2) EMPTY;
        s[i % 2 * 32 + t] = x[i * 32 + t]; arrive(&full[i % 2]);
    } else {
        int v = 0;
        for (int i = 0; i < 8; i++) {
            FULL;
            v += s[i % 2 * 32 + 31 - t % 32]; arrive(&empty[i % 2]);
        }
        o[t] = v;
    }
"""
EMPTY, FULL = "wait(&empty[i % 2], i / 2 - 1 & 1)", "wait(&full[i % 2], i / 2 & 1)"
HANDS_ON = "if (w == 0) { s[t] = x[t]; arrive(&full[0]); } else { wait(&full[0], 0); o[t] = s[t % 32]; }"
RIGHT = {
    "a pipeline of two stages": PIPELINE.replace("EMPTY", EMPTY).replace("FULL", FULL),
    "from one warp to others": HANDS_ON,
    "from hand to hand": (
        "if (w == 0) { s[t] = x[t]; arrive(&full[0]); }"
        "if (w == 1) { wait(&full[0], 0); arrive(&full[1]); } if (w == 2) { wait(&full[1], 0); o[t] = s[t % 32]; }"
    ),
    "one lane waits, then the warp's barrier": (
        "if (w == 0) { s[t] = x[t]; arrive(&full[0]); }"
        "if (w == 1) { if (t == 32) wait(&full[0], 0); __syncwarp(); o[t] = s[t - 32]; }"
    ),
    "in global memory": "if (w == 0) { x[t] = 9; arrive(&full[0]); }"
    " if (w == 1) { wait(&full[0], 0); o[t] = x[t - 32]; }",
    "a warp among itself": "if (w == 0) { s[t] = x[t]; arrive(&full[0]); wait(&full[0], 0); o[t] = s[31 - t]; }",
}
WRONG = {
    "a pipeline that does not wait for values": PIPELINE.replace("EMPTY", "").replace("FULL", ""),
    "no wait": HANDS_ON.replace("wait(&full[0], 0); ", ""),
    "the values after the arrival": HANDS_ON.replace(
        "s[t] = x[t]; arrive(&full[0]);", "arrive(&full[0]); s[t] = x[t];"
    ),
    "a relaxed arrival": HANDS_ON.replace("arrive(", "relaxed_arrive("),
    "only one lane waits": HANDS_ON.replace("wait(&full[0], 0)", "if (t % 32 == 0) wait(&full[0], 0)"),
    "another barrier": (
        "if (w == 0) { arrive(&full[1]); s[t] = x[t]; arrive(&full[0]); }"
        "if (w == 1) { wait(&full[1], 0); o[t] = s[t - 32]; }"
    ),
    "a warp among itself": "if (w == 0) { s[t] = x[t]; arrive(&full[0]); o[t] = s[31 - t]; }",
    "overwritten while others read": HANDS_ON.replace("o[t]", "s[t % 32] = t; o[t]"),
}

# Who comes round too early waits for a phase that is over.
FOREVER = {
    "a pipeline that does not wait for room": PIPELINE.replace("EMPTY", "").replace("FULL", FULL),
    "a wait for the phase before": HANDS_ON.replace("wait(&full[0], 0)", "wait(&full[0], 1)"),
}


def found(body: str) -> tuple[np.ndarray, set[str]]:
    o, x = np.zeros((3, 4, 32), np.int32), np.arange(768, dtype=np.int32)
    text, kernel = kernel_of(HEAD, body, (*RIGHT.values(), *WRONG.values(), *FOREVER.values()))
    faults = run(text, kernel, (3,), (128,), o, x, faulty=True).faults
    return o, {fault.code for fault in faults}


@pytest.mark.parametrize("name", RIGHT)
def test_what_mbarriers_order_is_no_race(name: str) -> None:
    assert not found(RIGHT[name])[1]


@pytest.mark.parametrize("name", WRONG)
def test_what_no_mbarrier_orders_is_a_race(name: str) -> None:
    assert "race" in found(WRONG[name])[1]


@pytest.mark.parametrize("name", FOREVER)
def test_phases_that_are_missed_are_waited_for_in_vain(name: str) -> None:
    with pytest.raises(UsageError, match=r"waits forever at kernel.cu:.* lacks 32 arrivals"):
        found(FOREVER[name])


def test_a_pipeline_computes_what_numpy_does() -> None:
    results, _ = found(RIGHT["a pipeline of two stages"])
    expected = np.arange(768).reshape(3, 1, 8, 32).sum(axis=2)[:, :, ::-1]
    np.testing.assert_array_equal(results[:, 1:], np.repeat(expected, 3, axis=1))


# ---- barriers for part of a block: too few arrivals are a fault ------------------------------------------------------

# Two warps load for two others, through two buffers. full: barriers 1 and 2. empty: 3 and 4.
STAGES = r"""
#define SYNC(number) asm volatile("bar.sync %0, 128;" :: "r"(number) : "memory")
#define ARRIVE(number) asm volatile("bar.arrive %0, 128;" :: "r"(number) : "memory")
extern "C" __global__ void k(const float* a, float* b, int n) {
    __shared__ float buffers[2][64];
    int t = threadIdx.x % 64, first = blockIdx.x * n * 64;
    for (int i = 0; i < n; i++) {
        int stage = i & 1;
        if (threadIdx.x < 64) {
            if (i >= 2) SYNC(stage + 3);
            buffers[stage][t] = a[first + i * 64 + t];
            ARRIVE(stage + 1);
        } else {
            SYNC(stage + 1);
            b[first + i * 64 + t] = 2 * buffers[stage][63 - t];
            if (i < n - 2) ARRIVE(stage + 3);
        }
    }
}
"""
GROUPS = r"""
extern "C" __global__ void k(const float* a, float* b, int n) {
    __shared__ float box[128];
    int t = threadIdx.x, group = t / 64;
    box[t] = a[t];
    asm volatile("bar.sync %0, 64;" :: "r"(group + 1) : "memory");
    float other = box[group * 64 + 63 - t % 64];
    __syncthreads();
    b[t] = other + box[127 - t];
}
"""


def test_stages_of_producers_and_consumers() -> None:
    a, b = np.arange(3 * 5 * 64, dtype=np.float32), np.zeros(3 * 5 * 64, np.float32)
    run(STAGES, "k", (3,), (128,), a, b, np.int32(5))
    np.testing.assert_array_equal(b.reshape(-1, 64), 2 * a.reshape(-1, 64)[:, ::-1])


def test_groups_of_warps_meet_apart_and_together() -> None:
    a, b = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    run(GROUPS, "k", (1,), (128,), a, b, np.int32(1))
    t = np.arange(128)
    np.testing.assert_array_equal(b, t // 64 * 64 + 63 - t % 64 + 127 - t)


@pytest.mark.parametrize(
    ("right", "wrong", "code"),
    [
        ("SYNC(stage + 1);", "", "race"),
        ("SYNC(stage + 1);", "SYNC(1);", "barrier"),
        ("ARRIVE(stage + 1);", "", "barrier"),
        ("if (i >= 2) SYNC(stage + 3);", "", "barrier"),  # the consumers' arrivals and the producers' are one phase's
        ("bar.sync %0, 128", "bar.sync %0, 192", "barrier"),
    ],
)
def test_what_is_missing_is_found(right: str, wrong: str, code: str) -> None:
    assert right in STAGES
    a, b = np.arange(3 * 5 * 64, dtype=np.float32), np.zeros(3 * 5 * 64, np.float32)
    found = run(STAGES.replace(right, wrong), "k", (3,), (128,), a, b, np.int32(5), faulty=True).faults
    assert code in {fault.code for fault in found}


def test_who_waits_for_how_many_is_told() -> None:
    source = GROUPS.replace("bar.sync %0, 64", "bar.sync %0, 96")
    a, b = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    (found,) = run(source, "k", (1,), (128,), a, b, np.int32(1), faulty=True).faults
    assert "waits at barrier 1 for 96 threads, but 64 arrive" in found.text


def test_a_warp_with_a_lane_that_polls_arrives_once() -> None:
    source = """extern "C" __global__ void k(int* out, volatile int* flag) {
    __shared__ int box;
    for (int round = 0; round < 2; round++) {
        if (blockIdx.x == 0) {
            __syncthreads();
            if (!threadIdx.x) { __threadfence(); *flag = round + 1; }
            continue;
        }
        if (!threadIdx.x) { while (*flag <= round); box = round; }
        asm volatile("bar.sync 1, 64;" ::: "memory");
        out[round * 64 + threadIdx.x] = box;
        asm volatile("bar.sync 2, 64;" ::: "memory");
    }
}"""
    out, flag = np.full(128, -1, np.int32), np.zeros(1, np.int32)
    run(source, "k", (2,), (64,), out, flag)
    np.testing.assert_array_equal(out, np.repeat([0, 1], 64))
