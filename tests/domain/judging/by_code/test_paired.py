"""The rule of --bandwidth-against, at its boundaries and on drawn noise."""

import math
import random
from dataclasses import replace

import pytest

from pytest_bandwidth.domain.judging.by_code.paired import (
    EVEN_PROBES,
    ONE_LOOK,
    SETTLING,
    Pair,
    judge_pairs,
    mean_of_many,
    pairs_needed,
    steadier_of_pairs,
    trimmed_mean_of,
)
from pytest_bandwidth.domain.measured.metrics import Metrics
from pytest_bandwidth.domain.verdict import Status


def pairs(*log_drops, probe_here=100.0, probe_there=100.0):
    """One pair for each drop of ln(GB/s) and of ln(relative)."""
    return [
        Pair(Metrics(80 * math.exp(-d), 0.8 * math.exp(-d), probe_here), Metrics(80.0, 0.8, probe_there))
        for d in log_drops
    ]


def judge(taken, figure="relative", tolerance=0.05):
    return judge_pairs(taken, figure, tolerance, "HEAD~1 (3f2c1ab)")


LIMIT = -math.log(0.95)


@pytest.mark.parametrize(
    ("log_drop", "status"),
    [
        (LIMIT + 1e-9, Status.REGRESSED),
        (LIMIT - 1e-9, Status.WITHIN),
        (0.0, Status.WITHIN),
        (-LIMIT + 1e-9, Status.WITHIN),
        (-LIMIT - 1e-9, Status.IMPROVED),
    ],
)
@pytest.mark.parametrize("figure", ["relative", "gbps"])
def test_without_noise_the_tolerance_decides(log_drop, status, figure):
    verdict = judge(pairs(*[log_drop] * 5), figure)
    assert verdict.status is status
    assert verdict.drop == pytest.approx(-math.expm1(-log_drop))
    assert (verdict.figure, verdict.baseline_runs, verdict.degrees) == (figure, 5, 4)


def test_a_mean_past_the_tolerance_is_not_enough_while_the_interval_holds_none():
    # t₀.₉₉₉ with one degree of freedom is 318.3: two pairs that differ by 2·a have a half-width of 318.3·a.
    centre = 2 * LIMIT
    reach = centre / 318.3088
    assert judge(pairs(centre - 0.999 * reach, centre + 0.999 * reach)).status is Status.REGRESSED
    assert judge(pairs(centre - 1.001 * reach, centre + 1.001 * reach)).status is Status.INSUFFICIENT


def test_no_drop_is_told_at_99_percent_and_one_past_the_tolerance_that_is_not_sure_is_none():
    # t₀.₉₉ with four degrees of freedom is 3.747, t₀.₉₉₉ 7.173; five steps have a standard deviation of √2.5.
    def at(centre, half):
        step = half / 3.747 * math.sqrt(5 / 2.5)
        return judge(pairs(*(centre + step * number for number in (-2, -1, 0, 1, 2)))).status

    assert at(0.0, 0.999 * LIMIT) is Status.WITHIN
    assert at(0.0, 1.001 * LIMIT) is Status.INSUFFICIENT
    assert at(0.99 * LIMIT, 0.9 * LIMIT) is Status.WITHIN
    assert at(1.01 * LIMIT, 0.9 * LIMIT) is Status.INSUFFICIENT, "past the tolerance, and 99.9 % do not exclude none"
    assert at(1.01 * LIMIT, 0.4 * LIMIT) is Status.REGRESSED
    assert at(-1.01 * LIMIT, 0.9 * LIMIT) is Status.WITHIN
    assert at(-1.01 * LIMIT, 0.4 * LIMIT) is Status.IMPROVED


