"""Measure a workload by time: warm up, then sample kernel and probe alternately, until a stop rule holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median

from pytest_bandwidth.devices.base import Budget, Progress, Sample, TimedDevice, Turn, Workload
from pytest_bandwidth.domain.device import Conditions
from pytest_bandwidth.domain.interpreter import gc_disabled
from pytest_bandwidth.domain.measured.measurement import (
    FEWEST_ROUNDS,
    HELD_UP,
    NOTE,
    RUN_DELAY,
    WARM,
    Dropped,
    Finding,
    Measurement,
    Rounds,
    StopReason,
    rounds_held_up,
    too_few_undisturbed,
)
from pytest_bandwidth.domain.measured.validity import why_invalid
from pytest_bandwidth.domain.statistics import precision_of_median

# Warm-up: at least this share of the budget, at most the second; in between until the samples stop drifting.
WARMUP_LEAST_SHARE = 0.05
WARMUP_MOST_SHARE = 0.30
DRIFT_WINDOW = 3
DRIFT_LIMIT = 0.02
MOST_ROUNDS = 10_000
# Dropped rounds are repeated for as long again as a measurement may take, but never for more samples than this.
MOST_DROPPED = 1_000
PROGRESS_SECONDS = 0.5
SOMETHING_ELSE = Finding(HELD_UP, "other work ran on the GPU meanwhile: the probe took longer")
NOT_COLD = Finding(
    "warm", "cold=False: caches are not flushed before its samples, so its GB/s may be those of a cache", NOTE
)
Sampler = Callable[[], Sample]


@dataclass(frozen=True, slots=True)
class _Round:
    number: int
    kernel: Sample
    probe: Sample | None
    interleaved: tuple[Sample, ...]
    kernel_first: bool

    @property
    def samples(self) -> tuple[Sample, ...]:
        return (self.kernel, *(() if self.probe is None else (self.probe,)), *self.interleaved)

    @property
    def drop(self) -> Finding | None:
        """Return why the round does not count. One spoilt sample spoils the whole round: the ratio needs both."""
        return next((sample.drop for sample in self.samples if sample.drop is not None), None)


@dataclass(slots=True)
class _Tally:
    kept: list[_Round] = field(default_factory=list)
    spoilt: list[_Round] = field(default_factory=list)
    disturbed: int = 0
    # The disturbed rounds in which the probe alone waited.
    probe_waited: int = 0
    disturbed_count: bool = False
    spoilt_seconds: float = 0.0

    def add(self, taken: _Round, seconds: float) -> None:
        """Keep the round, which took so long, or put it aside."""
        if taken.drop is None:
            self.kept.append(taken)
            return
        self.spoilt.append(taken)
        self.spoilt_seconds += seconds
        self.disturbed += taken.drop.code == RUN_DELAY
        self.probe_waited += _probe_waited(taken)

    def count_disturbed(self, budget: Budget) -> None:
        """Count rounds with no fault but a waiting thread; those in which the probe alone waited, if they suffice."""
        only_probes = not too_few_undisturbed(len(self.kept) + self.probe_waited, self.disturbed - self.probe_waited)
        if not only_probes and budget.tolerates_run_delay != "all":
            return
        counts = _probe_waited if only_probes else _only_waited
        self.kept = sorted((*self.kept, *filter(counts, self.spoilt)), key=lambda taken: taken.number)
        self.spoilt = [taken for taken in self.spoilt if not counts(taken)]
        self.disturbed_count = True

    def may_count(self, budget: Budget) -> int:
        """Return how many of the disturbed rounds may count where too few others are left."""
        return {"none": 0, "probe": self.probe_waited, "all": self.disturbed}[budget.tolerates_run_delay]

    def drop_held_up(self) -> None:
        """Put those rounds aside in which something else had the GPU, by the probe's time."""
        probed = [(taken, taken.probe) for taken in self.kept if taken.probe is not None]
        places = rounds_held_up([taken.kernel.seconds for taken, _ in probed], [probe.seconds for _, probe in probed])
        for taken in [probed[place][0] for place in places]:
            self.kept.remove(taken)
            self.spoilt.append(replace(taken, kernel=replace(taken.kernel, drop=SOMETHING_ELSE)))

    @property
    def run_delay(self) -> float | None:
        """Return the share of all samples' time in which a thread waited; None where waits are not recorded."""
        taken = [sample for round_ in (*self.kept, *self.spoilt) for sample in round_.samples]
        if not any(sample.run_delay_seconds is not None for sample in taken):
            return None
        seconds = sum(sample.host_seconds for sample in taken)
        # A wait is recorded when it ends, and may have begun before the sample.
        waited = sum(min(sample.run_delay_seconds or 0.0, sample.host_seconds) for sample in taken)
        return waited / seconds if seconds > 0 else None


