"""Measure how much it matters in which memory a host's probe reads: its own, or the arrays of the test.

    python benchmarks/placement.py [--processes 40] [--mib 128]

Every process is new and takes rounds of the shipped triad and of two probes of its size and mix, the plain add: one on
arrays of its own, one that reads the triad's. They alternate in every order. With shared memory the spread from process
to process is noise in time; the rest of it comes from the arrays' places in memory. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from itertools import permutations
from math import log
from statistics import fmean, median, stdev

import numpy as np

from pytest_bandwidth.devices.base import Call, Launch, Workload
from pytest_bandwidth.devices.cpu.device import CpuDevice
from pytest_bandwidth.devices.kernel_source import read_source
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.units import format_percent

ROUNDS = 96
NAMES = ("on arrays of its own", "reading the test's arrays")


def one_process(mib: int) -> list[float]:
    """Return ln of the triad's share of each probe, the median over the rounds."""
    device, n = CpuDevice(), mib * 2**20 // 4
    b, c, a = device.random(n, "float32"), device.random(n, "float32"), device.empty(n, "float32")
    kernel = device.kernel(read_source("stream.cu", "triad_f32", ()))
    launch = Launch(kernel, (4096, 1, 1), (256, 1, 1), (a, b, c, np.float32(3), np.int64(n)))
    workload = Workload(device.launcher(launch, None), Traffic(8 * n, 4 * n), launch=launch, reads=(b, c), writes=(a,))
    # Another device: one keeps its arrays for its next probe.
    probes = [CpuDevice().probe(workload.traffic), device.probe(workload.traffic, workload.inputs)]
    calls = [workload.call, *(probe.call for probe in probes)]
    seconds = rounds(device, calls)
    moved = workload.traffic.bytes_moved
    return [
        median(log(p / k * moved / probe.bytes_moved) for k, p in zip(seconds[0], taken, strict=True))
        for probe, taken in zip(probes, seconds[1:], strict=True)
    ]


def rounds(device: CpuDevice, calls: Sequence[Call]) -> list[list[float]]:
    """Return the seconds of each call in each round; the orders take turns."""
    orders = list(permutations(range(len(calls))))
    seconds: list[list[float]] = [[] for _ in calls]
    for call in (*calls, *calls, *calls):  # warm-up
        device.time(call, None)
    for turn in range(ROUNDS):
        for i in orders[turn % len(orders)]:
            seconds[i].append(device.time(calls[i], None).seconds)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=40)
    parser.add_argument("--mib", type=int, default=128, help="MiB of each of the triad's three arrays (default: 128)")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(*one_process(options.mib))
        return
    when, device = datetime.now(timezone.utc), CpuDevice().identity.name
    print(f"{when:%Y-%m-%d %H:%M} UTC, {device}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.2f}; ", end="")
    print(f"{options.processes} processes, three {options.mib} MiB arrays\n")
    command = [sys.executable, __file__, "--one", f"--mib={options.mib}"]
    found = [
        [float(value) for value in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()]
        for _ in range(options.processes)
    ]
    print("| the probe | share of it, mean | spread from process to process | lowest and highest |\n|---|---|---|---|")
    for name, logs in zip(NAMES, zip(*found, strict=True), strict=True):
        mean = fmean(logs)
        ends = f"{format_percent(min(logs) - mean, 1)}, +{format_percent(max(logs) - mean, 1)}"
        print(f"| {name} | {format_percent(1 + mean, 1)} | {format_percent(stdev(logs), 2)} | {ends} |")


if __name__ == "__main__":
    main()
