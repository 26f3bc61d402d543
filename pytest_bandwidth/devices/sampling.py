"""Measure a workload by time: warm up, then sample kernel and probe in turn, until a stop rule holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Protocol

from pytest_bandwidth.devices.base import Budget, Call, Device, Probe, Progress, Sample, TimedDevice, Workload
from pytest_bandwidth.devices.memory_speed import wait_for_memory
from pytest_bandwidth.domain.device import Conditions
from pytest_bandwidth.domain.gc_disabled import gc_disabled
from pytest_bandwidth.domain.measurement import Measurement
from pytest_bandwidth.domain.rounds import Dropped, Rounds, StopReason
from pytest_bandwidth.domain.statistics import precision_of_median
from pytest_bandwidth.domain.units import format_seconds
from pytest_bandwidth.domain.validity import why_invalid

# Warm-up: at least this share of the budget, at most the second; in between until the samples stop drifting.
WARMUP_LEAST_SHARE = 0.05
WARMUP_MOST_SHARE = 0.30
DRIFT_WINDOW = 3
DRIFT_LIMIT = 0.02
# However slow a kernel is, one round shows nothing of its noise.
FEWEST_ROUNDS = 3
MOST_ROUNDS = 10_000
# Dropping and re-measuring goes on for as long as a measurement may take, but never for more samples than this.
MOST_DROPPED = 1_000
PROGRESS_SECONDS = 0.5


class MeasuringDevice(Device, TimedDevice, Protocol):
    """Declare what `measure_timed` needs of a device that measures time."""

    @property
    def method(self) -> str:
        """Name how time is taken, as baselines have it; a fallback may change it while measuring, so read it last."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """Hold the rounds, the device's state around them, and what the callable returned last."""

    rounds: Rounds
    before: Conditions
    after: Conditions
    value: object = None


@dataclass(slots=True)
class _Tally:
    kernel: list[Sample] = field(default_factory=list)
    probe: list[Sample] = field(default_factory=list)
    kernel_first: list[bool] = field(default_factory=list)
    interleaved: list[tuple[float, ...]] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    attempts: int = 0

    def add(self, kernel: Sample, probe: Sample | None, interleaved: Sequence[Sample], kernel_first: bool) -> None:
        self.attempts += 1
        spoilt = next((s for s in (kernel, probe, *interleaved) if s is not None and s.drop is not None), None)
        if spoilt is not None and spoilt.drop is not None:
            # A round with one spoilt sample goes whole: the ratio needs both.
            self.dropped.append(Dropped(self.attempts - 1, kernel.seconds, spoilt.drop.code, spoilt.drop.text))
            return
        self.kernel.append(kernel)
        self.kernel_first.append(kernel_first)
        self.interleaved.append(tuple(s.seconds for s in interleaved))
        if probe is not None:
            self.probe.append(probe)


def measure_timed(device: MeasuringDevice, workload: Workload, budget: Budget, progress: Progress) -> Measurement:
    """Measure a workload by time, and say why the measurement is invalid where it is.

    Raises whatever the workload raises, and OutOfMemory where the probe does not fit.
    """
    resources = device.resources(workload.launch) if workload.launch is not None else None
    sampled = take_rounds(device, workload, budget, progress)
    measurement = Measurement(
        label=workload.label,
        traffic=workload.traffic,
        device=device.identity,
        method=device.method,
        rounds=sampled.rounds,
        peak=device.peak,
        precision=workload.precision,
        peak_flops=device.peak_flops(workload.precision) if workload.precision else None,
        resources=resources,
        conditions_before=sampled.before,
        conditions_after=sampled.after,
        flop_declared=workload.flop_declared,
        value=sampled.value,
    )
    return replace(measurement, invalid=why_invalid(measurement))


def run_untimed(workload: Workload, synchronize: Call) -> object:
    """Run setup and the workload once, wait for both, and return the callable's value."""
    if workload.setup is not None:
        workload.setup()
    value = workload.call()
    synchronize()
    return value


def take_rounds(device: TimedDevice, workload: Workload, budget: Budget, progress: Progress) -> Sampled:
    """Sample a workload and its probe as the budget says; without a sample that counts, `stop` is `no-samples`.

    Raises whatever the workload raises, and OutOfMemory where the probe does not fit.
    """
    last: list[object] = [None]

    def call() -> None:
        last[0] = workload.call()

    def kernel_sample() -> Sample:
        if workload.setup is not None:
            workload.setup()
        return device.time(call, workload.stream)

    started = device.now()
    with gc_disabled():
        first = kernel_sample()  # compiles, touches pages; also tells whether the workload runs at all
        probe = device.probe(workload.traffic, workload.inputs) if workload.traffic.bytes_moved else None
        warm_runs = _warm_up(device, kernel_sample, probe, workload, budget, first)
        warmed = device.now()
        waited = 0.0
        if probe is not None and budget.fastest_probe_gbps is not None:
            waited = wait_for_memory(device, probe, workload.stream, budget.fastest_probe_gbps, budget.wait_seconds)
        before = device.conditions()
        tally, stop = _rounds(device, kernel_sample, probe, workload, budget, progress)
        after = device.conditions()
    ended = device.now()
    return Sampled(
        Rounds(
            kernel_seconds=tuple(s.seconds for s in tally.kernel),
            probe_seconds=tuple(s.seconds for s in tally.probe),
            host_kernel_seconds=tuple(s.host_seconds for s in tally.kernel),
            kernel_first=tuple(tally.kernel_first),
            interleaved=tuple(zip(*tally.interleaved, strict=True))
            if tally.interleaved
            else ((),) * len(workload.interleaved),
            probe_bytes=probe.bytes_moved if probe else 0,
            probe_name=probe.name if probe else None,
            dropped=tuple(tally.dropped),
            stop=stop,
            warmup_seconds=warmed - started,
            warmup_runs=warm_runs,
            waited_seconds=waited,
            wall_seconds=ended - started,
        ),
        before,
        after,
        last[0],
    )