def _only_waited(taken: _Round) -> bool:
    return all(sample.drop is None or sample.drop.code == RUN_DELAY for sample in taken.samples)


def _probe_waited(taken: _Round) -> bool:
    """Return whether the only fault of a round is a thread that waited during its probe."""
    others = (taken.kernel, *taken.interleaved)
    return taken.probe is not None and _only_waited(taken) and all(sample.drop is None for sample in others)


def measure_timed(device: TimedDevice, workload: Workload, budget: Budget, progress: Progress) -> Measurement:
    """Measure a workload by time; an invalid measurement holds the reason.

    Raises what the workload raises, and OutOfMemory where the probe does not fit.
    """
    resources = device.resources(workload.launch) if workload.launch is not None else None
    # Rounds of two processes are compared with each other; the parent classes the kernel, which costs a host 0.2 s.
    classed_by = (workload.precision, workload.tensor_precision) if budget.turns is None else (None, None)
    rounds, before, after, value = take_rounds(device, workload, budget, progress)
    peak_flops, tensor_flops = (device.peak_flops(name) if name else None for name in classed_by)
    measurement = Measurement(
        label=workload.label,
        traffic=workload.traffic,
        device=device.identity,
        method=device.method + ("" if workload.cold else WARM),
        rounds=rounds,
        peak=device.peak,
        precision=workload.precision,
        peak_flops=peak_flops,
        tensor_flops=tensor_flops,
        resources=resources,
        conditions_before=before,
        conditions_after=after,
        findings=() if workload.cold else (NOT_COLD,),
        flop_declared=workload.flop_declared,
        value=value,
    )
    return replace(measurement, invalid=why_invalid(measurement))


def take_rounds(
    device: TimedDevice, workload: Workload, budget: Budget, progress: Progress
) -> tuple[Rounds, Conditions, Conditions, object]:
    """Sample a workload and its probe within the budget; without a sample that counts, `stop` is `no-samples`.

    Return the rounds, the device's state before and after them, and what the callable returned last.
    Raises what the workload raises, and OutOfMemory where the probe does not fit.
    """
    last: list[object] = [None]
    kernel_sample = _sampler(device, workload, 0, last)
    others = [_sampler(device, workload, 1 + place, [None]) for place in range(len(workload.interleaved))]
    launched = () if workload.launch is None else workload.launch.args
    started = device.now()
    with gc_disabled():
        first = kernel_sample()  # compiles, touches pages; raises if the workload cannot run
        # With another process, the rounds of both are compared with each other, not with a probe.
        probed = workload.traffic.bytes_moved > 0 and budget.turns is None
        probe = device.probe(workload.traffic, workload.reads or launched) if probed else None
        samplers: list[Sampler] = [kernel_sample]
        if probe is not None:
            samplers.append(partial(device.time, probe.call, workload.stream))
        samplers += others
        warm_runs = _warm_up(device, samplers, budget, first)
        warmed = device.now()
        before = device.conditions()

        def run() -> None:
            for sample in samplers:
                sample()

        waiting: AbstractContextManager[Turn | None] = nullcontext()
        if budget.turns is not None:
            waiting = budget.turns.begin(run, (*workload.reads, *workload.writes, *launched))
        with waiting as turn:
            tally, stop = _rounds(device, samplers, probe is not None, budget, progress, turn)
        after = device.conditions()
        if budget.turns is not None:
            run()  # some arrays are as they were before the rounds: the test then gets the results of one run
    ended = device.now()
    if device.identity.on_gpu:  # a host records waits itself
        tally.drop_held_up()
    kept = tally.kept
    return (
        Rounds(
            kernel_seconds=tuple(taken.kernel.seconds for taken in kept),
            probe_seconds=tuple(taken.probe.seconds for taken in kept if taken.probe is not None),
            host_kernel_seconds=tuple(taken.kernel.host_seconds for taken in kept),
            kernel_first=tuple(taken.kernel_first for taken in kept),
            interleaved=tuple(
                tuple(taken.interleaved[i].seconds for taken in kept) for i in range(len(workload.interleaved))
            ),
            probe_bytes=probe.bytes_moved if probe else 0,
            probe_name=probe.name if probe else None,
            dropped=tuple(
                Dropped(taken.number, taken.kernel.seconds, taken.drop.code, taken.drop.text)
                for taken in tally.spoilt
                if taken.drop is not None
            ),
            stop=stop,
            warmup_seconds=warmed - started,
            warmup_runs=warm_runs,
            run_delay=tally.run_delay,
            disturbed_count=tally.disturbed_count,
            wall_seconds=ended - started,
        ),
        before,
        after,
        last[0],
    )


