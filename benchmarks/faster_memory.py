"""Measure what faster memory does to a kernel's share of its probe, by how much else the kernel has to do.

    python benchmarks/faster_memory.py [--seconds 180] [--mib 128]

A hypervisor gives this machine's memory one speed for a while and then another. One process samples the shipped
intensity sweep (a copy that multiplies and adds so many times for each element), NumPy's own copy, which runs on one
thread, and the plain copy that is their probe, one after the other. A sample counts where the probes before and after
it agree, and belongs to the column of their speed. A kernel that keeps its share with faster memory waits for memory
there as well. One that keeps its GB/s loses share although its code is the same: so stored shares are weak evidence.
Prints Markdown.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections import defaultdict
from datetime import datetime, timezone
from statistics import median

import numpy as np

from pytest_bandwidth.devices.base import Call, Launch
from pytest_bandwidth.devices.cpu.device import CpuDevice
from pytest_bandwidth.devices.kernel_source import read_source
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.units import format_percent

WORK = (0, 8, 16, 24, 32, 40, 48, 64, 96, 128)
# If two probes differ by more, the speed changed between them.
ALIKE = 0.08
# A column is from one of these GB/s to the next, and needs so many samples.
STEPS = (0, 30, 35, 40, 45, 50, 55, 60, 65, 70, 80, 90, 100, 1000)
FEWEST = 8


def calls_of(device: CpuDevice, n: int) -> tuple[dict[str, Call], Call]:
    """Return the kernels by name, and their probe, all reading one array."""
    x, out = device.random(n, "float32"), device.random(n, "float32")
    kernel, half = device.kernel(read_source("intensity.cu", "intensity_fma_f32", ())), np.float32(0.5)

    def working(times: int) -> Call:
        args = (out, x, half, half, np.int32(times), np.int64(n))
        return device.launcher(Launch(kernel, (4096, 1, 1), (256, 1, 1), args), None)

    kernels = {f"{times} multiply-adds": working(times) for times in WORK}
    kernels["NumPy's copy"] = lambda: np.copyto(out, x)
    return kernels, device.probe(Traffic(x.nbytes, out.nbytes), (x,)).call


def sampled(device: CpuDevice, kernels: dict[str, Call], probe: Call, seconds: float) -> dict[str, list[list[float]]]:
    """Return by kernel: seconds of the probe before, the kernel, the probe after."""
    for call in (*kernels.values(), probe):  # compiles
        call()
    found: dict[str, list[list[float]]] = defaultdict(list)
    names, end = list(kernels), time.monotonic() + seconds
    before = device.time(probe, None).seconds
    turn = 0
    while time.monotonic() < end:
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            kernel, after = (device.time(call, None).seconds for call in (kernels[name], probe))
            found[name].append([before, kernel, after])
            before = after
        turn += 1
    return found


def by_speed(samples: list[list[float]], moved: int) -> dict[int, list[float]]:
    """Return the shares of the probe, by the column of its speed."""
    found: dict[int, list[float]] = defaultdict(list)
    for before, kernel, after in samples:
        if abs(math.log(before / after)) < ALIKE:
            middle = math.sqrt(before * after)
            column = sum(moved / middle / 1e9 >= step for step in STEPS[1:-1])
            found[column].append(middle / kernel)
    return found


def cell(shares: list[float]) -> str:
    return f"{format_percent(median(shares), 1)} ({len(shares)})" if len(shares) >= FEWEST else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--mib", type=int, default=128, help="MiB of each of two arrays (default: 128)")
    options = parser.parse_args()
    device, n = CpuDevice(), options.mib * 2**20 // 4
    print(f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC, {device.identity.name}, ", end="")
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.2f}; two {options.mib} MiB arrays\n")
    found = sampled(device, *calls_of(device, n), options.seconds)
    shares = {name: by_speed(samples, 8 * n) for name, samples in found.items()}
    columns = sorted({c for of in shares.values() for c, some in of.items() if len(some) >= FEWEST})
    heads = (f"{STEPS[column]} to {STEPS[column + 1]} GB/s" for column in columns)
    print(f"| share of the probe at | {' | '.join(heads)} |\n|{'---|' * (len(columns) + 1)}")
    for name, of in shares.items():
        print(f"| {name} | {' | '.join(cell(of[column]) for column in columns)} |")


if __name__ == "__main__":
    main()
