"""Simulate a host whose memory has two speeds: what it makes of verdicts of fresh processes, and what blame is worth.

    python benchmarks/two_speeds.py                          # a few seconds
    python benchmarks/two_speeds.py --trials 4000

For code that has no old one at hand. Memory is slower and faster by turns, each for exponentially distributed times,
with the shares that benchmarks/faster_memory.py measured at both (docs/measurements.md) of four kernels: a stream,
copies that multiply and add 16 and 24 times for each element, and NumPy's copy on one thread. A process measures for
two seconds at the speed of their middle; its share scatters by 0.7 % and memory by 2 %. A baseline is five processes,
half a minute apart; a suspect is judged at any time after. The rule is the one that judges tests
(pytest_bandwidth.domain.judging), not a copy; "without blame" is the same but for DEVICE where memory became faster.
Prints Markdown: edited code that lost nothing, and slower code.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from unittest.mock import patch

from pytest_bandwidth.domain.judging.confirmation import FreshMetrics
from pytest_bandwidth.domain.judging.reference import steadier_of_runs

from pytest_bandwidth.domain.baseline import Baseline, BaselineDevice, Entry, Run
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.judging import device_change
from pytest_bandwidth.domain.judging.judge import judge_test
from pytest_bandwidth.domain.judging.limits import Limits
from pytest_bandwidth.domain.judging.marker import MarkerOptions
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.measured.metrics import Metrics, choose_metric, metrics_of_run
from pytest_bandwidth.domain.measured.rounds import Rounds
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.units import format_percent, parse_fraction
from pytest_bandwidth.domain.verdict import Status
from pytest_bandwidth.session.fresh.confirm import measure_again

RUNS, LIMITS = 5, Limits(MarkerOptions(), tolerance=0.05, confirm=3)
# GB/s of memory at its two speeds, and the share of each kernel at both.
SPEEDS = (45.0, 72.0)
KERNELS = {
    "stream": (1.0, 0.985),
    "16 multiply-adds": (1.0, 0.73),
    "24 multiply-adds": (0.78, 0.49),
    "NumPy's copy": (0.53, 0.315),
}
SHARE_SPREAD, SPEED_SPREAD = 0.007, 0.02
PROCESS_SECONDS, SECONDS_BETWEEN_RUNS, LATER_SECONDS = 2.0, 30.0, 3600.0
# How long a speed lasts in the mean.
LASTS_SECONDS = (3.0, 30.0, 300.0, 3600.0)
BYTES = 2**28
DEVICE = DeviceIdentity("cpu", "Two speeds", None, "simulated")
AS_IT_IS, WITHOUT_BLAME = "as it is", "without blame"
KEY = "test_two.py::test_speeds"
FINE = (Status.UNCHANGED, Status.WITHIN, Status.IMPROVED)


class Machine:
    """Measure processes one after the other, while memory's speed changes."""

    def __init__(self, seed: str, lasts_seconds: float, shares: tuple[float, float]) -> None:
        self._draw, self._lasts, self._shares = random.Random(seed), lasts_seconds, shares
        self._now, self._fast = 0.0, self._draw.random() < 0.5
        self._until = self._draw.expovariate(1 / lasts_seconds)
        self.drop = 0.0

    def pass_seconds(self, seconds: float) -> None:
        self._now += seconds
        while self._now >= self._until:
            self._fast, self._until = not self._fast, self._until + self._draw.expovariate(1 / self._lasts)

    def process(self) -> Metrics:
        self.pass_seconds(PROCESS_SECONDS / 2)
        probe = SPEEDS[self._fast] * math.exp(self._draw.gauss(0, SPEED_SPREAD))
        share = self._shares[self._fast] * (1 - self.drop) * math.exp(self._draw.gauss(0, SHARE_SPREAD))
        self.pass_seconds(PROCESS_SECONDS / 2)
        return Metrics(probe * share, share, probe)

    def fresh(self) -> FreshMetrics:
        return {None: self.process()}

    def probe_alone(self, _read: int, _written: int) -> float:
        return self.process().probe_gbps or 0.0

    def baseline(self) -> Baseline:
        runs = []
        for _ in range(RUNS):
            seen = self.process()
            runs.append(Run(seen.gbps, seen.probe_gbps, seen.relative))
            self.pass_seconds(SECONDS_BETWEEN_RUNS)
        entry = Entry(KEY, bytes_read=BYTES // 2, bytes_written=BYTES // 2, method="clock", runs=tuple(runs))
        figure = choose_metric(None, None, metrics_of_run(runs[0]), None)
        entry = replace(entry, judged_on=steadier_of_runs(figure, entry, on_host=True))
        return Baseline(BaselineDevice("Two speeds", None, "cpu", None), {KEY: entry})

    def measured(self) -> Measurement:
        seen = self.process()
        seconds, probe = BYTES / seen.gbps / 1e9, BYTES / (seen.probe_gbps or 1) / 1e9
        rounds = Rounds((seconds,), (probe,), kernel_first=(True,), probe_bytes=BYTES)
        return Measurement(None, Traffic(BYTES // 2, BYTES // 2), DEVICE, "clock", rounds)


@contextmanager
def judging(way: str) -> Iterator[None]:
    if way == AS_IT_IS:
        yield
    else:
        with patch.object(device_change, "blame_when_up", lambda *_: None):
            yield


def status(seed: str, lasts_seconds: float, shares: tuple[float, float], drop: float) -> Status:
    machine = Machine(seed, lasts_seconds, shares)
    baseline = machine.baseline()
    machine.pass_seconds(LATER_SECONDS)
    machine.drop = drop
    again = partial(measure_again, run=machine.fresh)
    return judge_test({KEY: machine.measured()}, baseline, LIMITS, again, machine.probe_alone)[KEY].verdict.status


def statuses(way: str, lasts_seconds: float, drop: float, trials: int) -> Counter[Status]:
    with judging(way):
        return Counter(
            status(f"{kernel} {lasts_seconds} {drop} {i}", lasts_seconds, shares, drop)
            for kernel, shares in KERNELS.items()
            for i in range(trials)
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=400, help="of each kernel, edited and slower (default: 400)")
    parser.add_argument("--drop", type=parse_fraction, default=0.1, help="(default: 10%%)")
    options = parser.parse_args()
    slower = f"{format_percent(options.drop)} slower"
    print(
        f"| a speed lasts | | edited: red | DEVICE | {slower}: found | DEVICE | passed |\n|---|---|---|---|---|---|---|"
    )
    for lasts in LASTS_SECONDS:
        for way in (AS_IT_IS, WITHOUT_BLAME):
            edited = statuses(way, lasts, 0.0, options.trials)
            lost = statuses(way, lasts, options.drop, options.trials)
            counts = (
                edited[Status.REGRESSED],
                edited[Status.DEVICE],
                lost[Status.REGRESSED],
                lost[Status.DEVICE],
                sum(lost[one] for one in FINE),
            )
            cells = " | ".join(format_percent(count / edited.total(), 1) for count in counts)
            print(f"| {lasts:.0f} s | {way} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