def _warm_up(device: TimedDevice, samplers: Sequence[Sampler], budget: Budget, first: Sample) -> int:
    """Run kernel and probe until the kernel's samples stop drifting, in the warm-up's share of the budget."""
    started = device.now()
    seconds: list[float] = [first.seconds]
    while True:
        for sampler in samplers[1:]:
            sampler()
        seconds.append(samplers[0]().seconds)
        spent = device.now() - started
        if spent >= WARMUP_MOST_SHARE * budget.max_seconds:
            break
        drifts = len(seconds) < 2 * DRIFT_WINDOW
        if not drifts:
            earlier, later = median(seconds[-2 * DRIFT_WINDOW : -DRIFT_WINDOW]), median(seconds[-DRIFT_WINDOW:])
            drifts = abs(later - earlier) > DRIFT_LIMIT * earlier
        # With another process, a drift affects both, and each one's warm-up disturbs the other.
        if spent >= WARMUP_LEAST_SHARE * budget.max_seconds and (budget.turns is not None or not drifts):
            break
    return len(seconds)


def _rounds(
    device: TimedDevice,
    samplers: Sequence[Sampler],
    probed: bool,
    budget: Budget,
    progress: Progress,
    turn: Turn | None,
) -> tuple[_Tally, StopReason]:
    """Take rounds until a stop rule holds. samplers: of the kernel, of the probe where `probed`, and of others."""
    tally = _Tally()
    started = reported = now = device.now()
    number = 0
    while True:
        # Each round begins with the next sampler, so that a kernel and its probe change their order each time.
        order = [(number + i) % len(samplers) for i in range(len(samplers))]
        begun, taken = now, {i: samplers[i]() for i in order}
        now = device.now()
        one = _Round(
            number,
            taken[0],
            taken[1] if probed else None,
            tuple(taken[i] for i in range(1 + probed, len(samplers))),
            not probed or order.index(0) < order.index(1),
        )
        tally.add(one, now - begun)
        number += 1
        stop = _stop(tally, now - started, budget)
        if turn is not None:
            enough = turn.taken(one.kernel.seconds if one.drop is None else None, stops=stop is not None)
            stop = (stop or "precision") if enough else None
            before, now = now, device.now()
            started += now - before  # the other process's round does not count as this one's time
        if stop is not None:
            if tally.may_count(budget) and too_few_undisturbed(len(tally.kept), tally.disturbed):
                tally.count_disturbed(budget)
                stop = "max-time" if tally.kept else stop
            return tally, stop
        if now - reported >= PROGRESS_SECONDS:
            reported = now
            progress(f"{len(tally.kept)} samples, {len(tally.spoilt)} dropped")


def _sampler(device: TimedDevice, workload: Workload, place: int, last: list[object]) -> Sampler:
    """Return a function that runs the set-up, times one of the workload's callables once, and returns the sample.

    place: 0 for the work itself, then one for each interleaved callable. last: receives the returned value.
    """
    work = (workload.call, *workload.interleaved)[place]
    setup = workload.setup_of_interleaved if place else workload.setup
    observer = workload.observer

    def keeping() -> None:
        last[0] = work()

    # The results of interleaved callables may be large: only an observer needs them.
    call = work if place and observer is None else keeping

    def sample() -> Sample:
        if setup is not None:
            setup()
        if observer is not None:
            observer.before(place)
        taken = device.time(call, workload.stream)
        why = None if workload.spoilt is None else workload.spoilt()
        if observer is not None:
            observer.after(place, last[0])
        if place:
            last[0] = None
        return taken if why is None else replace(taken, drop=why)

    return sample


def _stop(tally: _Tally, spent: float, budget: Budget) -> StopReason | None:
    kept, dropped = len(tally.kept), len(tally.spoilt)
    # The time of spoilt rounds is granted once more, up to the time for rounds.
    over = spent - min(tally.spoilt_seconds, budget.rounds_seconds) >= budget.rounds_seconds
    counting = kept + tally.may_count(budget)
    enough = counting >= min(FEWEST_ROUNDS, budget.min_samples)
    vain = kept + dropped > counting and spent >= 2 * budget.rounds_seconds
    if dropped >= MOST_DROPPED or (over and (enough or vain)):
        return "max-time" if kept else "no-samples"
    if kept >= MOST_ROUNDS:
        return "max-rounds"
    # The median's precision is not cheap to compute: check it from min_samples on, every eighth round.
    if kept < budget.min_samples or kept % 8 or min(taken.kernel.seconds for taken in tally.kept) <= 0:
        return None
    figures = [[taken.kernel.seconds for taken in tally.kept]]
    if ratios := [taken.probe.seconds / taken.kernel.seconds for taken in tally.kept if taken.probe is not None]:
        figures.append(ratios)
    return "precision" if max(map(precision_of_median, figures)) <= budget.precision else None
