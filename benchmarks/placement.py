"""What the place of arrays in memory does to their bandwidth, and to the share of the probe from process to process.

    python benchmarks/placement.py [--mib 256] [--processes 12]

Each fresh process times, in random turns, a triad and an add (the probe of its mix), each on three arrays that begin
at the same place of their pages (level: NumPy's own; a pool's, end to end) and on three that begin STAGGER_BYTES
further on each. Prints GB/s, and the ratio triad ÷ probe with its standard deviation between processes: what a baseline
of several runs takes for noise.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from math import log
from statistics import median, stdev

import numpy as np

from pytest_bandwidth.devices import host_stream
from pytest_bandwidth.devices.host_arrays import STAGGER_BYTES, Array, empty_array
from pytest_bandwidth.devices.host_probes import NumbaOperations, numba_threads

ROUNDS = 20


def end_to_end(elements: int, step: int) -> list[Array]:
    """Three touched arrays out of one, with `step` elements between them."""
    pool = empty_array(3 * (elements + step), "float32")
    pool[:] = 1
    return [pool[k * (elements + step) :][:elements] for k in range(3)]


def one_by_one(elements: int, make: Callable[[int, str], Array]) -> list[Array]:
    """Three touched arrays."""
    arrays = [make(elements, "float32") for _ in range(3)]
    for array in arrays:
        array[:] = 1
    return arrays


def one_process(mib: int) -> dict[str, float]:
    """GB/s by name."""
    n = mib * 2**18
    threads = numba_threads()
    if threads is None:
        raise SystemExit("needs Numba: pip install 'pytest-bandwidth[cpu]'")
    operations = NumbaOperations(threads[0])
    factor = np.float32(3)

    def triad(arrays: list[Array]) -> Callable[[], object]:
        out, x, y = arrays
        return lambda: host_stream.triad(threads[0], out, x, y, factor, n)

    def add(arrays: list[Array]) -> Callable[[], object]:
        out, x, y = arrays
        return lambda: operations.add(out, x, y)

    calls = {
        "triad, level": triad(one_by_one(n, np.empty)),
        "triad, staggered": triad(one_by_one(n, empty_array)),
        "probe, level": add(end_to_end(n, 0)),
        "probe, staggered": add(end_to_end(n, STAGGER_BYTES // 4)),
    }
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(ROUNDS):
        for name in random.sample(sorted(calls), len(calls)):
            begun = time.perf_counter()
            calls[name]()
            seconds[name].append(time.perf_counter() - begun)
    return {name: 12 * n / median(found) / 1e9 for name, found in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=256, help="MiB of each array")
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(one_process(asked.mib)))
        return
    command = [sys.executable, __file__, "--one", f"--mib={asked.mib}"]
    seen = [
        json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        for _ in range(asked.processes)
    ]
    now = datetime.now(timezone.utc)
    print(f"{now:%Y-%m-%d %H:%M} UTC, {platform.release()}, {asked.mib} MiB arrays, {asked.processes} processes\n")
    print("| | GB/s, median of processes |\n|---|---|")
    for name in seen[0]:
        print(f"| {name} | {median(s[name] for s in seen):.1f} |")
    print("\n| triad ÷ probe | median | sd between processes |\n|---|---|---|")
    for place in ("level", "staggered"):
        logs = [log(s[f"triad, {place}"] / s[f"probe, {place}"]) for s in seen]
        print(f"| both {place} | {np.exp(median(logs)):.3f} | {100 * stdev(logs):.2f} % |")


if __name__ == "__main__":
    main()
