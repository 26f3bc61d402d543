"""Outliers among devices of one model, at the exact bounds."""

import math

import pytest

from pytest_bandwidth.domain.statistics import t_quantile
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.outcomes.run_findings import DIFFER, NORMAL_MAD, OUTLIER, Member, findings_of, unlike_others

TOLERANCE, PRIOR = 0.05, 0.01
STEP = 1e-6


def fleet(*shares, tests=("a", "b", "c")):
    """Devices that reach a share of the same speed in every test; the tests' own speeds differ tenfold."""
    return [
        Member(f"d{i}", {test: share * 100 * 10**n for n, test in enumerate(tests)}) for i, share in enumerate(shares)
    ]


def found(members, tolerance=TOLERANCE, prior=PRIOR):
    return [finding and finding.code for finding in findings_of(members, tolerance, prior)]


@pytest.mark.parametrize("devices", [3, 4])
def test_an_outlier_is_further_off_than_the_tolerance(devices):
    alike = [1.0] * (devices - 1)
    assert found(fleet(*alike, 0.95 * (1 + STEP))) == [None] * devices
    assert found(fleet(*alike, 0.95 * (1 - STEP))) == [None] * (devices - 1) + [OUTLIER]
    assert found(fleet(*alike, 1 / 0.95 * (1 - STEP))) == [None] * devices
    assert found(fleet(*alike, 1 / 0.95 * (1 + STEP))) == [None] * (devices - 1) + [OUTLIER]


def test_noise_of_a_device_or_among_devices_is_no_outlier():
    floor = t_quantile(0.999, 7) * 0.03
    assert math.exp(-floor) < 0.95, "on a host noise explains more than the tolerance"
    assert found(fleet(1.0, 1.0, math.exp(-floor * (1 - STEP))), prior=0.03) == [None] * 3
    assert found(fleet(1.0, 1.0, math.exp(-floor * (1 + STEP))), prior=0.03) == [None, None, OUTLIER]
    # Distances from the median 0.04, 0.04, 0, 0.04 and the last one's: their median is 0.04.
    spread = [math.exp(x) for x in (-0.04, 0.04, 0.0, 0.04)]
    bound = t_quantile(0.999, 9) * NORMAL_MAD * 0.04
    assert found(fleet(*spread, math.exp(-bound * (1 - STEP)))) == [None] * 5
    assert found(fleet(*spread, math.exp(-bound * (1 + STEP)))) == [None] * 4 + [OUTLIER]


def test_an_outlier_is_off_in_most_tests_and_is_not_hidden_by_another():
    assert found(fleet(1.0, 1.0, 1.0, 0.5, 0.5)) == [None, None, None, OUTLIER, OUTLIER]
    assert found(fleet(1.0, 1.0, 0.5, 0.5)) == [None] * 4
    members = fleet(1.0, 1.0, 1.0)
    slow_in_one = Member("d3", {**members[0].gbps, "b": 1.0})
    assert found([*members, slow_in_one]) == [None] * 4
    slow_in_most = Member("d3", {**members[0].gbps, "b": 1.0, "c": 1.0})
    assert found([*members, slow_in_most]) == [None] * 3 + [OUTLIER]


def test_two_devices_differ_and_nothing_says_which_is_off():
    assert found(fleet(1.0, 0.95 * (1 + STEP))) == [None, None]
    for pair in (fleet(1.0, 0.95 * (1 - STEP)), fleet(0.95 * (1 - STEP), 1.0)):
        assert found(pair) == [DIFFER, DIFFER]
    noise = t_quantile(0.99, 6) * 0.03 * math.sqrt(2)
    assert found(fleet(1.0, math.exp(-noise * (1 - STEP))), prior=0.03) == [None, None]
    assert found(fleet(1.0, math.exp(-noise * (1 + STEP))), prior=0.03) == [DIFFER, DIFFER]


def test_only_tests_that_enough_devices_share_count():
    members = [Member("d0", {"a": 1.0}), Member("d1", {"b": 2.0}), Member("d2", {"a": 9.0, "b": 9.0})]
    assert found(members) == [None] * 3
    assert found(members[:2]) == [None, None]
    assert found([Member("d0", {}), *fleet(1.0, 1.0, 1.0, 0.8)]) == [None] * 4 + [OUTLIER]
    assert found(fleet(1.0)) == [None]


def test_sentences_give_limit_observation_and_remedy():
    _, _, slow = findings_of(fleet(1.0, 1.0, 0.8), TOLERANCE, PRIOR)
    assert slow.text.startswith("d2 is 20.0 % slower than the median of 3 devices of its model: 5.0 % matters")
    assert "their spread explains 4.7 %" in slow.text
    assert "Compare its clocks" in slow.text
    assert findings_of(fleet(1.0, 1.0, 1.5), TOLERANCE, PRIOR)[2].text.startswith("d2 is 50.0 % faster")
    text = findings_of(fleet(0.8, 1.0), TOLERANCE, PRIOR)[0].text
    assert text.startswith("d0 is 20.0 % slower than d1, of the same model, 5.0 % matters: a third device would tell")


def measured(gbps, **more):
    return [Outcome("t.py::t", "t.py::t", None, "OK", "", "", gbps=gbps, **more)]


def test_only_valid_figures_of_one_model_are_compared():
    devices = [{"kind": "cuda", "name": name, "memory_gib": 80, "timed_on": "gpu"} for name in "aaab"]

    def codes(*outcomes):
        return [finding and finding.code for finding in unlike_others(devices, "abcd", outcomes, TOLERANCE)]

    alike = [measured(100.0), measured(100.0), measured(50.0), measured(10.0)]
    assert codes(*alike) == [None, None, OUTLIER, None]
    alike[2] = measured(50.0, is_valid=False)
    assert codes(*alike) == [None] * 4
