"""A test that writes beyond the ends of its arrays fails, whatever it measured."""

import pytest

pytestmark = [pytest.mark.in_process, pytest.mark.usefixtures("inside")]

TESTS = """
import ctypes

import numpy as np
import pytest

def far(bandwidth, work=lambda y: None):
    x, y = bandwidth.random(1000), bandwidth.empty(1000)
    def copy():
        y[:] = x
        work(y)
    return x, y, copy

def beyond(y):
    ctypes.memset(y.ctypes.data + y.nbytes + 32, 0, 4)

def test_well(bandwidth):
    x, y, copy = far(bandwidth)
    bandwidth(copy, reads=x, writes=y)

def test_beyond(bandwidth):
    x, y, copy = far(bandwidth, beyond)
    bandwidth(copy, reads=x, writes=y)

def test_each(bandwidth):
    x, y, copy = far(bandwidth)
    bandwidth(copy, reads=x, writes=y, label="one")
    beyond(y)
    bandwidth(copy, reads=x, writes=y, label="two")

def test_unmeasured(bandwidth):
    beyond(bandwidth.indices(1000))

def test_wrong(bandwidth):
    x, y, copy = far(bandwidth, beyond)
    copy()
    assert not y.any()

def test_well_again(bandwidth):
    x, y, copy = far(bandwidth)
    bandwidth(copy, reads=x, writes=y)
"""
WHERE = "32 bytes (8 elements) from its end"
SAID = f"a write out of bounds: 4 bytes changed after array 2 of the test, (1000,) float32, {WHERE}"


@pytest.fixture
def run(project):
    project.file("test_far.py", TESTS)
    return project


def test_what_it_measured_is_a_mismatch_and_the_failure_names_the_array_and_the_place(run):
    result = run.run("--bandwidth-json=run.json")
    result.assert_outcomes(passed=2, failed=4)
    rows = run.told()["results"]
    results = {row["key"].partition("::")[2]: row for row in rows}
    assert {key: row["reason_code"] for key, row in results.items()} == {
        "test_well": "no-baseline",
        "test_beyond": "out-of-bounds",
        "test_each @ one": "out-of-bounds",
        "test_each @ two": "out-of-bounds",
        "test_well_again": "no-baseline",
    }
    beyond = results["test_beyond"]
    assert (beyond["status"], beyond["reason"], beyond["is_valid"]) == ("MISMATCH", SAID, False)
    result.stdout.fnmatch_lines_random(
        [
            f"MISMATCH: {SAID}",
            "*troubleshooting.html#out-of-bounds",
            "a write out of bounds: 4 bytes changed after array 1 of the test, (1000,) int32, *",
        ]
    )
    # It may be why the test failed.
    result.stdout.fnmatch_lines(["*_ test_wrong _*", "*AssertionError*", "*bandwidth findings*", SAID])


def test_an_update_does_not_save_it(run):
    run.run("--bandwidth-baseline=base.yaml", "--bandwidth-update", "-k", "well or beyond")
    entries = (run.path / "base.yaml").read_text(encoding="utf-8")
    assert "test_well" in entries
    assert "test_beyond" not in entries
