"""Atomics on vectors and on 16-bit floats: what is left in memory, and what each lane saw before its own update."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from ptx_sources import program, run

from pytest_bandwidth.domain.errors import NotOnThisDevice
from pytest_bandwidth.features.traffic import ptx

BINS, LANES = 5, 320  # each place is met by several lanes of a warp and of other warps


def bf16(values: np.ndarray) -> np.ndarray:
    """Bits of small whole numbers, which bf16 holds exactly."""
    return (values.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def bits_of(values: np.ndarray, kind: str) -> np.ndarray:
    """Whole numbers as an array of the PTX type's halves or floats."""
    if kind.startswith("bf16"):
        return bf16(values)
    return values.astype(np.float32 if kind == "f32" else np.float16)


def vector_kernel(opcode: str, kind: str, count: int, *, result: bool) -> ptx.Program:
    """Lane i updates place index[i] of `bins` with its own `count` elements, and stores what it saw in `old`."""
    width = {"f32": 4, "f16x2": 4, "bf16x2": 4, "f16": 2, "bf16": 2}[kind]
    register = f"b{8 * width}"
    names = [f"%v{n}" for n in range(count)]
    olds = [f"%w{n}" for n in range(count)]
    size = width * count
    loads = "".join(f" ld.global.{register} {v}, [%in+{n * width}];\n" for n, v in enumerate(names))
    stores = "".join(f" st.global.{register} [%old+{n * width}], {v};\n" for n, v in enumerate(olds))
    target = f"{{{', '.join(olds)}}}, " if result else ""
    text = (
        ".version 8.1\n.target sm_90\n.address_size 64\n"
        ".visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3)\n{\n"
        f" .reg .{register} {', '.join(names + olds)};\n .reg .u32 %i, %b, %n, %at;\n"
        " .reg .u64 %bins, %in, %index, %old, %off;\n"
        " mov.u32 %i, %tid.x;\n mov.u32 %b, %ctaid.x;\n mov.u32 %n, %ntid.x;\n mad.lo.s32 %i, %b, %n, %i;\n"
        " ld.param.u64 %bins, [p0];\n ld.param.u64 %in, [p1];\n ld.param.u64 %index, [p2];\n ld.param.u64 %old, [p3];\n"
        " mul.wide.u32 %off, %i, 4;\n add.s64 %index, %index, %off;\n ld.global.u32 %at, [%index];\n"
        f" mul.wide.u32 %off, %i, {size};\n add.s64 %in, %in, %off;\n add.s64 %old, %old, %off;\n"
        f" mul.wide.u32 %off, %at, {size};\n add.s64 %bins, %bins, %off;\n"
        f"{loads} {opcode} {target}[%bins], {{{', '.join(names)}}};\n{stores if result else ''} ret;\n}}\n"
    )
    return ptx.load(ptx.PtxModule(text, "none", "sm_90"))


def elements(kind: str, count: int) -> int:
    return 2 * count if kind.endswith("x2") else count


CASES = [
    *(("add", "f32", count) for count in (2, 4)),
    *itertools.product(("add", "min", "max"), ("f16", "bf16"), (2, 4, 8)),
    *itertools.product(("add", "min", "max"), ("f16x2", "bf16x2"), (2, 4)),
]


