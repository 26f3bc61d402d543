"""Find which figure of one process repeats best in the next: estimators of bandwidth by their between-process spread.

    python benchmarks/estimators.py [--processes 20] [--mib 256] [--seconds 3] [--lock FILE] [--save FILE]
    python benchmarks/estimators.py --load FILE

Every process is new, measures the shipped triad and its probe as the plugin does, and returns all its samples. An
estimator's spread is the standard deviation of its logarithm over the processes, in percent. A comparison of two runs
cannot find a drop much smaller than that. Prints Markdown.

--seconds: take rounds for so long, whatever their precision; without it, as the plugin does.
--lock: hold an exclusive lock on FILE while a process measures, so that other processes with the same lock wait.
--save: append every process's samples to a file, as JSON lines. --load: judge saved ones instead of measuring.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from pytest_bandwidth.domain.statistics import quantile


@dataclass(frozen=True)
class Run:
    """Hold one process's samples, and what else ran meanwhile."""

    kernel: list[float]
    probe: list[float]
    moved: int
    probe_moved: int
    others: list[str]

    def gbps(self, seconds: float) -> float:
        return self.moved / seconds / 1e9

    def ratio(self, kernel_seconds: float, probe_seconds: float) -> float:
        """Return the kernel bandwidth ÷ probe bandwidth."""
        return self.moved / kernel_seconds / (self.probe_moved / probe_seconds)


def ratios(run: Run) -> list[float]:
    return [run.ratio(k, p) for k, p in zip(run.kernel, run.probe, strict=True)]


def trimmed_mean(values: list[float], share: float = 0.25) -> float:
    """Return the mean without the smallest and the largest share."""
    cut = int(len(values) * share)
    return fmean(sorted(values)[cut : len(values) - cut])


# The upper quartile of bandwidth is the lower quartile of seconds.
ESTIMATORS: dict[str, Callable[[Run], float]] = {
    "GB/s: median": lambda r: r.gbps(median(r.kernel)),
    "GB/s: upper quartile": lambda r: r.gbps(quantile(r.kernel, 0.25)),
    "GB/s: best sample": lambda r: r.gbps(min(r.kernel)),
    "GB/s: mean of seconds": lambda r: r.gbps(fmean(r.kernel)),
    "ratio: median of the rounds' ratios": lambda r: median(ratios(r)),
    "the same, of the first half of the rounds": lambda r: median(ratios(r)[: len(r.kernel) // 2]),
    "the same, of the first third of the rounds": lambda r: median(ratios(r)[: len(r.kernel) // 3]),
    "ratio: middle half's mean of the rounds' ratios": lambda r: trimmed_mean(ratios(r)),
    "ratio of medians": lambda r: r.ratio(median(r.kernel), median(r.probe)),
    "ratio of upper quartiles": lambda r: r.ratio(quantile(r.kernel, 0.25), quantile(r.probe, 0.25)),
    "ratio of best samples": lambda r: r.ratio(min(r.kernel), min(r.probe)),
    "ratio of means": lambda r: r.ratio(fmean(r.kernel), fmean(r.probe)),
}


def measure_here(mib: int, seconds: float | None) -> dict[str, Any]:
    """Measure one process: the triad of three arrays, and its probe."""
    import numpy as np

    from pytest_bandwidth.devices.base import Budget, Launch, Workload
    from pytest_bandwidth.devices.cpu.device import open_cpu
    from pytest_bandwidth.devices.kernel_source import read_source
    from pytest_bandwidth.domain.traffic import Traffic

    device, n = open_cpu(), mib * 2**20 // 4
    b, c, a = device.random(n, "float32"), device.random(n, "float32"), device.empty(n, "float32")
    kernel = device.kernel(read_source("stream.cu", "triad_f32", []))
    launch = Launch(kernel, (1, 1, 1), (256, 1, 1), (a, b, c, np.float32(3), n))
    traffic = Traffic(b.nbytes + c.nbytes, a.nbytes, 2 * n)
    workload = Workload(device.launcher(launch, None), traffic, launch=launch, reads=(b, c), writes=(a,))
    # Disturbed rounds count where no others are left: it is said who disturbed them.
    budget = Budget(tolerates_run_delay="all")
    if seconds is not None:
        budget = replace(budget, max_seconds=seconds, precision=0.0)
    found = device.measure(workload, budget, lambda _: None)
    return {
        "kernel": found.rounds.kernel_seconds,
        "probe": found.rounds.probe_seconds,
        "moved": found.bytes_moved,
        "probe_moved": found.rounds.probe_bytes,
        "others": found.conditions_after.others,
        "host": f"{device.identity.name}, {device.identity.settings['threads']} threads",
        "at": f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
    }


@contextmanager
def held(lock: Path | None) -> Iterator[None]:
    if lock is None:
        yield
        return
    import fcntl

    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def measure_fresh(given: Sequence[str], lock: Path | None) -> dict[str, Any]:
    command = [sys.executable, __file__, *given, "--one"]
    with held(lock):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measured(processes: int, given: Sequence[str], lock: Path | None, save: Path | None) -> Iterator[dict[str, Any]]:
    for number in range(1, processes + 1):
        found = measure_fresh(given, lock)
        print(f"{number} of {processes} processes", file=sys.stderr, flush=True)
        if save is not None:
            with save.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
        yield found


def spread(values: list[float]) -> float:
    """Return the standard deviation of the logarithms."""
    return stdev([math.log(value) for value in values])


def report(found: list[dict[str, Any]]) -> None:
    runs = [Run(*(one[key] for key in ("kernel", "probe", "moved", "probe_moved", "others"))) for one in found]
    rounds = [len(run.kernel) for run in runs]
    in_company = sum(bool(run.others) for run in runs)
    mib = runs[0].moved / 3 / 2**20
    print(
        f"{found[0]['at']} to {found[-1]['at']}, {found[0]['host']}; triad of three {mib:.0f} MiB arrays, "
        f"{len(runs)} fresh processes of {min(rounds)} to {max(rounds)} rounds; {in_company} of them had company"
    )
    print("\n| estimator | median | between-process sd, % | largest distance from the median, % |\n|---|---|---|---|")
    for name, estimator in ESTIMATORS.items():
        values = [estimator(run) for run in runs]
        middle = median(values)
        farthest = max(abs(math.log(value / middle)) for value in values)
        print(f"| {name} | {middle:.4g} | {spread(values) * 100:.2f} | {farthest * 100:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=20)
    parser.add_argument("--mib", type=int, default=256, help="MiB of each array")
    parser.add_argument("--seconds", type=float, help="for rounds, whatever their precision")
    parser.add_argument("--lock", type=Path)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--load", type=Path)
    parser.add_argument("--one", action="store_true", help="measure once and print the samples as JSON")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure_here(options.mib, options.seconds)))
        return
    if options.load:
        found = [json.loads(line) for line in options.load.read_text(encoding="utf-8").splitlines()]
    else:
        given = ["--mib", str(options.mib), *(() if options.seconds is None else ("--seconds", str(options.seconds)))]
        found = list(measured(options.processes, given, options.lock, options.save))
    report(found)


if __name__ == "__main__":
    main()
