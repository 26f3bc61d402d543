"""Summaries of samples."""

import math
import random
from statistics import median, stdev

import pytest

from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.measured.rounds import Rounds, rounds_held_up
from pytest_bandwidth.domain.statistics import noise, precision_of_median, quantile
from pytest_bandwidth.domain.traffic import Traffic


def test_quantile_interpolates_between_order_statistics():
    assert quantile([4, 1, 3, 2], 0.25) == pytest.approx(1.75)
    with pytest.raises(ValueError, match="at least one"):
        quantile([], 0.5)


def test_noise_is_iqr_over_median_and_precision_predicts_the_medians_scatter():
    assert noise([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2.0 / 3.0)
    assert precision_of_median([1.0, 1.1, 1.2]) == math.inf
    draw = random.Random(20)
    medians = [median(draw.gauss(1.0, 0.02) for _ in range(61)) for _ in range(400)]
    claimed = median(precision_of_median([draw.gauss(1.0, 0.02) for _ in range(61)]) for _ in range(100))
    assert claimed == pytest.approx(stdev(medians), rel=0.2)


def test_relative_is_the_median_of_the_rounds_ratios():
    # Both slow down together in round 2: the ratio does not see it, the median of either alone would.
    rounds = Rounds(kernel_seconds=(2.0, 4.0, 2.2), probe_seconds=(1.0, 2.0, 1.1), probe_bytes=100)
    measured = Measurement(None, Traffic(200, 0), DeviceIdentity("cpu", "Some CPU", None, "h"), "clock", rounds)
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
