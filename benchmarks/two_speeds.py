"""Simulate a host whose memory has two speeds: what waits, further processes, outweighing and blame are worth there.

    python benchmarks/two_speeds.py                          # half a minute
    python benchmarks/two_speeds.py --trials 4000

For verdicts of fresh processes, where no old code is at hand; benchmarks/worth.py measures the same on the machine at
hand, whose memory may have one speed. Here memory is slower and faster by turns, each for exponentially distributed
times, with the shares that benchmarks/faster_memory.py measured at both (docs/measurements.md) of four kernels: a
stream, copies that multiply and add 16 and 24 times for each element, and NumPy's copy on one thread. A process
measures for two seconds at the speed of their middle; its share scatters by 0.7 % and memory by 2 %. A baseline is five
processes, half a minute apart; a suspect is judged at any time after. The rule is the one that judges tests
(pytest_bandwidth.domain.judging), not a copy. Prints Markdown.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

from worth import FINE, WITHOUT, Judged

from pytest_bandwidth.devices.memory_speed import LONGEST_WAIT_SECONDS
from pytest_bandwidth.domain.baseline import Baseline, BaselineDevice, Entry, Run
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.judging import judge
from pytest_bandwidth.domain.judging.confirmation import Case, Confirmation, FastestProbes, FreshMetrics
from pytest_bandwidth.domain.judging.limits import Limits
from pytest_bandwidth.domain.judging.marker import MarkerOptions
from pytest_bandwidth.domain.judging.reference import steadier_of_runs
from pytest_bandwidth.domain.measurement import Measurement
from pytest_bandwidth.domain.metrics import Metrics, choose_metric, metrics_of_run
from pytest_bandwidth.domain.rounds import Rounds
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.units import format_percent, parse_fraction
from pytest_bandwidth.domain.verdict import Status, Verdict
from pytest_bandwidth.session.fresh.confirm import LEAST_SECONDS, Waiting, measure_again

RUNS, CONFIRM, TOLERANCE = 5, 3, 0.05
# GB/s of memory at its two speeds, and the share of each kernel at both.
SPEEDS = (45.0, 72.0)
KERNELS = {
    "stream": (1.0, 0.985),
    "16 multiply-adds": (1.0, 0.73),
    "24 multiply-adds": (0.78, 0.49),
    "NumPy's copy": (0.53, 0.315),
}
SHARE_SPREAD, SPEED_SPREAD = 0.007, 0.02
PROCESS_SECONDS, START_SECONDS, BETWEEN_RUNS = 2.0, 0.5, 30.0
LASTS = (3.0, 30.0, 300.0, 3600.0)
PROBE_BYTES = 2**28
DEVICE = DeviceIdentity("cpu", "Two speeds", None, "simulated")
AS_IT_IS, NO_WAITS = "as it is", "without waits"
ALL_BUT_BLAME, NONE_OF_FOUR = "blame alone", "without the four"
WAYS = (AS_IT_IS, NO_WAITS, *WITHOUT, ALL_BUT_BLAME, NONE_OF_FOUR)
KEY = "test_two.py::test_speeds"


@dataclass
class Memory:
    """Hold memory's speed at any second, drawn as it is asked for in order of time."""

    draw: random.Random
    lasts_seconds: float
    fast: bool = False
    until: float = 0.0

    def __post_init__(self) -> None:
        self.fast = self.draw.random() < 0.5
        self.until = self.draw.expovariate(1 / self.lasts_seconds)

    def is_fast(self, second: float) -> bool:
        while second >= self.until:
            self.fast, self.until = not self.fast, self.until + self.draw.expovariate(1 / self.lasts_seconds)
        return self.fast

    def slow_from(self, second: float, most_seconds: float) -> float:
        """Return how long to wait for the slower speed, at most so long."""
        return min(self.until - second, most_seconds) if self.is_fast(second) else 0.0


@dataclass
class Machine:
    """Measure processes one after the other."""

    draw: random.Random
    memory: Memory
    shares: tuple[float, float]
    drop: float = 0.0
    now: float = 0.0

    def process(self) -> Metrics:
        fast = self.memory.is_fast(self.now + PROCESS_SECONDS / 2)
        self.now += PROCESS_SECONDS
        probe = SPEEDS[fast] * math.exp(self.draw.gauss(0, SPEED_SPREAD))
        share = self.shares[fast] * (1 - self.drop) * math.exp(self.draw.gauss(0, SHARE_SPREAD))
        return Metrics(probe * share, share, probe)


