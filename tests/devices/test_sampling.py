"""The sampling loop against a scripted device: order, stop rules, drops, and which measurements are invalid."""

import gc
import math
import random
import re
from dataclasses import replace
from itertools import pairwise

import pytest
from scripted import ScriptedDevice, dropped, except_at, repeat, then
from two_processes import InTurn

from pytest_bandwidth.devices import sampling
from pytest_bandwidth.devices.base import Budget, Sample, Workload
from pytest_bandwidth.devices.sampling import MOST_DROPPED, measure_timed, take_rounds
from pytest_bandwidth.domain.device import Conditions, DeviceIdentity
from pytest_bandwidth.domain.measured.measurement import FEWEST_ROUNDS
from pytest_bandwidth.domain.traffic import Traffic

BYTES = Traffic(500_000, 500_000)
NOTHING = Workload(lambda: None, BYTES)
QUIET = Budget(min_samples=8, max_seconds=1.0, precision=0.005)


draw = random.Random(1)
NOISY = repeat(*(draw.uniform(1e-3, 3e-3) for _ in range(4096)))


def take(device, workload=NOTHING, budget=QUIET, progress=lambda _: None):
    return take_rounds(device, workload, budget, progress)[0]


def measured(workload=NOTHING, budget=QUIET, **device):
    return measure_timed(ScriptedDevice(**device), workload, budget, lambda _: None)


def test_rounds_alternate_which_comes_first():
    device = ScriptedDevice()
    rounds = take(device)
    first = rounds.kernel_first
    assert set(first) == {True, False}
    assert all(a != b for a, b in pairwise(first))
    pairs = device.timed[-2 * len(first) :]
    order = [pair[0] == "kernel" for pair in zip(pairs[::2], pairs[1::2], strict=True)]
    assert tuple(order) == first


def test_goes_on_while_the_median_is_not_precise_and_ends_in_time_or_by_the_number_of_rounds(monkeypatch):
    device = ScriptedDevice(kernel_script=NOISY)
    rounds = take(device)
    assert rounds.stop == "max-time"
    assert len(rounds.kernel_seconds) > 100
    assert device.clock < 1.4  # the budget and its warm-up
    monkeypatch.setattr(sampling, "MOST_ROUNDS", 50)
    rounds = take(ScriptedDevice(kernel_script=NOISY), budget=Budget(8, 10.0, 0.005))
    assert (rounds.stop, len(rounds.kernel_seconds)) == ("max-rounds", 50)


@pytest.mark.parametrize(
    ("script", "stop", "rounds"),
    [
        ({"kernel_script": repeat(1e-3, 1.0001e-3)}, "precision", 8),
        ({"kernel_script": repeat(5.0)}, "max-time", FEWEST_ROUNDS),
        # The ratio has to be precise as well.
        ({"probe_script": repeat(*(1e-3 * (1 + 0.5 * math.sin(n)) for n in range(4096)))}, "max-time", None),
    ],
    ids=["precise", "slow", "wobbly probe"],
)
def test_stops_when_all_is_precise_and_a_slow_kernel_still_gets_a_few_rounds(script, stop, rounds):
    found = take(ScriptedDevice(**script))
    assert found.stop == stop
    assert rounds in (None, len(found.kernel_seconds))


def test_warm_up_lasts_until_the_samples_stop_drifting():
    cold_clock = then(*(2e-3 - 5e-5 * n for n in range(20)), 1e-3)
    rounds = take(ScriptedDevice(kernel_script=cold_clock))
    assert max(rounds.kernel_seconds) == 1e-3
    assert rounds.warmup_runs > 20


@pytest.mark.parametrize("which", ["kernel_script", "probe_script"])
def test_a_dropped_sample_takes_its_round_along_and_is_listed(which):
    script = except_at(range(300, 303), dropped("throttled"), repeat(1e-3))
    rounds = take(ScriptedDevice(**{which: script}), budget=Budget(200, 10.0, 0.005))
    assert [(d.code, d.reason) for d in rounds.dropped] == [("throttled", "as scripted")] * 3
    assert len(rounds.kernel_seconds) == len(rounds.probe_seconds) == len(rounds.kernel_first) >= 200


WAITED = replace(dropped("run-delay"), run_delay_seconds=4e-4)
CLEAN = Sample(1e-3, 1e-3, None, 0.0)


