"""How often the rule errs on given processes, and what so few of them cannot rule out."""

from __future__ import annotations

import math
import random

import pytest

from pytest_bandwidth.cli.selftest import Judge, rates, upper_limit
from pytest_bandwidth.domain.baseline import Run
from pytest_bandwidth.domain.verdict import Status


def runs(*shares):
    """Processes that reached such shares of a probe of 100 GB/s."""
    return [Run(gbps=100 * share, probe_gbps=100.0, relative=share) for share in shares]


def noisy(count, share=0.8, spread=0.007, seed=7):
    draw = random.Random(f"{seed} {share}")
    return runs(*(share * math.exp(draw.gauss(0.0, spread)) for _ in range(count)))


def found(same, slowed, *, tolerance=0.05, baseline_runs=5, **more):
    given = {"figure": "relative", "confirm": 3, "on_host": False, "trials": 200, **more}
    return rates(same, slowed, tolerance=tolerance, baseline_runs=baseline_runs, **given)


def test_without_noise_there_is_no_alarm_and_every_drop_past_the_tolerance_is_found():
    seen = found(runs(*[0.8] * 9), {drop: runs(*[0.8 * (1 - drop)] * 4) for drop in (0.03, 0.06, 0.1)})
    assert (seen.tolerance, seen.baseline_runs) == (0.05, 5)
    assert seen.false_alarms == 0
    assert seen.found == {0.03: 0.0, 0.06: 1.0, 0.1: 1.0}


def test_one_baseline_run_finds_only_what_it_can_tell_from_noise():
    seen = found(runs(*[0.8] * 5), {drop: runs(*[0.8 * (1 - drop)] * 4) for drop in (0.06, 0.1)}, baseline_runs=1)
    assert seen.found == {0.06: 0.0, 0.1: 1.0}


@pytest.mark.parametrize("figure", ["relative", "gbps"])
def test_ten_percent_are_found_in_the_noise_of_a_shared_host(figure):
    seen = found(noisy(20), {0.1: noisy(20, 0.72)}, figure=figure)
    assert seen.false_alarms <= 0.005
    assert seen.found[0.1] >= 0.95


def test_processes_that_differ_by_more_than_the_rule_believes_raise_alarms():
    seen = found(runs(*[0.8] * 10, *[0.6] * 10), {}, baseline_runs=1)
    assert seen.false_alarms > 0


def test_the_same_seed_draws_the_same():
    processes = runs(*[0.8] * 10, *[0.6] * 10)
    once, again, otherwise = (
        found(processes, {0.1: processes}, baseline_runs=1, trials=50, seed=seed) for seed in (1, 1, 2)
    )
    assert once == again != otherwise


def test_too_few_processes_are_refused():
    with pytest.raises(ValueError, match="8 processes, expected at least 9"):
        found(runs(*[0.8] * 8), {})


@pytest.mark.parametrize(
    ("judged", "status"),
    [
        ((0.8, 0.6, 0.6, 0.6), Status.OK),  # not slow: the others are not asked
        ((0.6, 0.8, 0.8, 0.6), Status.OK),
        ((0.6, 0.8, 0.6, 0.6), Status.REGRESSED),
        ((0.6,), Status.REGRESSED),  # nothing confirms: the first look decides
        ((0.9, 0.9, 0.9, 0.9), Status.IMPROVED),
    ],
)
def test_the_first_may_be_slow_and_the_others_confirm(judged, status):
    judge = Judge(runs(*[0.8] * 5), "relative", 0.05, len(judged) - 1, on_host=False)
    assert judge.decision(runs(*judged)).status is status


def test_fewer_new_processes_than_confirm_are_refused():
    judge = Judge(runs(*[0.8] * 5), "relative", 0.05, 3, on_host=False)
    with pytest.raises(ValueError, match="1 new processes, expected 3"):
        judge.decision([*runs(0.6, 0.6), Run(gbps=60.0)])


def test_a_figure_that_the_processes_do_not_hold_is_refused():
    with pytest.raises(ValueError, match="hold no figure to judge"):
        Judge([Run(gbps=80.0)], "relative", 0.05, 3, on_host=False)


def test_what_cannot_be_told_from_noise_is_unjudged():
    assert found(runs(*[0.8] * 9), {}, tolerance=0.01, baseline_runs=1).unjudged == 1.0
    assert found(runs(*[0.8] * 9), {}, tolerance=0.1, baseline_runs=1).unjudged == 0.0


@pytest.mark.parametrize(("events", "cases"), [(0, 1), (0, 10), (1, 20), (3, 40), (19, 20)])
def test_a_rate_at_the_limit_would_show_so_few_events_once_in_twenty(events, cases):
    limit = upper_limit(events, cases)
    few = sum(math.comb(cases, i) * limit**i * (1 - limit) ** (cases - i) for i in range(events + 1))
    assert few == pytest.approx(0.05)


def test_limits_of_nothing_seen():
    # 1 − 0.05^(1/n): the rule of three, for few cases.
    assert upper_limit(0, 2) == pytest.approx(1 - math.sqrt(0.05))
    assert upper_limit(0, 300) == pytest.approx(3 / 300, rel=0.01)
    assert upper_limit(0, 10, confidence=0.5) < upper_limit(0, 10)


@pytest.mark.parametrize(("events", "cases"), [(0, 0), (5, 5)])
def test_where_nothing_went_well_any_rate_may_be(events, cases):
    assert upper_limit(events, cases) == 1.0
