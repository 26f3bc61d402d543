"""Waiting for a pace, on a scripted device: its clock moves by samples, whatever the naps in between take."""

from pytest_bandwidth.devices import pace
from pytest_bandwidth.devices.base import Budget, Workload
from pytest_bandwidth.devices.pace import LONGEST_SECONDS, LOOK_SAMPLES, await_pace
from pytest_bandwidth.devices.sampling import take_rounds
from pytest_bandwidth.devices.scripted import ScriptedDevice, repeat, then
from pytest_bandwidth.domain.traffic import Traffic

TRAFFIC = Traffic(500_000, 500_000)  # 1 GB/s takes 1 ms
FASTEST_GBPS = 1.05


def waited(device):
    return await_pace(device, device.probe(TRAFFIC), None, FASTEST_GBPS)


def test_a_probe_at_the_pace_is_waited_for_no_longer():
    device = ScriptedDevice(probe_script=repeat(1e-3))
    assert waited(device)
    assert device.timed == ["probe"] * LOOK_SAMPLES


def test_waits_while_the_probe_is_faster():
    device = ScriptedDevice(probe_script=then(*[0.7e-3] * 2 * LOOK_SAMPLES, 1e-3))
    assert waited(device)
    assert len(device.timed) == 3 * LOOK_SAMPLES


def test_gives_up_in_time():
    device = ScriptedDevice(probe_script=repeat(0.7e-3), overhead_seconds=0.4)
    assert not waited(device)
    assert LONGEST_SECONDS <= device.clock < LONGEST_SECONDS + 1.5


def test_rounds_begin_at_the_pace(monkeypatch):
    monkeypatch.setattr(pace, "NAP_SECONDS", 0.0)
    fast = 200  # samples, more than the warm-up takes

    def rounds(pace_gbps):
        device = ScriptedDevice(probe_script=then(*[0.7e-3] * fast, 1e-3))
        budget = Budget(min_samples=8, max_seconds=0.5, pace_gbps=pace_gbps)
        return take_rounds(device, Workload(lambda: None, TRAFFIC), budget, lambda _: None).rounds

    assert rounds(None).probe_seconds[0] == 0.7e-3
    assert set(rounds(FASTEST_GBPS).probe_seconds) == {1e-3}
