"""Learn from runs of the work itself how to time it: on which stream, whether to block that, and for how long.

The runs at the same time compile the work, load its kernels and fill the frameworks' memory pools; a kernel that is
loaded only behind a blocking kernel would wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from pytest_bandwidth.devices.base import Call, Workload
from pytest_bandwidth.devices.cuda.timing import Timer
from pytest_bandwidth.domain.device import NOT_HELD
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.units import format_seconds

PLAIN_RUNS = 3
BLOCKED_RUNS = 3
# Work this long is run once, not three times: what it would tell better is small beside it.
LONG_SECONDS = 0.05
# Waiting for the whole device may take so much longer than for the stream, and so large a share, without suspicion.
OVERHANG_SECONDS = 50e-6
OVERHANG_SHARE = 0.2
# An interval so close to that of nothing at all holds no kernel: the shortest takes about 2 µs, events are good to 0.5.
EMPTY_SLACK_SECONDS = 0.5e-6
EMPTY_SLACK_SHARE = 0.2
# A stream is blocked for at least so long, and so many times as long as the host was seen to need.
BLOCK_AT_LEAST_SECONDS = 0.25
BLOCK_AT_MOST_SECONDS = 5.0
BLOCK_FACTOR = 10
THE_WORK = "the work"

_REMEDY = (
    "name the stream it runs on (stream=…: CuPy's, torch's, Numba's or a pointer), or make the timed stream wait for it"
)


@dataclass(frozen=True, slots=True)
class PlainRun:
    """Hold the times of one run on a stream that is not blocked.

    In the host's seconds from the call: to its return, to the stream's end, to the device's.
    """

    returned: float
    stream_done: float
    device_done: float

    @property
    def overhang(self) -> float:
        return self.device_done - self.stream_done


def calibrate(timer: Timer, workload: Workload) -> None:
    """Run the workload a few times and set the timer's `blocked`, `block_seconds` and `host_seconds` by what is seen.

    So with each interleaved callable: the stream is blocked for as long as the slowest needs, and one that waits for
    the GPU leaves them all unblocked, since figures of different methods are not comparable. `host_seconds` are the
    workload's own. Raises UsageError where work goes on after the timed stream has finished, or none was on it.
    """
    parts = _parts(workload)
    plain = [_plain_runs(timer, part, work) for work, part in parts.items()]
    timer.host_seconds = median(run.stream_done for run in plain[0])
    timer.block_seconds = max(block_seconds_for(median(run.returned for run in runs)) for runs in plain)
    for (work, part), runs in zip(parts.items(), plain, strict=True):
        if timer.blocked:
            _check_blocked(timer, part, 1 if _is_long(runs[0]) else BLOCKED_RUNS, work)


def settle(timer: Timer, workload: Workload) -> None:
    """Run a workload, and what is sampled beside it, a few times on a stream that is not blocked.

    So kernels are compiled and loaded. Raises UsageError where work goes on after the timed stream has finished.
    """
    for work, part in _parts(workload).items():
        _plain_runs(timer, part, work)


def plain_run(timer: Timer, workload: Workload) -> PlainRun:
    """Run setup and work, and note when the host, the stream and the device are done with it."""
    runtime = timer.runtime
    if workload.setup is not None:
        workload.setup()
    stream = runtime.stream(workload.stream)
    event, _ = timer.events
    runtime.wait_device()
    with runtime.using(stream):
        called = runtime.now()
        workload.call()
        returned = runtime.now()
        runtime.record(event, stream)
    runtime.wait_event(event)
    stream_done = runtime.now()
    runtime.wait_device()
    return PlainRun(returned - called, stream_done - called, runtime.now() - called)


def refuse_overhang(runs: list[PlainRun], work: str = THE_WORK) -> None:
    """Raise UsageError where the device was busy after the timed stream had finished, in every run."""
    overhang = min(run.overhang for run in runs)
    whole = median(run.device_done for run in runs)
    if overhang > OVERHANG_SECONDS and overhang > OVERHANG_SHARE * whole:
        raise UsageError(
            f"the GPU went on for {format_seconds(overhang)} of {format_seconds(whole)} after the timed stream had "
            f"finished: {work} runs on another stream; {_REMEDY}"
        )


def refuse_empty(shortest: float, empty: float, work: str = THE_WORK) -> None:
    """Raise UsageError where the shortest of some intervals on a blocked stream is no longer than that of nothing."""
    if shortest <= empty + max(EMPTY_SLACK_SECONDS, EMPTY_SLACK_SHARE * empty):
        raise UsageError(
            f"nothing ran on the timed stream ({format_seconds(shortest)} between its events, "
            f"{format_seconds(empty)} without any work): {work} runs on another stream, not on this GPU, or ran once "
            f"and its result is kept; {_REMEDY}"
        )


def block_seconds_for(host_seconds: float) -> float:
    """Return how long to block a stream for a call that keeps the host busy for so long: generous, but no hang."""
    return min(BLOCK_AT_MOST_SECONDS, max(BLOCK_AT_LEAST_SECONDS, BLOCK_FACTOR * host_seconds))


def load(timer: Timer, workload: Workload, probe: Call) -> None:
    """Run a new probe, then the work and what is sampled beside it, on a stream that is not blocked.

    A first launch may load its kernel, and the work's next result may need memory that the probe's arrays took from
    the pool: either waits for the whole device, and so, behind a blocking kernel, for that to give up.
    """
    for part in (replace(workload, call=probe, setup=None, interleaved=()), *_parts(workload).values()):
        plain_run(timer, part)


def _parts(workload: Workload) -> dict[str, Workload]:
    """Return the workload and each interleaved callable, each with its setup, by names for errors."""
    first = replace(workload, call=_keeping_result(workload.call), interleaved=())
    setup = workload.setup_of_interleaved
    parts = [first, *(replace(first, call=other, setup=setup) for other in workload.interleaved)]
    if len(parts) == 1:
        return {THE_WORK: first}
    return {f"{THE_WORK} of callable {i} of {len(parts)}": part for i, part in enumerate(parts, 1)}


def _plain_runs(timer: Timer, workload: Workload, work: str) -> list[PlainRun]:
    plain_run(timer, workload)  # compiles, loads, allocates
    runs = [plain_run(timer, workload)]
    if not _is_long(runs[0]):
        runs += [plain_run(timer, workload) for _ in range(PLAIN_RUNS - 1)]
    refuse_overhang(runs, work)
    return runs


def _is_long(run: PlainRun) -> bool:
    return run.device_done >= LONG_SECONDS


def _check_blocked(timer: Timer, workload: Workload, count: int, work: str) -> None:
    seconds = _blocked_runs(timer, workload, count)
    if seconds and workload.traffic.bytes_moved:
        refuse_empty(min(seconds), timer.empty_seconds(workload.stream), work)


def _blocked_runs(timer: Timer, workload: Workload, count: int) -> list[float]:
    """Return the seconds of runs on a blocked stream; none where two in a row timed out, which turns blocking off."""
    seconds: list[float] = []
    attempts = 0
    was_cold, timer.cold = timer.cold, False
    try:
        while timer.blocked and len(seconds) < count and attempts < count + 1:
            attempts += 1
            if workload.setup is not None:
                workload.setup()
            sample = timer.time(workload.call, workload.stream)
            if sample.drop is None or sample.drop.code != NOT_HELD:
                seconds.append(sample.seconds)
    finally:
        timer.cold = was_cold
    return seconds if timer.blocked else []


def _keeping_result(call: Callable[[], Any]) -> Call:
    """Keep the last result while the next is made, as sampling does, so that memory pools grow to that now."""
    last: list[Any] = [None]

    def run() -> None:
        last[0] = call()

    return run