@pytest.mark.parametrize(("operation", "kind", "count"), CASES)
@pytest.mark.parametrize("result", [True, False], ids=["atom", "red"])
def test_vector_atomics_update_each_element(operation: str, kind: str, count: int, *, result: bool) -> None:
    noftz = "" if kind == "f32" else ".noftz"
    opcode = f"{'atom' if result else 'red'}.global.{operation}{noftz}.v{count}.{kind}"
    generator = np.random.default_rng(count)
    index = generator.integers(0, BINS, LANES).astype(np.uint32)
    # Whole numbers whose sums stay below 256: exact in every type, in any order.
    values = generator.integers(-2, 3, (LANES, elements(kind, count)))
    bins = bits_of(np.zeros((BINS, values.shape[1])), kind)
    old = bits_of(np.full(values.shape, 99), kind)
    execution = ptx.execute(
        vector_kernel(opcode, kind, count, result=result),
        "k",
        (LANES // 64,),
        (64,),
        (bins, bits_of(values, kind), index, old),
    )
    assert not execution.faults
    assert execution.counts.atomics.accesses == LANES
    combine = {"add": np.add, "min": np.minimum, "max": np.maximum}[operation]
    state = np.zeros((BINS, values.shape[1]), np.int64)
    seen = np.empty_like(values)
    for lane in range(LANES):  # documented: in the order of blocks and threads
        seen[lane] = state[index[lane]]
        state[index[lane]] = combine(state[index[lane]], values[lane])
    assert np.abs(state).max() < 256
    np.testing.assert_array_equal(_numbers(bins, kind), state)
    if result:
        np.testing.assert_array_equal(_numbers(old, kind), seen)
    else:
        assert (_numbers(old, kind) == 99).all()


def _numbers(array: np.ndarray, kind: str) -> np.ndarray:
    if kind.startswith("bf16"):
        return (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return array.astype(np.float32)


FLOAT4 = r"""
extern "C" __global__ void add(float4* sums, float2* pairs, const float4* in, float4* seen) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    seen[i] = atomicAdd(&sums[i % 3], in[i]);
    atomicAdd(&pairs[i % 3], make_float2(in[i].x, in[i].w));
}
"""


@pytest.mark.parametrize("arch", ["sm_90", "sm_120"])
def test_cudas_own_vector_atomics(arch: str) -> None:
    x = np.random.default_rng(1).integers(-50, 50, (192, 4)).astype(np.float32)
    sums, pairs, seen = np.zeros((3, 4), np.float32), np.zeros((3, 2), np.float32), np.zeros_like(x)
    execution = run(FLOAT4, "add", (3,), (64,), sums, pairs, x, seen, arch=arch)
    np.testing.assert_array_equal(sums, x.reshape(64, 3, 4).sum(axis=0))
    np.testing.assert_array_equal(pairs, sums[:, [0, 3]])
    before = np.concatenate([np.zeros((1, 3, 4)), x.reshape(64, 3, 4).cumsum(axis=0)[:-1]])
    np.testing.assert_array_equal(seen.reshape(64, 3, 4), before)
    assert execution.counts.atomics.bytes_requested == 192 * (16 + 8)


PACKED = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void add(__half2* h, __nv_bfloat162* b, __half* single, unsigned short* words, const int* in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&h[i % 2], __floats2half2_rn(in[i], -in[i]));
    atomicAdd(&b[i % 2], __floats2bfloat162_rn(in[i], -in[i]));
    atomicAdd(&single[i % 3], __int2half_rn(in[i]));
    unsigned short seen = words[i % 5], assumed;
    do {
        assumed = seen;
        seen = atomicCAS(&words[i % 5], assumed, (unsigned short)(assumed + 7));
    } while (seen != assumed);
}
"""


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_120"])
def test_cudas_own_atomics_on_16_bits(arch: str) -> None:
    x = np.random.default_rng(2).integers(-2, 3, 120).astype(np.int32)
    h, b = np.zeros((2, 2), np.float16), np.zeros((2, 2), np.uint16)
    single, words = np.zeros(3, np.float16), np.zeros(5, np.uint16)
    run(PACKED, "add", (1,), (120,), h, b, single, words, x, arch=arch)
    sums = x.reshape(-1, 2).sum(axis=0)
    np.testing.assert_array_equal(h, np.stack([sums, -sums], axis=1))
    np.testing.assert_array_equal(_numbers(b, "bf16"), np.stack([sums, -sums], axis=1))
    np.testing.assert_array_equal(single, x.reshape(-1, 3).sum(axis=0))
    np.testing.assert_array_equal(words, 24 * 7)


@pytest.mark.parametrize(
    "opcode",
    [
        "atom.global.min.f32",
        "atom.global.and.f32",
        "atom.global.inc.u64",
        "atom.global.xor.u32",
        "atom.global.exch.f16",
    ],
)
def test_atomics_that_ptx_does_not_have_are_refused(opcode: str) -> None:
    """Inline assembler passes NVRTC unread; taken for another operation, it would compute something else."""
    kind = opcode.rsplit(".", 1)[1]
    letter = {"f32": "f", "u32": "r", "u64": "l", "f16": "h"}[kind]
    held = {"f": "float", "r": "unsigned", "l": "unsigned long long", "h": "unsigned short"}[letter]
    text = (
        f'extern "C" __global__ void k({held}* x) {{ {held} old;\n'
        f' asm volatile("{opcode} %0, [%1], %2;" : "={letter}"(old) : "l"(x), "{letter}"(x[1])); x[2] = old; }}'
    )
    with pytest.raises(NotOnThisDevice, match=opcode.replace(".", r"\.")):
        program(text).kernel("k")
