"""When fresh processes have measured enough."""

import math
from dataclasses import replace

import pytest
from known_devices import known

from pytest_bandwidth.domain.judging.confirmation import is_settled
from pytest_bandwidth.domain.judging.rule import fresh_gate
from pytest_bandwidth.domain.measured.metrics import Metrics

ALIKE, FAST, NO_PROBE = Metrics(80.0, 0.8, 100.0), Metrics(95.0, 0.65, 146.0), Metrics(80.0)


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
        ([ALIKE, FAST], 3, False),  # the device may be to blame
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
