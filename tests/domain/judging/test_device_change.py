"""The device told apart from the kernel, at the boundaries."""

import math

import pytest
from known_devices import known

from pytest_bandwidth.domain.baseline import Entry, Run
from pytest_bandwidth.domain.judging.device_change import (
    blame_when_down,
    blame_when_up,
    bounds_of,
    gained_gbps,
    is_faster,
    is_slower,
    only_gbps_dropped,
)
from pytest_bandwidth.domain.judging.reference import reference_of
from pytest_bandwidth.domain.judging.rule import REGRESSED_LEVEL
from pytest_bandwidth.domain.measured.metrics import Metrics

LIMIT = -math.log(0.95)  # five runs that agree leave the tolerance as the larger bound


def test_an_entry_without_probes_knows_nothing_of_the_device():
    entry = Entry("t", runs=(Run(gbps=90.0),) * 5)
    gbps, relative = (reference_of(entry, which, 0.01) for which in ("gbps", "relative"))
    assert gbps is not None
    assert bounds_of(entry, gbps, relative, 0.05) is None


@pytest.mark.parametrize("side", [-1e-9, 1e-9])
def test_a_probe_is_faster_or_slower_past_what_noise_explains(side):
    assert is_faster(100.0 * math.exp(LIMIT + side), known()) is (side > 0)
    assert is_slower(100.0 * math.exp(-LIMIT - side), known()) is (side > 0)


def test_a_faster_device_is_as_certain_as_the_regression_that_it_overturns():
    strict = known(tolerance=0.01)
    noise = strict.gbps.noise(REGRESSED_LEVEL, 1)
    assert [is_faster(100.0 * math.exp(noise + side), strict) for side in (-1e-9, 1e-9)] == [False, True]


def test_what_one_of_the_baselines_runs_saw_is_neither_faster_nor_slower():
    both = known(100.0, 145.0, 100.0, 144.0, 101.0)
    assert not is_faster(146.0, both)
    assert not is_slower(99.0, both)


@pytest.mark.parametrize(
    ("gbps", "relative", "only"),
    [(84.0, 0.9, True), (86.0, 0.9, False), (84.0, 0.84, False), (84.0, None, False)],
)
def test_gbps_alone_dropped(gbps, relative, only):
    assert only_gbps_dropped(Metrics(gbps, relative), known()) is only


def test_a_kernel_is_excused_by_a_device_that_is_down_and_by_no_other():
    reason = blame_when_down(Metrics(60.0, 0.9), 66.0, known())
    assert reason == (
        "the device is down, not the kernel: a probe reaches 66.0 GB/s, 100 GB/s with the baseline; "
        "the kernel keeps 90.0 % of it"
    )
    assert blame_when_down(Metrics(60.0, 0.9), 96.0, known()) is None


@pytest.mark.parametrize(
    ("gbps", "probe", "excused"),
    [
        (90.0 * math.exp(-LIMIT + 1e-9), 145.0, True),
        (90.0 * math.exp(-LIMIT - 1e-9), 145.0, False),  # it lost GB/s as well
        (90.0, 104.0, False),  # its probes are the baseline's but for noise
        (90.0, None, False),
    ],
)
def test_a_kernel_is_excused_by_a_device_that_is_up_where_it_kept_its_gbps(gbps, probe, excused):
    fresh = [Metrics(gbps, None if probe is None else gbps / probe, probe)] * 3
    assert (blame_when_up(fresh[0], fresh, known()) is not None) is excused


def test_medians_of_the_fresh_processes_decide_whether_the_device_is_up():
    up, same = Metrics(90.0, 0.62, 145.0), Metrics(90.0, 0.9, 100.0)
    assert blame_when_up(up, [up, up, same], known()) is not None
    assert blame_when_up(up, [up, same, same], known()) is None


@pytest.mark.parametrize(
    ("share", "probe", "excused"),
    [
        (0.9 * math.exp(-LIMIT - 1e-9), 100.0, False),
        (0.9 * math.exp(-LIMIT + 1e-9), 100.0, True),  # noise may have made it a suspect
        (0.9 * math.exp(-LIMIT - 1e-9), 145.0, True),
        (0.9 * math.exp(-LIMIT - 1e-9), None, True),
    ],
)
def test_no_faster_device_excuses_a_suspect_that_dropped_beside_a_probe_no_faster(share, probe, excused):
    first, fresh = Metrics(100 * share, share, probe), [Metrics(90.0, 0.62, 145.0)] * 3
    assert (blame_when_up(first, fresh, known()) is not None) is excused


@pytest.mark.parametrize("side", [-1e-9, 1e-9])
def test_gbps_gained_begin_past_the_tolerance(side):
    assert gained_gbps(90.0 * math.exp(LIMIT + side), known()) is (side > 0)
