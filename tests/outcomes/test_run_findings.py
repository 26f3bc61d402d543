"""What unchanged tests lost, told once for the run, and one finding for each change of code that several tests run."""

import math
from dataclasses import replace

import pytest

from pytest_bandwidth.domain.verdict import Rule
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.outcomes.run_findings import FEWEST_FOR_DEVICE, ONE_CAUSE, device_loss, shared_causes

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
