"""Waits for slower memory, on a scripted device: its clock moves by samples, whatever the naps in between take."""

from contextlib import suppress

import pytest
from scripted import ScriptedDevice, dropped, except_at, repeat, then

from pytest_bandwidth.devices import memory_speed
from pytest_bandwidth.devices.base import Budget, Workload
from pytest_bandwidth.devices.memory_speed import (
    LONGEST_WAIT_SECONDS,
    LOOK_SAMPLES,
    NoProbeSamples,
    median_probe_gbps,
    wait_for_memory,
)
from pytest_bandwidth.devices.sampling import take_rounds
from pytest_bandwidth.domain.errors import DeviceLost
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.session.fresh.probe import probe_gbps

TRAFFIC = Traffic(500_000, 500_000)  # 1 GB/s takes 1 ms
SLOW, FAST = 1e-3, 0.7e-3


@pytest.fixture(autouse=True)
def no_naps(monkeypatch):
    monkeypatch.setattr(memory_speed, "NAP_SECONDS", 0.0)


FASTEST_GBPS = 1.05


def samples_waited(device, most_seconds=LONGEST_WAIT_SECONDS):
    before = len(device.timed)
    wait_for_memory(device, device.probe(TRAFFIC), None, FASTEST_GBPS, most_seconds)
    return len(device.timed) - before


def test_a_probe_that_is_no_faster_is_waited_for_no_longer():
    assert samples_waited(ScriptedDevice(probe_script=repeat(SLOW))) == LOOK_SAMPLES


def test_waits_while_the_probe_is_faster():
    assert samples_waited(ScriptedDevice(probe_script=then(*[FAST] * 2 * LOOK_SAMPLES, SLOW))) == 3 * LOOK_SAMPLES


def test_gives_up_in_time_and_does_not_begin_without_any():
    device = ScriptedDevice(probe_script=repeat(FAST), overhead_seconds=0.4)
    assert samples_waited(device) > LOOK_SAMPLES
    assert LONGEST_WAIT_SECONDS <= device.clock < LONGEST_WAIT_SECONDS + 1.5
    assert samples_waited(device, 0.0) == 0


@pytest.mark.parametrize("waited", [False, True])
def test_rounds_begin_when_memory_is_slow_enough(waited):
    device = ScriptedDevice(probe_script=then(*[FAST] * 200, SLOW))  # for longer than the warm-up
    budget = Budget(
        min_samples=8, max_seconds=0.5, fastest_probe_gbps=FASTEST_GBPS if waited else None, wait_seconds=4.0
    )
    rounds = take_rounds(device, Workload(lambda: None, TRAFFIC), budget, lambda _: None).rounds
    assert set(rounds.probe_seconds) == ({SLOW} if waited else {FAST})
    assert (rounds.waited_seconds > 0) is waited
    assert rounds.warmup_seconds <= 0.3 * budget.max_seconds + 0.1, "the wait is no part of it"


def gbps(*steps, samples):
    device = ScriptedDevice(probe_script=repeat(*steps))
    return median_probe_gbps(device, device.probe(TRAFFIC), None, samples)


@pytest.mark.parametrize("spoilt", [dropped("throttled", FAST), 0.0])
def test_samples_that_do_not_count_are_no_part_of_the_figure(spoilt):
    assert gbps(SLOW, spoilt, spoilt, samples=3) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("spoilt", "why"), [(dropped("throttled", text="too hot"), "too hot"), (0.0, "it took no time")]
)
def test_without_a_sample_that_counts_the_error_says_why(spoilt, why):
    with pytest.raises(
        NoProbeSamples, match=rf"probe \(scripted probe\) has no figure: .* 3 that do not \({why}\)"
    ) as caught:
        gbps(spoilt, samples=3)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("tolerates", "expected"), [(True, 1.0), (False, None)])
def test_a_look_that_nothing_is_judged_by_has_a_figure_beside_the_busiest_neighbours(tolerates, expected):
    device = ScriptedDevice(probe_script=repeat(dropped("run-delay", SLOW)))
    found = None
    with suppress(NoProbeSamples):
        found = probe_gbps(device, device.probe(TRAFFIC), 3, tolerates_run_delay=tolerates)
    assert found == pytest.approx(expected)


def test_a_probe_alone_says_why_it_has_no_figure():
    device = ScriptedDevice(probe_script=repeat(dropped("throttled", text="too hot")))
    with pytest.raises(NoProbeSamples, match="too hot"):
        probe_gbps(device, device.probe(TRAFFIC), 3)


@pytest.mark.parametrize("spoilt", [dropped("throttled", FAST), 0.0])
def test_a_probe_without_a_figure_is_not_waited_for(spoilt):
    assert samples_waited(ScriptedDevice(probe_script=repeat(spoilt))) == LOOK_SAMPLES


def test_a_probe_that_loses_its_figure_while_waiting_ends_the_wait():
    script = then(*[FAST] * LOOK_SAMPLES, dropped("throttled", FAST))
    assert samples_waited(ScriptedDevice(probe_script=script)) == 2 * LOOK_SAMPLES


def test_rounds_are_taken_where_the_wait_saw_nothing():
    spoilt = range(1, 150)  # from the warm-up on, for longer than it
    device = ScriptedDevice(probe_script=except_at(spoilt, dropped("throttled"), repeat(SLOW)))
    budget = Budget(min_samples=8, max_seconds=0.5, fastest_probe_gbps=FASTEST_GBPS, wait_seconds=4.0)
    rounds = take_rounds(device, Workload(lambda: None, TRAFFIC), budget, lambda _: None).rounds
    assert rounds.stop == "precision"
    assert len(rounds.dropped) > 0


def test_a_device_that_is_lost_while_waiting_is_no_probe_without_a_figure():
    with pytest.raises(DeviceLost):
        samples_waited(ScriptedDevice(probe_script=repeat(DeviceLost("gone"))))
