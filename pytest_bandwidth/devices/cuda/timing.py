"""Time one run on a GPU: cold caches, a stream blocked while the host launches, two events around the work.

The order, after NVBench's: wait for the device → flush the cache → block the stream → stamp the clocks → event → the
work → event → stamp → unblock → wait. Work behind the blocking kernel runs back to back. So the interval between the
events holds the device's work, and no time in which the host still launches. With CUPTI's records the time is that from
the first start to the last end between the stamps.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from pytest_bandwidth.devices.base import Call, Sample, Workload
from pytest_bandwidth.devices.cuda.health import RECOVERY_SECONDS, throttled
from pytest_bandwidth.devices.cuda.runtime import STAMP, CupyRuntime, one_line
from pytest_bandwidth.domain.device import LAUNCH_BLOCKING, NOT_HELD
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.measured.measurement import HELD_UP, Finding
from pytest_bandwidth.domain.units import format_seconds

# A run of so many caches' worth of data finds no data of the run before. The cache's other content (the probe's mix, or
# data that `setup=` wrote) changes a sample's traffic by less than a sixteenth: no flush is needed.
CACHES_TO_BE_COLD = 16
# The longest time that a stream is blocked, while the work's duration is unknown.
BLOCK_SECONDS = 0.5
# Any other value than these makes CUDA, or HIP, wait at every launch.
BLOCKING_VARIABLES = ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL")
EMPTY_TRIES = 5
# Tries of an empty launch: they take little time, and so many tries differ by the step of event times.
FLOOR_TRIES = 15
# Event times come as float32 milliseconds, whose rounding is far less than this.
SAME_SECONDS = 1e-9

NOT_BLOCKED = Finding(
    NOT_HELD,
    "the callable waits for the GPU, or queues more launches than the driver accepts: host time between its launches "
    "is part of the timed interval",
)
BEYOND = Finding(HELD_UP, "CUPTI recorded work of this process on another stream, outside the sample's events")
# The clocks of events and records may differ by so much: both are the GPU's, but records are in the host's time.
CLOCKS_SHARE, CLOCKS_SECONDS = 0.01, 1e-6


def launch_blocking(environ: Mapping[str, str]) -> Finding | None:
    """Return a finding if an environment variable makes every launch wait, which rules out a blocking kernel."""
    for name in BLOCKING_VARIABLES:
        value = environ.get(name, "")
        if value not in ("", "0"):
            return Finding(
                LAUNCH_BLOCKING,
                f"{name}={value} makes every launch wait for the GPU: host time between launches is part of the "
                "figures; unset it",
            )
    return None


@dataclass(slots=True)
class Timer:
    """Take samples. State lasts for one measurement; `begin` resets it.

    blocked: whether the stream is blocked while work is queued; may end up False (see `NOT_BLOCKED`).
    cold: whether the cache is flushed before each sample. written_share: the share of its data that the work writes,
    and that the flush leaves dirty. known_empty_seconds: the result of `empty_seconds`, for all measurements; None
    before its first call. known_floors: results of `floor_seconds`, by the launches in a graph. event_step_seconds: the
    smallest difference between intervals of those; None where all are equal. records: CUPTI's, if they give the time.
    """

    runtime: CupyRuntime
    may_block: bool = True
    blocked: bool = True
    cold: bool = True
    written_share: float = 0.5
    block_seconds: float = BLOCK_SECONDS
    host_seconds: float | None = None
    clocks_mhz: list[float] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    known_empty_seconds: float | None = None
    known_floors: dict[int | None, float] = field(default_factory=dict)
    event_step_seconds: float | None = None
    records: Records | None = None
    _timed_out: set[int] = field(default_factory=set)  # callables, by id, whose last sample's blocking kernel timed out
    events: tuple[Any, Any] = field(init=False)  # of all samples

    def __post_init__(self) -> None:
        self.events = (self.runtime.event(), self.runtime.event())

    @property
    def method(self) -> str:
        """Return the name of the timing method, as baselines store it."""
        return ("events" if self.records is None else "cupti") + ("+block" if self.blocked else "")

    @property
    def clock_mhz(self) -> float | None:
        """Return the median of the SM clocks counted in this measurement, in MHz."""
        return median(self.clocks_mhz) if self.clocks_mhz else None

    def begin(self, cold: bool, written_share: float = 0.5) -> None:
        """Forget the state of the last measurement."""
        self.written_share = written_share
        self.blocked, self.cold, self.block_seconds = self.may_block, cold, BLOCK_SECONDS
        self.host_seconds = None
        self._timed_out.clear()
        self.clocks_mhz.clear()
        self.findings.clear()

    def time(self, call: Call, stream: Any, own: bool = False, written_share: float | None = None) -> Sample:
        """Run `call` once and time it on its stream, or on CuPy's current one where that is None.

        own: the call is the plugin's (a probe), so `host_seconds` is not its time. written_share: the call's, where it
        differs from the work's.
        """
        runtime = self.runtime
        target = runtime.stream(stream)
        start, end = self.events
        if self.records is not None:
            self.records.start()
        runtime.wait_device()
        if self.cold:
            runtime.flush(target, self.written_share if written_share is None else written_share)
            runtime.wait_device()
        ticket = runtime.block(target, self.block_seconds) if self.blocked else None
        try:
            with runtime.using(target):
                # Stamp behind the blocking kernel: while that spins, idle multiprocessors may change their clock.
                runtime.stamp(target, 0)
                start.record(target)
                self._part_streams(ticket)
                called = runtime.now()
                call()
                returned = runtime.now()
                self._part_streams(ticket)
                end.record(target)
                runtime.stamp(target, 1)
        finally:
            # In every case, also after Ctrl-C: a stream that stays blocked would hang the process until the time-out.
            if ticket is not None:
                runtime.unblock(ticket)
        released = runtime.now()
        end.synchronize()
        ended = runtime.now()
        runtime.wait_device()
        between = runtime.seconds_between(start, end)
        seconds = between if self.records is None else self.records.span_seconds()
        if ticket is None:
            host = ended - called  # it was free to run
        elif self.host_seconds is not None and not own:
            host = self.host_seconds
        else:  # launched first, run afterwards: right for a single launch, too much for many short ones
            host = returned - called + ended - released
        drop = self._why_dropped(ticket, call, ran=seconds is not None)
        if seconds is None:
            return Sample(0.0, host, drop)
        if drop is None and seconds > between * (1 + CLOCKS_SHARE) + CLOCKS_SECONDS:
            drop = BEYOND
        return Sample(seconds, host, drop)

    def empty_seconds(self, stream: Any) -> float:
        """Return the seconds between two events with nothing in between: the shortest interval that can be measured."""
        if self.known_empty_seconds is None:
            self.known_empty_seconds = median(self._own_seconds(lambda: None, stream, EMPTY_TRIES))
        return self.known_empty_seconds

    def floor_seconds(self, launches: int | None, nothing: Callable[[], Call], stream: Any) -> float | None:
        """Return the seconds of a launch that does nothing: every sample of every work includes them.

        None where the stream is not blocked: then the sample includes the host's time as well.
        launches: in a graph that a sample replays, which share them; None = no graph. nothing: makes the call.
        The probe at two sizes would give an intercept, which also includes how memory starts and drains. That is the
        work's: a better kernel has less of it. No kernel takes less time than an empty one.
        """
        if not self.blocked:
            return None
        if launches not in self.known_floors:
            seconds = sorted(self._own_seconds(nothing(), stream, FLOOR_TRIES))
            self.known_floors[launches] = median(seconds) / (launches or 1)
            steps = [later - earlier for earlier, later in pairwise(seconds) if later - earlier >= SAME_SECONDS]
            known = () if self.event_step_seconds is None else (self.event_step_seconds,)
            if self.records is None:
                self.event_step_seconds = min((*steps, *known), default=None)
        return self.known_floors[launches]

    def _own_seconds(self, call: Call, stream: Any, tries: int) -> list[float]:
        """Return intervals around a call of the plugin's that touches no memory. Caches are not flushed for it."""
        was_cold, self.cold = self.cold, False
        try:
            return [self.time(call, stream, own=True).seconds for _ in range(tries)]
        finally:
            self.cold = was_cold

    def _part_streams(self, ticket: int | None) -> None:
        """Keep work of all streams between the stamps, where these are recorded and no stream is blocked."""
        if self.records is not None and ticket is None:
            self.runtime.wait_device()

    def _why_dropped(self, ticket: int | None, call: Call, ran: bool) -> Finding | None:
        """Return why a sample does not count. ran: whether work was recorded. Raises UsageError where no work ran."""
        if not ran and ticket is None:
            raise UsageError(f"CUPTI recorded nothing: {THE_WORK} ran elsewhere, or ran once and its result is reused")
        # Work that did not wait for the blocking kernel is on another stream, which no event could time.
        if ticket is not None and (not ran or self.runtime.timed_out(ticket)):
            if id(call) in self._timed_out:
                self.blocked = False  # from now on, and reported once
                self.findings.append(NOT_BLOCKED)
            self._timed_out.add(id(call))
            return NOT_BLOCKED
        self._timed_out.discard(id(call))  # only this one: a probe in between does not reset others
        clock = self.runtime.sm_clock_mhz()
        drop = throttled(clock, self.clocks_mhz)
        if clock is not None:
            self.clocks_mhz.append(clock)
        if drop is not None:
            self.runtime.pause(RECOVERY_SECONDS)
        return drop


