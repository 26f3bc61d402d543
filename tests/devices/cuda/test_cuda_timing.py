"""Timing on the model of a GPU: what is inside the interval, what is kept out of it, and what is refused before."""

from collections.abc import Iterator
from contextlib import nullcontext
from itertools import cycle, pairwise

import pytest
from gpu_model import EVENT_SECONDS, L2_BYTES, Gpu, Stream

from pytest_bandwidth.devices.base import Call, Sample, Workload
from pytest_bandwidth.devices.cuda import timing
from pytest_bandwidth.devices.cuda.health import USUAL_OF_SAMPLES
from pytest_bandwidth.devices.cuda.timing import (
    BLOCK_AT_LEAST_SECONDS,
    PlainRun,
    Timer,
    calibrate,
    launch_blocking,
    refuse_empty,
    settle,
)
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.traffic import Traffic

TRAFFIC = Traffic(1 << 20, 1 << 20)


def waiting(gpu: Gpu, when: Iterator[bool] | None = None) -> Call:
    """A callable that waits for its own work: always, or whenever the next of `when` says so."""

    def call() -> None:
        gpu.launch(1e-4)
        if when is None or next(when):
            gpu.synchronize()

    return call


def plain(gpu: Gpu, seconds: float = 1e-4) -> Call:
    return lambda: gpu.launch(seconds)


def drops(timer: Timer, *calls: Call) -> list[bool]:
    return [timer.time(call, None).drop is not None for call in calls]


def test_the_order_is_flush_block_stamp_event_work_event_stamp(gpu: Gpu, timer: Timer) -> None:
    timer.time(plain(gpu), None)
    assert gpu.log == [
        "fill_cache", "block", "memset", "stamp", "event", "kernel", "event", "stamp",
    ]  # fmt: skip


def test_a_probe_finds_the_cache_as_it_leaves_it_itself(gpu: Gpu, timer: Timer) -> None:
    timer.begin(True, 0.0)  # the work only reads
    timer.time(plain(gpu, 1e-3), None)
    timer.time(plain(gpu, 1e-3), None, own=True, written_share=1.0)
    assert gpu.filled == [(0.0, 3 * L2_BYTES), (1.0, 3 * L2_BYTES)]


def test_one_wait_between_good_samples_changes_nothing(gpu: Gpu, timer: Timer) -> None:
    call = waiting(gpu, iter([True, False, True, False]))
    assert drops(timer, *[call] * 4) == [True, False, True, False]
    first, second = (waiting(gpu, iter([True, False])) for _ in range(2))
    assert drops(timer, first, second, first, second) == [True, True, False, False]
    assert timer.blocked
    assert timer.findings == []


@pytest.mark.parametrize("own", [True, False], ids=["a probe", "a good callable"])
def test_what_comes_in_between_does_not_excuse_a_callable_that_waits(gpu: Gpu, timer: Timer, own: bool) -> None:
    waits = waiting(gpu)
    timer.time(waits, None)
    assert timer.time(plain(gpu), None, own=own).drop is None
    assert drops(timer, waits, plain(gpu), waits) == [True, False, False]
    assert timer.method == "events"
    assert [f.code for f in timer.findings] == ["not-held"]


def test_a_clock_that_falls_drops_the_sample_and_pauses(
    gpu: Gpu, timer: Timer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not any(drops(timer, *[plain(gpu)] * 3))
    gpu.clock_mhz = 0.749 * 1500
    sample = timer.time(plain(gpu), None)
    assert sample.drop.code == "throttled"
    assert "pause 0.05" in gpu.log

    gpu.clock_mhz = 0.751 * 1500
    assert timer.time(plain(gpu), None).drop is None
    monkeypatch.setattr(timer.runtime, "sm_clock_mhz", lambda: None)
    assert timer.time(plain(gpu), None).drop is None, "what is too short tells no clock"


def test_a_clock_that_fell_for_good_counts_after_a_few_samples(gpu: Gpu, timer: Timer) -> None:
    for mhz, dropped in ((1500.0, 0), (500.0, USUAL_OF_SAMPLES // 2 + 1), (1500.0, 0)):
        gpu.clock_mhz = mhz
        assert sum(drops(timer, *[plain(gpu)] * 100)) == dropped


def test_host_seconds_of_a_held_sample_are_those_of_the_calibration_else_up_to_the_end(gpu: Gpu, timer: Timer) -> None:
    timer.host_seconds = 0.123
    assert timer.time(plain(gpu), None).host_seconds == 0.123
    own: Sample = timer.time(plain(gpu), None, own=True)
    assert 1e-4 < own.host_seconds < 2e-4
    timer.blocked = False
    assert timer.time(plain(gpu), None).host_seconds == pytest.approx(1e-4, rel=0.1)


def test_begin_forgets(gpu: Gpu, timer: Timer) -> None:
    drops(timer, *[waiting(gpu)] * 2)
    timer.host_seconds = 1.0
    timer.time(plain(gpu), None)
    assert not timer.blocked
    timer.begin(cold=False)
    assert (timer.blocked, timer.cold) == (True, False)
    assert (timer.host_seconds, timer.findings, timer.clocks_mhz) == (None, [], [])


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"CUDA_LAUNCH_BLOCKING": "0", "AMD_SERIALIZE_KERNEL": ""}, None),
        ({"CUDA_LAUNCH_BLOCKING": "1"}, "CUDA_LAUNCH_BLOCKING=1"),
        ({"AMD_SERIALIZE_KERNEL": "3"}, "AMD_SERIALIZE_KERNEL=3"),
    ],
)
def test_blocking_launches_are_seen_in_the_environment(environ: dict[str, str], expected: str | None) -> None:
    found = launch_blocking(environ)
    assert (found.text.partition(" ")[0] if found else None) == expected