def test_noise_wider_than_the_tolerance_is_insufficient_and_says_how_many_pairs_would_do():
    noisy = judge(pairs(0.03, -0.03, 0.03, -0.03, 0.03))
    assert noisy.status is Status.INSUFFICIENT
    needed = pairs_needed(noisy.spread, 0.05)
    reaches = [mean_of_many(many, 0.0, noisy.spread).reach() for many in (needed - 1, needed)]
    assert reaches[1] <= LIMIT < reaches[0]
    assert f"--bandwidth-pairs={needed} would do" in noisy.reason
    hopeless = judge(pairs(0.5, -0.5, 0.5, -0.5, 0.5))
    assert "no number of pairs up to 100" in hopeless.reason


def test_pairs_within_which_the_machine_changed_do_not_count():
    flipped = pairs(1.0, 1.0, probe_here=49.0, probe_there=72.0)
    verdict = judge([*pairs(*[0.0] * 5), *flipped])
    assert verdict.status is Status.WITHIN
    assert verdict.baseline_runs == 5
    assert "2 taken again" in verdict.reason


def test_with_too_few_even_pairs_nothing_is_judged():
    flipped = pairs(1.0, 1.0, 1.0, probe_here=49.0, probe_there=72.0)
    assert judge([*flipped, *pairs(0.0)]).status is Status.INVALID
    assert judge([*flipped, *pairs(0.0, 0.0)]).status is Status.WITHIN


def with_noise_of_the_probe(*log_noise):
    """A kernel of steady GB/s beside a probe that is not: the share moves, GB/s do not."""
    return [Pair(Metrics(40.0, 0.4 * math.exp(d), 100 * math.exp(-d)), Metrics(40.0, 0.4, 100.0)) for d in log_noise]


def test_the_figure_that_differs_less_from_pair_to_pair():
    noisy_probe = with_noise_of_the_probe(0.05, -0.05, 0.05, -0.05, 0.0)
    assert steadier_of_pairs("relative", noisy_probe) == "gbps"
    assert steadier_of_pairs("relative", noisy_probe[:4]) == "relative", "four pairs tell too little"
    shared = [Pair(Metrics(80 * g, 0.8, 100 * g), Metrics(80.0, 0.8, 100.0)) for g in (0.95, 1.0, 1.05, 1.0, 0.97)]
    assert steadier_of_pairs("relative", shared) == "relative"
    flipped = with_noise_of_the_probe(0.5, -0.5, 0.5, -0.5, 0.5)
    assert steadier_of_pairs("relative", [*flipped, *noisy_probe[:4]]) == "relative", "uneven pairs do not count"


@pytest.mark.parametrize("n", [5, 10])
def test_false_alarms_with_the_steadier_of_two_figures(n):
    """The worst case, two figures of equal and independent noise, and a tolerance of next to nothing."""
    draw = random.Random(n)
    alarms = 0
    for _ in range(6_000):
        taken = [
            Pair(Metrics(math.exp(draw.gauss(0, 0.02)), math.exp(draw.gauss(0, 0.02)), 1.0), Metrics(1.0, 1.0, 1.0))
            for _ in range(n)
        ]
        alarms += judge(taken, steadier_of_pairs("relative", taken), 1e-9).status is Status.REGRESSED
    # At two in a thousand, Poisson with mean 12: past 25 in one of 10³ seeds.
    assert alarms <= 25


def test_evenness_at_its_boundary_and_without_a_probe():
    def even(log_ratio):
        (pair,) = pairs(0.0, probe_here=100.0 * math.exp(log_ratio))
        return pair.even

    assert even(EVEN_PROBES - 1e-9)
    assert even(-EVEN_PROBES + 1e-9)
    assert not even(EVEN_PROBES + 1e-9)
    assert Pair(Metrics(80.0), Metrics(70.0)).even


