"""Arrays that are larger than the memory: indices beyond 2³¹ on a machine of any size."""

import mmap
import os
import re
import resource
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from user_project import bandwidth_on

pytest.importorskip("cuda.bindings", reason="the traffic device needs NVRTC: pip install 'pytest-bandwidth[traffic]'")

from pytest_bandwidth.domain.errors import KernelFault, NotOnThisDevice, OutOfMemory, UsageError
from pytest_bandwidth.features.traffic.ptx import launch, memory

# 3·2³⁰ floats, 12 GiB.
ROWS, COLS = 3 << 20, 1 << 10
SCALE = """extern "C" __global__ void scale(float* x, const int* rows, int cols, float s)
{
    INDEX i = (INDEX)rows[blockIdx.x] * cols + threadIdx.x;
    x[i] *= s;
}
"""
AT = np.array([0, 5, 1 << 21, ROWS - 1], np.int32)
VALUES = np.arange(4 * COLS, dtype=np.float32).reshape(4, COLS)


@pytest.fixture
def bandwidth(tmp_path):
    return bandwidth_on("traffic", tmp_path)


def resident_bytes():
    return int(re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) << 10


def scaled(bandwidth, index, x, at=AT, cols=COLS):
    kernel = bandwidth.kernel(SCALE.replace("INDEX", index), "scale")
    args = (x, at, np.int32(cols), np.float32(2))
    return bandwidth.launch(kernel, len(at), COLS, args, reads=(VALUES.nbytes, at), writes=VALUES.nbytes)


def test_an_index_that_overflows_is_out_of_bounds(bandwidth):
    x = bandwidth.virtual((ROWS, COLS))
    before = resident_bytes()
    with pytest.raises(KernelFault) as caught:
        scaled(bandwidth, "int", x)
    assert re.search(
        rf"out-of-bounds: \S+:4: thread \(0, 0, 0\) of block \(2, 0, 0\) reads 4 bytes at byte -{8 << 30} of x, "
        rf"which has {12 << 30} bytes",
        str(caught.value),
    ), caught.value
    assert resident_bytes() - before < 1 << 30


