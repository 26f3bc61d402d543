"""Wrong accesses are reported with thread, address, array and source line, and are not carried out."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_sources import COPIES, line_of, run

from pytest_bandwidth.domain.errors import NotOnThisDevice
from pytest_bandwidth.features.traffic import ptx

COPY_LINE = line_of(COPIES, "out[i] = in[i];")


def test_reading_past_the_end() -> None:
    source, target = np.ones(250, np.float32), np.zeros(256, np.float32)
    (fault,) = run(COPIES, "copy", (2,), (128,), target, source, faulty=True).faults
    assert (fault.code, fault.array, fault.file, fault.line) == ("out-of-bounds", "in", "kernel.cu", COPY_LINE)
    assert (fault.block, fault.thread, fault.threads) == ("(1, 0, 0)", "(122, 0, 0)", 6)
    assert "reads 4 bytes at byte 1000 of in, which has 1000 bytes" in fault.text
    assert f"kernel.cu:{COPY_LINE}:" in fault.text
    np.testing.assert_array_equal(target, [1.0] * 250 + [0.0] * 6)


READ_ONLY = np.zeros(128, np.float32)
READ_ONLY.flags.writeable = False
ONES = np.ones(1024, np.float32)
# A kernel, its grid and block, arguments after the first, where to, and what is told.
WRONG = {
    "writing past the end": ("copy", 2, 128, (ONES[:256],), np.zeros(200, np.float32), "out-of-bounds", "out", 56, ""),
    "before the beginning": ("shifted", 1, 128, (ONES[:256], -2), None, "out-of-bounds", "in", 2, "byte -8 of in"),
    "null": ("copy", 1, 128, (None,), None, "out-of-bounds", "", 128, "belong to no array (address 0x0)"),
    "misaligned": (
        *("copy4", 1, 32, (ONES[1:],), None, "misaligned", "in", 32),
        "reads 16 bytes at byte 4 of in, which is not a multiple of 16",
    ),
    "read-only": ("copy", 1, 128, (ONES[:128],), READ_ONLY, "read-only", "out", 128, ""),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_places_of_arrays(name: str) -> None:
    kernel, grid, block, args, target, code, array, threads, said = WRONG[name]
    out = np.zeros(128, np.float32) if target is None else target
    (fault,) = run(COPIES, kernel, (grid,), (block,), out, *args, faulty=True).faults
    assert (fault.code, fault.array, fault.threads, fault.thread) == (
        *(code, array, threads),
        "(72, 0, 0)" if target is not None and len(target) == 200 else "(0, 0, 0)",
    )
    assert said in fault.text
    assert not READ_ONLY.any()


def test_an_address_that_is_a_number() -> None:
    text = r'extern "C" __global__ void k(int* out) { asm("ld.global.u32 %0, [4096];" : "=r"(*out)); }'
    (fault,) = run(text, "k", (1,), (1,), np.zeros(1, np.int32), faulty=True).faults
    assert (fault.code, fault.threads) == ("out-of-bounds", 1)
    assert "belong to no array (address 0x1000)" in fault.text


TABLE = r"""
extern "C" __global__ void through(float* out, const float* const* table) {
    out[threadIdx.x] = table[blockIdx.x][threadIdx.x];
}
"""


def test_addresses_of_arrays_in_an_array_are_no_fault() -> None:
    arrays, out = [np.ones(32, np.float32), np.ones(1 << 20, np.float32)], np.zeros(32, np.float32)
    table = np.array([array.ctypes.data for array in arrays], np.uint64)
    for blocks in (1, 2):
        with pytest.raises(NotOnThisDevice, match="line 3: table holds addresses of arrays"):
            run(TABLE, "through", (blocks,), (32,), out, table)
    # No part of the process lies there.
    (fault,) = run(TABLE, "through", (1,), (32,), out, np.array([3 << 60], np.uint64), faulty=True).faults
    assert (fault.code, fault.array) == ("out-of-bounds", "")
    (fault,) = run(TABLE, "through", (1,), (32,), out, np.zeros(1, np.uint64), faulty=True).faults
    assert (fault.code, fault.array) == ("out-of-bounds", "")


SHARED = r"""
extern "C" __global__ void boxes(int* out, int index) {
    __shared__ int first[8];
    __shared__ int second[8];
    first[threadIdx.x] = 1, second[threadIdx.x] = 2;
    __syncthreads();
    out[threadIdx.x] = first[threadIdx.x + index] + second[threadIdx.x];  // sum
}
"""


def test_shared_arrays_have_bounds_of_their_own() -> None:
    out = np.zeros(8, np.int32)
    run(SHARED, "boxes", (1,), (8,), out, 0)
    np.testing.assert_array_equal(out, [3] * 8)
    (fault,) = run(SHARED, "boxes", (1,), (8,), out, 2, faulty=True).faults
    assert (fault.code, fault.array, fault.threads, fault.line) == (
        "out-of-bounds",
        "first",
        2,
        line_of(SHARED, "// sum"),
    )


def test_shared_memory_does_not_outlive_its_block() -> None:
    text = r"""
    extern "C" __global__ void keep(int* out) {
        __shared__ int box[32];
        if (blockIdx.x == 0) box[threadIdx.x] = 5;
        __syncthreads();
        out[blockIdx.x * 32 + threadIdx.x] = box[threadIdx.x];
    }
    """
    (fault,) = run(text, "keep", (3,), (32,), np.zeros(96, np.int32), faulty=True).faults
    assert (fault.code, fault.block, fault.threads) == ("uninitialised", "(1, 0, 0)", 64)


def test_local_arrays_have_bounds() -> None:
    text = r"""
    extern "C" __global__ void pick(int* out, int at) {
        int list[4] = {1, 2, 3, 4};
        list[at & 3] = 9;
        out[threadIdx.x] = list[threadIdx.x + at];
    }
    """
    (fault,) = run(text, "pick", (1,), (4,), np.zeros(4, np.int32), 2, faulty=True).faults
    assert (fault.code, fault.threads, fault.thread) == ("out-of-bounds", 2, "(2, 0, 0)")


def test_empty_arrays_are_watched_until_someone_writes() -> None:
    source, target = np.empty(256, np.float32), np.empty(256, np.float32)
    ptx.fill_untouched(source)
    ptx.fill_untouched(target)
    source[:128] = 1
    (fault,) = run(COPIES, "copy", (2,), (128,), target, source, uninitialised=[source, target], faulty=True).faults
    assert (fault.code, fault.array, fault.block, fault.threads) == ("uninitialised", "in", "(1, 0, 0)", 128)
    ptx.fill_untouched(target)
    source[128:] = 2
    run(COPIES, "copy", (1,), (128,), target, source, uninitialised=[source, target])
    other = np.zeros(256, np.float32)
    (fault,) = run(COPIES, "copy", (2,), (128,), other, target, uninitialised=[target], faulty=True).faults
    assert (fault.code, fault.threads) == ("uninitialised", 128)


def test_a_kernel_may_read_what_it_wrote_itself() -> None:
    text = """extern "C" __global__ void twice(float* out) {
        out[threadIdx.x] = 1;
        __threadfence();
        out[threadIdx.x] += 2;
    }"""
    target = np.empty(64, np.float32)
    ptx.fill_untouched(target)
    run(text, "twice", (1,), (64,), target, uninitialised=[target])
    np.testing.assert_array_equal(target, 3)


def test_failed_assertions() -> None:
    text = """extern "C" __global__ void check(const int* in, int* out) {
        assert(in[threadIdx.x] >= 0);
        out[threadIdx.x] = 1;
    }"""
    out = np.zeros(32, np.int32)
    (fault,) = run(text, "check", (1,), (32,), np.array([1] * 31 + [-1], np.int32), out, faulty=True).faults
    assert (fault.code, fault.thread, fault.line) == ("trap", "(31, 0, 0)", 2)
    assert fault.text.endswith("executes a trap (assert or __trap)")
    assert out.sum() == 31


@pytest.mark.parametrize(("given", "said"), [(0, "none"), (64, "only 64 bytes")])
def test_dynamic_shared_memory_that_the_launch_does_not_give(given: int, said: str) -> None:
    text = """extern "C" __global__ void k(float* out) {
        extern __shared__ float s[];
        s[threadIdx.x] = 1.0f;
        __syncthreads();
        out[threadIdx.x] = s[threadIdx.x];
    }"""
    first, *_ = run(text, "k", (1,), (32,), np.zeros(32, np.float32), shared_bytes=given, faulty=True).faults
    assert f"s is dynamic shared memory, and the launch gives {said} (shared_mem=)" in first.text
    assert not run(text, "k", (1,), (32,), np.zeros(32, np.float32), shared_bytes=128).faults
