"""Measurements by time, on a scripted device: which of them are invalid, and why."""

from dataclasses import replace

import pytest
from scripted import ScriptedDevice, dropped, except_at, repeat

from pytest_bandwidth.devices.base import Budget, Sample, Workload
from pytest_bandwidth.devices.measuring import measure_timed
from pytest_bandwidth.domain.device import Conditions, DeviceIdentity, Peak
from pytest_bandwidth.domain.traffic import Traffic

NOTHING = Workload(lambda: None, Traffic(500_000, 500_000))
QUIET = Budget(min_samples=8, max_seconds=1.0, precision=0.005)


def test_no_sample_left_is_invalid_not_nan():
    device = ScriptedDevice(kernel_script=repeat(dropped("throttled", text="SM clock at 60 % of nominal")))
    found = measure_timed(device, NOTHING, QUIET, lambda _: None)
    assert found.invalid is not None
    assert found.invalid.code == "no-samples"
    assert "SM clock at 60 % of nominal" in found.invalid.text
    assert (found.gbps, found.relative, found.utilization) == (None, None, None)
    assert found.rounds.stop == "no-samples"


@pytest.mark.parametrize("seconds", [0.0, -1e-6])
def test_a_sample_that_took_no_time_is_invalid(seconds):
    script = except_at([300], Sample(seconds, 1e-3), repeat(1e-3))
    found = measure_timed(ScriptedDevice(kernel_script=script), NOTHING, Budget(300, 10.0, 0.005), lambda _: None)
    assert found.invalid is not None
    assert found.invalid.code == "clock"


@pytest.mark.parametrize(("gbps", "valid"), [(1.0 + 1e-9, True), (1.0 - 1e-9, False)])
def test_more_than_the_peak_is_invalid(gbps, valid):
    device = ScriptedDevice(kernel_script=repeat(1e-3), peak=Peak(gbps * 1e9, "test"))
    found = measure_timed(device, NOTHING, QUIET, lambda _: None)
    assert (found.invalid is None) is valid


def test_others_on_a_gpu_are_invalid_on_a_host_they_are_told():
    busy = (Conditions(), Conditions(others=("train.py (7)",)))
    for kind, invalid in (("cuda", True), ("cpu", False)):
        device = ScriptedDevice(identity=DeviceIdentity(kind, "d", None, "s"), states=busy)
        found = measure_timed(device, NOTHING, QUIET, lambda _: None)
        assert (found.invalid is not None) is invalid
        assert found.conditions_after.others == ("train.py (7)",)


def test_what_nothing_disturbed_is_valid():
    found = measure_timed(ScriptedDevice(), NOTHING, QUIET, lambda _: None)
    assert found.invalid is None
    assert found.relative == pytest.approx(1.0)


@pytest.mark.parametrize(("seconds", "valid"), [(1e-6, True), (0.9e-6, False)])
def test_more_than_any_memory_reaches_is_invalid_where_no_peak_is_known(seconds, valid):
    """An exabyte per second: no baseline holds more, so that none is to be written."""
    declared = replace(NOTHING, traffic=Traffic(10**12, 0))
    found = measure_timed(ScriptedDevice(kernel_script=repeat(seconds)), declared, QUIET, lambda _: None)
    assert (found.invalid is None) is valid
