"""Measure what new arrays alone change: the same code and data in one process, in the same arrays and in new ones.

    python benchmarks/new_arrays.py                # ten sets of arrays a kernel: two minutes
    python benchmarks/new_arrays.py --sets 20 --mib 64

The script times each kernel in the first arrays, in them again, and in a new set, in rounds of the three. All sets stay
alive, so that each has another place in memory. The spread of a new set's ratio to the first arrays comes from that
place; the spread of the first arrays' ratio to themselves is the machine's noise. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from datetime import datetime, timezone
from math import log
from statistics import median, stdev
from typing import Any

import numpy as np

from pytest_bandwidth.devices.base import Call, Launch
from pytest_bandwidth.devices.cpu.device import CpuDevice
from pytest_bandwidth.devices.kernel_source import read_source
from pytest_bandwidth.domain.units import format_percent

ROUNDS = 15
COLS = 4096


def launched(device: CpuDevice, file: str, name: str, grid: int, args: tuple[Any, ...]) -> Call:
    kernel = device.kernel(read_source(file, name, ()))
    return device.launcher(Launch(kernel, (grid, 1, 1), (256, 1, 1), args), None)


def triad(device: CpuDevice, n: int) -> Call:
    a, b, c = device.empty(n, "float32"), device.random(n, "float32"), device.random(n, "float32")
    return launched(device, "stream.cu", "triad_f32", 4096, (a, b, c, np.float32(3), np.int64(n)))


def layer_norm(device: CpuDevice, n: int) -> Call:
    rows = n // COLS
    x, y = device.random((rows, COLS), "float32"), device.empty((rows, COLS), "float32")
    gamma, beta = device.random(COLS, "float32"), device.random(COLS, "float32")
    args = (y, x, gamma, beta, np.float32(1e-5), np.int64(rows), np.int64(COLS))
    return launched(device, "layernorm.cu", "layer_norm_staged_f32", rows, args)


def gemm(device: CpuDevice, _: int) -> Call:
    m, n, k = 512, 512, 256
    c, a, b = (device.random(shape, "float32") for shape in ((m, n), (m, k), (k, n)))
    args = (c, a, b, np.int64(m), np.int64(n), np.int64(k))
    return launched(device, "gemm.cu", "gemm_naive_f32", m, args)


def exponential(device: CpuDevice, n: int) -> Call:
    x, y = device.random(n // 8, "float64"), device.empty(n // 8, "float64")
    return lambda: np.exp(x, out=y)


def total(device: CpuDevice, n: int) -> Call:
    x = device.random(n, "float32")
    return lambda: np.sum(x)


KERNELS: dict[str, Callable[[CpuDevice, int], Call]] = {
    "triad": triad,
    "layer norm": layer_norm,
    "naive GEMM, 512 × 512 × 256": gemm,
    "NumPy's exponential": exponential,
    "NumPy's sum": total,
}


def ratios(device: CpuDevice, first: Call, other: Call) -> tuple[float, float]:
    """Return ln of the seconds, the first arrays' again and the other's, over the first's: medians of common rounds."""
    calls = (first, first, other)
    for call in calls * 2:
        call()
    taken = []
    for number in range(ROUNDS):
        order = [(number + i) % len(calls) for i in range(len(calls))]
        seconds = {i: device.time(calls[i], None).seconds for i in order}
        taken.append((log(seconds[1] / seconds[0]), log(seconds[2] / seconds[0])))
    again, others = zip(*taken, strict=True)
    return median(again), median(others)


def spreads(make: Callable[[CpuDevice, int], Call], sets: int, n: int) -> tuple[list[float], list[float]]:
    """Return by set of new arrays how far the first ones are from themselves, and the new ones from them."""
    device = CpuDevice()
    first, kept, same, new = make(device, n), [], [], []
    for _ in range(sets):
        kept.append(make(device, n))
        again, other = ratios(device, first, kept[-1])
        same.append(again)
        new.append(other)
    return same, new


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=10, help="of new arrays, of each kernel (default: 10)")
    parser.add_argument("--mib", type=int, default=64, help="MiB of a stream's array (default: 64)")
    options = parser.parse_args()
    when, name = datetime.now(timezone.utc), CpuDevice().identity.name
    print(f"{when:%Y-%m-%d %H:%M} UTC, {name}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.2f}; ", end="")
    print(f"{options.sets} sets of arrays, of {options.mib} MiB\n")
    print("| kernel | spread in the same arrays | in new ones | fastest to slowest, same | new |")
    print("|---|---|---|---|---|")
    for kernel, make in KERNELS.items():
        same, new = spreads(make, options.sets, options.mib * 2**20 // 4)
        ends = (format_percent(max(found) - min(found), 1) for found in (same, new))
        print(f"| {kernel} | {' | '.join([*(format_percent(stdev(f), 1) for f in (same, new)), *ends])} |", flush=True)


if __name__ == "__main__":
    main()
