"""The rule at its exact boundaries."""

import math
import random
from dataclasses import replace

import pytest

from pytest_bandwidth.domain.baseline import Entry, Run
from pytest_bandwidth.domain.judging import (
    Conduct,
    Figures,
    Floors,
    choose_figure,
    confirm_drop,
    confirm_floor,
    look,
    look_at_floors,
    not_comparable,
    pooled_spread,
    prior_spread,
    reference_of,
    runs_needed,
    steadier_figure,
)
from pytest_bandwidth.domain.student_t import t_quantile
from pytest_bandwidth.domain.verdict import Status


def entry(*relatives, **more):
    runs = tuple(Run(gbps=100 * r, probe_gbps=100.0) for r in relatives)
    return Entry("t.py::t", gbps=100.0, runs=runs, **more)


def reference(*relatives, figure="relative"):
    found = reference_of(entry(*relatives), figure, prior_spread(figure, on_host=False))
    assert found is not None
    return found


def at(share):
    return Figures(gbps=100 * share, relative=share, probe_gbps=100.0)


FIVE = (1.0, 1.0, 1.0, 1.0, 1.0)


def test_spread_pools_the_prior_with_what_the_runs_show():
    known = reference(0.99, 1.0, 1.01)
    logs = [math.log(v) for v in (0.99, 1.0, 1.01)]
    mean = sum(logs) / 3
    variance = sum((v - mean) ** 2 for v in logs) / 2
    assert known.spread == pytest.approx(math.sqrt((5 * 0.01**2 + 2 * variance) / 7))
    assert known.degrees == 7
    assert known.value == pytest.approx(1.0)


def test_hand_written_entry_is_exact_with_five_degrees():
    known = reference_of(Entry("t", gbps=100.0), "gbps", 0.03)
    assert known is not None
    assert (known.runs, known.degrees, known.spread) == (0, 5, 0.03)
    assert known.bound(0.99, 0.0, 1) == pytest.approx(t_quantile(0.99, 5) * 0.03)


@pytest.mark.parametrize(("side", "status"), [(-1e-9, Status.WITHIN), (1e-9, Status.SUSPECT)])
def test_suspect_begins_past_the_allowed_drop(side, status):
    known = reference(*FIVE)
    allowed = known.bound(0.99, 0.05, 1)
    assert allowed == pytest.approx(-math.log(0.95))  # at this spread the tolerance is the larger
    assert look(at(math.exp(-(allowed + side))), known, 0.05, 3).status is status


@pytest.mark.parametrize(("side", "status"), [(-1e-9, Status.UNCONFIRMED), (1e-9, Status.REGRESSED)])
def test_regressed_begins_past_the_gate(side, status):
    known = reference(*FIVE)
    gate = known.bound(0.999, 0.05, 3)
    first = look(at(0.8), known, 0.05, 3)
    value = math.exp(-(gate + side))
    assert confirm_drop(first, known, [value, value * 0.9, value * 1.1], 0.05).status is status


def test_without_confirmation_the_gate_is_stricter():
    known = reference(1.0)
    gate = known.bound(0.999, 0.05, 1)
    assert look(at(math.exp(-gate - 1e-9)), known, 0.05, 0).status is Status.REGRESSED
    assert look(at(math.exp(-gate + 1e-9)), known, 0.05, 0).status is Status.INSUFFICIENT


def test_noise_that_hides_the_tolerance_is_insufficient_and_says_how_many_runs_would_do():
    verdict = look(at(1.0), reference(1.0), 0.05, 3)
    assert verdict.status is Status.INSUFFICIENT
    assert verdict.runs_advised == runs_needed(reference(1.0), 0.05, 3)
    assert f"--bandwidth-runs={verdict.runs_advised}" in verdict.reason
    enough = reference(*[1.0] * (verdict.runs_advised or 0))
    assert look(at(1.0), enough, 0.05, 3).status is Status.WITHIN


def test_hopeless_noise_says_so():
    wild = reference(0.7, 1.0, 1.3, 0.8, 1.2)
    verdict = look(at(1.0), wild, 0.01, 3)
    assert verdict.status is Status.INSUFFICIENT
    assert verdict.runs_advised is None
    assert "raise the tolerance" in verdict.reason


@pytest.mark.parametrize(("side", "status"), [(-1e-9, Status.WITHIN), (1e-9, Status.IMPROVED)])
def test_improved_mirrors_suspect(side, status):
    known = reference(*FIVE)
    assert look(at(math.exp(known.bound(0.99, 0.05, 1) + side)), known, 0.05, 3).status is status


def test_tolerance_below_noise_does_not_raise_alarms_on_noise():
    known = reference(0.97, 1.0, 1.03, 0.98, 1.02)
    assert look(at(0.97), known, 0.001, 3).status is Status.INSUFFICIENT


def test_pooled_spread_needs_five_degrees_of_freedom():
    assert pooled_spread([entry(0.9, 1.1), entry(0.9, 1.1)], "relative") == 0.0
    many = [entry(0.99, 1.01) for _ in range(6)]
    assert pooled_spread(many, "relative") == pytest.approx((math.log(1.01) - math.log(0.99)) / math.sqrt(2))


