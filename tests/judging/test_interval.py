"""The interval of drops of new code beside old: its error, what it leaves out, and how often it errs."""

import math
import random

import pytest
from judged_kernels import compared

from pytest_bandwidth.domain.statistics import t_quantile
from pytest_bandwidth.domain.units import drop_of_log
from pytest_bandwidth.domain.verdict import Status
from pytest_bandwidth.judging.decide import decide_comparison
from pytest_bandwidth.judging.evidence import Ask
from pytest_bandwidth.judging.interval import Looks, interval_of, interval_of_spread

LOOKS = Looks()
LIMIT = -math.log(0.95)


def test_looks_are_after_as_many_twice_and_thrice():
    assert LOOKS.after == (4, 8, 12)
    assert Looks(5).after == (5, 10, 15)
    assert (LOOKS.most, Looks(5).most) == (12, 15)
    assert [LOOKS.following(number) for number in (0, 3, 4, 11, 12)] == [4, 4, 8, 12, None]


def test_bounds_are_students_shared_by_three_looks():
    drops = (0.01, 0.03, 0.02, 0.04)
    seen = interval_of(drops)
    error = math.sqrt((0.015**2 + 0.005**2) * 2 / 3 / 4)
    assert (seen.mean, seen.degrees, seen.count, seen.left_out) == (pytest.approx(0.025), 3, 4, 0)
    assert seen.error == pytest.approx(error)
    assert seen.low == pytest.approx(0.025 - t_quantile(0.999, 3) * error)
    assert seen.high == pytest.approx(0.025 + t_quantile(1 - 0.01 / 3, 3) * error)


def test_the_narrowest_of_plain_and_trimmed_means_is_taken():
    quiet = [0.03 + 0.001 * (-1) ** number for number in range(12)]
    assert interval_of(quiet).left_out == 0
    assert interval_of([*quiet[:-1], 0.25]).left_out == 2
    assert interval_of([*quiet[:-2], 0.25, 0.27]).left_out == 4
    # Of fewer than six none is left out, whatever it is.
    assert interval_of([0.03, 0.03, 0.03, 0.031, 0.25]).left_out == 0


def test_the_error_of_a_trimmed_mean():
    # By hand: 2, 3, 5 and 6 are left of six, the ends moved to 2 and 6: a variance of 18/5 = 3.6.
    seen = interval_of([5.0, 90.0, 2.0, 6.0, 3.0, -70.0])
    assert (seen.mean, seen.degrees, seen.left_out) == (4.0, 3, 2)
    assert seen.spread**2 == pytest.approx(3.6)
    assert seen.error == pytest.approx(math.sqrt(3.6) / ((1 - 2 / 6) * math.sqrt(6)))


@pytest.mark.parametrize(("side", "narrow"), [(0.999, True), (1.001, False)])
def test_narrow_is_by_one_level_whatever_the_mean(side, narrow):
    spread = side * LIMIT * math.sqrt(12) / t_quantile(0.99, 11)
    assert interval_of_spread(spread, 12).is_narrow(LIMIT) is narrow


# Seven of a row that was 3 % slower at a tolerance of 2 %, four like them, and one process that was a quarter slower
# than its twin throughout.
TWELVE = (0.25, 0.0281, 0.0342, 0.0376, 0.0295, 0.0290, 0.0287, 0.0295, 0.0302, 0.0330, 0.0281, 0.0299)


def outcome(drops, tolerance=0.05, looks=LOOKS):
    """What looks after four, eight and twelve decide."""
    for number in looks.after:
        decision = decide_comparison(compared(*drops[:number]), tolerance, looks)
        if decision is not Ask.OLD_CODE:
            return decision.status
    raise AssertionError("the last look decides")


def test_one_of_twelve_that_is_far_off_hides_no_drop_and_makes_none():
    assert outcome(TWELVE, 0.02) is Status.REGRESSED
    lost_nothing = [drop - 0.03 for drop in TWELVE]
    assert outcome(lost_nothing, 0.02) is outcome([-drop for drop in lost_nothing], 0.02) is Status.OK


@pytest.mark.parametrize("outliers", [0.0, 0.05])
def test_all_looks_together_err_as_seldom_as_they_say(outliers):
    """Past a tolerance of next to nothing three in a thousand, and a fifth more for the narrowest interval."""
    draw, alarms = random.Random(5), 0
    for _ in range(1000):
        drops = [
            draw.gauss(0, 0.01) + (draw.choice((-0.1, 0.1)) if draw.random() < outliers else 0)
            for _ in range(LOOKS.most)
        ]
        alarms += outcome(drops, 1e-9) is Status.REGRESSED
    # Poisson with mean 3.6: past 11 in one of 10³ seeds.
    assert alarms <= 11


@pytest.mark.parametrize("spread", [0.006, 0.01])
def test_a_drop_of_the_tolerance_itself_passes_once_in_a_hundred(spread):
    draw, trials = random.Random(11), 1000
    found = [outcome([draw.gauss(LIMIT, spread) for _ in range(LOOKS.most)]) for _ in range(trials)]
    # 1.2 in a hundred of 1000, Poisson with mean 12: past 25 in one of 10³ seeds.
    assert found.count(Status.OK) <= 25
    assert found.count(Status.UNDECIDED) <= 2


def test_of_code_that_lost_nothing_each_is_ok():
    draw = random.Random(12)
    found = [outcome([draw.gauss(0.0, 0.01) for _ in range(LOOKS.most)]) for _ in range(1000)]
    assert set(found) == {Status.OK}


@pytest.mark.parametrize("spread", [0.004, 0.02])
def test_a_drop_that_is_detected_is_found_95_times_in_100(spread):
    draw, trials = random.Random(13), 1000
    detects = interval_of_spread(spread, LOOKS.most).detects(1e-9, LOOKS.most)
    found = [outcome([draw.gauss(detects, spread) for _ in range(LOOKS.most)], 1e-9) for _ in range(trials)]
    assert found.count(Status.REGRESSED) >= 0.93 * trials


def test_what_is_detected_is_never_less_than_the_tolerance():
    assert interval_of_spread(0.0, 4).detects(LIMIT, 12) == LIMIT
    noisy = interval_of_spread(0.05, 4)
    assert drop_of_log(noisy.detects(LIMIT, 12)) > 0.05
    assert noisy.detects(LIMIT, 12) == interval_of_spread(0.05, 12).detects(LIMIT, 12)
