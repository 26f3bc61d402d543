"""Small drops, each accepted, that add up."""

from dataclasses import replace

import pytest

from pytest_bandwidth.domain.baseline import Entry, Run
from pytest_bandwidth.domain.judging.drift import drift_of
from pytest_bandwidth.domain.judging.drop import look
from pytest_bandwidth.domain.judging.reference import reference_of
from pytest_bandwidth.domain.judging.update import merged
from pytest_bandwidth.domain.measured.metrics import Metrics

TOLERANCE, PRIOR = 0.05, 0.01


def entry(share, at="2026-01-02T03:04:05Z", runs=5):
    return Entry("t", judged_on="relative", runs=(Run(100 * share, 100.0, share, at=at),) * runs)


def updated(known, fresh):
    reference = None if known is None else reference_of(known, "relative", PRIOR)
    return merged(known, fresh, TOLERANCE, reference)


def drift(known):
    reference = reference_of(known, "relative", PRIOR)
    verdict = look(Metrics(reference.value * 100, reference.value), reference, TOLERANCE, 3)
    return drift_of(known, verdict)


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
