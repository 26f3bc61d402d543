"""The counted SM clock: from stamps to MHz, and what follows from it."""

import numpy as np
import pytest

from pytest_bandwidth.devices.cuda.clock import (
    clock_from_stamps,
    clocks_disagree,
    memory_clock_low,
    nominal_clock_mhz,
    shortest_interval_ns,
    sm_clock_low,
    throttled,
)


def stamps(*pairs: tuple[int, int]) -> "np.ndarray[tuple[int, int], np.dtype[np.uint64]]":
    return np.array(pairs, np.uint64)


def test_cycles_per_nanosecond_are_gigahertz() -> None:
    assert clock_from_stamps(stamps((1000, 50)), stamps((101_000, 150_050)), 10_000) == pytest.approx(1500.0)


def test_each_multiprocessor_is_compared_with_itself_and_the_median_counts() -> None:
    before = stamps((1000, 9_000_000), (1000, 5), (1000, 77))
    after = stamps((101_000, 9_140_000), (101_000, 150_005), (101_000, 10_077))  # 1400, 1500 and a stray 100 MHz
    assert clock_from_stamps(before, after, 10_000) == pytest.approx(1400.0)


def test_multiprocessors_that_were_not_stamped_twice_do_not_count() -> None:
    before = stamps((0, 0), (1000, 5), (1000, 5))
    after = stamps((101_000, 1), (0, 0), (101_000, 160_005))
    assert clock_from_stamps(before, after, 10_000) == pytest.approx(1600.0)


def test_an_interval_too_short_for_the_clock_tells_nothing() -> None:
    before, after = stamps((1000, 0)), stamps((10_999, 15_000))
    assert clock_from_stamps(before, after, 10_000) is None
    assert clock_from_stamps(before, stamps((11_000, 15_000)), 10_000) is not None


def test_no_stamps_tell_nothing() -> None:
    assert clock_from_stamps(np.zeros((4, 2), np.uint64), np.zeros((4, 2), np.uint64), 1) is None


def test_a_coarse_clock_needs_a_longer_interval() -> None:
    assert shortest_interval_ns(32) == 10_000
    assert shortest_interval_ns(1024) == 20 * 1024


def test_the_default_application_clock_is_nominal_where_there_is_one() -> None:
    assert nominal_clock_mhz(585, 1590) == 585  # a T4, which cannot hold its maximum
    assert nominal_clock_mhz(None, 2520) == 2520
    assert nominal_clock_mhz(None, None) is None


def test_throttled_below_three_quarters_of_the_samples_before() -> None:
    before = [1000.0, 200.0, 1000.0]
    assert throttled(749.0, before) is not None
    assert throttled(750.0, before) is None
    assert throttled(None, before) is None
    assert throttled(1.0, []) is None


def test_a_clock_that_stays_below_three_quarters_of_nominal_is_told() -> None:
    finding = sm_clock_low(1480.0, 1980.0)
    assert finding is not None
    assert finding.code == "sm-clock-low"
    for said in ("was 1480 MHz", "at least 75 %", "nominal 1980", "slower GPU", "nvidia-smi"):
        assert said in finding.text
    assert sm_clock_low(1485.0, 1980.0) is None
    assert sm_clock_low(None, 1980.0) is None
    assert sm_clock_low(100.0, None) is None


def test_a_counted_clock_well_below_the_reported_one_is_told_where_the_gpu_is_held_back() -> None:
    finding = clocks_disagree(1000.0, 1500.0, slowed=True)
    assert finding is not None
    assert "1000 MHz" in finding.text
    # The one is of the samples, the other of an instant after them: alone they may differ.
    assert clocks_disagree(1000.0, 1500.0, slowed=False) is None
    assert clocks_disagree(1400.0, 1500.0, slowed=True) is None
    assert clocks_disagree(1500.0, 300.0, slowed=True) is None  # the driver has already let it idle
    assert clocks_disagree(None, 1500.0, slowed=True) is None
    assert clocks_disagree(1500.0, None, slowed=True) is None


def test_a_memory_clock_below_nine_tenths_of_its_maximum_is_told() -> None:
    finding = memory_clock_low(899.0, 1000.0)
    assert finding is not None
    assert finding.code == "memory-clock"
    for said in ("was 899 MHz", "at least 90 %", "maximum of 1000", "slower memory", "nvidia-smi"):
        assert said in finding.text
    assert memory_clock_low(900.0, 1000.0) is None
    assert memory_clock_low(1000.0, 1000.0) is None


@pytest.mark.parametrize(("found", "largest"), [(None, 1000.0), (500.0, None), (None, None), (500.0, 0)])
def test_a_memory_clock_of_which_little_is_known_is_no_finding(found: float | None, largest: float | None) -> None:
    assert memory_clock_low(found, largest) is None
