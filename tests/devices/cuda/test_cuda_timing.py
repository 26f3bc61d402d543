"""Timing on the model of a GPU: what is inside the interval, what is kept out of it, and what is refused before."""

from itertools import pairwise

import pytest
from gpu_model import EVENT_SECONDS, L2_BYTES, LAUNCH_SECONDS, Gpu, Stream

from pytest_bandwidth.devices.base import Call, Sample, Workload
from pytest_bandwidth.devices.cuda.health import USUAL_OF_SAMPLES
from pytest_bandwidth.devices.cuda.timing import (
    BLOCK_AT_LEAST_SECONDS,
    BLOCK_SECONDS,
    PlainRun,
    Timer,
    block_seconds_for,
    calibrate,
    launch_blocking,
    needs_flush,
    refuse_empty,
    refuse_overhang,
)
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.traffic import Traffic


def test_launch_time_is_kept_out_of_the_interval(gpu: Gpu, timer: Timer) -> None:
    def call() -> None:
        for _ in range(10):
            gpu.launch(2e-6, host_seconds=50e-6)  # the host is 25 times slower than the device

    blocked = timer.time(call, None)
    timer.blocked = False
    plain = timer.time(call, None)

    assert blocked.seconds == pytest.approx(10 * 2e-6 + EVENT_SECONDS)
    assert plain.seconds >= 9 * 50e-6  # what the trap looks like without the blocking kernel


def test_the_order_is_flush_block_stamp_event_work_event_stamp(gpu: Gpu, timer: Timer) -> None:
    timer.time(lambda: gpu.launch(1e-4), None)
    assert gpu.log == [
        "fill_cache", "block", "memset", "stamp", "event", "kernel", "event", "stamp",
    ]  # fmt: skip


def test_a_probe_finds_the_cache_as_it_leaves_it_itself(gpu: Gpu, timer: Timer) -> None:
    timer.begin(True, 0.0)  # the work only reads
    timer.time(lambda: gpu.launch(1e-3), None)
    timer.time(lambda: gpu.launch(1e-3), None, own=True, written_share=1.0)
    assert gpu.filled == [(0.0, 3 * L2_BYTES), (1.0, 3 * L2_BYTES)]


def test_data_of_sixteen_caches_needs_no_flush() -> None:
    assert needs_flush(16 * L2_BYTES - 1, L2_BYTES)
    assert not needs_flush(16 * L2_BYTES, L2_BYTES)
    assert not needs_flush(1, 0)


def test_a_callable_that_waits_does_not_hang_and_is_dropped(gpu: Gpu, timer: Timer) -> None:
    def call() -> None:
        gpu.launch(1e-4)
        gpu.synchronize()

    first = timer.time(call, None)
    assert first.drop is not None
    assert first.drop.code == "not-held"
    assert gpu.now >= BLOCK_SECONDS  # the guard let go
    assert timer.blocked  # once may be chance

    timer.time(call, None)
    assert not timer.blocked
    assert timer.method == "events"
    assert [f.code for f in timer.findings] == ["not-held"]
    after = timer.time(call, None)
    assert after.drop is None
    assert after.seconds >= 1e-4


def test_one_wait_between_good_samples_changes_nothing(gpu: Gpu, timer: Timer) -> None:
    waits = iter([True, False, True, False])

    def call() -> None:
        gpu.launch(1e-4)
        if next(waits):
            gpu.synchronize()

    drops = [timer.time(call, None).drop is not None for _ in range(4)]
    assert drops == [True, False, True, False]
    assert timer.blocked
    assert timer.findings == []


def test_a_probe_in_between_does_not_excuse_a_callable_that_waits(gpu: Gpu, timer: Timer) -> None:
    def waits() -> None:
        gpu.launch(1e-4)
        gpu.synchronize()

    timer.time(waits, None)
    timer.time(lambda: gpu.launch(1e-4), None, own=True)
    timer.time(waits, None)
    assert not timer.blocked


def test_a_good_callable_in_between_does_not_excuse_one_that_waits(gpu: Gpu, timer: Timer) -> None:
    def waits() -> None:
        gpu.launch(1e-4)
        gpu.synchronize()

    def good() -> None:
        gpu.launch(1e-4)

    drops = [timer.time(call, None).drop is not None for call in (waits, good, waits, good, waits)]
    assert drops == [True, False, True, False, False]
    assert timer.method == "events"
    assert [f.code for f in timer.findings] == ["not-held"]


