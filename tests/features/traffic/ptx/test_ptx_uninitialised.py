"""What is read of shared or local memory where nothing was written is a fault where the value is used, only there."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_sources import kernel_of, line_of, run

HEAD = r"""
extern "C" __global__ void k(int* out, const int* in, int n) {
    __shared__ int box[64], other[64];
    int t = threadIdx.x;
    if (t < n) box[t] = in[t];
    __syncthreads();
    BODY
}
"""
# Only the first 20 of 32 threads have written a place of `box`; n is 20.
WRONG = {
    "stored to global memory": "out[t] = box[t];",
    "stored as one of four": "int4 v = ((int4*)box)[t & 7]; ((int4*)out)[t & 7] = v;",
    "an address": "out[box[t] & 63] = 1;",
    "a branch": "if (box[t] > 3) out[t] = t;",
    "an atomic": "atomicAdd(out, box[t]);",
    "an atomic's result": "out[t] = atomicAdd(&box[t], 1);",
    "through shared memory": "other[t] = box[t]; __syncthreads(); out[t] = other[31 - t];",
    "written again, with what is undefined": "other[t] = 1; other[t] = box[t]; __syncthreads(); out[t] = other[t];",
    "through shared memory by a generic address": (
        "int* p = n > 5 ? other : out; p[t] = box[t]; __syncthreads(); if (t < 31) out[t] = p[t + 1];"
    ),
    "through local memory": "int list[8]; for (int i = 0; i < 8; i++) list[i] = box[t]; out[t] = list[n & 7];",
    "through a shuffle": "int v = __shfl_xor_sync(~0u, box[t], 16); if (t < 16) out[t] = v;",
    "through a reduction": (
        "int v = box[t]; for (int o = 16; o; o /= 2) v += __shfl_xor_sync(~0u, v, o); if (!t) out[0] = v;"
    ),
    "a vote": "out[t] = __any_sync(~0u, box[t] > 3);",
    "a vote of the block": "out[t] = __syncthreads_or(box[t] > 3);",
    "a choice": "out[t] = box[t] > 3 ? 5 : t;",
    "one word of a double": "box[2 * t] = 3; out[t] = (int)((double*)box)[t];",
}
RIGHT = {
    "dropped": "int v = box[t]; if (t < n) out[t] = v;",
    "dropped by a choice": "int v = box[t]; out[t] = t < n ? v : 7;",
    "a condition that comes first": "int v = box[t]; bool b = (t < n) & (v > 3); out[t] = b ? 5 : 6;",
    "masked out": "out[t] = box[t] & (t < n ? -1 : 0);",
    "a dropped element of four": (
        "if (t < 3) other[t] = t; __syncwarp(); int4 v = *(int4*)other; out[t] = v.x + v.z + (t < n - 20 ? v.w : v.y);"
    ),
    "dropped after shared memory": (
        "other[t] = box[t]; __syncthreads(); int v = other[31 - t]; if (31 - t < n) out[t] = v;"
    ),
    "written over": "other[t] = box[t]; other[t] = 1; __syncthreads(); out[t] = other[31 - t];",
    "dropped after a shuffle": "int v = __shfl_xor_sync(~0u, box[t], 16); if ((t ^ 16) < n) out[t] = v;",
    "padding of a structure": (
        "struct P { char c; int i; }; __shared__ P p[32];p[t].c = 1; p[t].i = t; __syncwarp(); ((P*)out)[t] = p[t ^ 1];"
    ),
    "a word of padding": (
        "struct P { int i; double d; }; __shared__ P p[32];"
        "p[t].i = t; p[t].d = t; __syncwarp(); ((P*)out)[t] = p[t ^ 1];"
    ),
    "an element beside": (
        "((int2*)other)[t] = make_int2(t, box[t]); __syncthreads(); out[t] = ((int2*)other)[31 - t].x;"
    ),
}


def faults(body: str) -> tuple[str, list[tuple[str, str]]]:
    text, kernel = kernel_of(HEAD, body, (*WRONG.values(), *RIGHT.values()))
    source, out = np.arange(64, dtype=np.int32) + 5, np.zeros(256, np.int32)
    found = run(text, kernel, (3,), (32,), out, source, 20, faulty=True).faults
    return text, [(fault.code, fault.text) for fault in found if fault.code != "race"]


@pytest.mark.parametrize("name", WRONG)
def test_what_is_used_is_a_fault(name: str) -> None:
    _, found = faults(WRONG[name])
    assert {code for code, _ in found} == {"uninitialised"}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_not_used_is_none(name: str) -> None:
    assert not faults(RIGHT[name])[1]


def test_the_lines_of_the_read_and_of_its_use_are_named() -> None:
    text, ((_, said),) = faults("\nint v = box[t ^ 1];  // read\nout[t] = __shfl_xor_sync(~0u, v, 16);  // use")
    assert f"kernel.cu:{line_of(text, '// read')}: thread (20, 0, 0) of block (0, 0, 0) reads box at byte 84" in said
    assert f"where nothing defined was written before; line {line_of(text, '// use')} uses it" in said


def test_each_of_two_reads_that_meet_is_told() -> None:
    _, found = faults("\nint a = box[t];\nint b = other[t];\nout[t] = a + b;")
    assert sorted(said.split(" reads ")[1].split()[0] for _, said in found) == ["box", "other"]


def test_of_an_unrolled_loop_each_thread_is_told_once() -> None:
    body = "int v = 0;\n#pragma unroll\nfor (int i = 0; i < 8; i++) v = 3 * v + other[t ^ i];\nout[t] = v;"
    text, out = HEAD.replace("BODY", body), np.zeros(32, np.int32)
    (fault,) = run(text, "k", (1,), (32,), out, out, 20, faulty=True).faults
    assert (fault.array, fault.threads) == ("other", 32)