# Runs of the work before the samples determine how to time it: on which stream, whether to block that, for how long.
# They also compile the work, load its kernels and fill the frameworks' memory pools. Loading a kernel behind a blocking
# kernel would wait for that one.
PLAIN_RUNS = 3
BLOCKED_RUNS = 3
# Work this long is run once, not three times: a more exact time would hardly differ.
LONG_SECONDS = 0.05
# Waiting for the whole device may take this much longer than for the stream, or by this share, without an error.
OVERHANG_SECONDS = 50e-6
OVERHANG_SHARE = 0.2
# An interval so close to that of nothing at all holds no kernel: the shortest takes about 2 µs.
EMPTY_SLACK_SECONDS = 0.5e-6
EMPTY_SLACK_SHARE = 0.2
# A stream is blocked for at least so long, and for so many times the time that the host needed.
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


def calibrate(timer: Timer, workload: Workload) -> None:
    """Run the workload a few times and set the timer's `blocked`, `block_seconds` and `host_seconds` by these runs.

    Each interleaved callable runs, too. The stream is blocked for as long as the slowest needs. If one waits for the
    GPU, the stream is blocked for no callable: figures of different methods are not comparable. `host_seconds` are the
    workload's own. Raises UsageError where work goes on after the timed stream has finished, or no work was on it.
    """
    settled = settle(timer, workload)
    plain = [runs for _, runs in settled.values()]
    timer.host_seconds = median(run.stream_done for run in plain[0])
    longest = max(median(run.returned for run in runs) for runs in plain)
    # Generous, but no hang.
    timer.block_seconds = min(BLOCK_AT_MOST_SECONDS, max(BLOCK_AT_LEAST_SECONDS, BLOCK_FACTOR * longest))
    for work, (part, runs) in settled.items():
        if timer.blocked:
            seconds = _blocked_runs(timer, part, 1 if runs[0].device_done >= LONG_SECONDS else BLOCKED_RUNS)
            if seconds and part.traffic.bytes_moved and timer.records is None:
                refuse_empty(min(seconds), timer.empty_seconds(part.stream), work)


