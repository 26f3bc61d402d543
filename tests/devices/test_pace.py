"""Waiting for a pace, on a scripted device: its clock moves by samples, whatever the naps in between take."""

import pytest

from pytest_bandwidth.devices import pace
from pytest_bandwidth.devices.base import Budget, Workload
from pytest_bandwidth.devices.pace import LONGEST_SECONDS, LOOK_SAMPLES, Pace
from pytest_bandwidth.devices.sampling import take_rounds
from pytest_bandwidth.devices.scripted import ScriptedDevice, repeat, then
from pytest_bandwidth.domain.traffic import Traffic

TRAFFIC = Traffic(500_000, 500_000)  # 1 GB/s takes 1 ms
SLOW, FAST = 1e-3, 0.7e-3


@pytest.fixture(autouse=True)
def no_naps(monkeypatch):
    monkeypatch.setattr(pace, "NAP_SECONDS", 0.0)


@pytest.fixture
def wanted():
    return Pace(fastest_gbps=1.05)


def waits(pace, device):
    """How many samples it took."""
    before = len(device.timed)
    pace.wait(device, device.probe(TRAFFIC), None)
    return len(device.timed) - before


def test_a_probe_at_the_pace_is_waited_for_no_longer(wanted):
    assert waits(wanted, ScriptedDevice(probe_script=repeat(SLOW))) == LOOK_SAMPLES


def test_waits_while_the_probe_is_faster(wanted):
    assert waits(wanted, ScriptedDevice(probe_script=then(*[FAST] * 2 * LOOK_SAMPLES, SLOW))) == 3 * LOOK_SAMPLES


def test_gives_up_in_time_and_the_next_measurement_waits_no_more(wanted):
    device = ScriptedDevice(probe_script=repeat(FAST), overhead_seconds=0.4)
    assert waits(wanted, device) > LOOK_SAMPLES
    assert LONGEST_SECONDS <= device.clock < LONGEST_SECONDS + 1.5
    assert waits(Pace(1.05, wanted.patience), device) == LOOK_SAMPLES


@pytest.mark.parametrize("waited", [False, True])
def test_rounds_begin_at_the_pace(wanted, waited):
    device = ScriptedDevice(probe_script=then(*[FAST] * 200, SLOW))  # for longer than the warm-up
    budget = Budget(min_samples=8, max_seconds=0.5, pace=wanted if waited else None)
    rounds = take_rounds(device, Workload(lambda: None, TRAFFIC), budget, lambda _: None).rounds
    assert set(rounds.probe_seconds) == ({SLOW} if waited else {FAST})