def test_the_time_of_disturbed_rounds_is_given_once_more():
    draw = random.Random(1)
    noisy = [replace(CLEAN, seconds=draw.uniform(1e-3, 3e-3)) for _ in range(4096)]
    undisturbed = take(ScriptedDevice(kernel_script=lambda n: noisy[n % 4096]))
    device = ScriptedDevice(kernel_script=lambda n: WAITED if n % 4 == 0 else noisy[n % 4096])
    rounds = take(device)
    assert len(rounds.kernel_seconds) == pytest.approx(len(undisturbed.kernel_seconds), rel=0.05)
    assert {(d.code, d.reason) for d in rounds.dropped} == {("run-delay", "as scripted")}
    assert not rounds.too_disturbed
    assert 0.03 < rounds.run_delay < 0.1
    assert undisturbed.run_delay == 0.0
    assert take(ScriptedDevice()).run_delay is None, "nothing accounts for it"


def test_a_wait_that_began_before_its_sample_is_no_more_than_the_sample():
    long_before = replace(WAITED, run_delay_seconds=4e-2)
    rounds = take(ScriptedDevice(kernel_script=lambda n: CLEAN if n % 2 else long_before, probe_script=lambda _: CLEAN))
    assert rounds.run_delay == pytest.approx(0.25, rel=0.2)


@pytest.mark.parametrize(("every", "too_disturbed"), [(9, False), (11, True)])
def test_one_undisturbed_round_in_ten_is_enough(every, too_disturbed):
    script = repeat(CLEAN, *[WAITED] * (every - 1))
    measurement = measured(budget=replace(QUIET, precision=1e-9), kernel_script=script)
    assert len(measurement.samples) > FEWEST_ROUNDS
    assert measurement.rounds.too_disturbed is too_disturbed
    assert (measurement.invalid is not None) is too_disturbed


def test_too_few_undisturbed_rounds_are_invalid_and_the_reason_names_the_wait_and_who():
    busy = Conditions(others=("cc1 (7): 1.90 processors",), others_processors=1.9)
    found = measured(kernel_script=then(CLEAN, WAITED), states=(busy,)).invalid
    assert found.code == "run-delay"
    assert re.fullmatch(
        r"its threads waited for a processor in (\d+) of \1 rounds, \d+\.?\d* % of their time "
        r"\(cc1 \(7\): 1\.90 processors\)",
        found.text,
    )


def on_gpu(**script):
    gpu = DeviceIdentity("cuda", "A GPU", 2**30, "g", timed_on="gpu")
    return measured(budget=replace(QUIET, min_samples=64), identity=gpu, **script)


def test_rounds_in_which_something_else_had_the_gpu_are_dropped():
    beside = on_gpu(probe_script=repeat(*[1e-3] * 15, 3e-3), kernel_script=repeat(*[1e-3] * 14, 3e-3))
    assert beside.invalid is None
    assert set(beside.samples) == set(beside.rounds.probe_seconds) == {1e-3}
    assert {d.code for d in beside.rounds.dropped} == {"held-up"}
    assert [d.round for d in beside.rounds.dropped] == sorted(d.round for d in beside.rounds.dropped)
    on_host = take(ScriptedDevice(probe_script=repeat(*[1e-3] * 15, 3e-3)))
    assert on_host.dropped == ()


def test_a_kernel_in_which_there_is_a_slice_of_others_each_time_is_invalid_and_the_reason_says_so():
    script = {"probe_script": repeat(1e-3, 1e-3, 3e-3), "kernel_script": repeat(5e-3)}
    found = on_gpu(**script).invalid
    assert found.code == "held-up"
    assert re.fullmatch(
        r"other work ran on the GPU in (\d+) of \1 rounds: the probe took longer; no other process is visible, as in a "
        r"container: run on a GPU that nobody else uses",
        found.text,
    )
    named = on_gpu(states=(Conditions(others=("python (pid 7, 80 %)",)),), **script).invalid
    assert "rounds (python (pid 7, 80 %)): the probe took longer" in named.text


def test_dropping_ends_even_where_samples_take_next_to_no_time():
    spoilt = repeat(dropped("x", 0.0))
    device = ScriptedDevice(kernel_script=spoilt, probe_script=repeat(0.0), overhead_seconds=1e-4)
    assert len(take(device).dropped) == MOST_DROPPED


