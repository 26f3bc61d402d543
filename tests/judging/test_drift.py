"""What an entry's runs gained or lost since its first ones; small drops, each accepted, add up."""

from dataclasses import replace

import pytest

from pytest_bandwidth.domain.baseline import Entry, Run
from pytest_bandwidth.judging.drift import since_anchor
from pytest_bandwidth.judging.stored import reference_of
from pytest_bandwidth.judging.update import merged

TOLERANCE = 0.05


def entry(share, at="2026-01-02T03:04:05Z", runs=5):
    return Entry("t", judged_on="relative", runs=(Run(100 * share, 100.0, share, at=at),) * runs)


def updated(known, fresh):
    reference = None if known is None else reference_of(known, "relative", on_host=False)
    return merged(known, fresh, TOLERANCE, reference)


def test_a_creep_of_accepted_drops_is_shown_since_the_anchor():
    known = updated(None, entry(0.9))
    for step in range(1, 12):
        known = updated(known, entry(0.9 * 0.99**step, runs=20))
        assert known.anchor.relative == 0.9, "every single drop was accepted"
        assert since_anchor(known, "relative") == pytest.approx(0.99**step - 1)
        assert since_anchor(known, "gbps") == pytest.approx(0.99**step - 1)


def test_removing_the_anchor_accepts_it():
    crept = replace(entry(0.8), anchor=Run(gbps=90.0, relative=0.9))
    assert since_anchor(crept, "relative") == pytest.approx(0.8 / 0.9 - 1)
    accepted = updated(replace(crept, anchor=None), entry(0.8))
    assert since_anchor(accepted, "relative") == pytest.approx(0.0)


def test_an_intended_change_has_an_anchor_of_its_own():
    known = updated(updated(None, entry(0.9)), entry(0.7))
    assert known.anchor.relative == pytest.approx(0.7)


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
