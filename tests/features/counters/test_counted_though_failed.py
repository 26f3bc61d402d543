"""What the traffic device counted in a test whose body failed is judged and shown; nothing of it is written."""

import pytest

pytest.importorskip("cuda.bindings", reason="counting needs the extra traffic")
pytest.importorskip("numba", reason="counting needs the extra traffic")

TEST = '''
import numpy as np

KERNEL = """
extern "C" __global__ void copy(const float* a, float* b, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i] = a[{index}];
}}
"""


def test_copy(bandwidth):
    n = 4096
    a, b = bandwidth.random(n), bandwidth.empty(n)
    bandwidth.launch(bandwidth.kernel(KERNEL), 32, 128, (a, b, np.int32(n)), reads=a, writes=b)
    assert {condition}
'''
TRAFFIC = ("--bandwidth-device=traffic", "--bandwidth-baseline=b.yaml")


@pytest.mark.usefixtures("traffic_loaded")
def test_a_regression_is_shown_with_the_bodys_own_failure(project):
    project.file("test_k.py", TEST.format(index="i", condition="True"))
    project.run_here(*TRAFFIC, "--bandwidth-update", quick=False).assert_outcomes(passed=1)
    written = (project.path / "b.yaml").read_text()
    project.file("test_k.py", TEST.format(index="(i * 33) % n", condition="(a == b).all(), 'wrong numbers'"))
    result = project.run_here(*TRAFFIC, "--bandwidth-json=run.json", quick=False)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*AssertionError: wrong numbers*", "*bandwidth verdict*", "*sectors*"])
    (row,) = project.told()["results"]
    assert row["status"] == "REGRESSED"
    assert project.run_here(*TRAFFIC, "--bandwidth-update", quick=False).ret == 1
    assert (project.path / "b.yaml").read_text() == written


@pytest.mark.usefixtures("traffic_loaded")
def test_fewer_bytes_than_declared_fail_with_strict(project):
    project.file("test_k.py", TEST.format(index="i", condition="True").replace("np.int32(n)", "np.int32(n // 2)"))
    project.run_here(*TRAFFIC, "--bandwidth-update", quick=False).assert_outcomes(passed=1)
    project.run_here(*TRAFFIC, quick=False).assert_outcomes(passed=1)
    result = project.run_here(*TRAFFIC, "--bandwidth-strict", quick=False)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["the kernel touches 8,192 of the 16,384 bytes that are declared read: *"])


def test_nobody_waits_for_what_only_counts(project):
    project.file("test_k.py", TEST.format(index="i", condition="True"))
    project.run("--bandwidth-device=traffic", quick=False).assert_outcomes(passed=1)
    held = project.file("test_held.py", HELD)
    project.run(str(held), quick=False).assert_outcomes(passed=1)


HELD = """
import subprocess
import sys

from pytest_bandwidth.devices.open import open_device
from pytest_bandwidth.measuring.measurer import DeviceLock


def test_another_process_counts_meanwhile():
    with DeviceLock(open_device("traffic").identity, 1.0).held():
        command = [sys.executable, "-m", "pytest", "test_k.py", "--bandwidth-device=traffic"]
        done = subprocess.run([*command, "-o", "bandwidth_lock_timeout=0.1"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
"""