def test_some_blocks_of_a_grid_of_as_many_threads(bandwidth):
    text = """extern "C" __global__ void twice(float* x, long long n)
{
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) x[i] = 2 * x[i] + 1;
}"""
    n, bandwidth.marker = 3 << 30, replace(bandwidth.marker, blocks=16)
    x, kernel = bandwidth.virtual(n), bandwidth.kernel(text, "twice")
    x[-256:] = 3
    measured = bandwidth.launch(kernel, n // 256, 256, (x, np.int64(n)), reads=x, writes=x)
    assert measured.counts["store_bytes"] == x.nbytes
    assert (x[:256].sum(), x[256:512].sum(), x[-256:].sum()) == (256, 0, 7 * 256)


@pytest.mark.parametrize("part", [np.s_[:], np.s_[1 << 21 :]], ids=["whole", "a view"])
def test_an_index_of_64_bits_reaches_every_row(bandwidth, part):
    x = bandwidth.virtual((ROWS, COLS))
    view = x[part]
    at = np.minimum(AT, len(view) - 1 - np.arange(4, dtype=np.int32)[::-1])
    view[at] = VALUES
    before = resident_bytes()
    measured = scaled(bandwidth, "size_t", view, at)
    assert resident_bytes() - before < 1 << 30
    np.testing.assert_array_equal(view[at], 2 * VALUES)
    np.testing.assert_array_equal(x[part][at[-1], :3], 2 * VALUES[-1, :3])
    assert not x[1 << 20].any(), "zeros elsewhere"
    assert measured.counts["load_bytes"] == 2 * VALUES.nbytes  # with the row's number, for each thread
    assert measured.counts["distinct_bytes_read"] == VALUES.nbytes + at.nbytes
    assert measured.counts["distinct_bytes_written"] == VALUES.nbytes
    assert measured.counts["store_sectors"] == VALUES.nbytes // 32
    assert not measured.findings


@pytest.mark.parametrize("before", ["", "__syncthreads();"])
def test_a_race_far_in_it_is_found(bandwidth, before):
    text = f"""extern "C" __global__ void race(float* x, long long first) {{
        long long i = first + blockIdx.x * blockDim.x + threadIdx.x;
        {before}
        x[i / 2] = threadIdx.x;
    }}"""
    x = bandwidth.virtual(3 << 30)
    kernel = bandwidth.kernel(text, "race")
    with pytest.raises(KernelFault, match=r"race: \S+:4: .* writes x at byte \d{10}"):
        bandwidth.launch(kernel, 2, 64, (x, np.int64(5 << 29)), writes=256)


def test_a_launch_stops_before_memory_ends(bandwidth, monkeypatch):
    monkeypatch.setattr(launch, "available_bytes", lambda: 1 << 20)
    x = bandwidth.virtual((ROWS, COLS))
    with pytest.raises(OutOfMemory, match=r"threads that .* need 67.1 MB, 1.05 MB are free: launch fewer"):
        scaled(bandwidth, "size_t", x)


def test_contents_identify_it_by_what_is_not_zero(bandwidth):
    device = bandwidth._device
    arrays = [bandwidth.virtual(3 << 30, "int32") for _ in range(2)]
    assert device.contents(arrays[0]) == device.contents(arrays[1])
    arrays[0][1 << 30] = 0
    assert device.contents(arrays[0]) == device.contents(arrays[1]), "a page that was touched, and holds zeros"
    arrays[0][1 << 30] = 7
    assert device.contents(arrays[0]) != device.contents(arrays[1])
    arrays[1][1 << 31] = 7
    assert device.contents(arrays[0]) != device.contents(arrays[1]), "at another place"


def test_it_has_a_largest_size(bandwidth):
    assert bandwidth.virtual(1 << 37).nbytes == 1 << 39
    with pytest.raises(UsageError, match=r"has 1.1 TB, expected at most 550 GB: use a smaller shape"):
        bandwidth.virtual(1 << 38)
    with pytest.raises(UsageError, match="virtual: dtype is object, expected one of numbers, such as float32"):
        bandwidth.virtual(4, object)
    assert bandwidth.virtual((0, 4)).shape == (0, 4)


def test_elsewhere_it_is_a_plain_array_or_the_test_skips(tmp_path):
    host = bandwidth_on("cpu", tmp_path)
    assert host.virtual((4, 4), "int32").sum() == 0
    with pytest.raises(NotOnThisDevice, match=r"virtual: .* needs 563 TB, .* are free"):
        host.virtual(1 << 47)


# ---- memory that exists where it was touched -------------------------------------------------------------------------

PAGE = mmap.PAGESIZE


def test_parts_that_were_touched_are_known():
    data = memory.sparse_zeros(1 << 36)
    data[5 * PAGE] = 1
    data[6 * PAGE + 7] = 1
    data[1 << 35] = 1
    assert list(memory.touched(data, 0, data.size)) == [slice(5 * PAGE, 7 * PAGE), slice(1 << 35, (1 << 35) + PAGE)]
    assert list(memory.touched(data, 6 * PAGE + 9, 1 << 35)) == [slice(6 * PAGE + 9, 7 * PAGE)]
    assert list(memory.touched(np.zeros(8, np.uint8), 2, 4)) == [slice(2, 4)], (
        "a dense array may hold something anywhere"
    )


def test_files_are_closed_with_the_last_view():
    before = set(os.listdir("/proc/self/fd"))
    view = memory.sparse_zeros(1 << 30)[4:].view(np.float32)
    assert set(os.listdir("/proc/self/fd")) > before
    del view
    assert set(os.listdir("/proc/self/fd")) <= before


def test_too_little_address_space_is_named():
    used = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), limits[1]))
    try:
        with pytest.raises(OutOfMemory, match=r"needs 68.7 GB of address space, .*: use a smaller shape, or raise"):
            memory.sparse_zeros(1 << 36)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
