"""Time one run on a GPU: cold caches, a stream blocked while the host launches, two events around the work.

The order, after NVBench's: wait for the device → flush the cache → block the stream → stamp the clocks → event → the
work → event → stamp → unblock → wait. What is queued behind the blocking kernel runs back to back, so the interval
between the events holds the device's work and no time in which the host was still launching.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from pytest_bandwidth.devices.base import Call, Sample
from pytest_bandwidth.devices.cuda.health import RECOVERY_SECONDS, throttled
from pytest_bandwidth.devices.cuda.runtime import GpuRuntime
from pytest_bandwidth.domain.device import LAUNCH_BLOCKING, NOT_HELD
from pytest_bandwidth.domain.measured.measurement import Finding

# From so much data on nothing of the run before is still there, and what is (the probe's mix, or what `setup=` wrote)
# differs by less than a sixteenth of what a sample moves: no flush needed.
CACHES_TO_BE_COLD = 16
# How long a stream is blocked at most where nothing is known of the work yet.
BLOCK_SECONDS = 0.5
BLOCKED, PLAIN = "events+block", "events"
# Any other value than these makes CUDA, or HIP, wait at every launch.
BLOCKING_VARIABLES = ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL")
EMPTY_TRIES = 5

NOT_BLOCKED = Finding(
    NOT_HELD,
    "the callable waits for the GPU, or queues more than the driver holds: its launches could not be kept out of the "
    "timed interval, so host time between them is part of it",
)


def launch_blocking(environ: Mapping[str, str]) -> Finding | None:
    """Tell that an environment variable makes every launch wait, so nothing is queued behind a blocking kernel."""
    for name in BLOCKING_VARIABLES:
        value = environ.get(name, "")
        if value not in ("", "0"):
            return Finding(
                LAUNCH_BLOCKING,
                f"{name}={value} makes every launch wait for the GPU: host time between launches is part of the "
                "figures; unset it",
            )
    return None


def needs_flush(data_bytes: int, cache_bytes: int) -> bool:
    """Return whether a cache of this size could serve a run from what the run before left in it."""
    return cache_bytes > 0 and data_bytes < CACHES_TO_BE_COLD * cache_bytes


@dataclass(slots=True)
class Timer:
    """Take samples. State lasts for one measurement; `begin` resets it.

    blocked: whether the stream is blocked while work is queued; may end up False (see `NOT_BLOCKED`).
    cold: whether the cache is flushed before each sample. written_share: of what the work touches; so the flush leaves
    it. known_empty_seconds: what `empty_seconds` found, for all measurements; None before it was asked.
    """

    runtime: GpuRuntime
    may_block: bool = True
    blocked: bool = True
    cold: bool = True
    written_share: float = 0.5
    block_seconds: float = BLOCK_SECONDS
    host_seconds: float | None = None
    clocks_mhz: list[float] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    known_empty_seconds: float | None = None
    _timed_out: set[int] = field(default_factory=set)  # callables, by id, whose last sample's blocking kernel timed out
    _events: tuple[Any, Any] | None = None

    @property
    def events(self) -> tuple[Any, Any]:
        """Return the two events of all samples."""
        if self._events is None:
            self._events = (self.runtime.event(), self.runtime.event())
        return self._events

    @property
    def method(self) -> str:
        """Name how time is taken, as baselines have it."""
        return BLOCKED if self.blocked else PLAIN

    @property
    def clock_mhz(self) -> float | None:
        """Return the median of the SM clocks counted in this measurement, in MHz."""
        return median(self.clocks_mhz) if self.clocks_mhz else None

    def begin(self, cold: bool, written_share: float = 0.5) -> None:
        """Forget what the last measurement taught."""
        self.written_share = written_share
        self.blocked, self.cold, self.block_seconds = self.may_block, cold, BLOCK_SECONDS
        self.host_seconds = None
        self._timed_out.clear()
        self.clocks_mhz.clear()
        self.findings.clear()

    def time(self, call: Call, stream: Any, own: bool = False, written_share: float | None = None) -> Sample:
        """Run `call` once and time it on its stream, or on CuPy's current one where that is None.

        own: the call is one of ours (a probe), not the one that `host_seconds` was measured of. written_share: the
        call's, where it is not the work's.
        """
        runtime = self.runtime
        target = runtime.stream(stream)
        start, end = self.events
        runtime.wait_device()
        if self.cold:
            runtime.flush(target, self.written_share if written_share is None else written_share)
            runtime.wait_device()
        ticket = runtime.block(target, self.block_seconds) if self.blocked else None
        try:
            with runtime.using(target):
                # Behind the blocking kernel: while that spins, idle multiprocessors may clock as they like.
                runtime.stamp(target, 0)
                runtime.record(start, target)
                called = runtime.now()
                call()
                returned = runtime.now()
                runtime.record(end, target)
                runtime.stamp(target, 1)
        finally:
            # Whatever happened, Ctrl-C too: a stream that stays blocked would hang the process until the time-out.
            if ticket is not None:
                runtime.unblock(ticket)
        released = runtime.now()
        runtime.wait_event(end)
        ended = runtime.now()
        runtime.wait_device()
        seconds = runtime.seconds_between(start, end)
        host = self._host_seconds(own, returned - called, ended - (called if ticket is None else released), ticket)
        return Sample(seconds, host, self._why_dropped(ticket, call))

    def empty_seconds(self, stream: Any) -> float:
        """Return the seconds between two events with nothing in between: the least that can be seen."""
        if self.known_empty_seconds is None:
            was_cold, self.cold = self.cold, False
            try:
                samples = [self.time(_nothing, stream, own=True).seconds for _ in range(EMPTY_TRIES)]
            finally:
                self.cold = was_cold
            self.known_empty_seconds = median(samples)
        return self.known_empty_seconds

    def stop_blocking(self) -> None:
        """Time without a blocking kernel from now on, and say so once."""
        self.blocked = False
        if NOT_BLOCKED not in self.findings:
            self.findings.append(NOT_BLOCKED)

    def _host_seconds(self, own: bool, in_call: float, waiting: float, ticket: int | None) -> float:
        if ticket is None:
            return waiting  # from the call to the end: it was free to run
        if self.host_seconds is not None and not own:
            return self.host_seconds
        # Launched first, run afterwards: right for a single launch, too much for many short ones.
        return in_call + waiting

    def _why_dropped(self, ticket: int | None, call: Call) -> Finding | None:
        if ticket is not None and self.runtime.timed_out(ticket):
            if id(call) in self._timed_out:
                self.stop_blocking()
            self._timed_out.add(id(call))
            return NOT_BLOCKED
        self._timed_out.discard(id(call))  # what ran in between, a probe say, tells nothing of the others
        clock = self.runtime.sm_clock_mhz()
        drop = throttled(clock, self.clocks_mhz)
        if clock is not None:
            self.clocks_mhz.append(clock)
        if drop is not None:
            self.runtime.pause(RECOVERY_SECONDS)
        return drop


def _nothing() -> None:
    pass
