"""A repository of a user's own: shipped kernel, own file, template, NumPy call."""

import json
import re

import pytest

from pytest_bandwidth.features.traffic.device import NO_LAUNCH

OWN_FILE = """extern "C" __global__ void halve(float* out, const float* in, long long n)
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = 0.5f * in[i];
}
"""
TEST = '''
import numpy as np
import pytest

N = 1 << 14
GRID = (N // 256, 256)
SHIFT = """template <typename T, int BY> __global__ void shift(T* out, const T* in, long long n)
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = in[i] + BY;
}
"""


@pytest.fixture
def arrays(bandwidth):
    return bandwidth.random(N, "float32"), bandwidth.empty(N, "float32")


def test_shipped(bandwidth, arrays):
    x, y = arrays
    scale = bandwidth.kernel("stream.cu", "scale_f32")
    bandwidth.launch(scale, *GRID, (y, x, np.float32(3), np.int64(N)), reads=x, writes=y, flop=N)
    bandwidth.xp.testing.assert_allclose(y, 3 * x, rtol=1e-6)


def test_own_file(bandwidth, arrays):
    x, y = arrays
    halve = bandwidth.kernel("kernels/halve.cu", "halve")
    bandwidth.launch(halve, *GRID, (y, x, np.int64(N)), reads=x, writes=y, flop=N)
    bandwidth.xp.testing.assert_array_equal(y, x / 2)


def test_template(bandwidth, arrays):
    x, y = arrays
    shift = bandwidth.kernel(SHIFT, "shift<float, 2>", name_expressions=["shift<float, 2>", "shift<double, 2>"])
    bandwidth.launch(shift, *GRID, (y, x, np.int64(N)), reads=x, writes=y)
    bandwidth.xp.testing.assert_array_equal(y, x + 2)


def test_numpy(bandwidth):
    x, y = np.ones(N, np.float32), np.empty(N, np.float32)
    bandwidth(np.multiply, x, 2, out=y, reads=x, writes=y, flop=N)
    assert (y == 2).all()
'''


@pytest.fixture
def repository(project):
    """Nothing of this package's own beside it: a folder of tests with a kernel under it."""
    project.file("bench/kernels/halve.cu", OWN_FILE)
    project.file("bench/test_own.py", TEST)
    return project


@pytest.mark.in_process
def test_on_the_host_its_own_cuda_code_skips_and_all_else_is_measured(repository):
    result = repository.run_here("bench", "-rs", "--bandwidth-json=run.json")
    result.assert_outcomes(passed=2, skipped=2)
    reason = "CUDA kernels need a CUDA or traffic device; on the host only those with a twin run"
    where = re.compile(r"SKIPPED \[1\] bench/test_own\.py:\d+: ")
    assert sum(bool(where.match(line)) and reason in line for line in result.outlines) == 2
    assert f"skipped on this device: 2 tests: {reason}" in result.outlines
    rows = json.loads((repository.path / "run.json").read_text(encoding="utf-8"))["results"]
    assert all(row["gbps"] > 0 for row in rows)
    assert {row["key"].partition("::")[2] for row in rows} == {"test_shipped", "test_numpy"}


@pytest.mark.usefixtures("traffic_loaded")
def test_without_a_gpu_its_own_cuda_code_is_executed_and_counted(repository):
    result = repository.run_here("bench", "--bandwidth-device=traffic", "-v", "-rs")
    result.assert_outcomes(passed=3, skipped=1)
    for name in ("shipped", "own_file", "template"):
        result.stdout.re_match_lines([rf".*::test_{name} PASSED.*"])
    assert any(NO_LAUNCH.partition(":")[0] in line for line in result.outlines)
