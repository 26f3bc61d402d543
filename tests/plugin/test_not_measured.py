"""An entry of the baseline whose test ran and measured nothing for it: counted in a line, and red with strict."""

import pytest

TESTS = """
import numpy as np
import pytest

def copy(bandwidth, label=None):
    a, b = bandwidth.random(1 << 14, "float32"), bandwidth.empty(1 << 14, "float32")
    bandwidth(np.copyto, b, a, reads=a, writes=b, label=label)

def test_measured(bandwidth):
    copy(bandwidth)

def test_skips(bandwidth):
    pytest.skip("its kernel prints")

@pytest.mark.skip(reason="for later")
@pytest.mark.bandwidth
def test_marked_skip(bandwidth):
    copy(bandwidth)

def test_returns_early(bandwidth):
    return

@pytest.mark.bandwidth(tolerance="3%")
def test_without_fixture():
    pass

def test_lost_it():
    pass

def test_label_gone(bandwidth):
    copy(bandwidth, "kept")

def test_without_an_entry(bandwidth):
    pytest.skip("may skip")

@pytest.mark.xfail(reason="known")
def test_known_to_fail(bandwidth):
    assert False
"""
WHY = {
    "test_k.py::test_skips": "the test skipped: its kernel prints",
    "test_k.py::test_marked_skip": "the test skipped: for later",
    "test_k.py::test_returns_early": "the test passed and measured nothing",
    "test_k.py::test_without_fixture": "the test does not take the fixture `bandwidth`",
    "test_k.py::test_lost_it": "the test does not take the fixture `bandwidth`",
    "test_k.py::test_label_gone @ gone": "the test passed without measuring it",
    "test_k.py::test_known_to_fail": "the test is marked xfail and measured nothing: known",
}
KEYS = ("test_k.py::test_measured", "test_k.py::test_label_gone @ kept", *WHY)


@pytest.fixture
def gated(project):
    project.file("test_k.py", TESTS)
    entries = "".join(f"  {key}: {{bandwidth: 1 MB/s}}\n" for key in KEYS)
    project.file("b.yaml", f"schema: 2\ntests:\n{entries}")
    return project


def test_they_are_one_line_and_in_the_document(gated):
    disabled = gated.run_here("--bandwidth-baseline=b.yaml", "--bandwidth-disable")
    assert "NOT MEASURED" not in disabled.stdout.str(), "nobody wants it measured"
    result = gated.run_here("--bandwidth-baseline=b.yaml", "--bandwidth-json=run.json")
    result.assert_outcomes(passed=5, skipped=3, xfailed=1)
    (line,) = [line for line in result.outlines if line.startswith("NOT MEASURED")]
    assert line.startswith("NOT MEASURED 7 entries of the baseline: ")
    assert all(f"{key} ({why})" in line for key, why in WHY.items())
    document = gated.told()
    told = [finding["text"] for finding in document["findings"] if finding["code"] == "not-measured"]
    assert sorted(told) == sorted(f"{key} is in the baseline and was not measured: {why}" for key, why in WHY.items())


def test_with_strict_each_fails_and_says_why(gated):
    # Without those that are timed: what they give on this machine is not what this is about.
    untimed = "not test_measured and not test_label_gone"
    result = gated.run_here("--bandwidth-baseline=b.yaml", "--bandwidth-strict", "-k", untimed)
    # A test that a mark skips fails where pytest skips it: while it is set up.
    result.assert_outcomes(skipped=1, failed=4, errors=1, xfailed=1)
    assert result.ret == 1
    unjudged = "marked bandwidth, and does not take the fixture `bandwidth`: there is nothing to judge"
    assert [line for line in result.outlines if line.startswith(unjudged)]
    otherwise = ("test_label_gone", "test_known_to_fail", "test_without_fixture")
    for key, why in WHY.items():
        told = f"{key} is in the baseline, and {why}" in result.outlines
        assert told is not any(name in key for name in otherwise)


@pytest.mark.in_process
def test_tests_for_other_devices_skip_and_are_counted_by_reason(project):
    project.file(
        "test_k.py",
        "import pytest\n\n@pytest.mark.parametrize('n', [1, 2])\n@pytest.mark.bandwidth(device='cuda')\n"
        "def test_there(bandwidth, n):\n    pass\n\n\ndef test_here(bandwidth):\n"
        "    bandwidth(lambda: sum(range(10000)), reads=8)\n",
    )
    result = project.run_here()
    result.assert_outcomes(passed=1, skipped=2)
    said = "the test asks for device 'cuda', this run measures on 'cpu'"
    assert f"skipped on this device: 2 tests: {said}" in result.outlines


DYNAMIC = """
import numpy as np
import pytest

@pytest.mark.bandwidth(min_gbps={floor})
def test_dynamic(request):
    bandwidth = request.getfixturevalue("bandwidth")
    a, b = bandwidth.random(1 << 18, "float32"), bandwidth.empty(1 << 18, "float32")
    bandwidth(np.copyto, b, a, reads=a, writes=b)
"""


def test_a_fixture_that_is_asked_for_in_the_body_is_judged_as_any(project):
    project.file("test_k.py", DYNAMIC.format(floor="1e-6"))
    passed = project.run_here()
    passed.assert_outcomes(passed=1)
    assert "1 measured: 1 OK" in passed.outlines
    project.file("test_k.py", DYNAMIC.format(floor="'90 TB/s'"))
    failed = project.run_here("-o", "bandwidth_confirm=1")
    failed.assert_outcomes(failed=1)
    failed.stdout.re_match_lines([r"REGRESSED: .* GB/s is below min_gbps, 90,?000 GB/s", r" +re-runs +\S+ GB/s"])
