"""--bandwidth-against where code is the revision's: nothing is measured or counted for it there, and nothing hidden."""

import json

import pytest
from repositories import committed

pytest.importorskip("cuda.bindings", reason="NVRTC compiles here: pip install 'pytest-bandwidth[traffic]'")

KERN = "from virtual_time import sleep\ndef pause():\n    sleep(0.002)\n"
TESTS = """
import pathlib
import numpy as np
import pytest
import kern

def measured(bandwidth, **more):
    a, b = bandwidth.random(1 << 18, "float32"), bandwidth.empty(1 << 18, "float32")
    def kernel():
        np.copyto(b, a)
        kern.pause()
    return bandwidth(kernel, reads=a, writes=b, code="the same", **more)

def test_same(bandwidth):
    assert measured(bandwidth, label="one").value is None
    measured(bandwidth, label="two")

@pytest.mark.bandwidth(min_gbps=1e-6)
def test_floor(bandwidth):
    assert measured(bandwidth).gbps > 0

@pytest.mark.bandwidth(judged_on="gbps", tolerance="50%")
def test_uses_its_figures(bandwidth):
    assert measured(bandwidth).gbps > 0
"""
KERNELS = """
extern "C" __global__ void gather(const int* index, const float* x, float* y) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[index[i]];
}}
extern "C" __global__ void scale(float* x) {{ x[blockIdx.x * blockDim.x + threadIdx.x] *= {factor}; }}
"""
COUNTED = """
import numpy as np
import pytest

N = 1 << 10

@pytest.mark.parametrize("step", {steps})
def test_gather(bandwidth, step):
    index = (np.arange(N) * step % N).astype(np.int32)
    x, y = bandwidth.random(N), bandwidth.empty(N)
    kernel = bandwidth.kernel("kernels.cu", "gather")
    bandwidth.launch(kernel, N // 256, 256, (index, x, y), reads=(index, x), writes=y)
    np.testing.assert_array_equal(y, x[index])

def test_scale(bandwidth):
    x = bandwidth.random(N)
    bandwidth.launch(bandwidth.kernel("kernels.cu", "scale"), N // 256, 256, (x,), reads=x, writes=x)
"""
SITE = """
import os
import pytest_bandwidth.evidence.processes.child as child
real = child.Child.__init__
def noted(self, command, folder, request, *more, **named):
    with open(os.environ["STARTED"], "a") as file:
        file.write(f"{'tells' if request.tells_code else 'measures'}\\n")
    real(self, command, folder, request, *more, **named)
child.Child.__init__ = noted
"""


@pytest.fixture
def repo(project, monkeypatch):
    """A project whose fresh processes note why they were started."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p bandwidth -p no:unraisableexception")
    monkeypatch.setenv("STARTED", str(project.path / "started"))
    project.file("pytest.ini", "[pytest]\npythonpath = .\nbandwidth_busy_processors = 1000\n")
    project.file("conftest.py", SITE)
    return project


def judged(repo, *args):
    result = repo.run("--bandwidth-against=HEAD", "--bandwidth-json=run.json", *args)
    rows = json.loads((repo.path / "run.json").read_text())["results"]
    started = (repo.path / "started").read_text().split()
    return {row["key"].partition("::")[2]: row for row in rows}, started, result


def test_the_same_code_takes_no_measurement_but_for_floors_and_for_tests_that_use_figures(repo, slept):
    assert slept is repo
    repo.file("kern.py", KERN)
    repo.file("test_kernel.py", TESTS)
    committed(repo.path)
    rows, started, result = judged(repo)
    result.assert_outcomes(passed=3)
    assert {name: (row["status"], row["gbps"] is None) for name, row in rows.items()} == {
        "test_same @ one": ("OK", True),
        "test_same @ two": ("OK", True),
        "test_floor": ("OK", False),  # by its floor, which no other revision decides
        "test_uses_its_figures": ("OK", False),
    }
    assert {rows[f"test_same @ {label}"]["reason_code"] for label in ("one", "two")} == {"code-unchanged"}
    assert started == ["tells", *["measures"] * (len(started) - 1)]


def test_counts_of_the_same_code_are_taken_once_and_those_of_other_code_or_data_twice(repo):
    repo.file("test_counts.py", COUNTED.format(steps="(1, 3)"))
    repo.file("kernels.cu", KERNELS.format(factor="2.0f"))
    committed(repo.path)
    # Of the same name, the second gather's index is another now; scale's code is.
    repo.file("test_counts.py", COUNTED.format(steps="(1, pytest.param(32, id='3'))"))
    repo.file("kernels.cu", "// a comment\n" + KERNELS.format(factor="3.0f"))
    rows, started, result = judged(repo, "--bandwidth-device=traffic", "--bandwidth-baseline=traffic.yaml")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.re_match_lines([r"bandwidth: .*; baseline: HEAD \([0-9a-f]{10}\); traffic.yaml is not read"])
    assert {name: row["status"] for name, row in rows.items()} == {
        "test_gather[1]": "OK",
        "test_gather[3]": "REGRESSED",
        "test_scale": "OK",
    }
    assert rows["test_gather[1]"]["counts"]
    assert started == ["tells", "measures", "measures"]
