"""Find the probe whose speed changes with a kernel's on a host: memory or arithmetic, all threads or one, or no probe.

    python benchmarks/probe_kinds.py [--minutes 10] [--kernel gemm …] [--neighbours none builds …]

Every kind of kernel alternates with each candidate, in rounds of rotated order on the same arrays, over windows of
WINDOW_SECONDS that are spread over the minutes. Samples in which a thread waited for a processor do not count, as in
every measurement. Prints a Markdown table: the spread of the windows' figures of unchanged code (standard deviation of
their logarithm), for the kernel's seconds alone and for its seconds ÷ each candidate's. The smallest is the best figure
for a verdict. In brackets: how many windows had enough samples of both.

A candidate of arithmetic evaluates polynomials of as many elements as the first cache holds, and takes the kernel's
time. "In a chain" adds in order, so that each addition waits for the one before it.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from statistics import median, stdev
from typing import Any

import numpy as np
from arena import KERNELS, table, text_of_tests
from numba import get_num_threads, njit, prange

from pytest_bandwidth.devices.base import Launch
from pytest_bandwidth.devices.cpu.device import CpuDevice, open_cpu
from pytest_bandwidth.devices.kernel_source import read_source
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.units import format_percent

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from neighbours import KINDS, beside

WINDOW_SECONDS = 2.0
FEWEST_SAMPLES = 5
CACHED = 2048  # float32, 8 KiB a thread
ALONE = "none"


@njit(cache=True)
def _polynomials(x: Any, passes: int) -> float:
    for _ in range(passes):
        for i in range(x.size):
            y = x[i]
            for _ in range(16):
                y = y * np.float32(0.5) + np.float32(0.25)
            x[i] = y
    return x[0]


@njit(cache=True, parallel=True)
def _polynomials_of_each(xs: Any, passes: int) -> None:
    for thread in prange(len(xs)):
        _polynomials(xs[thread], passes)


@njit(cache=True)
def _chain(x: Any, passes: int) -> float:
    total = np.float32(0)
    for _ in range(passes):
        for i in range(x.size):
            total += x[i]
    return total


@njit(cache=True)
def _copied(out: Any, x: Any) -> None:
    for i in range(x.size):
        out[i] = x[i]


def candidates(
    device: CpuDevice, traffic: Traffic, reads: Sequence[Any], seconds: float
) -> dict[str, Callable[[], object]]:
    """Return what may be a kernel's probe, by name; each takes about as long as the kernel."""
    rows = np.ones((get_num_threads(), CACHED), np.float32)
    one = np.ones(CACHED, np.float32)
    elements = max(1024, traffic.bytes_moved // 8)
    source, target = np.ones(elements, np.int32), np.ones(elements, np.int32)

    def lasting(work: Callable[[int], object]) -> Callable[[], object]:
        work(1)  # compiles
        begun = time.perf_counter()
        work(64)
        passes = max(1, round(seconds / ((time.perf_counter() - begun) / 64)))
        return lambda: work(passes)

    return {
        "memory": device.probe(traffic, reads).call,
        "memory, one thread": lambda: _copied(target, source),
        "arithmetic": lasting(lambda passes: _polynomials_of_each(rows, passes)),
        "arithmetic, one thread": lasting(lambda passes: _polynomials(one, passes)),
        "in a chain": lasting(lambda passes: _chain(one, passes)),
    }


class Kernel:
    """Hold one kernel, its candidates, and the windows in which they took turns."""

    def __init__(self, name: str, arena: Any, device: CpuDevice) -> None:
        def launched(file: str, kernel: str, grid: int, args: tuple[Any, ...]) -> tuple[Callable[[], object]]:
            found = device.kernel(read_source(file, kernel, ()))
            return (device.launcher(Launch(found, (grid, 1, 1), (256, 1, 1), args), None),)

        (function, *args), reads, writes = arena.work(name, device, launched)
        self._device = device
        self._call = lambda: function(*args)
        self._call()
        seconds = min(device.time(self._call, None).seconds for _ in range(3))
        read = reads if isinstance(reads, tuple) else (reads,)
        traffic = Traffic(sum(array.nbytes for array in read), 0 if writes is None else writes.nbytes)
        self.calls = {ALONE: self._call, **candidates(device, traffic, read, seconds)}
        self.windows: list[dict[str, float]] = []

    def look(self) -> None:
        """Take one window: each's median seconds of the samples in which no thread waited."""
        seen: dict[str, list[float]] = {name: [] for name in self.calls}
        names, until = list(self.calls), time.perf_counter() + WINDOW_SECONDS
        rounds = 0
        while time.perf_counter() < until or rounds < FEWEST_SAMPLES:
            for name in names[rounds % len(names) :] + names[: rounds % len(names)]:
                sample = self._device.time(self.calls[name], None)
                if sample.drop is None:
                    seen[name].append(sample.seconds)
            rounds += 1
        self.windows.append({name: median(s) for name, s in seen.items() if len(s) >= FEWEST_SAMPLES})

    def spreads(self) -> list[str]:
        """Return the spread of the kernel alone, and relative to each candidate, the smallest in bold."""
        found: dict[str, tuple[float, int]] = {}
        for name in self.calls:
            figures = [
                math.log(window[ALONE]) - (math.log(window[name]) if name != ALONE else 0.0)
                for window in self.windows
                if ALONE in window and name in window
            ]
            if len(figures) > 1:
                found[name] = stdev(figures), len(figures)
        least = min(found, key=lambda name: found[name][0], default=None)
        return [
            "–"
            if name not in found
            else _bold(f"{format_percent(found[name][0], 1)} ({found[name][1]})", name == least)
            for name in self.calls
        ]


def _bold(text: str, wanted: bool) -> str:
    return f"**{text}**" if wanted else text


def main() -> None:
    """Print a table for each kind of neighbour."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="of each kind of neighbour (default: 10)")
    parser.add_argument("--kernel", action="append", choices=tuple(KERNELS), help="kernel to look at (default: all)")
    parser.add_argument("--neighbours", nargs="+", choices=("none", *KINDS), default=["none"], help="(default: none)")
    parser.add_argument("--mib", type=int, default=64, help="MiB of each array (default: 64)")
    options = parser.parse_args()
    names = options.kernel or list(KERNELS)
    device = open_cpu()
    device.make_ready()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "probe_kinds_kernels.py").write_text(text_of_tests(options.mib, names))
        Path(folder, "drop.py").write_text("DROP, EDITED = 0.0, False\n")
        sys.path.insert(0, folder)
        arena = importlib.import_module("probe_kinds_kernels")
        for kind in options.neighbours:
            kernels = {name: Kernel(name, arena, device) for name in names}
            begun = datetime.now(timezone.utc)
            until = time.monotonic() + 60 * options.minutes
            with beside(kind):
                while True:
                    for kernel in kernels.values():
                        kernel.look()
                    if time.monotonic() >= until:
                        break
            ended = datetime.now(timezone.utc)
            print(
                f"{begun:%Y-%m-%d %H:%M} to {ended:%H:%M} UTC, {platform.processor() or platform.machine()}, ", end=""
            )
            print(f"{os.cpu_count()} processors; neighbours: {kind}; arrays of {options.mib} MiB\n")
            lines = [[name, KERNELS[name], *kernel.spreads()] for name, kernel in kernels.items()]
            print(table(("kernel", "kind", *next(iter(kernels.values())).calls), lines), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
