"""Barriers for part of a block order those who meet there; too few arrivals are a fault."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_sources import run

# Two warps load for two others, through two buffers. full: barriers 1 and 2. empty: 3 and 4.
PIPELINE = r"""
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


def faults(source: str, blocks: int = 3, rounds: int = 5) -> tuple[str, ...]:
    a, b = np.arange(blocks * rounds * 64, dtype=np.float32), np.zeros(blocks * rounds * 64, np.float32)
    found = run(source, "k", (blocks,), (128,), a, b, np.int32(rounds), faulty=True).faults
    return tuple(fault.code for fault in found)


def test_a_pipeline_of_producers_and_consumers() -> None:
    a, b = np.arange(3 * 5 * 64, dtype=np.float32), np.zeros(3 * 5 * 64, np.float32)
    run(PIPELINE, "k", (3,), (128,), a, b, np.int32(5))
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
    assert right in PIPELINE
    assert code in faults(PIPELINE.replace(right, wrong))


def test_who_waits_for_how_many_is_told() -> None:
    source = GROUPS.replace("bar.sync %0, 64", "bar.sync %0, 96")
    a, b = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    (found,) = run(source, "k", (1,), (128,), a, b, np.int32(1), faulty=True).faults
    assert "waits at barrier 1 for 96 threads, of which 64 arrive" in found.text


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