def settle(timer: Timer, workload: Workload) -> dict[str, tuple[Workload, list[PlainRun]]]:
    """Warm up a workload, and each callable that is timed in the same rounds, on a stream that is not blocked.

    This compiles and loads kernels. Return each with its runs, by names for errors.
    Raises UsageError where the device was busy after the timed stream had finished, in every run.
    """
    found = {}
    for work, part in _parts(workload).items():
        plain_run(timer, part)  # compiles, loads, allocates
        runs = [plain_run(timer, part)]
        if runs[0].device_done < LONG_SECONDS:
            runs += [plain_run(timer, part) for _ in range(PLAIN_RUNS - 1)]
        overhang = min(run.device_done - run.stream_done for run in runs)
        whole = median(run.device_done for run in runs)
        if overhang > OVERHANG_SECONDS and overhang > OVERHANG_SHARE * whole:
            raise UsageError(
                f"the GPU went on for {format_seconds(overhang)} of {format_seconds(whole)} after the timed stream had "
                f"finished: {work} runs on another stream; {_REMEDY}"
            )
        found[work] = part, runs
    return found


def plain_run(timer: Timer, workload: Workload) -> PlainRun:
    """Run setup and work, and note when the host, the stream and the device have finished it."""
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
        event.record(stream)
    event.synchronize()
    stream_done = runtime.now()
    runtime.wait_device()
    return PlainRun(returned - called, stream_done - called, runtime.now() - called)


def refuse_empty(shortest: float, empty: float, work: str = THE_WORK) -> None:
    """Raise UsageError where the shortest of some intervals on a blocked stream is no longer than an empty one."""
    if shortest <= empty + max(EMPTY_SLACK_SECONDS, EMPTY_SLACK_SHARE * empty):
        raise UsageError(
            f"nothing ran on the timed stream ({format_seconds(shortest)} between its events, "
            f"{format_seconds(empty)} without any work): {work} runs on another stream, not on this GPU, or ran once "
            f"and its result is reused; {_REMEDY}"
        )


def load(timer: Timer, workload: Workload, probe: Call) -> None:
    """Run a new probe, then the work and its interleaved callables, on a stream that is not blocked.

    A first launch may load its kernel, and the work's next result may need memory that the probe's arrays took from
    the pool. Both wait for the whole device: behind a blocking kernel, they would wait for its time-out.
    """
    for part in (replace(workload, call=probe, setup=None, interleaved=()), *_parts(workload).values()):
        plain_run(timer, part)


