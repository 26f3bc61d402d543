"""How evidence is gathered: which resolver is asked for which measurement, in which order, and when it is enough."""

from dataclasses import replace

import pytest
from judged_kernels import (
    FIVE,
    KEY,
    LIMITS,
    OTHER,
    OldCode,
    Processes,
    decided,
    for_both,
    judged,
    measured,
    processes,
)

from pytest_bandwidth.domain.measured.metrics import Metrics
from pytest_bandwidth.domain.verdict import Rule, Status
from pytest_bandwidth.judging.limits import MarkerOptions

SLOW, WELL = Metrics(80.0, 0.8, 100.0), Metrics(90.0, 0.9, 100.0)


def both(first=80.0, second=80.0, **more):
    return {KEY: measured(first), OTHER: replace(measured(second), label="b", **more)}


def statuses(found):
    return {key: (one.decision.status, one.decision.rule) for key, one in found.items()}


def test_a_later_resolver_is_asked_only_for_what_none_before_it_decided():
    first, second, third = OldCode({KEY: [0.0] * 4}, why="no old kernel"), OldCode({OTHER: [0.1] * 4}), OldCode()
    found = judged(both(), for_both(FIVE), first, second, third)
    assert (first.asked, second.asked, third.asked) == ([[KEY, OTHER]], [[OTHER]], [])
    assert statuses(found) == {KEY: (Status.OK, Rule.PAIRS), OTHER: (Status.REGRESSED, Rule.PAIRS)}
    assert [found[key].decision.why_not for key in (KEY, OTHER)] == [(), ("no old kernel",)]


def test_a_floor_is_confirmed_before_old_code_is_asked_for():
    limits = replace(LIMITS, marker=MarkerOptions(min_gbps=85.0))
    old, again = OldCode({KEY: [0.0] * 4}), processes(80.0, 80.0, 80.0)
    assert decided(measured(80.0), FIVE, old, again, limits=limits).rule == "floor:min_gbps"
    assert (old.asked, len(again.rows)) == ([], 3)
    # Where it holds there, old code says whether the time was lost.
    old, again = OldCode({KEY: [0.1] * 4}), processes(90.0, 90.0, 90.0)
    found = decided(measured(80.0), FIVE, old, again, limits=limits)
    assert (found.status, found.rule) == (Status.REGRESSED, Rule.PAIRS)
    assert (old.asked, len(again.rows)) == ([[KEY]], 3)


def test_old_code_runs_before_the_processes_that_another_measurement_needs():
    limits = replace(LIMITS, marker=MarkerOptions(min_gbps=85.0))
    again = Processes(*[{None: SLOW, "b": WELL}] * 3)

    class First(OldCode):
        def gather(self, asking, rule):
            assert again.rows == []
            return super().gather(asking, rule)

    found = judged(both(80.0, 90.0), for_both(FIVE), First({OTHER: [0.0] * 4}), again, limits=limits)
    assert statuses(found) == {KEY: (Status.REGRESSED, "floor:min_gbps"), OTHER: (Status.OK, Rule.PAIRS)}


@pytest.mark.parametrize(
    ("seen", "status"),
    [
        (({None: SLOW}, {None: SLOW}), Status.REGRESSED),
        (({None: SLOW}, {None: WELL}), Status.UNDECIDED),
        (({None: WELL}, {None: WELL}), Status.OK),
    ],
)
def test_a_majority_decides_and_less_does_not_where_one_more_failed(seen, status):
    found = decided(measured(80.0), FIVE, Processes(*seen))
    assert found.status is status
    assert status is not Status.UNDECIDED or found.facts["why"] == "a new process ended with exit status 4"
