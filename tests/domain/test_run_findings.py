"""One finding for a run whose device changed."""

from dataclasses import replace

from pytest_bandwidth.domain.outcome import Outcome
from pytest_bandwidth.domain.run_findings import DEVICE_CHANGED, device_finding

WITHIN = Outcome("t.py::t", "t.py::t", None, "WITHIN", "within", "")
DOWN = replace(WITHIN, status="DEVICE", code="device", reason="the device is down, not the kernel")


def test_what_a_changed_device_spoilt_is_counted_once():
    found = device_finding([WITHIN, DOWN, replace(DOWN, reason="the same in other words")])
    assert found is not None
    assert found.code == DEVICE_CHANGED
    assert found.text == (
        "2 of 3 measurements could not be judged, since the device changed: the device is down, not the kernel"
    )


def test_without_one_there_is_none():
    assert device_finding([WITHIN]) is None