def _parts(workload: Workload) -> dict[str, Workload]:
    """Return the workload and each interleaved callable, each with its setup, by names for errors.

    The workload's last result is kept while the next is made, as sampling does, so that memory pools grow to that now.
    """
    last: list[Any] = [None]

    def keeping() -> None:
        last[0] = workload.call()

    first = replace(workload, call=keeping, interleaved=())
    setup = workload.setup_of_interleaved
    parts = [first, *(replace(first, call=other, setup=setup) for other in workload.interleaved)]
    if len(parts) == 1:
        return {THE_WORK: first}
    return {f"{THE_WORK} of callable {i} of {len(parts)}": part for i, part in enumerate(parts, 1)}


def _blocked_runs(timer: Timer, workload: Workload, count: int) -> list[float]:
    """Return the seconds of runs on a blocked stream; empty where two in a row timed out, which turns blocking off."""
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


# CUPTI records when each kernel, copy and fill of the process started and ended, without launch times. The sample's
# records are those between the two kernels that stamp the clocks.
# Names of `cupti.ActivityKind`. KERNEL would run kernels one by one, and so wait for a stream that is blocked.
KINDS = ("CONCURRENT_KERNEL", "MEMCPY", "MEMCPY2", "MEMSET")
# The size in NVIDIA's samples; a record takes about 200 bytes.
BUFFER_BYTES = 8 << 20
# CUPTI_ACTIVITY_FLAG_FLUSH_FORCED: also buffers in which a record of another thread's work is not complete.
FORCED = 1
_ASKED = "--bandwidth-timer=cupti"


class Record(NamedTuple):
    """Hold when something ran, in nanoseconds of CUPTI's clock."""

    start: int
    end: int
    device: int
    name: str | None


class Records:
    """Hold CUPTI's records since the last call of `span_seconds`. cupti: NVIDIA's module `cupti.cupti`."""

    def __init__(self, cupti: Any) -> None:
        self._cupti = cupti
        self._records: list[Record] = []
        self._recording = False

    def start(self) -> None:
        """Start CUPTI's records. Raises UsageError if CUPTI refuses, for example because another profiler runs."""
        if self._recording:
            return
        cupti = self._cupti
        try:
            cupti.activity_register_callbacks(lambda: (BUFFER_BYTES, 0), self._keep)
            for kind in KINDS:
                cupti.activity_enable(getattr(cupti.ActivityKind, kind))
        except (cupti.cuptiError, RuntimeError) as error:  # the second is its NotSupportedError
            raise UsageError(
                f"{_ASKED}: CUPTI does not record ({one_line(error)}): end other profilers, use the cupti-python of "
                "the driver's CUDA, or --bandwidth-timer=events"
            ) from None
        self._recording = True
        atexit.register(self._stop)  # or CUPTI would hand over its last records when Python has ended

    def span_seconds(self) -> float | None:
        """Return the time from the first start to the last end between the last two stamps; None: nothing ran.

        Call it when the device is idle. Raises UsageError where the stamps are not recorded.
        """
        self._cupti.activity_flush_all(FORCED)
        records, self._records = self._records, []
        stamps = sorted(record for record in records if record.name == STAMP)[-2:]
        if len(stamps) < 2:
            raise UsageError(
                f"{_ASKED}: CUPTI recorded nothing for a sample, because another profiler in this process took the "
                "records: end it, or use --bandwidth-timer=events"
            )
        before, after = stamps
        ran = [one for one in records if before.start < one.start < after.start and one.device == before.device]
        return (max(one.end for one in ran) - min(one.start for one in ran)) * 1e-9 if ran else None

    def _keep(self, activities: Iterable[Any]) -> None:
        # CUPTI takes the buffer back when this returns. Copies and fills have no name.
        self._records.extend(Record(a.start, a.end, a.device_id, getattr(a, "name", None)) for a in activities)

    def _stop(self) -> None:
        with suppress(self._cupti.cuptiError):  # of a lost context
            for kind in KINDS:
                self._cupti.activity_disable(getattr(self._cupti.ActivityKind, kind))
            self._cupti.activity_flush_all(FORCED)


@cache
def open_records() -> Records:
    """Return the process's only `Records`. Raises UsageError without cupti-python."""
    try:
        return Records(import_module("cupti.cupti"))
    except ImportError as error:
        raise UsageError(f"{_ASKED} ({one_line(error)}): pip install 'pytest-bandwidth[cupti]'") from None
