"""What a kernel's old and new code ask of memory, counted for a verdict's likely cause."""

import numpy as np
import pytest

from pytest_bandwidth.devices.base import Launch
from pytest_bandwidth.features import traffic
from pytest_bandwidth.features.traffic import pytest_bandwidth_sectors as sectors_of_both

ptx = pytest.importorskip("pytest_bandwidth.features.traffic.ptx", reason="needs the extra traffic")

COPY = """
extern "C" __global__ void copy(const float* x, float* y, int step) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    {body}
}}
"""
N, STEP = 1 << 13, 8


def compiled(body: str) -> str:
    return ptx.compile_ptx(COPY.format(body=body), arch="sm_90", filename="copy.cu").ptx


@pytest.fixture(scope="module")
def plain() -> str:
    return compiled("y[i] = x[i];")


@pytest.fixture
def launch() -> Launch:
    x, y = np.ones(N * STEP, np.float32), np.zeros(N, np.float32)
    return Launch(None, (N // 256, 1, 1), (256, 1, 1), (x, y, np.int32(STEP)))


def test_a_strided_load_asks_for_a_sector_an_element(plain, launch):
    strided = compiled("y[i] = x[i * step];")
    assert sectors_of_both(plain, strided, launch, lambda: launch.args) == {"then": 64, "now": 256 + 32}


def test_where_an_array_begins_counts(plain, launch):
    """From an eighth of a sector on, each request of a warp takes one more."""
    misaligned = (launch.args[0][1:], *launch.args[1:])
    assert sectors_of_both(plain, plain, launch, lambda: misaligned) == {"then": 72, "now": 72}


def test_what_cannot_be_counted_is_left_out(plain, launch, monkeypatch):
    endless = compiled("volatile float* z = y; while (z[i] == 0) {}")
    monkeypatch.setattr(traffic, "MAX_SECONDS", 0.1)
    assert sectors_of_both(endless, plain, launch, lambda: launch.args) is None
    assert sectors_of_both(plain, "rot 3;", launch, lambda: launch.args) is None
    monkeypatch.setattr(traffic, "MAX_ARRAY_BYTES", 1 << 10)
    assert sectors_of_both(plain, plain, launch, lambda: launch.args) is None


def test_a_conftest_counts_sectors_in_its_own_way(project):
    project.file(
        "conftest.py", "def pytest_bandwidth_sectors(old, new):\n    return {'then': len(old), 'now': len(new)}\n"
    )
    project.file(
        "test_own_sectors.py",
        "from pytest_bandwidth.registry import hooks\n"
        "def test_counted():\n"
        "    counted = hooks().pytest_bandwidth_sectors(old='a', new='ab', launch=None, host_args=tuple)\n"
        "    assert counted == {'then': 1, 'now': 2}\n",
    )
    project.run_here().assert_outcomes(passed=1)