def test_one_wait_of_each_of_two_callables_changes_nothing(gpu: Gpu, timer: Timer) -> None:
    waiting = [True]

    def first() -> None:
        gpu.launch(1e-4)
        if waiting[0]:
            gpu.synchronize()

    def second() -> None:
        first()

    drops = [timer.time(call, None).drop is not None for call in (first, second)]
    waiting[0] = False
    drops += [timer.time(call, None).drop is not None for call in (first, second)]
    assert drops == [True, True, False, False]
    assert timer.blocked


def test_a_callable_that_raises_leaves_nothing_held(gpu: Gpu, timer: Timer) -> None:
    def call() -> None:
        gpu.launch(1e-4)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        timer.time(call, None)
    before = gpu.now
    gpu.wait_all()
    assert gpu.now - before < BLOCK_SECONDS / 10


def test_a_clock_that_falls_drops_the_sample_and_pauses(gpu: Gpu, timer: Timer) -> None:
    for _ in range(3):
        assert timer.time(lambda: gpu.launch(1e-4), None).drop is None
    gpu.clock_mhz = 0.749 * 1500
    sample = timer.time(lambda: gpu.launch(1e-4), None)
    assert sample.drop is not None
    assert sample.drop.code == "throttled"
    assert "pause 0.05" in gpu.log

    gpu.clock_mhz = 0.751 * 1500
    assert timer.time(lambda: gpu.launch(1e-4), None).drop is None


def test_a_clock_that_was_low_from_the_start_drops_nothing(gpu: Gpu, timer: Timer) -> None:
    gpu.clock_mhz = 10.0
    assert timer.time(lambda: gpu.launch(1e-4), None).drop is None
    assert timer.clock_mhz == pytest.approx(10.0)


def test_a_clock_that_fell_for_good_counts_after_a_few_samples(gpu: Gpu, timer: Timer) -> None:
    def drops(samples: int) -> int:
        return sum(timer.time(lambda: gpu.launch(1e-4), None).drop is not None for _ in range(samples))

    assert drops(100) == 0
    gpu.clock_mhz = 500.0
    assert drops(100) == USUAL_OF_SAMPLES // 2 + 1
    gpu.clock_mhz = 1500.0
    assert drops(100) == 0


def test_host_seconds_of_a_held_sample_are_those_of_the_calibration(gpu: Gpu, timer: Timer) -> None:
    timer.host_seconds = 0.123
    assert timer.time(lambda: gpu.launch(1e-4), None).host_seconds == 0.123
    own: Sample = timer.time(lambda: gpu.launch(1e-4), None, own=True)
    assert 1e-4 < own.host_seconds < 2e-4


def test_without_a_hold_host_seconds_run_from_the_call_to_the_end(gpu: Gpu, timer: Timer) -> None:
    timer.blocked = False
    sample = timer.time(lambda: gpu.launch(1e-4, host_seconds=30e-6), None)
    assert sample.host_seconds == pytest.approx(1e-4, rel=0.1)


def test_begin_forgets(gpu: Gpu, timer: Timer) -> None:
    timer.stop_blocking()
    timer.host_seconds = 1.0
    timer.time(lambda: gpu.launch(1e-4), None)
    timer.begin(cold=False)
    assert (timer.blocked, timer.cold, timer.host_seconds, timer.findings, timer.clocks_mhz) == (
        True,
        False,
        None,
        [],
        [],
    )


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"CUDA_LAUNCH_BLOCKING": "0"}, None),
        ({"CUDA_LAUNCH_BLOCKING": ""}, None),
        ({"CUDA_LAUNCH_BLOCKING": "1"}, "CUDA_LAUNCH_BLOCKING=1"),
        ({"AMD_SERIALIZE_KERNEL": "3"}, "AMD_SERIALIZE_KERNEL=3"),
    ],
)
def test_blocking_launches_are_seen_in_the_environment(environ: dict[str, str], expected: str | None) -> None:
    found = launch_blocking(environ)
    assert (found.text.partition(" ")[0] if found else None) == expected


