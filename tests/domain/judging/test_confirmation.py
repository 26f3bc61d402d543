"""Which fresh processes a confirmation rests on."""

import math
from dataclasses import replace

import pytest
from known_devices import known

from pytest_bandwidth.domain.judging.confirmation import Evidence, evidence_of, is_settled, needs_comparable_runs
from pytest_bandwidth.domain.judging.rule import fresh_gate
from pytest_bandwidth.domain.metrics import Metrics

ALIKE, FAST, NO_PROBE = Metrics(80.0, 0.8, 100.0), Metrics(95.0, 0.65, 146.0), Metrics(80.0)


@pytest.mark.parametrize(
    ("fresh", "confirm", "needed"),
    [
        ([FAST, ALIKE, FAST, ALIKE, FAST, FAST], 3, 2),
        ([FAST, ALIKE, ALIKE], 3, 2),
        ([FAST, ALIKE], 1, 1),
        ([FAST, ALIKE, FAST, FAST, FAST, FAST], 3, 1),
        ([FAST, ALIKE, FAST], 3, 1),
    ],
)
def test_processes_at_the_baselines_memory_speed_outweigh_the_others(fresh, confirm, needed):
    assert evidence_of(fresh, known(), confirm) == Evidence([f for f in fresh if f is ALIKE], needed)


@pytest.mark.parametrize(
    ("fresh", "confirm"),
    [
        ([FAST, FAST, FAST], 3),
        ([FAST, FAST], 1),
        ([ALIKE, ALIKE, ALIKE], 3),
        ([ALIKE, ALIKE, NO_PROBE], 3),
    ],
)
def test_where_all_count_as_many_as_were_asked_for_are_needed(fresh, confirm):
    assert evidence_of(fresh, known(), confirm) == Evidence(fresh, confirm)


def test_without_a_known_memory_speed_all_count():
    assert evidence_of([FAST, ALIKE, ALIKE], None, 3) == Evidence([FAST, ALIKE, ALIKE], 3)


def test_only_processes_that_hold_the_figure_have_a_value_of_it():
    evidence = Evidence([ALIKE, NO_PROBE, FAST], 2)
    assert evidence.values("relative") == [0.8, 0.65]
    assert evidence.values("gbps") == [80.0, 80.0, 95.0]


@pytest.mark.parametrize(
    ("fresh", "confirm", "wants"),
    [
        ([FAST, FAST, ALIKE], 3, True),
        ([FAST, ALIKE, ALIKE], 3, False),
        ([FAST, NO_PROBE, NO_PROBE], 3, False),  # of these nobody knows the memory speed
        ([FAST], 1, True),
        ([ALIKE], 1, False),
        ([], 3, True),
    ],
)
def test_more_processes_are_worth_it_where_too_few_met_the_baselines_memory_speed(fresh, confirm, wants):
    assert needs_comparable_runs(fresh, known(), "relative", confirm) is wants


def test_no_more_processes_where_judged_on_gbps_or_without_a_known_memory_speed():
    assert not needs_comparable_runs([FAST] * 3, known(), "gbps", 3)
    assert not needs_comparable_runs([FAST] * 3, None, "relative", 3)


SOUND = Metrics(90.0, 0.9, 100.0)


@pytest.mark.parametrize(
    ("fresh", "confirm", "settled"),
    [
        ([ALIKE], 1, True),
        ([ALIKE, ALIKE], 2, True),
        ([ALIKE], 2, False),
        ([ALIKE, ALIKE], 3, True),
        ([SOUND, SOUND], 3, True),
        ([ALIKE, SOUND], 3, False),
        ([ALIKE, ALIKE], 4, False),  # the median of four is between the second and the third
        ([ALIKE, SOUND, ALIKE, ALIKE], 5, True),
        ([ALIKE, FAST], 3, False),
        ([ALIKE, NO_PROBE], 3, False),
        ([], 3, False),
    ],
)
def test_most_of_those_asked_for_settle_it(fresh, confirm, settled):
    assert is_settled(fresh, known(), known().relative, 0.05, confirm) is settled


def test_what_is_past_the_gate_of_three_but_not_of_two_is_not_settled():
    spread = replace(known().relative, spread=0.02)
    two, three = (fresh_gate(spread, 0.01, processes) for processes in (2, 3))
    between = 0.9 * math.exp(-(two + three) / 2)
    assert not is_settled([Metrics(100 * between, between, 100.0)] * 2, known(), spread, 0.01, 3)
