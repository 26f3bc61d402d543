"""Warp instructions with lanes that take no part are found where it matters, and so is what nothing was written to.

Such values are faults where they are used, only there.
"""

from __future__ import annotations

import numpy as np
import pytest
from ptx_sources import kernel_of, line_of, run

HEAD = r"""
extern "C" __global__ void k(float* out, const float* in, int n) {
    int t = threadIdx.x, lane = t & 31;
    float v = in[t];
    BODY
}
"""
TREE = "for (int o = 16; o; o /= 2) v = fmaxf(v, __shfl_down_sync(~0u, v, o));"
# Threads of the block, and what they do.
WRONG = {
    "a maximum over 11 threads": (11, TREE + "if (t == 0) out[0] = v;"),
    "a shuffle by an index": (20, "out[t] = __shfl_sync(~0u, v, 31);"),
    "exited threads": (32, "if (t >= n) return; " + TREE + "if (t == 0) out[0] = v;"),
    "the other branch has none": (32, "if (t < 16) v += __shfl_down_sync(~0u, v, 8); out[t] = v;"),
    "a lane outside of the mask": (32, "if (t < 8) out[t] = __shfl_sync(0xffu, v, 9);"),
    "a mask without its own lane": (32, "if (t < 9) out[t] = __shfl_sync(0xffu, v, 0);"),
    "a sum whose mask lacks its lane": (32, "out[t] = __reduce_add_sync(0xfffffffeu, t);"),
    "half a warp, then a barrier": (32, "if (t < 16) v += __shfl_xor_sync(~0u, v, 8); __syncthreads(); out[t] = v;"),
    "a vote of half a warp": (64, "bool b = lane < 9 ? __any_sync(~0u, v > 3) : 0; __syncthreads(); out[t] = b;"),
    "a warp barrier of half a warp": (32, "if (t < 16) __syncwarp(); __syncthreads(); out[t] = v;"),
    "a loop of unequal turns": (
        32,
        "for (int i = t; i < 70; i += 32) v += __shfl_xor_sync(~0u, v, 1); __syncthreads(); out[t] = v;",
    ),
    "a branch on it": (11, "if (__shfl_down_sync(~0u, v, 1) > 3) out[t] = 1;"),
    "an address of it": (11, "out[(int)__shfl_down_sync(~0u, v, 1)] = 1;"),
}
RIGHT = {
    "a full warp": (64, TREE + "if (lane == 0) out[t / 32] = v;"),
    "beyond the width": (32, "out[t] = __shfl_down_sync(~0u, v, 5, 8) + __shfl_up_sync(~0u, v, 7);"),
    "a tree with a bound": (
        11,
        "for (int o = 8; o; o /= 2) { float u = __shfl_down_sync(~0u, v, o); if (t + o < 11) v = fmaxf(v, u); }"
        "if (t == 0) out[0] = v;",
    ),
    "a result that is not used": (11, "v = __shfl_down_sync(~0u, v, 1); if (t < 5) out[t] = v;"),
    "a condition that comes first": (11, "float u = __shfl_down_sync(~0u, v, 1); if (t < 10 && u > v) out[t] = 1;"),
    "a sum of 11 threads": (11, "out[t] = __reduce_add_sync(~0u, t) + __popc(__match_any_sync(~0u, t & 1));"),
    "exited threads that nothing is read from": (32, "if (t >= n) return; out[t] = __shfl_sync(~0u, v, 0);"),
    "the active mask": (32, "if (t % 3 == 0) out[t] = __shfl_sync(__activemask(), v, 0);"),
    "both branches": (
        32,
        "if (t < 16) v += __shfl_xor_sync(0xffffu, v, 8); else v -= __shfl_xor_sync(0xffff0000u, v, 8);"
        "__syncthreads(); out[t] = v;",
    ),
    "the same vote in both branches": (
        32,
        "if (t < 16) { v += 1; v += __any_sync(~0u, v > 3) * in[t]; } else { v *= 2; v -= __any_sync(~0u, v > 3); }"
        "__syncthreads(); out[t] = v;",
    ),
    "an exchange of both branches": (
        32,
        "if (t < 16) { v += 1; v = __shfl_sync(~0u, v, t + 16); } else { v *= 2; v = __shfl_sync(~0u, v, t - 16); }"
        "out[t] = v;",
    ),
}


BODIES = tuple(body for _, body in (*WRONG.values(), *RIGHT.values()))