@pytest.mark.parametrize(("host_seconds", "held"), [(1e-4, BLOCK_AT_LEAST_SECONDS), (0.1, 1.0), (60.0, 5.0)])
def test_a_hold_lasts_long_enough_for_the_host_and_no_longer_than_is_bearable(
    gpu: Gpu, timer: Timer, host_seconds: float, held: float
) -> None:
    calibrate(timer, Workload(lambda: gpu.launch(1e-3, host_seconds=host_seconds), TRAFFIC))
    assert timer.block_seconds == pytest.approx(held, rel=0.01)


@pytest.mark.parametrize("calls", ["w", "wp", "pw", "www"])
def test_one_that_waits_leaves_all_unblocked(gpu: Gpu, timer: Timer, calls: str) -> None:
    first, *others = ((waiting if which == "w" else plain)(gpu) for which in calls)
    calibrate(timer, Workload(first, TRAFFIC, interleaved=tuple(others)))
    assert not timer.blocked
    assert timer.method == "events"
    assert [finding.code for finding in timer.findings] == ["not-held"]
    if calls == "www":
        assert gpu.log.count("block") == 2, "once one waits, no other is held"


@pytest.mark.parametrize(
    ("runs", "refused"),
    [
        ([PlainRun(5e-6, 10e-6, 10e-6 + 49e-6)], False),  # below what waiting costs
        ([PlainRun(5e-6, 10e-6, 10e-6 + 51e-6)], True),
        ([PlainRun(5e-6, 1e-5, 1e-3), PlainRun(5e-6, 1e-5, 2e-5)], False),  # not every run has it
        ([PlainRun(5e-6, 0.900, 0.999)], False),  # small, of long work
        ([PlainRun(5e-6, 0.700, 1.0)], True),
    ],
)
def test_an_overhang_counts_where_it_is_large_and_every_run_has_it(
    timer: Timer, monkeypatch: pytest.MonkeyPatch, runs: list[PlainRun], refused: bool
) -> None:
    given = cycle(runs)
    monkeypatch.setattr(timing, "plain_run", lambda *_: next(given))
    with pytest.raises(UsageError, match="after the timed stream had") if refused else nullcontext():
        settle(timer, Workload(lambda: None, TRAFFIC))


def test_the_floor_is_that_of_a_launch_that_does_nothing_found_once_for_each_graph(gpu: Gpu, timer: Timer) -> None:
    asked = []

    def nothing() -> Call:
        asked.append(len(asked))
        return plain(gpu, 3e-6)

    assert timer.floor_seconds(None, nothing, None) == pytest.approx(3e-6 + EVENT_SECONDS)
    assert timer.floor_seconds(4, nothing, None) == pytest.approx((3e-6 + EVENT_SECONDS) / 4)
    timer.begin(cold=True)
    assert timer.floor_seconds(None, nothing, None) == pytest.approx(3e-6 + EVENT_SECONDS)
    assert asked == [0, 1]
    assert gpu.filled == []
    assert timer.event_step_seconds is None, "all intervals were the same"


def test_there_is_no_floor_where_host_time_is_part_of_a_sample(gpu: Gpu, timer: Timer) -> None:
    timer.blocked = False
    assert timer.floor_seconds(None, lambda: plain(gpu), None) is None


def test_the_step_of_event_times_is_the_least_difference(gpu: Gpu, timer: Timer) -> None:
    seconds = iter([3e-6, 3.064e-6, 3.064e-6, 3.032e-6] * 4)
    timer.floor_seconds(None, lambda: lambda: gpu.launch(next(seconds)), None)
    assert timer.event_step_seconds == pytest.approx(32e-9)


def test_an_empty_interval_is_told_from_a_short_one() -> None:
    refuse_empty(2.6e-6, 2.0e-6)
    with pytest.raises(UsageError):
        refuse_empty(2.4e-6, 2.0e-6)


@pytest.mark.parametrize(("seconds", "seen"), [(1e-3, "after the timed stream had finished"), (8e-6, "nothing ran")])
@pytest.mark.parametrize("wrong", [1, 2, 3])
def test_whichever_callable_works_on_another_stream_is_refused_and_named(
    gpu: Gpu, timer: Timer, wrong: int, seconds: float, seen: str
) -> None:
    def callable_of(number: int) -> Call:
        return lambda: gpu.launch(seconds, Stream(77) if number == wrong else None)

    first, *others = (callable_of(number) for number in (1, 2, 3))
    with pytest.raises(UsageError, match=rf"{seen}.*the work of callable {wrong} of 3 runs on another stream.*stream="):
        calibrate(timer, Workload(first, TRAFFIC, interleaved=tuple(others)))


def test_setup_runs_before_every_run_and_not_for_what_is_beside(gpu: Gpu, timer: Timer) -> None:
    # As in the rounds: they run it before the workload only.
    order: list[str] = []

    def call(name: str) -> Call:
        return lambda: (order.append(name), gpu.launch(1e-4))

    calibrate(timer, Workload(call("work"), TRAFFIC, setup=lambda: order.append("setup"), interleaved=(call("other"),)))
    assert order.count("setup") == order.count("work") == order.count("other")
    assert all(after == "work" for before, after in pairwise(order) if before == "setup")


def test_each_is_calibrated_for_as_long_as_it_takes_itself(gpu: Gpu, timer: Timer) -> None:
    runs: list[str] = []

    def call(name: str, seconds: float) -> Call:
        return lambda: (runs.append(name), gpu.launch(seconds))

    calibrate(timer, Workload(call("short", 1e-4), TRAFFIC, interleaved=(call("long", 0.2),)))
    assert (runs.count("short"), runs.count("long")) == (7, 3)
