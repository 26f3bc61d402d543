"""Paired ratios and their interval."""

import random
from dataclasses import replace

import pytest

from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.measured.measurement import Comparison, Measurement, interval_of_median
from pytest_bandwidth.domain.measured.rounds import Rounds
from pytest_bandwidth.domain.traffic import Traffic

HOST = DeviceIdentity("cpu", "A host", None, "h")


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
