"""Tests with subtests, pytest's and unittest's: reports that come while a test's body runs are not its own."""

import pytest

TESTS = """
import unittest

import numpy as np
import pytest

N = 1024
COPY = 'extern "C" __global__ void copy(float* o, const float* a) { o[threadIdx.x] = a[threadIdx.x]; }'

def moved(bandwidth, **more):
    x, y = bandwidth.random(N, "float32"), bandwidth.empty(N, "float32")
    return bandwidth.launch(bandwidth.kernel(COPY, "copy"), 1, N, (y, x), reads=x, writes=y, **more)

class TestUnittest(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def _fixture(self, bandwidth):
        self.bandwidth = bandwidth

    def test_passing(self):
        for i in range(2):
            with self.subTest(i=i):
                moved(self.bandwidth, label=f"u{i}")

    def test_failing(self):
        moved(self.bandwidth)
        with self.subTest(i=0):
            self.fail("wrong result")
        with self.subTest(i=1):
            pass
"""
OF_PYTEST = """
def test_passing(bandwidth, subtests):
    for i in range(2):
        with subtests.test(i=i):
            moved(bandwidth, label=f"p{i}")

def test_failing(bandwidth, subtests):
    moved(bandwidth)
    with subtests.test(i=0):
        assert False, "wrong result"
    with subtests.test(i=1):
        pass
"""


@pytest.mark.usefixtures("traffic_loaded", "inside")
def test_what_subtests_measured_is_the_tests_and_what_failed_is_not_written(project):
    has_subtests = pytest.version_tuple >= (9, 0)
    project.file("test_sub.py", TESTS + (OF_PYTEST if has_subtests else ""))
    given = ("--bandwidth-device=traffic", "--bandwidth-baseline=t.yaml")
    project.run(*given, "--bandwidth-update")
    written = (project.path / "t.yaml").read_text()
    assert written.count("test_passing @ ") == (4 if has_subtests else 2)
    assert "test_failing" not in written
    judged = project.document(*given, "--bandwidth-strict", "-n1")
    passing = [row for row in judged["results"] if "test_passing" in row["nodeid"]]
    assert [row["reason_code"] for row in passing] == ["code-unchanged"] * (4 if has_subtests else 2)
    assert not any("not-measured" in finding["code"] for finding in judged["findings"])