def test_setup_runs_before_every_run_and_value_is_the_last():
    log = []
    workload = Workload(lambda: log.append("run") or len(log), BYTES, setup=lambda: log.append("setup"))
    value = measured(workload).value
    assert log == ["setup", "run"] * (len(log) // 2)
    assert value == len(log)


def test_what_the_workload_raises_comes_through_and_garbage_is_collected_again():
    seen = []

    def broken():
        seen.append(gc.isenabled())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        take(ScriptedDevice(), Workload(broken, BYTES))
    assert (seen, gc.isenabled()) == ([False], True)


def test_what_is_beside_is_sampled_in_every_round_and_each_comes_first_in_turn():
    log = []
    workload = Workload(lambda: log.append("a"), BYTES, interleaved=(lambda: log.append("b"), lambda: log.append("c")))
    rounds = take(ScriptedDevice(), workload)
    assert [len(seconds) for seconds in rounds.interleaved] == [len(rounds.kernel_seconds)] * 2
    last = log[-3 * len(rounds.kernel_seconds) :]
    turns = {"".join(last[i : i + 3]) for i in range(0, len(last), 3)}
    assert turns >= {"abc", "bca", "cab"}


def test_in_turn_with_another_process_no_probe_is_sampled():
    rounds = take(ScriptedDevice(), budget=replace(QUIET, turns=InTurn(5)))
    assert (len(rounds.kernel_seconds), rounds.stop) == (5, "precision")
    assert (rounds.probe_seconds, rounds.probe_bytes, rounds.probe_name) == ((), 0, None)


def test_in_turn_no_end_of_drifting_is_waited_for():
    def drifting():
        return ScriptedDevice(kernel_script=lambda n: 1e-3 * 1.05 ** min(n, 100))

    alone, in_turn = (take(drifting(), budget=replace(QUIET, turns=turns)) for turns in (None, InTurn(5)))
    least = sampling.WARMUP_LEAST_SHARE * QUIET.max_seconds
    assert least <= in_turn.warmup_seconds < 2 * least < alone.warmup_seconds
    assert alone.warmup_seconds <= 0.3 * QUIET.max_seconds + 0.2, "what never settles ends in time"


def test_after_the_last_turn_the_workload_runs_once_more():
    turns, left = InTurn(5), []
    workload = replace(NOTHING, call=lambda: left.append(turns.left), reads=("x",), writes=("y",))
    take(ScriptedDevice(), workload, replace(QUIET, turns=turns))
    assert left[-2:] == [1, 0]
    assert turns.touched == ("x", "y")


def test_no_sample_left_is_invalid_not_nan():
    found = measured(kernel_script=repeat(dropped("throttled", text="SM clock at 60 % of nominal")))
    assert found.invalid.code == "no-samples"
    assert "SM clock at 60 % of nominal" in found.invalid.text
    assert (found.gbps, found.relative, found.utilization) == (None, None, None)
    assert found.rounds.stop == "no-samples"


@pytest.mark.parametrize("seconds", [0.0, -1e-6])
def test_a_sample_that_took_no_time_is_invalid(seconds):
    script = except_at([300], Sample(seconds, 1e-3), repeat(1e-3))
    assert measured(budget=Budget(300, 10.0, 0.005), kernel_script=script).invalid.code == "clock"


def test_others_on_a_gpu_are_invalid_on_a_host_they_are_told():
    busy = (Conditions(), Conditions(others=("train.py (7)",)))
    for kind, timed_on, invalid in (("cuda", "gpu", True), ("cpu", "host", False)):
        found = measured(identity=DeviceIdentity(kind, "d", None, "s", timed_on=timed_on), states=busy)
        assert (found.invalid is not None) is invalid
        assert found.conditions_after.others == ("train.py (7)",)


@pytest.mark.parametrize(("seconds", "valid"), [(1e-6, True), (0.9e-6, False)])
def test_more_than_any_memory_reaches_is_invalid_where_no_peak_is_known(seconds, valid):
    """An exabyte per second: no baseline holds more, so that none is to be written."""
    declared = replace(NOTHING, traffic=Traffic(10**12, 0))
    found = measured(declared, kernel_script=repeat(seconds), probe_script=repeat(1e-6))
    assert (found.invalid is None) is valid
