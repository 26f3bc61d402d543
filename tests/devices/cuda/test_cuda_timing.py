"""One sample on the model of a GPU: what is inside the interval, and what is kept out of it."""

import pytest
from gpu_model import EVENT_SECONDS, L2_BYTES, Gpu

from pytest_bandwidth.devices.base import Sample
from pytest_bandwidth.devices.cuda.health import USUAL_OF_SAMPLES
from pytest_bandwidth.devices.cuda.timing import BLOCK_SECONDS, Timer, launch_blocking, needs_flush


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
