"""The interval of drops of new code beside old: its error, what it leaves out, and how often it errs."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from judged_kernels import compared

from pytest_bandwidth.domain.measured.metrics import Metrics
from pytest_bandwidth.domain.statistics import t_quantile
from pytest_bandwidth.domain.units import drop_of_log
from pytest_bandwidth.domain.verdict import Status
from pytest_bandwidth.judging.decide import decide_comparison
from pytest_bandwidth.judging.evidence import Ask, comparison_of_pairs
from pytest_bandwidth.judging.pairs import (
    Looks,
    Pair,
    figure_of_pairs,
    floor_of_both,
    interval_of,
    interval_of_spread,
)

LOOKS = Looks()
LIMIT = -math.log(0.95)


def test_bounds_are_students_shared_by_looks_after_as_many_twice_and_thrice():
    assert LOOKS.after == (4, 8, 12)
    assert Looks(5).after == (5, 10, 15)
    assert (LOOKS.most, Looks(5).most) == (12, 15)
    assert [LOOKS.following(number) for number in (0, 3, 4, 11, 12)] == [4, 4, 8, 12, None]
    drops = (0.01, 0.03, 0.02, 0.04)
    seen = interval_of(drops)
    error = math.sqrt((0.015**2 + 0.005**2) * 2 / 3 / 4)
    assert (seen.mean, seen.degrees, seen.count) == (pytest.approx(0.025), 3, 4)
    assert seen.error == pytest.approx(error)
    assert seen.low == pytest.approx(0.025 - t_quantile(0.999, 3) * error)
    assert seen.high == pytest.approx(0.025 + t_quantile(1 - 0.01 / 3, 3) * error)


def test_a_mean_leaves_out_what_is_far_off_where_that_narrows_its_interval():
    quiet = [0.03 + 0.001 * (-1) ** number for number in range(12)]
    # Degrees of freedom: one less than the drops that are kept.
    assert interval_of(quiet).degrees == 12 - 1
    assert interval_of([*quiet[:-1], 0.25]).degrees == 10 - 1
    assert interval_of([*quiet[:-2], 0.25, 0.27]).degrees == 8 - 1
    # Of fewer than six none is left out, whatever it is.
    assert interval_of([0.03, 0.03, 0.03, 0.031, 0.25]).degrees == 5 - 1
    # By hand: 2, 3, 5 and 6 are left of six, the ends moved to 2 and 6: a variance of 18/5 = 3.6.
    seen = interval_of([5.0, 90.0, 2.0, 6.0, 3.0, -70.0])
    assert (seen.mean, seen.degrees) == (4.0, 3)
    assert seen.spread**2 == pytest.approx(3.6)
    assert seen.error == pytest.approx(math.sqrt(3.6) / ((1 - 2 / 6) * math.sqrt(6)))


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


def test_a_drop_of_the_tolerance_itself_passes_once_in_a_hundred():
    draw, trials, spread = random.Random(11), 1000, 0.01
    found = [outcome([draw.gauss(LIMIT, spread) for _ in range(LOOKS.most)]) for _ in range(trials)]
    # 1.2 in a hundred of 1000, Poisson with mean 12: past 25 in one of 10³ seeds.
    assert found.count(Status.OK) <= 25
    assert found.count(Status.UNDECIDED) <= 2


def test_a_drop_that_is_detected_is_found_95_times_in_100():
    draw, trials, spread = random.Random(13), 1000, 0.02
    detects = interval_of_spread(spread, LOOKS.most).detects(1e-9, LOOKS.most)
    found = [outcome([draw.gauss(detects, spread) for _ in range(LOOKS.most)], 1e-9) for _ in range(trials)]
    assert found.count(Status.REGRESSED) >= 0.93 * trials


def test_what_is_detected_is_never_less_than_the_tolerance():
    assert interval_of_spread(0.0, 4).detects(LIMIT, 12) == LIMIT
    noisy = interval_of_spread(0.05, 4)
    assert drop_of_log(noisy.detects(LIMIT, 12)) > 0.05
    assert noisy.detects(LIMIT, 12) == interval_of_spread(0.05, 12).detects(LIMIT, 12)


def pairs(*log_drops, probe_here=100.0, probe_there=100.0):
    """One pair for each drop of ln(GB/s) and of ln(relative)."""
    return [
        Pair(Metrics(80 * math.exp(-d), 0.8 * math.exp(-d), probe_here), Metrics(80.0, 0.8, probe_there))
        for d in log_drops
    ]


def alternate(*log_drops):
    """Pairs whose processes sampled alternately: what that shows, whatever the processes reached."""
    return [replace(pair, alternate=drop, alike=True) for pair, drop in zip(pairs(*[0.0] * 9), log_drops, strict=False)]


def taken(found, asked=None, **more):
    return comparison_of_pairs(found, asked, None, "HEAD~1 (3f2c1ab)", **{"ended": False, **more})


@pytest.mark.parametrize("figure", ["relative", "gbps"])
def test_a_drop_is_of_the_figure_or_of_alternate_samples(figure):
    (pair,) = pairs(0.1)
    assert pair.drop(figure) == pytest.approx(0.1)
    assert Pair(Metrics(80.0), Metrics(80.0)).drop("relative") is None
    assert alternate(0.05)[0].drop(figure) == 0.05


@pytest.mark.parametrize("figure", ["relative", "gbps"])
def test_a_drop_leaves_out_the_floor_of_both(figure):
    """Work of 5 and of 5.5 µs beside 3 µs: the share of a probe of 8 µs falls as GB/s do."""
    here, there = (Metrics(40 / seconds, 8 / seconds, 5.0) for seconds in (8.5, 8.0))
    pair = Pair(here, there, floor_seconds=3.0, seconds=(8.5, 8.0))
    assert pair.drop(figure) == pytest.approx(math.log(1.1))
    assert Pair(here, there).drop(figure) == pytest.approx(math.log(8.5 / 8.0))
    assert comparison_of_pairs([pair] * 2, figure, None, "old", ended=True).floor == (3.0, 3 / 8)


@pytest.mark.parametrize(("floor", "left_out"), [(None, 0.0), (3e-6, 3e-6), (4e-6, 0.0), (5e-6, 0.0)])
def test_a_floor_is_left_out_where_more_than_half_of_all_seconds_is_work(floor, left_out):
    assert floor_of_both(floor, (9e-6, 8e-6)) == left_out


def with_noise_of_the_probe(*log_noise):
    """A kernel of steady GB/s beside a probe that is not: the share moves, GB/s do not."""
    return [Pair(Metrics(40.0, 0.4 * math.exp(d), 100 * math.exp(-d)), Metrics(40.0, 0.4, 100.0)) for d in log_noise]


def test_the_figure_that_differs_less_from_pair_to_pair():
    noisy_probe = with_noise_of_the_probe(0.05, -0.05, 0.05, -0.05, 0.0)
    assert figure_of_pairs(noisy_probe, None, None) == "gbps"
    assert figure_of_pairs(noisy_probe[:4], None, None) == "relative", "four pairs tell too little"
    shared = [Pair(Metrics(80 * g, 0.8, 100 * g), Metrics(80.0, 0.8, 100.0)) for g in (0.95, 1.0, 1.05, 1.0, 0.97)]
    assert figure_of_pairs(shared, None, None) == "relative"
    flipped = with_noise_of_the_probe(0.5, -0.5, 0.5, -0.5, 0.5)
    assert figure_of_pairs([*flipped, *noisy_probe[:4]], None, None) == "relative", "uneven pairs do not count"


@pytest.mark.parametrize(
    ("found", "asked", "regime", "figure"),
    [
        (pairs(0.0, 0.0), None, None, "relative"),
        (pairs(0.0, 0.0), "gbps", None, "gbps"),
        (pairs(0.0, 0.0), None, "compute-bound", "gbps"),
        (alternate(0.0, 0.0), "relative", None, "gbps"),
        ([*pairs(0.0), Pair(Metrics(80.0), Metrics(80.0, 0.8, 100.0))], "relative", None, "gbps"),
        ([Pair(Metrics(20.0, 0.2, 100.0), Metrics(80.0, 0.8, 100.0))] * 2, None, None, "relative"),
        ([Pair(Metrics(80.0, 0.8, 100.0), Metrics(20.0, 0.2, 100.0))] * 2, None, None, "gbps"),
    ],
)
def test_the_other_revision_chooses_the_figure(found, asked, regime, figure):
    assert figure_of_pairs(found, asked, regime) == figure


def test_a_comparison_is_alike_and_alternate_where_each_pair_is():
    whole = taken(alternate(0.01, 0.02))
    assert (whole.drops, whole.alike, whole.alternate, whole.figure) == ((0.01, 0.02), True, True, "gbps")
    mixed = taken([*alternate(0.01), *pairs(0.02)])
    assert (mixed.alike, mixed.alternate) == (False, False)


@pytest.mark.parametrize(("here", "there", "lost"), [(2.01, 0.8, True), (2.0, 0.8, False), (2.01, 2.01, False)])
def test_a_share_that_only_this_code_cannot_show_is_lost(here, there, lost):
    found = [Pair(Metrics(100 * here, here, 100.0), Metrics(100 * there, there, 100.0))] * 3
    assert taken(found, "relative").lost_share is lost
    assert not taken(found, "gbps").lost_share
