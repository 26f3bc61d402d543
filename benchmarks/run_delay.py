"""Show how long samples on a host wait for a processor, with other processes and without, and what a limit keeps.

    python benchmarks/run_delay.py [--seconds 3] [--neighbours none bursts builds memory steady]

Prints a Markdown table for each kind of neighbour: for each workload and rule the share of the samples that it keeps.
Then their median and slowest tenth, divided by the median of all samples without neighbours (or with the first kind in
--neighbours). Two rules are not limits of the wait: "no switch" (involuntary) and "no fault" (page faults).
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numba import njit, prange

from pytest_bandwidth.devices.cpu.device import CpuDevice, open_cpu

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from neighbours import KINDS, beside

MOST_SAMPLES = 20_000
WARM_UPS = 5


@dataclass(frozen=True)
class Seen:
    """Hold one sample: its seconds, the share of them in which a thread waited, switches and faults meanwhile."""

    seconds: float
    waited_share: float
    switches: int
    faults: int


RULES: dict[str, Callable[[Seen], bool]] = {
    "all": lambda _: True,
    "waited ≤ 1 %": lambda seen: seen.waited_share <= 0.01,
    "waited ≤ 3 %": lambda seen: seen.waited_share <= 0.03,
    "waited ≤ 10 %": lambda seen: seen.waited_share <= 0.1,
    "no switch": lambda seen: seen.switches == 0,
    "no fault": lambda seen: seen.faults == 0,
}


@njit(parallel=True)
def triad(a: Any, b: Any, c: Any) -> None:
    """Add a scaled array on all threads."""
    for i in prange(a.size):
        a[i] = b[i] + 3 * c[i]


@njit(parallel=True)
def polynomial(a: Any) -> None:
    """Compute much for each value on all threads."""
    for i in prange(a.size):
        x = a[i]
        for _ in range(50):
            x = x * 1.0000001 + 1e-9
        a[i] = x


def workloads() -> Iterator[tuple[str, Callable[[], object]]]:
    """Give each workload's name and call, memory-bound and not, on all threads and on one, short and long."""
    random = np.random.default_rng(1)
    for kib in (64, 16 << 10, 192 << 10):
        a, b, c = (random.random((kib << 10) // 12, "float32") for _ in range(3))
        yield f"Numba triad, {kib >> 10 or kib} {'MiB' if kib >> 10 else 'KiB'}", lambda a=a, b=b, c=c: triad(a, b, c)
    values = random.random(16 << 20, "float32")
    yield "NumPy sum, 64 MiB", values.sum
    rows = random.random((2048, 2048), "float32")

    def softmax() -> object:
        e = np.exp(rows - rows.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    yield "NumPy softmax, 16 MiB", softmax
    few = random.random(1 << 18, "float32")
    yield "Numba polynomial, 1 MiB", lambda: polynomial(few)


def sampled(device: CpuDevice, call: Callable[[], object], seconds: float) -> list[Seen]:
    """Sample the call for so long."""
    for _ in range(WARM_UPS):
        device.time(call, None)
    seen: list[Seen] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until and len(seen) < MOST_SAMPLES:
        before = resource.getrusage(resource.RUSAGE_SELF)
        sample = device.time(call, None)
        after = resource.getrusage(resource.RUSAGE_SELF)
        if sample.run_delay_seconds is None:
            sys.exit("this system does not account for threads that wait: expected /proc/self/task/*/schedstat")
        switches, faults = after.ru_nivcsw - before.ru_nivcsw, after.ru_minflt - before.ru_minflt
        seen.append(Seen(sample.seconds, sample.run_delay_seconds / sample.seconds, switches, faults))
    return seen


def cell(seen: Sequence[Seen], rule: Callable[[Seen], bool], quiet_seconds: float) -> str:
    """Return the share of samples that the rule keeps, and their median and slowest tenth in quiet medians."""
    kept = sorted(one.seconds for one in seen if rule(one))
    if not kept:
        return "none"
    slow = kept[int(0.9 * len(kept))]
    return f"{len(kept) / len(seen):.0%}: {median(kept) / quiet_seconds:.2f}, {slow / quiet_seconds:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="of samples of each workload (default: 3)")
    parser.add_argument("--neighbours", nargs="+", choices=["none", *KINDS], default=["none", *KINDS])
    options = parser.parse_args()
    device = open_cpu()
    quiet: dict[str, float] = {}
    for kind in options.neighbours:
        print(f"\nneighbours: {kind}; kept: p50, p90 of the time ÷ the quiet median\n")
        print("| workload | samples |", " | ".join(RULES), "|")
        print("|---" * (len(RULES) + 2) + "|")
        with beside(kind):
            for name, call in workloads():
                seen = sampled(device, call, options.seconds)
                quiet.setdefault(name, median(one.seconds for one in seen))
                cells = (cell(seen, rule, quiet[name]) for rule in RULES.values())
                print(f"| {name} | {len(seen)} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
