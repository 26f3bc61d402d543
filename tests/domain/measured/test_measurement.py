"""Figures of samples, rounds that do not count, paired ratios and their interval."""

import random
from dataclasses import replace

import pytest

from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.measured.measurement import (
    Comparison,
    Measurement,
    Rounds,
    interval_of_median,
    rounds_held_up,
)
from pytest_bandwidth.domain.traffic import Traffic

HOST = DeviceIdentity("cpu", "A host", None, "h")


def test_relative_is_the_median_of_the_rounds_ratios():
    # Both slow down together in round 2: the ratio does not see it, the median of either alone would.
    rounds = Rounds(kernel_seconds=(2.0, 4.0, 2.2), probe_seconds=(1.0, 2.0, 1.1), probe_bytes=100)
    measured = Measurement(None, Traffic(200, 0), HOST, "clock", rounds)
    assert measured.relative == pytest.approx(1.0)
    assert measured.seconds == 2.2
    assert measured.probe_gbps == pytest.approx(100 / 1.1 / 1e9)


QUIET = [1.00e-3, 1.02e-3, 1.01e-3, 1.04e-3]


@pytest.mark.parametrize(
    ("kernel", "probe", "held_up"),
    [
        ([1e-3, 3e-3, 1e-3, 1e-3], QUIET, []),  # the probe saw nothing: that is the kernel's own way
        ([1e-3, 1e-3, 2.5e-3, 1e-3], [1e-3, 3e-3, 1e-3, 1e-3], [1, 2]),  # by half of the 2 ms that the probe lost
        ([1e-3, 1e-3, 1.9e-3, 1e-3], [1e-3, 3e-3, 1e-3, 1e-3], [1]),
        ([1e-3] * 6, [1e-3, 3e-3, 1.5e-3, 1.24e-3, 1e-3, 1e-3], [1, 2]),  # the least loss counts, of 0.5 ms
        (QUIET, [1e-5, 4e-5, 1e-5, 1e-5], []),  # no context's slice is as short
        ([1e-3] * 4, [1e-3, 1.2e-3, 1e-3, 1e-3], []),  # less than the probe may differ by
        ([3e-3] * 4, [1e-3, 3e-3, 1e-3, 1e-3], [0, 1, 2, 3]),  # in 3 ms there is most of a slice each time
        ([1e-3] * 2, [0.0, 1e-3], []),  # a clock that cannot be
        ([], [], []),
    ],
)
def test_rounds_are_held_up_where_the_probe_lost_a_slice_of_time(kernel, probe, held_up):
    assert rounds_held_up(kernel, probe) == held_up


def measurement(seconds, read=100):
    return Measurement(None, Traffic(read, 0), HOST, "clock", Rounds(kernel_seconds=tuple(seconds)))


def test_ratio_is_paired_round_by_round():
    # The machine halves its speed in the middle; every pair shows the same factor of two.
    naive = [2.0, 4.0, 8.0, 2.0, 4.0, 8.0, 2.0, 4.0, 8.0]
    compared = Comparison({"naive": measurement(naive), "tiled": measurement([s / 2 for s in naive])})
    ratio = compared.ratio("tiled", over="naive")
    assert (ratio.value, ratio.low, ratio.high) == (2.0, 2.0, 2.0)
    assert ratio.at_least(2.0)
    assert not ratio.at_least(2.01)


def test_ratio_is_of_bandwidths_where_the_bytes_differ():
    compared = Comparison({"fused": measurement([1.0], read=100), "unfused": measurement([3.0], read=300)})
    assert compared.ratio("fused", over="unfused").value == pytest.approx(1.0)


def test_few_rounds_have_no_interval_and_claim_nothing():
    ratio = Comparison({"a": measurement([1.0] * 5), "b": measurement([9.0] * 5)}).ratio("a", over="b")
    assert not ratio.at_least(1.0)
    assert "too few" in str(ratio)


def test_interval_holds_the_median_as_often_as_it_says():
    draw = random.Random(3)
    held = 0
    for _ in range(2000):
        low, high = interval_of_median([draw.lognormvariate(0.0, 0.5) for _ in range(30)], 0.95)
        held += low <= 1.0 <= high
    assert held >= 0.94 * 2000


@pytest.mark.parametrize(
    ("name", "seconds", "said"),
    [
        ("c", [1.0], "found 'c', expected one of a, b"),
        ("a", [], "no round was left"),
        ("a", [0.0], "a sample of 'a' took no time"),
    ],
)
def test_what_has_no_ratio_is_an_error(name, seconds, said):
    with pytest.raises(UsageError, match=said):
        Comparison({"a": measurement(seconds), "b": measurement(seconds)}).ratio(name, over="b")


def test_what_is_counted_has_no_ratio():
    counted = replace(measurement([]), device=replace(HOST, kind="traffic", timed_on="nothing"))
    with pytest.raises(UsageError, match="nothing to compare: the device traffic times nothing"):
        Comparison({"a": counted, "b": counted}).ratio("a", over="b")
