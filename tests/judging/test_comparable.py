"""What forbids a comparison of two measurements."""

from dataclasses import replace

import pytest
from entries_of_shares import entry

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.verdict import Status
from pytest_bandwidth.judging.comparable import Difference, MeasurementSetup, difference_of
from pytest_bandwidth.judging.decide import mismatch

SETUP = MeasurementSetup(100, 50, "clock", {"threads": "2", "nvrtc": "13.0"})


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"bytes_read": 99}, Difference("bytes", "bytes_read", 100, 99)),
        ({"bytes_written": 51}, Difference("bytes", "bytes_written", 50, 51)),
        ({"method": "events"}, Difference("method", "method", "clock", "events")),
        ({"settings": {"threads": "4"}}, Difference("setting:threads", "threads", "2", "4")),
        ({"settings": {"nvrtc": "13.5"}}, Difference("setting:nvrtc", "nvrtc", "13.0", "13.5")),
        ({"bytes_read": 99, "method": "events"}, Difference("bytes", "bytes_read", 100, 99)),
    ],
)
def test_what_was_measured_otherwise_is_a_mismatch(change, difference):
    same = entry(1.0, bytes_read=100, bytes_written=50, method="clock", settings={"threads": "2"})
    assert difference_of(SETUP, same) is None
    found = difference_of(SETUP, replace(same, **change))
    assert found == difference
    decision = mismatch(found)
    assert (decision.status, decision.rule) == (Status.MISMATCH, difference.rule)
    assert decision.facts == {"name": difference.name, "here": difference.here, "there": difference.there}


def test_what_an_entry_or_a_device_does_not_say_can_be_compared():
    assert difference_of(SETUP, Entry("t", gbps=1.0)) is None
    assert difference_of(SETUP, Entry("t", gbps=1.0, settings={"ecc": "on"})) is None


def test_the_compiler_is_no_setting_of_what_executes_the_same_ptx():
    other = Entry("t", settings={"threads": "2", "nvrtc": "13.5"})
    assert difference_of(SETUP.by_any_compiler(), other) is None
    assert difference_of(SETUP.by_any_compiler(), replace(other, settings={"threads": "4"})) is not None
