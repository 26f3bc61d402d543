"""Warp instructions with lanes that take no part are found where it matters; nothing else is."""

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
    "a ballot whose mask lacks its lane": (32, "out[t] = __ballot_sync(0xffffu, v > 3);"),
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
    "two words of a double": (11, "double d = v; out[t] = __shfl_down_sync(~0u, d, 1);"),
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
    "votes of 11 threads": (11, "out[t] = __ballot_sync(~0u, v > 3) + __any_sync(~0u, v > 5);"),
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
    "one branch ends": (
        32,
        "if (t < 16) { out[t] = __any_sync(~0u, v > 3) + 1; return; } v += __any_sync(~0u, v > 3);"
        "__syncthreads(); out[t] = v;",
    ),
    "half a warp, then the end": (32, "if (t < 16) out[t] = __shfl_xor_sync(~0u, v, 8);"),
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
        ("a mask without its own lane", "executes __shfl_sync() with a mask that does not name it"),
        ("a sum whose mask lacks its lane", "executes __reduce_add_sync() with a mask that does not name it"),
        ("half a warp, then a barrier", "executes __shfl_xor_sync() without lane 16, which its mask names"),
        ("a vote of half a warp", "executes __any_sync() without lane 9, which its mask names"),
        ("a lane outside of the mask", "uses an undefined value: lane 0 reads lane 9, which its mask does not name"),
    ],
)
def test_the_instruction_is_named_as_in_cuda(name: str, said: str) -> None:
    assert said in faults(WRONG[name])[1][0][1]