@dataclass
class Fresh:
    """Run fresh processes in time, as `FreshProcesses` does: side by side, with its waits."""

    machine: Machine
    waiting: Waiting
    spent: float = CONFIRM * START_SECONDS
    taken: int = 0
    waited: bool = False

    def again(self, confirmation: Confirmation) -> tuple[list[FreshMetrics], BandwidthError | None]:
        return measure_again(confirmation, self.run)

    def run(self, probes: FastestProbes) -> FreshMetrics | None:
        left = max(LEAST_SECONDS - PROCESS_SECONDS, CONFIRM * (START_SECONDS + PROCESS_SECONDS)) - self.spent
        if (self.taken >= CONFIRM or self.waited) and left < PROCESS_SECONDS + START_SECONDS * (self.taken >= CONFIRM):
            return None
        waits = self.waiting.worth(probes)
        most = min(LONGEST_WAIT_SECONDS, max(0.0, left - PROCESS_SECONDS))
        # Memory at the slower speed is that of the baseline, where there is anything to wait for.
        waited = self.machine.memory.slow_from(self.machine.now, most) if waits else 0.0
        self.waited |= waited > 0
        self.machine.now += waited
        seen: FreshMetrics = {None: self.machine.process()}
        self.spent, self.taken = self.spent + waited + PROCESS_SECONDS, self.taken + 1
        return seen


def baseline_of(machine: Machine) -> Baseline:
    runs = []
    for _ in range(RUNS):
        seen = machine.process()
        runs.append(Run(seen.gbps, seen.probe_gbps, seen.relative))
        machine.now += BETWEEN_RUNS
    entry = Entry(KEY, bytes_read=2**27, bytes_written=2**27, method="clock", runs=tuple(runs))
    first = choose_metric(None, None, metrics_of_run(runs[0]), None)
    entry = replace(entry, judged_on=steadier_of_runs(first, entry, on_host=True))
    return Baseline(BaselineDevice("Two speeds", None, "cpu", None), {KEY: entry})


def measurement_of(seen: Metrics) -> Measurement:
    seconds, probe = PROBE_BYTES / seen.gbps / 1e9, PROBE_BYTES / (seen.probe_gbps or 1) / 1e9
    rounds = Rounds((seconds,), (probe,), kernel_first=(True,), probe_bytes=PROBE_BYTES)
    return Measurement(None, Traffic(2**27, 2**27), DEVICE, "clock", rounds)


@contextmanager
def judging(way: str) -> Iterator[None]:
    without: Mapping[str, Judged] = {**WITHOUT, ALL_BUT_BLAME: blame_alone, NONE_OF_FOUR: WITHOUT["without the three"]}
    with ExitStack() as stack:
        if way in without:
            stack.enter_context(patch.object(judge, "judge_by_fresh", without[way]))
        if way in (NO_WAITS, ALL_BUT_BLAME, NONE_OF_FOUR):
            stack.enter_context(patch.object(Waiting, "worth", lambda *_: {}))
        yield


def blame_alone(first: Verdict, case: Case, fresh: Sequence[FreshMetrics], confirm: int, *others: Any) -> Verdict:
    return WITHOUT["without outweighing"](first, case, fresh[:confirm], confirm, *others)


@dataclass
class Counts:
    """Count statuses of edited and of slower code, and seconds that suspects waited for."""

    edited: Counter[str] = field(default_factory=Counter)
    slower: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


def trial(number: str, lasts: float, shares: tuple[float, float], drop: float) -> tuple[str, float]:
    draw = random.Random(number)
    machine = Machine(draw, Memory(draw, lasts), shares)
    baseline = baseline_of(machine)
    machine.now += 3600 + draw.uniform(0, 10 * lasts)
    machine.drop = drop
    first, fresh = measurement_of(machine.process()), Fresh(machine, Waiting(True, 2 * CONFIRM))
    begun = machine.now
    limits = Limits(MarkerOptions(), TOLERANCE, CONFIRM)
    judged = judge.judge_test(
        {KEY: first}, baseline, limits, fresh.again, lambda *_: machine.process().probe_gbps or 0.0
    )
    return judged[KEY].verdict.status.value, machine.now - begun


def counts(way: str, lasts: float, drop: float, trials: int) -> Counts:
    kept = Counts()
    with judging(way):
        for kernel, shares in KERNELS.items():
            for i in range(trials):
                kept.edited[trial(f"{kernel} {lasts} {i}", lasts, shares, 0.0)[0]] += 1
                status, seconds = trial(f"{kernel} {lasts} {i} slower", lasts, shares, drop)
                kept.slower[status] += 1
                kept.seconds += seconds / trials / len(KERNELS)
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=500, help="of each kernel, edited and slower (default: 500)")
    parser.add_argument("--drop", type=parse_fraction, default=0.1, help="(default: 10%%)")
    options = parser.parse_args()
    slower = f"{format_percent(options.drop)} slower"
    print(f"| a speed lasts | | edited: red | DEVICE | {slower}: found | DEVICE | passed | seconds of a suspect |")
    print("|---|---|---|---|---|---|---|---|")
    for lasts in LASTS:
        for way in WAYS:
            kept = counts(way, lasts, options.drop, options.trials)
            shown = (
                kept.edited[Status.REGRESSED] / kept.edited.total(),
                kept.edited[Status.DEVICE] / kept.edited.total(),
                kept.slower[Status.REGRESSED] / kept.slower.total(),
                kept.slower[Status.DEVICE] / kept.slower.total(),
                sum(kept.slower[status] for status in FINE) / kept.slower.total(),
            )
            cells = " | ".join(format_percent(share, 1) for share in shown)
            print(f"| {lasts:.0f} s | {way} | {cells} | {kept.seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
