"""Threads that hand values to each other by mbarriers: what the barriers order is no race, and all else is one."""

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
