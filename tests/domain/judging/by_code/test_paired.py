"""The rule of --bandwidth-against, at its boundaries and on drawn noise."""

import math
import random

import pytest

from pytest_bandwidth.domain.judging.by_code.looks import Looks, mean_of_many
from pytest_bandwidth.domain.judging.by_code.paired import (
    EVEN_PROBES,
    SETTLING,
    Pair,
    judge_pairs,
    looks_of,
    pairs_needed,
    steadier_of_pairs,
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
    return judge_pairs(taken, figure, tolerance, "HEAD~1 (3f2c1ab)", Looks((5,)), last=True)


LIMIT = -math.log(0.95)


@pytest.mark.parametrize(("log_drop", "status"), [(LIMIT + 1e-9, "REGRESSED"), (-LIMIT - 1e-9, "IMPROVED")])
@pytest.mark.parametrize("figure", ["relative", "gbps"])
def test_a_verdict_tells_drop_and_figure(log_drop, status, figure):
    verdict = judge(pairs(*[log_drop] * 5), figure)
    assert verdict.status is Status[status]
    assert verdict.drop == pytest.approx(-math.expm1(-log_drop))
    assert (verdict.figure, verdict.baseline_runs, verdict.degrees) == (figure, 5, 4)


def sure_to_tell(number, spread):
    """How far the two ends of an interval of the last look are from each other where so many pairs are asked for."""
    looks = looks_of(number)
    seen = mean_of_many(looks.most, 0.0, spread)
    return seen.reach(looks.loss_level) + seen.reach(looks.within_level)


def test_noise_wider_than_the_tolerance_is_insufficient_and_says_how_many_pairs_would_do():
    noisy = judge(pairs(0.03, -0.03, 0.03, -0.03, 0.03))
    assert noisy.status is Status.INSUFFICIENT
    needed = pairs_needed(noisy.spread, LIMIT)
    assert sure_to_tell(needed - 1, noisy.spread) > LIMIT >= sure_to_tell(needed, noisy.spread)
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


def test_a_loss_that_may_be_past_the_tolerance_says_so():
    taken = pairs(0.049, 0.050, 0.050, 0.051)
    near = judge_pairs(taken, "gbps", 0.05, "main", Looks((4,)), last=True)
    assert near.status is Status.REGRESSED
    assert near.drop == pytest.approx(-math.expm1(-0.050))
    assert near.reason == (
        "4.9 % below main in 4 pairs of fresh processes (at least 4.5 % with 99.9 % confidence, spread 0.1 %), and may "
        "be 5.05 %, 5.0 % allowed"
    )
    first = judge_pairs(taken, "gbps", 0.05, "main", looks_of(4), last=False)
    assert first.status is Status.INSUFFICIENT, "four more may tell that it is not"
    assert (near.visible_drop, first.visible_drop) == (pytest.approx(0.04824, abs=1e-5), pytest.approx(0.05))


def test_pairs_that_settle_say_which_they_left_out():
    drops = (0.25, 0.0281, 0.0342, 0.0376, 0.0295, 0.0290, 0.0287, 0.0295, 0.0302, 0.0330, 0.0281, 0.0299)
    verdict = judge_pairs(pairs(*drops), "gbps", 0.02, "main", SETTLING, last=True)
    assert (verdict.status, verdict.degrees, verdict.baseline_runs) == (Status.REGRESSED, 9, 12)
    assert (
        " in 12 pairs of fresh processes, without the largest and the smallest (at least 2.5 % with 99.8 % c"
        in verdict.reason
    )
    untold = judge_pairs(pairs(*drops[:7]), "gbps", 0.02, "main", SETTLING, last=False)
    assert untold.reason.endswith(", 2.0 % allowed; raise the tolerance or quiet the machine")