TRAFFIC = Traffic(1 << 20, 1 << 20)


def test_work_on_the_timed_stream_passes(gpu: Gpu, timer: Timer) -> None:
    calibrate(timer, Workload(lambda: gpu.launch(1e-4), TRAFFIC))
    assert timer.blocked
    assert timer.findings == []


def test_work_on_another_stream_is_refused(gpu: Gpu, timer: Timer) -> None:
    with pytest.raises(UsageError, match=r"another stream.*stream="):
        calibrate(timer, Workload(lambda: gpu.launch(1e-3, Stream(77)), TRAFFIC))


def test_a_large_part_on_another_stream_beside_a_small_one_on_ours_is_refused(gpu: Gpu, timer: Timer) -> None:
    def call() -> None:
        gpu.launch(1e-4)
        gpu.launch(1e-3, Stream(77))

    with pytest.raises(UsageError, match="after the timed stream had finished"):
        calibrate(timer, Workload(call, TRAFFIC))


def test_the_hold_lasts_as_long_as_a_slow_host_needs(gpu: Gpu, timer: Timer) -> None:
    calibrate(timer, Workload(lambda: gpu.launch(1e-4, host_seconds=0.04), TRAFFIC))
    assert timer.block_seconds == pytest.approx(0.4, rel=0.01)
    assert timer.blocked


def test_nothing_is_flushed_for_it(gpu: Gpu, timer: Timer) -> None:
    calibrate(timer, Workload(lambda: gpu.launch(1e-4), TRAFFIC))
    assert "probe_read" not in gpu.log
    assert timer.cold


def test_a_short_kernel_on_another_stream_is_refused_as_well(gpu: Gpu, timer: Timer) -> None:
    # Too short to be seen by waiting: 8 µs are over before the host has asked. But the timed interval is empty.
    with pytest.raises(UsageError, match="nothing ran on the timed stream"):
        calibrate(timer, Workload(lambda: gpu.launch(8e-6, Stream(77)), TRAFFIC))


def test_a_callable_that_does_nothing_on_the_gpu_is_refused(timer: Timer) -> None:
    with pytest.raises(UsageError, match="not on this GPU"):
        calibrate(timer, Workload(lambda: sum(range(100)), TRAFFIC))


def test_the_shortest_kernel_there_is_passes(gpu: Gpu, timer: Timer) -> None:
    calibrate(timer, Workload(lambda: gpu.launch(2e-6), TRAFFIC))
    assert timer.blocked


def test_work_on_the_stream_that_was_named_passes(gpu: Gpu, timer: Timer) -> None:
    calibrate(timer, Workload(lambda: gpu.launch(1e-3, Stream(77)), TRAFFIC, stream=77))
    assert timer.blocked


def test_a_callable_that_waits_is_timed_unblocked(gpu: Gpu, timer: Timer) -> None:
    def call() -> None:
        gpu.launch(1e-4)
        gpu.synchronize()

    calibrate(timer, Workload(call, TRAFFIC))
    assert not timer.blocked
    assert timer.method == "events"
    assert [finding.code for finding in timer.findings] == ["not-held"]


def test_host_seconds_run_from_the_call_to_the_end_of_the_work(gpu: Gpu, timer: Timer) -> None:
    def call() -> None:
        for _ in range(10):
            gpu.launch(2e-6)  # launching takes 5 µs: the host is what everybody waits for

    calibrate(timer, Workload(call, TRAFFIC))
    assert timer.host_seconds == pytest.approx(10 * LAUNCH_SECONDS + EVENT_SECONDS, rel=0.1)


