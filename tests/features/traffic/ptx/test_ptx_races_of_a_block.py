"""Threads of one block that access a place of global memory with nothing between are found; what is ordered is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from ptx_sources import kernel_of, program, run

from pytest_bandwidth.features.traffic import ptx

HEAD = r"""
extern "C" __global__ void k(int* x, const int* index) {
    int t = threadIdx.x, n = blockDim.x;
    BODY
}
"""
RACES = {
    "the next one's place": "x[t] = x[t + 1];",
    "all to one place": "x[0] = t;",
    "read by all, written by one": "x[t + 128] = x[0]; if (t == 5) x[0] = 9;",
    "written by one, read by all": "if (t == 0) x[200] = 7; x[t] = x[200] + t;",
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
    "one thread alone": "if (t == 0) { for (int i = 1; i < n; i++) x[i] += x[i - 1]; }",
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


def faults(body: str) -> list[str]:
    x, index = np.arange(512, dtype=np.int32), np.arange(512, dtype=np.int32)
    x[300] = 0
    text, kernel = kernel_of(HEAD, body, (*RACES.values(), *ORDERED.values()))
    found = run(text, kernel, (1,), (64,), x, index, faulty=True).faults
    return [fault.code for fault in found]


@pytest.mark.parametrize("name", RACES)
def test_what_nothing_orders_is_a_race(name: str) -> None:
    assert set(faults(RACES[name])) == {"race"}


@pytest.mark.parametrize("name", ORDERED)
def test_what_is_ordered_is_no_race(name: str) -> None:
    assert not faults(ORDERED[name])


def test_a_barrier_ends_what_was_published_in_the_blocks_that_pass_it() -> None:
    tickets = "for (int i = 0; i < 2; i++) { __threadfence(); atomicAdd(x + 300, 1); }"
    text = HEAD.replace(
        "BODY", f"if (blockIdx.x == 0) return; {tickets} __syncthreads(); x[t] = x[t + 1] + blockIdx.x;"
    )
    x = np.arange(512, dtype=np.int32)
    assert {fault.code for fault in run(text, "k", (2,), (64,), x, x, faulty=True).faults} == {"race"}


def test_of_triton_only_races_between_blocks_are_told() -> None:
    """It gives one element to several threads: all of them read it, one writes it."""
    text = HEAD.replace("BODY", "x[t + 128] = x[0]; if (t == 0) x[0] = blockIdx.x + 9;")
    made = ptx.Program(replace(program(text).compiled, for_blocks=True))
    x = np.zeros(512, np.int32)
    assert not ptx.execute(made, "k", (1,), (64,), (x, x)).faults
    assert {fault.code for fault in ptx.execute(made, "k", (2,), (64,), (x, x)).faults} == {"race"}