def _warm_up(
    device: TimedDevice,
    kernel_sample: Callable[[], Sample],
    probe: Probe | None,
    workload: Workload,
    budget: Budget,
    first: Sample,
) -> int:
    """Run kernel and probe until their samples stop drifting, inside the share of the budget that is for it."""
    started = device.now()
    seconds: list[float] = [first.seconds]
    while True:
        for other in (*((probe.call,) if probe else ()), *workload.interleaved):
            device.time(other, workload.stream)
        seconds.append(kernel_sample().seconds)
        spent = device.now() - started
        if spent >= WARMUP_MOST_SHARE * budget.max_seconds:
            break
        if spent >= WARMUP_LEAST_SHARE * budget.max_seconds and not _drifts(seconds):
            break
    return len(seconds)


def _drifts(seconds: list[float]) -> bool:
    if len(seconds) < 2 * DRIFT_WINDOW:
        return True
    earlier = median(seconds[-2 * DRIFT_WINDOW : -DRIFT_WINDOW])
    later = median(seconds[-DRIFT_WINDOW:])
    return abs(later - earlier) > DRIFT_LIMIT * earlier


def _rounds(
    device: TimedDevice,
    kernel_sample: Callable[[], Sample],
    probe: Probe | None,
    workload: Workload,
    budget: Budget,
    progress: Progress,
) -> tuple[_Tally, StopReason]:
    tally = _Tally()
    started = told = device.now()
    samplers: list[Callable[[], Sample]] = [kernel_sample]
    if probe is not None:
        samplers.append(lambda: device.time(probe.call, workload.stream))
    samplers += [_sampler(device, other, workload.stream) for other in workload.interleaved]
    turn = 0
    while True:
        # Each round begins with another one; with a kernel and its probe that is their alternating order.
        order = [(turn + i) % len(samplers) for i in range(len(samplers))]
        taken = {i: samplers[i]() for i in order}
        beside_from = 1 if probe is None else 2
        tally.add(
            taken[0],
            None if probe is None else taken[1],
            [taken[i] for i in range(beside_from, len(samplers))],
            probe is None or order.index(0) < order.index(1),
        )
        turn += 1
        now = device.now()
        stop = _stop(tally, now - started, budget)
        if stop is not None:
            return tally, stop
        if now - told >= PROGRESS_SECONDS:
            told = now
            progress(_progress_text(tally, now - started, budget))


def _sampler(device: TimedDevice, call: Call, stream: object) -> Callable[[], Sample]:
    return lambda: device.time(call, stream)


def _stop(tally: _Tally, spent: float, budget: Budget) -> StopReason | None:
    kept = len(tally.kernel)
    late = spent >= budget.rounds_seconds
    if kept >= min(FEWEST_ROUNDS, budget.min_samples) or len(tally.dropped) >= MOST_DROPPED:
        if late or len(tally.dropped) >= MOST_DROPPED:
            return "max-time" if kept else "no-samples"
        if kept >= MOST_ROUNDS:
            return "max-rounds"
    elif late and tally.dropped and spent >= 2 * budget.rounds_seconds:
        return "max-time" if kept else "no-samples"
    # The median's precision is not cheap to know: look at it from min_samples on, every eighth round.
    if kept >= budget.min_samples and kept % 8 == 0 and _precise(tally, budget.precision):
        return "precision"
    return None


def _precise(tally: _Tally, asked: float) -> bool:
    kernel = [s.seconds for s in tally.kernel]
    if min(kernel) <= 0:
        return False
    if not tally.probe:
        return precision_of_median(kernel) <= asked
    ratios = [p.seconds / k.seconds for k, p in zip(tally.kernel, tally.probe, strict=True)]
    return max(precision_of_median(kernel), precision_of_median(ratios)) <= asked


def _progress_text(tally: _Tally, spent: float, budget: Budget) -> str:
    kernel = [s.seconds for s in tally.kernel]
    if not kernel:
        return (
            f"{len(tally.dropped)} samples dropped, {format_seconds(spent)} of {format_seconds(budget.rounds_seconds)}"
        )
    precision = precision_of_median(kernel)
    exactness = "" if math.isinf(precision) else f", ±{precision * 100:.1f} %"
    return f"{len(kernel)} samples, {format_seconds(median(kernel))} each{exactness}"
