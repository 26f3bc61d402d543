"""What a baseline's stored figures say together, and where their gate lies."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from statistics import median

import pytest
from judged_kernels import reference

from pytest_bandwidth.domain.baseline import Entry, Run
from pytest_bandwidth.domain.statistics import t_quantile
from pytest_bandwidth.domain.units import log_of_drop
from pytest_bandwidth.domain.verdict import Status
from pytest_bandwidth.judging.decide import decide_stored
from pytest_bandwidth.judging.stored import prior_spread, reference_of, runs_needed, since_anchor, steadier_of_runs
from pytest_bandwidth.outcomes.entries import merged


def test_spread_pools_the_prior_with_what_the_runs_show():
    known = reference(0.99, 1.0, 1.01)
    logs = [math.log(v) for v in (0.99, 1.0, 1.01)]
    mean = sum(logs) / 3
    variance = sum((v - mean) ** 2 for v in logs) / 2
    assert known.spread == pytest.approx(math.sqrt((5 * 0.01**2 + 2 * variance) / 7))
    assert (known.degrees, known.runs) == (7, 3)
    assert known.value == pytest.approx(1.0)
    assert reference(1.0).spread == prior_spread("relative", on_host=True) == 0.01
    assert prior_spread("gbps", on_host=True) == 0.03
    assert prior_spread("gbps", on_host=False) == 0.01
    known = reference_of(Entry("t", gbps=100.0), "gbps", on_host=True)
    assert known is not None
    assert (known.runs, known.degrees, known.spread) == (0, 5, 0.03)
    assert known.value == pytest.approx(100.0)
    assert known.gate(0.01, 3) == pytest.approx(t_quantile(0.999, 5) * 0.03 / math.sqrt(3))


def test_an_entry_without_the_figure_is_no_reference():
    assert reference_of(Entry("t", gbps=100.0), "relative", on_host=False) is None
    assert reference_of(Entry("t", runs=(Run(gbps=90.0),)), "relative", on_host=False) is None
    assert reference_of(Entry("t", counts={"load_sectors": 1}), "gbps", on_host=False) is None


def test_the_gate_is_the_tolerance_or_what_noise_explains():
    known = reference(*[1.0] * 5)
    assert known.gate(0.05, 3) == log_of_drop(0.05)
    noise = t_quantile(0.999, known.degrees) * known.spread * math.sqrt(1 / 3 + 1 / 5)
    assert known.gate(0.001, 3) == pytest.approx(noise)
    assert known.gate(0.001, 1) > known.gate(0.001, 3)


@pytest.mark.parametrize("runs", [(1.0,), (1.0, 1.02), (0.98, 1.0, 1.02)])
def test_as_many_runs_as_are_needed_see_the_tolerance(runs):
    known = reference(*runs)
    needed = runs_needed(known, 0.05, 3)
    assert needed is not None
    assert not known.resolves(0.05, 3) or needed <= known.runs
    if runs == (1.0,):
        assert reference(*[1.0] * needed).resolves(0.05, 3)
        assert not reference(*[1.0] * (needed - 1)).resolves(0.05, 3)


def runs_of(*pairs):
    return Entry("t", runs=tuple(Run(gbps=gbps, probe_gbps=probe) for gbps, probe in pairs))


def test_the_figure_that_repeats_better_over_five_runs_and_no_fewer():
    # The probe goes from 49 to 72 and back; one kernel follows, the other does not.
    probes = (49.0, 72.0, 49.5, 71.0, 49.2)
    waits = runs_of(*((p * 0.9, p) for p in probes))
    computes = runs_of(*((30.0, p) for p in probes))
    assert steadier_of_runs("relative", waits, on_host=True) == "relative"
    assert steadier_of_runs("relative", computes, on_host=True) == "gbps"
    few = runs_of((30.0, 49.0), (30.0, 72.0), (30.0, 49.0), (30.0, 72.0))
    steady = runs_of(*((p * 0.2, p) for p in (49.0, 72.0, 49.5, 71.0, 49.2)))
    assert steadier_of_runs("relative", few, on_host=True) == "relative"
    assert steadier_of_runs("gbps", steady, on_host=True) == "gbps"


def drawn(draw, spread, drop, tolerance):
    """Judge one run of code that is so much slower, on a baseline of five; every process is measured."""

    def share():
        return math.exp(draw.gauss(0.0, spread))

    known = reference(*[share() for _ in range(5)])
    slow = math.exp(-drop)
    decision = decide_stored(known, slow * share(), [slow * share() for _ in range(3)], tolerance, 3, None)
    return decision.status


def test_identical_code_raises_next_to_no_alarm_and_five_percent_is_found():
    """At the spread that ratios to the probe show on a shared host (0.7 %), tolerance 3 %, five baseline runs."""
    draw = random.Random(7)
    same = [drawn(draw, 0.007, 0.0, 0.03) for _ in range(3000)]
    slow = [drawn(draw, 0.007, log_of_drop(0.05), 0.03) for _ in range(3000)]
    assert same.count(Status.REGRESSED) <= 3
    assert slow.count(Status.REGRESSED) >= 0.9 * len(slow)


@pytest.mark.parametrize(("spread", "tolerance"), [(0.005, 0.05), (0.01, 0.001), (0.02, 0.05)])
def test_a_drop_that_is_detected_is_found_95_times_in_100(spread, tolerance):
    """Below, at and above the spread that the prior assumes; runs, first process and new ones all scatter."""
    draw = random.Random(9)
    baselines = [reference(*[math.exp(draw.gauss(0.0, spread)) for _ in range(5)]) for _ in range(1000)]
    detects = median(known.detects(tolerance, 3) for known in baselines)
    found = [drawn(draw, spread, detects, tolerance) for _ in range(4000)]
    assert found.count(Status.REGRESSED) / len(found) == pytest.approx(0.95, abs=0.03)


def entry(share, at="2026-01-02T03:04:05Z", runs=5):
    return Entry("t", judged_on="relative", runs=(Run(100 * share, 100.0, share, at=at),) * runs)


def updated(known, fresh):
    reference = None if known is None else reference_of(known, "relative", on_host=False)
    return merged(known, fresh, 0.05, reference)


def test_a_creep_of_accepted_drops_is_shown_since_the_anchor():
    known = updated(None, entry(0.9))
    for step in range(1, 12):
        known = updated(known, entry(0.9 * 0.99**step, runs=20))
        assert known.anchor.relative == 0.9, "every single drop was accepted"
        assert since_anchor(known, "relative") == pytest.approx(0.99**step - 1)
        assert since_anchor(known, "gbps") == pytest.approx(0.99**step - 1)


@pytest.mark.parametrize(
    "known",
    [
        entry(0.9),
        replace(entry(0.9), anchor=Run(gbps=90.0)),
        Entry("t", anchor=Run(gbps=90.0, relative=0.9)),
        replace(entry(0.9), runs=(Run(gbps=90.0),), anchor=Run(gbps=90.0, relative=0.9)),
    ],
)
def test_without_the_figure_on_both_sides_nothing_is_shown(known):
    assert since_anchor(known, "relative") is None