@pytest.mark.parametrize("n", [5, 10])
def test_false_alarms_of_the_interval_are_one_in_a_thousand(n):
    """With a tolerance of next to nothing the interval alone decides; 6,000 draws of identical code."""
    draw = random.Random(n)
    trials = 6_000
    alarms = sum(
        judge(pairs(*(draw.gauss(0, 0.02) for _ in range(n))), tolerance=1e-9).status is Status.REGRESSED
        for _ in range(trials)
    )
    # Poisson with mean 6: outside 1 to 16 in one of 300 seeds.
    assert 1 <= alarms <= 16


def test_power_against_a_drop_of_eight_percent():
    draw = random.Random(8)
    found = sum(
        judge(pairs(*(0.08 + draw.gauss(0, 0.01) for _ in range(5)))).status is Status.REGRESSED for _ in range(500)
    )
    assert found >= 495


def test_looks_that_settle_share_the_level_of_two_and_one_that_is_not_sure_goes_on():
    assert pytest.approx(1 - 2 * (1 - 0.999) / (len(SETTLING.after) + 1)) == SETTLING.level
    # Their mean is past the tolerance and five pairs exclude no drop at 99.9 %, which a look at a stricter level does.
    drops = [0.10 + 0.0181 * step for step in (-2, -1, 0, 1, 2)]
    found = [Pair(Metrics(math.exp(-drop)), Metrics(1.0)) for drop in drops]
    said = [judge_pairs(found, "gbps", 0.05, "main", looks).status for looks in (ONE_LOOK, SETTLING)]
    assert said == [Status.REGRESSED, Status.INSUFFICIENT]


# Of a row that was 3 % slower at a tolerance of 2 %; one process was slower throughout than its twin.
EIGHT = (0.0989, 0.0281, 0.0342, 0.0376, 0.0295, 0.0290, 0.0287, 0.0295)


def settled(drops, looks=SETTLING, tolerance=0.02):
    found = [Pair(Metrics(math.exp(-drop)), Metrics(1.0)) for drop in drops]
    return judge_pairs(found, "gbps", tolerance, "main", looks)


def test_one_pair_of_eight_that_is_far_off_hides_no_drop_on_which_the_others_agree():
    assert settled(EIGHT, ONE_LOOK).status is settled(EIGHT[:7]).status is Status.INSUFFICIENT
    verdict = settled(EIGHT)
    assert (verdict.status, verdict.degrees, verdict.baseline_runs) == (Status.REGRESSED, 5, 8)
    assert verdict.drop == pytest.approx(-math.expm1(-sum(sorted(EIGHT)[1:7]) / 6))
    assert " in 8 pairs of fresh processes, without the largest and the smallest (at least 2." in verdict.reason


def test_one_pair_of_eight_that_is_far_off_makes_no_drop_and_two_are_noise():
    lost_nothing = [drop - 0.03 for drop in EIGHT]
    assert settled(lost_nothing).status is Status.WITHIN
    assert settled([-drop for drop in lost_nothing]).status is Status.WITHIN
    assert settled([*EIGHT[:-1], 0.11]).status is Status.INSUFFICIENT


def test_eight_pairs_that_tell_are_all_counted():
    verdict = settled([0.03 + 0.004 * (-1) ** i for i in range(8)])
    assert (verdict.status, verdict.degrees) == (Status.REGRESSED, 7)
    assert "without" not in verdict.reason


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
        drops = [draw.gauss(0, 0.01) + (draw.choice((-0.1, 0.1)) if draw.random() < outliers else 0) for _ in range(8)]
        alarms += any(settled(drops[:n], tolerance=1e-9).status is Status.REGRESSED for n in SETTLING.after)
    assert alarms <= 9


def test_four_pairs_settle_where_both_of_each_had_all_in_common():
    alike = [replace(pair, alike=True) for pair in pairs(0.1, 0.1, 0.1, 0.1)]
    assert [SETTLING.is_due(n, alike) for n in SETTLING.after] == [True] * 4
    but_one = [*alike[1:], *pairs(0.1)]
    assert [SETTLING.is_due(n, but_one) for n in SETTLING.after] == [False, True, True, True]