def faults(case: tuple[int, str]) -> tuple[str, list[tuple[str, str]]]:
    threads, body = case
    text, kernel = kernel_of(HEAD, body, BODIES)
    source = -1 - np.arange(128, dtype=np.float32)
    found = run(text, kernel, (3,), (threads,), np.zeros(128, np.float32), source, 11, faulty=True).faults
    return text, [(fault.code, fault.text) for fault in found if fault.code != "race"]


@pytest.mark.parametrize("name", WRONG)
def test_what_takes_no_part_is_a_fault(name: str) -> None:
    _, found = faults(WRONG[name])
    assert {code for code, _ in found} >= {"participation"}


@pytest.mark.parametrize("name", RIGHT)
def test_what_takes_part_or_does_not_matter_is_none(name: str) -> None:
    assert not faults(RIGHT[name])[1]


def test_the_lane_and_what_it_reads_are_named() -> None:
    text, ((_, said), *_) = faults((11, "\nout[t] = __shfl_down_sync(~0u, v, 8);  // wrong"))
    assert f"kernel.cu:{line_of(text, '// wrong')}: thread (3, 0, 0) of block (0, 0, 0)" in said
    assert said.endswith("uses an undefined value: lane 3 reads lane 11, which is not active")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a mask without its own lane", "executes shfl.sync.idx.b32 with a mask that does not name it"),
        ("half a warp, then a barrier", "executes shfl.sync.bfly.b32 without lane 16, which its mask names"),
        ("a lane outside of the mask", "uses an undefined value: lane 0 reads lane 9, which its mask does not name"),
    ],
)
def test_the_instruction_is_named(name: str, said: str) -> None:
    assert said in faults(WRONG[name])[1][0][1]


# ---- shared and local memory -----------------------------------------------------------------------------------------

WINDOWS = r"""
extern "C" __global__ void k(int* out, const int* in, int n) {
    __shared__ int box[64], other[64];
    int t = threadIdx.x;
    if (t < n) box[t] = in[t];
    __syncthreads();
    BODY
}
"""
# Only the first 20 of 32 threads have written a place of `box`; n is 20.
USED = {
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
    "a vote": "out[t] = __any_sync(~0u, box[t] > 3);",
    "a choice": "out[t] = box[t] > 3 ? 5 : t;",
    "one word of a double": "box[2 * t] = 3; out[t] = (int)((double*)box)[t];",
}
DROPPED = {
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


def unwritten(body: str) -> tuple[str, list[tuple[str, str]]]:
    text, kernel = kernel_of(WINDOWS, body, (*USED.values(), *DROPPED.values()))
    source, out = np.arange(64, dtype=np.int32) + 5, np.zeros(256, np.int32)
    found = run(text, kernel, (3,), (32,), out, source, 20, faulty=True).faults
    return text, [(fault.code, fault.text) for fault in found if fault.code != "race"]


@pytest.mark.parametrize("name", USED)
def test_what_is_used_is_a_fault(name: str) -> None:
    _, found = unwritten(USED[name])
    assert {code for code, _ in found} == {"uninitialised"}


@pytest.mark.parametrize("name", DROPPED)
def test_what_is_not_used_is_none(name: str) -> None:
    assert not unwritten(DROPPED[name])[1]


def test_the_lines_of_the_read_and_of_its_use_are_named() -> None:
    text, ((_, said),) = unwritten("\nint v = box[t ^ 1];  // read\nout[t] = __shfl_xor_sync(~0u, v, 16);  // use")
    assert f"kernel.cu:{line_of(text, '// read')}: thread (20, 0, 0) of block (0, 0, 0) reads box at byte 84" in said
    assert f"where nothing defined was written before; line {line_of(text, '// use')} uses it" in said


def test_each_of_two_reads_that_meet_is_told() -> None:
    _, found = unwritten("\nint a = box[t];\nint b = other[t];\nout[t] = a + b;")
    assert sorted(said.split(" reads ")[1].split()[0] for _, said in found) == ["box", "other"]


def test_of_an_unrolled_loop_each_thread_is_told_once() -> None:
    body = "int v = 0;\n#pragma unroll\nfor (int i = 0; i < 8; i++) v = 3 * v + other[t ^ i];\nout[t] = v;"
    text, out = WINDOWS.replace("BODY", body), np.zeros(32, np.int32)
    (fault,) = run(text, "k", (1,), (32,), out, out, 20, faulty=True).faults
    assert (fault.array, fault.threads) == ("other", 32)
