"""What tests of unchanged code lost together: a line of the run, and an exit status where that is asked for."""

import pytest

pytestmark = pytest.mark.in_process

# A call takes 1 ms, or 1.25 ms: 20 % of the bandwidth is lost. What the test says that its code is stays the same.
TESTS = """
import os
import pytest
from virtual_time import sleep

def pause():
    sleep(float(os.environ.get("SLOW", "0.0009")))

@pytest.mark.parametrize("number", range(3))
def test_pause(bandwidth, number):
    bandwidth(pause, reads=1 << 20, code="what it is")
"""
LOSS = "unchanged tests run 20.0 % below the baseline (median of 3, from 20.0 % to 20.0 %)"


def judged(project, *args):
    classes = ("-o", "bandwidth_utilization_classes=7% 5% 3%")  # of the probe's GB/s these are 8 %
    result = project.run_here("--bandwidth-baseline=b.yaml", "--bandwidth-json=run.json", *classes, *args)
    document = project.told()
    assert {(row["status"], row["reason_code"]) for row in document["results"]} == {("OK", "code-unchanged")}
    assert {row["utilization_class"] for row in document["results"]} == {"excellent"}
    told = [finding["text"] for finding in document["findings"] if finding["code"] == "device-loss"]
    return result, told


def test_a_slower_device_is_a_line_and_fails_the_run_past_its_tolerance_alone(slept, monkeypatch):
    slept.file("test_pause.py", TESTS)
    slept.run_here("--bandwidth-baseline=b.yaml", "--bandwidth-update", "--bandwidth-runs=1")
    monkeypatch.setenv("SLOW", "0.00115")
    for strict in ((), ("--bandwidth-strict",)):
        result, told = judged(slept, *strict)
        assert (result.ret, told) == (0, [LOSS])
        assert f"DEVICE {LOSS}" in result.outlines
    for tolerance, fails in (("19.99%", True), ("20.01%", False)):
        result, told = judged(slept, f"--bandwidth-device-tolerance={tolerance}")
        result.assert_outcomes(passed=3)
        assert result.ret == (pytest.ExitCode.TESTS_FAILED if fails else pytest.ExitCode.OK)
        assert told == ([LOSS] if fails else [])
        assert (f"FAILED: {LOSS}, --bandwidth-device-tolerance is 20.0 %" in result.outlines) is fails
    result, told = judged(slept, "--bandwidth-device-tolerance=1%", "-k", "not 2")
    assert (result.ret, told) == (0, []), "two tests say nothing of a device"
