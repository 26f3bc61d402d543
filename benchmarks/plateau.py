"""Show where this host's caches end: GB/s by the size of the data, with warm caches and with cold ones.

    python benchmarks/plateau.py [--seconds 3]

Reads and triads run as the last run left the caches, and after reading 1 to 8 times the last level. The cases of one
size alternate in random order. Otherwise the host's own drift would look like an effect. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import time
from collections.abc import Callable
from datetime import datetime, timezone
from functools import partial
from statistics import median

import numpy as np

from pytest_bandwidth.devices.cpu.device import CpuDevice
from pytest_bandwidth.devices.host import ActivityWatch, last_cache_bytes
from pytest_bandwidth.suite.host_kernels import stream

SIZES_MIB = (1.5, 6, 24, 48, 96, 160, 384)
# What is read before a sample, in sizes of the last level.
FACTORS = (0, 1, 2, 4, 8)


def seconds_of(call: Callable[[], object]) -> float:
    started = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - started) * 1e-9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="of each size (default: 3)")
    options = parser.parse_args()
    device, watch = CpuDevice(), ActivityWatch()
    cache, threads = last_cache_bytes(), int(device.identity.settings["threads"])
    if cache is None:
        raise SystemExit("the system does not tell the size of its caches")
    sink, never = np.zeros(1, np.float32), np.float32(np.nan)
    buffer = device.random(FACTORS[-1] * cache // 4, "float32")
    evict = {f: partial(stream.read, threads, sink, buffer, never, f * cache // 4) for f in FACTORS}
    evict[1]()
    costs = {f: median([seconds_of(evict[f]) for _ in range(5)]) for f in FACTORS}
    print(f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC, {device.identity.name}, {threads} threads, ", end="")
    print(f"last level {cache / 2**20:.0f} MiB, {platform.release()}, load {os.getloadavg()[0]:.2f}")
    for name, arrays in (("read", 1), ("triad", 3)):
        print(f"\n{name}, GB/s by MiB of data\n\n| MiB | warm | ", end="")
        print(" | ".join(f"{f} × L3 read before, {costs[f] * 1e3:.1f} ms" for f in FACTORS[1:]) + " |")
        print("|---|" + "---|" * len(FACTORS))
        for mib in SIZES_MIB:
            n = int(mib * 2**20 / 4 / arrays)
            a, b, c = device.empty(n, "float32"), device.random(n, "float32"), device.random(n, "float32")
            runs = {
                "read": partial(stream.read, threads, sink, b, never, n),
                "triad": partial(stream.triad, threads, a, b, c, np.float32(3), n),
            }
            run = runs[name]
            taken: dict[int, list[float]] = {factor: [] for factor in FACTORS}
            ends = time.perf_counter() + options.seconds
            while time.perf_counter() < ends:
                for factor in random.sample(FACTORS, len(FACTORS)):
                    run()
                    evict[factor]()
                    taken[factor].append(seconds_of(run))
            figures = " | ".join(f"{4 * arrays * n / median(seconds) / 1e9:.1f}" for seconds in taken.values())
            print(f"| {mib:g} | {figures} |", flush=True)
    print("\nOthers meanwhile: " + ("; ".join(watch.conditions().others) or "none") + ".")


if __name__ == "__main__":
    main()
