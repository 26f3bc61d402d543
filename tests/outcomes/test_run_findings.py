"""What unchanged tests lost, told once for the run; causes that several tests share; outliers among its devices."""

import math
from dataclasses import replace

import pytest

from pytest_bandwidth.domain.statistics import t_quantile
from pytest_bandwidth.domain.verdict import Rule
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.outcomes.run_findings import (
    DIFFER,
    FEWEST_FOR_DEVICE,
    NORMAL_MAD,
    ONE_CAUSE,
    OUTLIER,
    Member,
    device_loss,
    findings_of,
    shared_causes,
    unlike_others,
)

OK = Outcome("t.py::t", "t.py::t", None, "OK", Rule.STORED, "")


def unchanged(gbps, then=100.0, rule=Rule.CODE_UNCHANGED, status="OK", **more):
    """A test whose code lost nothing, by GB/s now and of the baseline."""
    return replace(OK, gbps=gbps, reason_code=rule, status=status, **{"baseline": {"gbps": then}, **more})


def test_the_loss_is_the_median_of_unchanged_tests():
    loss = device_loss([unchanged(80.0), unchanged(90.0), unchanged(99.0), unchanged(190.0, then=200.0)], {})
    assert loss is not None
    assert (loss.tests, loss.changes) == (4, ())
    assert loss.median == pytest.approx(-(math.log(0.9) + math.log(0.95)) / 2)
    assert (loss.least, loss.most) == (pytest.approx(-math.log(0.99)), pytest.approx(-math.log(0.8)))


@pytest.mark.parametrize("tests", [0, FEWEST_FOR_DEVICE - 1, FEWEST_FOR_DEVICE])
def test_of_few_tests_nothing_is_said(tests):
    assert (device_loss([unchanged(90.0)] * tests, {}) is not None) is (tests >= FEWEST_FOR_DEVICE)


@pytest.mark.parametrize(
    ("row", "counts"),
    [
        (unchanged(50.0), True),
        (unchanged(50.0, rule=Rule.OLD_KERNEL), True),
        (unchanged(50.0, rule=Rule.PAIRS), True),
        (unchanged(50.0, rule=Rule.STORED), False),
        (unchanged(50.0, rule=Rule.PAIRS, status="REGRESSED"), False),
        (unchanged(50.0, is_valid=False), False),
        (unchanged(50.0, counts={"load_sectors": 1}), False),
        (unchanged(None), False),
        (unchanged(50.0, then=None), False),
        (unchanged(50.0, then=0.0), False),
        (unchanged(50.0, baseline=None), False),
    ],
)
def test_only_code_that_lost_nothing_says_what_the_device_lost(row, counts):
    loss = device_loss([*[unchanged(100.0)] * FEWEST_FOR_DEVICE, row], {})
    assert loss is not None
    assert loss.tests == FEWEST_FOR_DEVICE + counts
    assert (loss.most > 0.5) is counts


def test_versions_and_facts_of_the_device_that_differ_in_most_tests_are_named():
    then = {"gbps": 100.0, "runs": [{"extra": {"numpy": "2.0"}}, {"extra": {"numpy": "2.1", "driver": "570"}}]}
    here = unchanged(90.0, baseline=then, software={"numpy": "2.2", "driver": "570", "torch": "2.9"})
    alike = replace(here, software={"numpy": "2.1"})
    assert device_loss([here, here, alike], {}).changes == ("numpy 2.1 → 2.2",)
    assert device_loss([here, here, alike, alike], {}).changes == ()
    recorded = {"driver_version": "570.1", "power_limit_w": "300.0", "ecc": "on"}
    here = unchanged(90.0, baseline={"gbps": 100.0, "runs": [{"extra": recorded}]})
    facts = {"driver_version": "580.2", "power_limit_w": 250.0, "ecc": "on", "index": 0}
    loss = device_loss([here] * FEWEST_FOR_DEVICE, facts)
    assert loss.changes == ("driver version 570.1 → 580.2", "power limit 300.0 → 250.0 W")


def regressed(key, then, now):
    return replace(OK, key=key, nodeid=key, status="REGRESSED", baseline={"code": then}, code_identity=now)


def test_a_changed_kernel_is_named_once_with_the_tests_that_run_it():
    then, now = {"ptx": "a" * 32, "sass": "b" * 32, "launch": "1"}, {"ptx": "c" * 32, "sass": "d" * 32, "launch": "2"}
    several = [regressed(f"t.py::t[{n}]", then, now) for n in range(7)]
    function = [regressed(f"t.py::f{n}", {"function": "e" * 32}, {"function": "f" * 32}) for n in range(2)]
    alone = regressed("t.py::alone", {"ptx": "a" * 32}, {"ptx": "e" * 32})
    first, second = shared_causes([alone, *function, *several, OK])
    assert first.outcomes == tuple(several)
    assert first.finding().code == ONE_CAUSE
    assert first.finding().text == (
        "the same kernel's code changed (aaaaaaaa → cccccccc), the likely cause of 7 of 10 REGRESSED: "
        "t.py::t[0], t.py::t[1], t.py::t[2], t.py::t[3], t.py::t[4] and 2 more"
    )
    assert second.text.startswith("the same function's code changed (eeeeeeee → ffffffff), the likely cause of 2 of 10")


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
    assert slow.text.startswith("d2 is 20.0 % slower than the median of 3 devices of its model (limit 5.0 %")
    assert "their spread explains 4.7 %" in slow.text
    assert "Compare its clocks" in slow.text
    assert findings_of(fleet(1.0, 1.0, 1.5), TOLERANCE, PRIOR)[2].text.startswith("d2 is 50.0 % faster")
    text = findings_of(fleet(0.8, 1.0), TOLERANCE, PRIOR)[0].text
    assert text.startswith("d0 is 20.0 % slower than d1, of the same model (limit 5.0 %): measure a third device")


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
