"""The rule at its exact boundaries."""

import math
import random
from dataclasses import replace

import pytest
from entries_of_shares import at, entry, reference

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.judging.drop import MeasurementSetup, confirm_drop, look, not_comparable, runs_needed
from pytest_bandwidth.domain.judging.reference import prior_spread, reference_of
from pytest_bandwidth.domain.units import format_percent
from pytest_bandwidth.domain.verdict import Status

FIVE = (1.0, 1.0, 1.0, 1.0, 1.0)


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


def test_an_entry_without_runs_is_advised_some_since_its_spread_is_only_assumed():
    by_hand = reference_of(Entry("t.py::t", gbps=100.0), "gbps", prior_spread("gbps", on_host=True))
    assert by_hand is not None
    verdict = look(at(1.0), by_hand, 0.05, 3)
    assert (verdict.status, verdict.runs_advised) == (Status.INSUFFICIENT, 5)
    assert verdict.reason == (
        "drops under 9.7 % cannot be told from noise (tolerance 5.0 %, no baseline runs, a spread of 3 % assumed); "
        "--bandwidth-update --bandwidth-runs=5 tells it"
    )
    assert look(at(1.0), by_hand, 0.10, 3).status is Status.WITHIN


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


CONDUCT = MeasurementSetup(100, 50, "clock", {"threads": "2"})


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


@pytest.mark.parametrize(
    ("runs", "figure", "fresh", "status"),
    [
        (FIVE, 0.99, None, Status.WITHIN),
        (FIVE, 1.2, None, Status.IMPROVED),
        (FIVE[:1], 1.0, None, Status.INSUFFICIENT),
        (FIVE, 0.8, (0.8, 0.81), Status.REGRESSED),
        (FIVE, 0.8, (0.98, 0.99), Status.UNCONFIRMED),
    ],
)
def test_every_number_that_a_verdict_used_is_in_its_reason(runs, figure, fresh, status):
    known = reference(*runs)
    verdict = look(at(figure), known, 0.05, 3)
    if fresh is not None:
        verdict = confirm_drop(verdict, known, fresh, 0.05)
    assert verdict.status is status
    used = ["tolerance 5.0 %", f"spread {format_percent(known.spread, 1)}", f"{len(runs)} "]
    if status is not Status.INSUFFICIENT:  # which is said of what can be seen, whatever was
        used += ["100.0 % of the probe", f"{format_percent(verdict.allowed_drop, 1)} allowed"]
        used += [f"{format_percent(verdict.observed, 1)} of the probe"]
    used += [f"{len(fresh)} fresh processes"] if fresh else []
    assert [number for number in used if number not in verdict.reason] == []
