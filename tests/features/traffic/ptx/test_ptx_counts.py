"""Counts against figures worked out by hand, the same on every architecture."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_sources import ARCHITECTURES, COPIES, line_of, run

from pytest_bandwidth.features.traffic import ptx
from pytest_bandwidth.features.traffic.ptx.counts import together

N = 1 << 12


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(("name", "width"), [("copy", 1), ("copy4", 4)])
def test_a_copy_takes_four_sectors_a_request_for_each_float_of_a_thread(name: str, width: int, arch: str) -> None:
    source, target = floats(N), np.zeros(N, np.float32)
    execution = run(COPIES, name, (N // width // 128,), (128,), target, source, arch=arch)
    for counts in (execution.counts.loads, execution.counts.stores):
        assert counts.accesses == N // width
        assert counts.requests == N // width // 32
        assert counts.bytes_requested == 4 * N
        assert counts.sectors == 4 * width * counts.requests
        assert counts.sectors_per_request == 4 * width
        assert counts.coalescing == 1
        assert counts.pattern == "coalesced"
    assert execution.arrays == (
        ptx.ArrayCounts("out", (0,), 4 * N, 0, 4 * N),
        ptx.ArrayCounts("in", (1,), 4 * N, 4 * N, 0),
    )
    assert (execution.bytes_read, execution.bytes_written) == (4 * N, 4 * N)
    np.testing.assert_array_equal(target, source)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_stride_eight_takes_thirty_two(arch: str) -> None:
    source, target = floats(N), np.zeros(N, np.float32)
    execution = run(COPIES, "strided", (N // 256,), (256,), target, source, N, 8, arch=arch)
    loads = execution.counts.loads
    assert loads.sectors_per_request == 32
    assert loads.coalescing == 4 / 32
    assert loads.describe() == "strided (32 bytes)"
    assert execution.counts.stores.sectors_per_request == 4
    assert execution.bytes_read == 4 * N // 8  # i·8 mod n visits every eighth element
    (line,) = [found for found in execution.lines if found.counts.loads.requests]
    assert (line.file, line.line) == ("kernel.cu", line_of(COPIES, "in[(i * stride) % n]"))


def test_misaligned_rows_take_one_sector_more() -> None:
    source, target = floats(N + 8), np.zeros(N, np.float32)
    execution = run(COPIES, "shifted", (N // 256,), (256,), target, source, 3)
    assert execution.counts.loads.sectors_per_request == 5
    assert execution.counts.loads.pattern == "misaligned"
    assert execution.counts.loads.coalescing == 4 / 5


def test_random_and_broadcast_patterns() -> None:
    source, target = floats(1 << 16), np.zeros(N, np.float32)
    index = np.random.default_rng(2).permutation(1 << 16)[:N].astype(np.int32)
    execution = run(COPIES, "gathered", (N // 256,), (256,), target, source, index)
    patterns = {found.counts.loads.pattern for found in execution.lines if found.counts.loads.requests}
    assert patterns == {"random"} or patterns == {"random", "coalesced"}
    gathered_sectors = sum(len(np.unique(row // 8)) for row in index.reshape(-1, 32))
    assert execution.counts.loads.sectors == gathered_sectors + 4 * N // 32
    np.testing.assert_array_equal(target, source[index])
    execution = run(COPIES, "spread", (N // 256,), (256,), target, source)
    assert execution.counts.loads.pattern == "broadcast"
    assert execution.counts.loads.sectors_per_request == 1
    assert execution.bytes_read == 4 * N // 256


def test_partly_filled_warps_ask_for_what_they_need() -> None:
    source, target = floats(96), np.zeros(96, np.float32)
    execution = run(COPIES, "copy", (2,), (48,), target, source)
    assert execution.counts.loads.accesses == 96
    assert execution.counts.loads.requests == 4  # each block: one full warp, one of 16 threads
    assert execution.counts.loads.sectors == 2 * (4 + 2)
    assert execution.lane_occupancy == 48 / 64


def test_bank_conflicts_of_wide_accesses() -> None:
    text = r"""
    extern "C" __global__ void wide(float4* out, int step) {
        __shared__ float4 box[256];
        for (int i = threadIdx.x; i < 256; i += 32) box[i] = make_float4(i, i, i, i);
        __syncthreads();
        out[threadIdx.x] = box[threadIdx.x * step];  // read
    }
    """
    for step, passes in ((1, 4), (2, 8), (8, 32)):
        target = np.zeros((32, 4), np.float32)
        counts = run(text, "wide", (1,), (32,), target, step).counts
        assert counts.shared_loads.passes == passes  # four quarter warps; neighbours 16·step bytes apart
        assert counts.shared_loads.least_passes == 4
        assert counts.shared_stores.bank_conflicts == 0
        np.testing.assert_array_equal(target[:, 0], np.arange(32) * step)


def test_divergence() -> None:
    text = r"""
    extern "C" __global__ void odd(float* out, int period) {
        int t = threadIdx.x;
        if (t % period == 0)  // split
            out[t] = sqrtf(out[t]);
        else
            out[t] = out[t] * out[t] + 1.0f;
    }
    """
    for period, divergent in ((1, 0), (2, 8), (3, 8)):
        values = np.abs(floats(256))
        execution = run(text, "odd", (1,), (256,), values, period)
        assert execution.counts.divergent_branches == divergent
        assert (execution.lane_occupancy == 1) is (divergent == 0)


def test_atomics_count_apart() -> None:
    text = """extern "C" __global__ void bins(unsigned* out, const unsigned char* in) {
        atomicAdd(&out[in[blockIdx.x * blockDim.x + threadIdx.x]], 1u);
    }"""
    data = np.random.default_rng(3).integers(0, 256, 4096).astype(np.uint8)
    bins = np.zeros(256, np.uint32)
    execution = run(text, "bins", (16,), (256,), bins, data)
    np.testing.assert_array_equal(bins, np.bincount(data, minlength=256))
    assert execution.counts.atomics.accesses == 4096
    assert execution.counts.stores.accesses == 0
    assert execution.counts.loads.sectors_per_request == 1  # 32 bytes a warp


def test_an_array_passed_twice_is_one_with_two_arguments() -> None:
    x = np.ones(64, np.float32)
    execution = run(COPIES, "copy", (2,), (32,), x, x)
    assert [(a.arguments, a.bytes_read, a.bytes_written) for a in execution.arrays] == [((0, 1), 256, 256)]


def test_two_views_of_one_allocation_count_apart_and_their_total_once() -> None:
    buffer = floats(2 * N)
    execution = run(COPIES, "copy", (N // 256,), (256,), buffer[N:], buffer[:N])
    assert [(a.name, a.bytes_read, a.bytes_written) for a in execution.arrays] == [("out", 0, 4 * N), ("in", 4 * N, 0)]
    execution = run(COPIES, "copy", (N // 256,), (256,), buffer[: N + 64], buffer[N // 2 :], faulty=True)
    assert execution.bytes_read + execution.bytes_written == 8 * N
    assert sum(a.bytes_read for a in execution.arrays) > execution.bytes_read


def copies(*launches: tuple[np.ndarray, np.ndarray]) -> list[tuple[str, int, int, int, str]]:
    """Copy between arrays, a launch each, and return what is said of the arrays."""
    executions = [run(COPIES, "copy", (out.size // 32,), (32,), out, given) for out, given in launches]
    return [(a.name, a.nbytes, a.bytes_read, a.bytes_written, a.role) for a in together(executions).arrays]


def test_arrays_of_several_launches_are_joined_by_their_place_and_have_a_role() -> None:
    x, y, z = (np.ones(64, np.float32) for _ in range(3))
    given, made, kept = ("in", 256, 256, 0, "input"), ("out", 256, 256, 256, "scratch"), ("out", 256, 0, 256, "output")
    assert copies((y, x), (z, y)) == [made, given, kept]
    assert copies((y, x), (y, x)) == [("out", 256, 0, 512, "output"), ("in", 256, 512, 0, "input")]
    assert copies((y, x), (y, y)) == [("out", 256, 256, 512, "scratch"), given]
    assert copies((y, y), (z, x)) == [("out", 256, 256, 256, "in place"), kept, given]
    assert copies((y, x), (x, z)) == [kept, ("in", 256, 256, 256, "in place"), given]


def test_parts_of_an_allocation_are_joined_where_they_overlap() -> None:
    buffer, x = np.ones(128, np.float32), np.ones(128, np.float32)
    left, right = buffer[:64], buffer[64:]
    apart = [("out", 256, 256, 256, "scratch"), ("in", 256, 256, 0, "input"), ("out", 256, 0, 256, "output")]
    assert copies((left, x[:64]), (right, left)) == apart
    whole, given = ("out", 512, 256, 512, "scratch"), ("in", 512, 512, 0, "input")
    assert copies((buffer, x), (np.zeros(64, np.float32), right)) == [whole, given, apart[2]]
    assert copies((right, x[:64]), (x[32:96], buffer[:64])) == [
        ("out", 256, 0, 256, "output"),
        ("in", 384, 256, 256, "in place"),
        ("in", 256, 256, 0, "input"),
    ]


def test_an_array_that_no_launch_touches_has_no_role() -> None:
    text = 'extern "C" __global__ void k(float* out, const float* in, int n) { if (n > 0) out[0] = in[0]; }'
    x, y, nothing = np.ones(4, np.float32), np.ones(4, np.float32), np.ones(0, np.float32)
    found = together([run(text, "k", (1,), (1,), a, b, n) for a, b, n in ((x, y, 0), (nothing, y, 0), (x, x, 1))])
    assert [(a.nbytes, a.role) for a in found.arrays] == [(16, "in place"), (16, ""), (0, "")]


def test_a_sample_of_blocks_scales_to_the_grid() -> None:
    source, target = floats(N), np.zeros(N, np.float32)
    whole = run(COPIES, "copy", (N // 128,), (128,), target, source)
    target[:] = 0
    some = run(COPIES, "copy", (N // 128,), (128,), target, source, blocks=4)
    assert (some.blocks_run, some.blocks, some.sample_spread) == (4, 32, 0.0)
    assert some.counts.loads.sectors * some.scale == whole.counts.loads.sectors
    assert np.count_nonzero(target) == 4 * 128
    assert whole.sample_spread is None
