"""Memory that exists where it was touched."""

import mmap
import os
import resource
from pathlib import Path

import numpy as np
import pytest

from pytest_bandwidth.domain.errors import OutOfMemory

sparse = pytest.importorskip("pytest_bandwidth.features.traffic.ptx.sparse", reason="needs the extra traffic")

PAGE = mmap.PAGESIZE


def test_parts_that_were_touched_are_known():
    data = sparse.sparse_zeros(1 << 36)
    data[5 * PAGE] = 1
    data[6 * PAGE + 7] = 1
    data[1 << 35] = 1
    assert list(sparse.touched(data, 0, data.size)) == [slice(5 * PAGE, 7 * PAGE), slice(1 << 35, (1 << 35) + PAGE)]
    assert list(sparse.touched(data, 6 * PAGE + 9, 1 << 35)) == [slice(6 * PAGE + 9, 7 * PAGE)]
    assert list(sparse.touched(np.zeros(8, np.uint8), 2, 4)) == [slice(2, 4)], (
        "a dense array may hold something anywhere"
    )


def test_files_are_closed_with_the_last_view():
    before = set(os.listdir("/proc/self/fd"))
    view = sparse.sparse_zeros(1 << 30)[4:].view(np.float32)
    assert set(os.listdir("/proc/self/fd")) > before
    del view
    assert set(os.listdir("/proc/self/fd")) <= before


def test_too_little_address_space_is_named():
    used = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), limits[1]))
    try:
        with pytest.raises(OutOfMemory, match=r"needs 68.7 GB of address space, .*: use a smaller shape, or raise"):
            sparse.sparse_zeros(1 << 36)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
