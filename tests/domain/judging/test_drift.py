"""Small drops, each accepted, that add up."""

import math
from dataclasses import replace
from random import Random

import pytest
from judged_kernels import KEY, LIMITS, again, baseline, measured, never_probe

from pytest_bandwidth.domain.baseline import Entry, Run
from pytest_bandwidth.domain.judging.by_code.last_word import LastWords
from pytest_bandwidth.domain.judging.by_code.paired import SETTLING, Pair, judge_pairs
from pytest_bandwidth.domain.judging.drift import drift_of
from pytest_bandwidth.domain.judging.drop import look
from pytest_bandwidth.domain.judging.floors import Floors, look_at_floors
from pytest_bandwidth.domain.judging.judge import judge_test, pools_of, reference_in
from pytest_bandwidth.domain.judging.reference import reference_of
from pytest_bandwidth.domain.judging.update import merged
from pytest_bandwidth.domain.measured.metrics import Metrics
from pytest_bandwidth.domain.verdict import Status

TOLERANCE, PRIOR = 0.05, 0.01


def entry(share, at="2026-01-02T03:04:05Z", runs=5):
    return Entry("t", judged_on="relative", runs=(Run(100 * share, 100.0, share, at=at),) * runs)


def updated(known, fresh):
    reference = None if known is None else reference_of(known, "relative", PRIOR)
    return merged(known, fresh, TOLERANCE, reference)


def drift(known):
    reference = reference_of(known, "relative", PRIOR)
    verdict = look(Metrics(reference.value * 100, reference.value), reference, TOLERANCE, 3)
    return drift_of(known, reference, verdict)


def test_a_creep_of_accepted_drops_is_told_once_it_is_past_the_tolerance():
    known = updated(None, entry(0.9))
    told = []
    for step in range(1, 12):
        known = updated(known, entry(0.9 * 0.99**step, runs=20))
        assert known.anchor.relative == 0.9, "every single drop was accepted"
        told.append(drift(known) is not None)
    assert told == [0.99**step < 0.95 for step in range(1, 12)]
    assert "below its anchor of 2026-01-02, 5.0 % allowed" in drift(known).text


def test_removing_the_anchor_accepts_it():
    crept = replace(entry(0.8), anchor=Run(gbps=90.0, relative=0.9))
    assert drift(crept) is not None
    accepted = updated(replace(crept, anchor=None), entry(0.8))
    assert accepted.anchor.relative == pytest.approx(0.8)
    assert drift(accepted) is None


def test_an_intended_change_has_an_anchor_of_its_own():
    known = updated(updated(None, entry(0.9)), entry(0.7))
    assert known.anchor.relative == pytest.approx(0.7)
    assert drift(known) is None


def test_a_gain_is_no_drift_and_neither_is_what_noise_explains():
    assert drift(replace(entry(0.9), anchor=Run(gbps=80.0, relative=0.8))) is None
    noisy = tuple(Run(100 * s, 100.0, s) for s in (0.70, 0.82, 0.82, 0.94))
    known = Entry("t", judged_on="relative", runs=noisy, anchor=Run(gbps=90.0, relative=0.9))
    assert drift(known) is None


@pytest.mark.parametrize("slower", [0.0, 0.06, 0.10, 0.20])
def test_a_slower_host_is_no_drift(slower):
    """Nothing was lost: three runs that differ by 2 %, and pairs that clear the code on a host that is slower today."""
    draw, found, cleared = Random(7), 0, 0
    for _ in range(200):
        gbps = [90 * math.exp(draw.gauss(0, 0.02)) for _ in range(3)]
        known = baseline(*gbps, judged_on="gbps")
        anchored = merged(None, known.entries[KEY], TOLERANCE, None)
        known = replace(known, entries={KEY: anchored})
        today = [90 * (1 - slower) * math.exp(draw.gauss(0, 0.02)) for _ in range(12)]
        paired = judge_pairs(
            [Pair(Metrics(g, g / 100, 100.0), Metrics(g, g / 100, 100.0), in_turn=0.0) for g in today],
            *("gbps", TOLERANCE, "the commit", SETTLING),
            last=True,
        )
        verdict = judge_test(
            {KEY: measured(today[0])},
            *(known, replace(LIMITS, unsure=True), again(lambda: None), never_probe),
            ways=[lambda suspects, paired=paired: LastWords(dict.fromkeys(suspects, paired))],
        )[KEY].verdict
        own = reference_in(pools_of(known), anchored, verdict.figure, on_host=False)
        cleared += verdict.code == "pairs"
        found += drift_of(anchored, own, verdict) is not None
    assert cleared or not slower
    assert found == 0


def test_a_missed_floor_is_no_drift():
    crept = replace(entry(0.9), anchor=Run(gbps=90.0, relative=0.9))
    floor = look_at_floors(Metrics(70.0, 0.7), Floors(min_gbps=80.0))
    assert floor.status is Status.SUSPECT
    assert drift_of(crept, reference_of(crept, "gbps", PRIOR), floor) is None
