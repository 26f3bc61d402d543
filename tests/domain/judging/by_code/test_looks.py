"""The rule for drops of new code beside old: at its bounds, on drawn noise, and what its looks share."""

import math
import random
from dataclasses import replace

import pytest

from pytest_bandwidth.domain.judging.by_code.looks import Looks, trimmed_mean_of
from pytest_bandwidth.domain.judging.by_code.paired import SETTLING, looks_of
from pytest_bandwidth.domain.statistics import t_quantile
from pytest_bandwidth.domain.verdict import Status

LIMIT = -math.log(0.95)
ONE_LOOK = Looks((5,))


def first(drops, allowed=LIMIT):
    """What a look shows that others follow."""
    return ONE_LOOK.tell(drops, allowed, last=False).status


def last(drops, allowed=LIMIT, looks=ONE_LOOK):
    """What the last look shows."""
    return looks.tell(drops, allowed, last=True).status


def five(centre, spread):
    """Five drops of this mean and standard deviation."""
    return [centre + spread * step / math.sqrt(2.5) for step in (-2, -1, 0, 1, 2)]


def spread_of(reach, level):
    """The standard deviation of five drops whose interval reaches so far."""
    return reach * math.sqrt(5) / t_quantile(level, 4)


@pytest.mark.parametrize("look", [first, last])
@pytest.mark.parametrize(
    ("drop", "status"),
    [
        (LIMIT + 1e-9, Status.REGRESSED),
        (LIMIT - 1e-9, Status.WITHIN),
        (0.0, Status.WITHIN),
        (-LIMIT + 1e-9, Status.WITHIN),
        (-LIMIT - 1e-9, Status.IMPROVED),
    ],
)
def test_without_noise_the_tolerance_decides(look, drop, status):
    assert look(five(drop, 0.0)) is status


def test_a_mean_past_the_tolerance_needs_an_interval_that_excludes_none():
    centre = 2 * LIMIT
    spread = spread_of(centre, 0.999)
    for look in (first, last):
        assert look(five(centre, 0.999 * spread)) is Status.REGRESSED
        assert look(five(centre, 1.001 * spread)) is None
        assert look(five(-centre, 0.999 * spread)) is Status.IMPROVED
        assert look(five(-centre, 1.001 * spread)) is Status.WITHIN


@pytest.mark.parametrize("centre", [0.9 * LIMIT, 0.5 * LIMIT, 0.0, -LIMIT / 2])
def test_what_is_lost_passes_once_it_is_shown_to_be_no_more_than_the_tolerance(centre):
    spread = spread_of(LIMIT - centre, 0.99)
    assert first(five(centre, 0.999 * spread)) is Status.WITHIN
    assert first(five(centre, 1.001 * spread)) is None, "more drops may tell"


def test_the_last_look_takes_a_sure_loss_that_may_be_past_the_tolerance_for_a_regression():
    # Surely lost: 99.9 % exclude none; they do not exclude that it was more than the tolerance.
    centre = 0.9 * LIMIT
    sure, within = spread_of(centre, 0.999), spread_of(LIMIT - centre, 0.99)
    assert within < sure
    assert last(five(centre, 0.999 * within)) is Status.WITHIN
    assert last(five(centre, 1.001 * within)) is Status.REGRESSED
    assert last(five(centre, 0.999 * sure)) is Status.REGRESSED
    assert last(five(centre, 1.001 * sure)) is None, "neither is shown"


def test_the_last_look_passes_what_is_nearer_to_nothing_by_an_interval_no_wider_than_the_tolerance():
    narrow = spread_of(LIMIT, 0.99)
    for centre, spread, status in (
        (0.49 * LIMIT, 0.999 * narrow, Status.WITHIN),
        (0.49 * LIMIT, 1.001 * narrow, None),
        (0.51 * LIMIT, 0.999 * narrow, None),
    ):
        assert last(five(centre, spread)) is status
        assert first(five(centre, spread)) is None


@pytest.mark.parametrize("share", [0.2, 0.4, 0.499])
@pytest.mark.parametrize("spread", [0.0, 0.001, 0.003, 0.01, 0.03, 0.1])
def test_no_mean_of_less_than_half_of_the_tolerance_is_a_regression(share, spread):
    assert last(five(share * LIMIT, spread)) is not Status.REGRESSED


def test_what_is_told_in_words():
    def said(centre, spread):
        return ONE_LOOK.evidence(ONE_LOOK.tell(five(centre, spread), LIMIT, last=True), 0.05)

    assert said(0.1, 0.003) == "(at least 8.6 % with 99.9 % confidence, spread 0.3 %), 5.0 % allowed"
    assert said(0.001, 0.003) == "(not told from none, spread 0.3 %), 5.0 % allowed"
    # t₀.₉₉ with four degrees of freedom is 3.747: 0.050 + 3.747 · 0.003 / √5 = 0.0550, which is 5.35 %.
    assert said(0.03, 0.03) == "(not told from none, spread 3.0 %), and may be 7.71 %, 5.0 % allowed"
    assert said(0.050, 0.003) == (
        "(at least 4.0 % with 99.9 % confidence, spread 0.3 %), and may be 5.35 %, 5.0 % allowed"
    )