def test_prior_grows_with_what_other_entries_show():
    assert prior_spread("relative", on_host=True) == 0.01
    assert prior_spread("gbps", on_host=True) == 0.03
    assert prior_spread("gbps", on_host=False) == 0.01
    assert prior_spread("gbps", on_host=False, others=0.07) == 0.07


def test_figure_is_relative_where_the_probe_shares_the_kernels_fate():
    assert choose_figure(None, None, at(0.9), None) == "relative"
    assert choose_figure(None, None, at(0.1), None) == "gbps"
    assert choose_figure(None, None, at(0.9), "compute-bound") == "gbps"
    assert choose_figure("gbps", None, at(0.9), None) == "gbps"
    assert choose_figure(None, entry(1.0, judged_on="gbps"), at(0.9), None) == "gbps"
    # A line written by hand knows GB/s only.
    assert choose_figure(None, Entry("t", gbps=10.0), at(0.9), None) == "gbps"


CONDUCT = Conduct(100, 50, "clock", {"threads": "2"})


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"bytes_read": 99}, "bytes"),
        ({"bytes_written": 51}, "bytes"),
        ({"method": "events"}, "method"),
        ({"settings": {"threads": "4"}}, "setting:threads"),
    ],
)
def test_what_was_measured_otherwise_is_not_comparable(change, code):
    same = entry(1.0, bytes_read=100, bytes_written=50, method="clock", settings={"threads": "2"})
    assert not_comparable(CONDUCT, same) is None
    verdict = not_comparable(CONDUCT, replace(same, **change))
    assert verdict is not None
    assert (verdict.status, verdict.code) == (Status.NOT_COMPARABLE, code)


def test_an_entry_that_is_silent_can_be_compared():
    assert not_comparable(CONDUCT, Entry("t", gbps=1.0)) is None


def test_floors_name_the_first_that_is_missed_and_hold_at_equality():
    floors = Floors(min_gbps=90.0, min_relative=0.9)
    assert look_at_floors(at(0.9), floors) is None
    missed = look_at_floors(at(0.89), floors)
    assert missed is not None
    assert missed.code == "floor:min_gbps"
    assert (missed.observed, missed.reference) == (pytest.approx(89), 90)


def test_floor_is_confirmed_by_the_median_of_fresh_processes():
    floors = Floors(min_gbps=90.0)
    first = look_at_floors(at(0.8), floors)
    assert first is not None
    assert confirm_floor(first, [at(0.8), at(0.85), at(1.0)], floors).status is Status.REGRESSED
    assert confirm_floor(first, [at(0.8), at(0.95), at(1.0)], floors).status is Status.UNCONFIRMED
    assert confirm_floor(first, [], floors).status is Status.REGRESSED


def _verdict_of_a_run(draw, spread, slow):
    def run():
        return math.exp(draw.gauss(0.0, spread)) * slow

    known = reference(*[math.exp(draw.gauss(0.0, spread)) for _ in range(5)])
    first = look(at(run()), known, 0.03, 3)
    if first.status is Status.SUSPECT:
        return confirm_drop(first, known, [run() for _ in range(3)], 0.03).status
    return first.status


def test_identical_code_raises_next_to_no_alarm_and_five_percent_is_found():
    """At the spread that ratios to the probe show on a shared host (0.7 %), tolerance 3 %, five baseline runs."""
    draw = random.Random(7)
    same = [_verdict_of_a_run(draw, 0.007, 1.0) for _ in range(3000)]
    slow = [_verdict_of_a_run(draw, 0.007, 0.95) for _ in range(3000)]
    assert same.count(Status.REGRESSED) <= 3
    assert slow.count(Status.REGRESSED) >= 0.9 * len(slow)


def runs_of(*pairs):
    return Entry("t", runs=tuple(Run(gbps=gbps, probe_gbps=probe) for gbps, probe in pairs))


def test_the_figure_that_repeats_better_over_five_runs():
    # The probe goes from 49 to 72 and back; one kernel follows, the other does not.
    probes = (49.0, 72.0, 49.5, 71.0, 49.2)
    waits = runs_of(*((p * 0.9, p) for p in probes))
    computes = runs_of(*((30.0, p) for p in probes))
    assert steadier_figure("relative", waits, on_host=True) == "relative"
    assert steadier_figure("relative", computes, on_host=True) == "gbps"


def test_under_five_runs_or_once_on_gbps_the_spread_decides_nothing():
    few = runs_of((30.0, 49.0), (30.0, 72.0), (30.0, 49.0), (30.0, 72.0))
    steady = runs_of(*((p * 0.2, p) for p in (49.0, 72.0, 49.5, 71.0, 49.2)))
    assert steadier_figure("relative", few, on_host=True) == "relative"
    assert steadier_figure("gbps", steady, on_host=True) == "gbps"