def test_setup_runs_before_every_run(gpu: Gpu, timer: Timer) -> None:
    order: list[str] = []

    def call() -> None:
        order.append("call")
        gpu.launch(1e-4)

    calibrate(timer, Workload(call, TRAFFIC, setup=lambda: order.append("setup")))
    assert order[::2] == ["setup"] * (len(order) // 2)
    assert order[1::2] == ["call"] * (len(order) // 2)


def test_long_work_is_calibrated_by_three_runs_only(gpu: Gpu, timer: Timer) -> None:
    runs: list[int] = []

    def call() -> None:
        runs.append(1)
        gpu.launch(0.2)

    calibrate(timer, Workload(call, TRAFFIC))
    assert len(runs) == 3


def test_the_last_result_is_kept_while_the_next_is_made(gpu: Gpu, timer: Timer) -> None:
    alive: list[int] = []
    most: list[int] = []

    class Result:
        def __init__(self) -> None:
            alive.append(1)
            most.append(len(alive))

        def __del__(self) -> None:
            alive.pop()

    def call() -> Result:
        gpu.launch(1e-4)
        return Result()

    calibrate(timer, Workload(call, TRAFFIC))
    assert max(most) == 2


@pytest.mark.parametrize(("overhang", "refused"), [(49e-6, False), (51e-6, True)])
def test_overhang_below_what_waiting_costs_is_not_held_against_anybody(overhang: float, refused: bool) -> None:
    runs = [PlainRun(5e-6, 10e-6, 10e-6 + overhang)]
    if refused:
        with pytest.raises(UsageError):
            refuse_overhang(runs)
    else:
        refuse_overhang(runs)


def test_overhang_counts_only_if_every_run_has_it() -> None:
    refuse_overhang([PlainRun(5e-6, 1e-5, 1e-3), PlainRun(5e-6, 1e-5, 2e-5)])


def test_a_small_overhang_of_long_work_passes() -> None:
    refuse_overhang([PlainRun(5e-6, 0.900, 0.999)])
    with pytest.raises(UsageError):
        refuse_overhang([PlainRun(5e-6, 0.700, 1.0)])


def test_an_empty_interval_is_told_from_a_short_one() -> None:
    refuse_empty(2.6e-6, 2.0e-6)
    with pytest.raises(UsageError):
        refuse_empty(2.4e-6, 2.0e-6)


def test_a_hold_lasts_long_enough_for_the_host_and_no_longer_than_is_bearable() -> None:
    assert block_seconds_for(1e-4) == BLOCK_AT_LEAST_SECONDS
    assert block_seconds_for(0.1) == pytest.approx(1.0)
    assert block_seconds_for(60.0) == pytest.approx(5.0)


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


def test_callables_side_by_side_on_the_timed_stream_pass(gpu: Gpu, timer: Timer) -> None:
    calibrate(timer, Workload(lambda: gpu.launch(1e-4), TRAFFIC, interleaved=(lambda: gpu.launch(2e-6),)))
    assert timer.blocked
    assert timer.findings == []


def test_the_hold_lasts_as_long_as_the_slowest_host_beside_needs(gpu: Gpu, timer: Timer) -> None:
    slow = Workload(
        lambda: gpu.launch(1e-4),
        TRAFFIC,
        interleaved=(lambda: gpu.launch(1e-4, host_seconds=0.04), lambda: gpu.launch(1e-4)),
    )
    calibrate(timer, slow)
    assert timer.block_seconds == pytest.approx(0.4, rel=0.01)
    assert timer.blocked


def test_host_seconds_are_those_of_the_first(gpu: Gpu, timer: Timer) -> None:
    calibrate(timer, Workload(lambda: gpu.launch(1e-4), TRAFFIC, interleaved=(lambda: gpu.launch(1e-2),)))
    assert timer.host_seconds == pytest.approx(1e-4, rel=0.1)


@pytest.mark.parametrize("waits", [1, 2])
def test_one_that_waits_leaves_all_unblocked(gpu: Gpu, timer: Timer, waits: int) -> None:
    def waiting() -> None:
        gpu.launch(1e-4)
        gpu.synchronize()

    def plain() -> None:
        gpu.launch(1e-4)

    calls = (waiting, plain) if waits == 1 else (plain, waiting)
    calibrate(timer, Workload(calls[0], TRAFFIC, interleaved=calls[1:]))
    assert timer.method == "events"
    assert [finding.code for finding in timer.findings] == ["not-held"]


def test_once_one_waits_no_other_is_held(gpu: Gpu, timer: Timer) -> None:
    def waiting() -> None:
        gpu.launch(1e-4)
        gpu.synchronize()

    calibrate(timer, Workload(waiting, TRAFFIC, interleaved=(waiting, waiting)))
    assert gpu.log.count("block") == 2


def test_setup_is_not_run_for_what_is_beside(gpu: Gpu, timer: Timer) -> None:
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