@pytest.mark.parametrize(
    ("looks", "number"), [(ONE_LOOK, 1), (looks_of(5), 2), (Looks((3, 4, 6, 8)), 4), (SETTLING, 6)]
)
def test_all_looks_share_what_they_may_err(looks, number):
    assert looks.number == number
    assert looks.loss_level == pytest.approx(1 - looks.alarms / number)
    assert looks.within_level == pytest.approx(1 - 0.01 / number)


def test_looks_that_settle_err_as_seldom_as_those_that_users_ask_for_and_one_that_is_not_sure_goes_on():
    assert SETTLING.alarms == looks_of(5).alarms == pytest.approx(0.002)
    # Their mean is past the tolerance and five pairs exclude no drop at 99.9 %, which a look at a stricter level does.
    drops = five(0.10, 0.0286)
    assert last(drops) is last(drops, looks=looks_of(5)) is Status.REGRESSED
    assert last(drops, looks=SETTLING) is None


def outcome(looks, drops, allowed):
    found = (looks.tell(drops[:n], allowed, last=n == looks.most).status for n in looks.after)
    return next((status for status in found if status is not None), None)


@pytest.mark.parametrize("looks", [looks_of(5), SETTLING])
@pytest.mark.parametrize("spread", [0.006, 0.01])
def test_a_drop_of_the_tolerance_itself_passes_once_in_a_hundred(looks, spread):
    draw, trials = random.Random(11), 2000
    found = [outcome(looks, [draw.gauss(LIMIT, spread) for _ in range(looks.most)], LIMIT) for _ in range(trials)]
    # One in a hundred of 2000, Poisson with mean 20: past 35 in one of 10³ seeds.
    assert found.count(Status.WITHIN) <= 35
    assert found.count(None) <= 2


def test_of_code_that_lost_nothing_each_is_within():
    draw = random.Random(12)
    found = [outcome(SETTLING, [draw.gauss(0.0, 0.01) for _ in range(SETTLING.most)], LIMIT) for _ in range(2000)]
    assert set(found) == {Status.WITHIN}


# Seven of a row that was 3 % slower at a tolerance of 2 %, four like them, and one process that was a quarter slower
# than its twin throughout.
TWELVE = (0.25, 0.0281, 0.0342, 0.0376, 0.0295, 0.0290, 0.0287, 0.0295, 0.0302, 0.0330, 0.0281, 0.0299)
TWO = -math.log(0.98)


def test_one_of_twelve_that_is_far_off_hides_no_drop_on_which_the_others_agree():
    assert last(TWELVE, TWO) is SETTLING.tell(TWELVE, TWO, last=False).status is None
    told = SETTLING.tell(TWELVE, TWO, last=True)
    assert (told.status, told.mean.degrees, told.mean.left_out) == (Status.REGRESSED, 9, 2)
    assert told.mean.centre == pytest.approx(sum(sorted(TWELVE)[1:-1]) / 10)


def test_one_of_twelve_that_is_far_off_makes_no_drop_and_two_are_noise():
    lost_nothing = [drop - 0.03 for drop in TWELVE]
    assert last(lost_nothing, TWO, SETTLING) is Status.WITHIN
    assert last([-drop for drop in lost_nothing], TWO, SETTLING) is Status.WITHIN
    assert last([*TWELVE[:-1], 0.27], TWO, SETTLING) is None


def test_twelve_that_tell_are_all_counted():
    told = SETTLING.tell([0.03 + 0.004 * (-1) ** i for i in range(12)], TWO, last=True)
    assert (told.status, told.mean.degrees, told.mean.left_out) == (Status.REGRESSED, 11, 0)


def test_the_error_of_a_trimmed_mean():
    # By hand: 2, 3, 5 and 6 are left of six, the ends moved to 2 and 6: a variance of 20/6 + …, that is 3.6.
    found = trimmed_mean_of([5.0, 90.0, 2.0, 6.0, 3.0, -70.0])
    assert (found.centre, found.degrees, found.left_out) == (4.0, 3, 2)
    assert found.spread**2 == pytest.approx(3.6)
    assert found.error == pytest.approx(math.sqrt(3.6) / ((1 - 2 / 6) * math.sqrt(6)))


@pytest.mark.parametrize("outliers", [0.0, 0.05])
def test_all_looks_together_err_as_seldom_as_they_say(outliers):
    """Past a tolerance of next to nothing two in a thousand."""
    draw, alarms = random.Random(5), 0
    for _ in range(1500):
        drops = [
            draw.gauss(0, 0.01) + (draw.choice((-0.1, 0.1)) if draw.random() < outliers else 0)
            for _ in range(SETTLING.most)
        ]
        found = [SETTLING.tell(drops[:n], 1e-9, last=n == SETTLING.most).status for n in SETTLING.after]
        alarms += Status.REGRESSED in found
    assert alarms <= 9


def test_four_pairs_settle_where_both_of_each_had_all_in_common():
    assert [SETTLING.is_due(n, alike=True) for n in SETTLING.after] == [True] * 5
    assert [SETTLING.is_due(n, alike=False) for n in SETTLING.after] == [False, True, True, True, True]
    assert replace(SETTLING, from_unlike=0).is_due(4, alike=False)
