"""Which kernels share memory's fate: probes and kernels in turns, apart by the pace that memory had.

    python benchmarks/fate.py [--seconds 150]

A round times, as medians of seven, the write, copy and read probes and some kernels of the suite. Rounds are told apart
by the write probe: slow are those that reached less than three quarters of its fastest tenth. Where both kinds were
seen, the last column is what a kernel's GB/s did while memory's changed: a share of the probe that stays says that the
kernel waits for memory, GB/s that stay say that it does not.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from datetime import datetime, timezone
from statistics import median

import numpy as np

from pytest_bandwidth.devices.base import Launch
from pytest_bandwidth.devices.cpu import open_cpu
from pytest_bandwidth.devices.host_probes import NumbaOperations, numba_threads
from pytest_bandwidth.devices.kernel_source import read_source

ELEMENTS = 20 * 2**20
SAMPLES = 7
# Under this share of the fastest tenth's GB/s a round's memory was slow. The two paces seen were a factor of two apart.
SLOW = 0.75


def contenders() -> dict[str, tuple[Callable[[], object], int]]:
    """Calls, each with the bytes that it moves."""
    device = open_cpu()
    threads = numba_threads()
    if threads is None:
        raise SystemExit("needs Numba: pip install 'pytest-bandwidth[cpu]'")
    probes = NumbaOperations(threads[0])
    x, out = device.random(ELEMENTS, "float32"), device.random(ELEMENTS, "float32")
    small, results = device.random(2**20, "float32"), device.empty(2**20, "float32")
    heads, n, d = 14, 512, 64
    q, k, v = (device.random(heads * n * d, "float32") for _ in range(3))
    o = device.empty(heads * n * d, "float32")
    side = 448
    a = device.random((side, side), "float32")

    def kernel(file: str, name: str, *args: object) -> Callable[[], object]:
        twin = device.kernel(read_source(file, name, ()))
        return device.launcher(Launch(twin, (4096, 1, 1), (256, 1, 1), args), None)

    return {
        "write probe": (lambda: probes.write(out), out.nbytes),
        "copy probe": (lambda: probes.copy(out, x), 2 * x.nbytes),
        "read probe": (lambda: probes.read(x), x.nbytes),
        "triad": (
            kernel("stream.cu", "triad_f32", out, x, out, np.float32(0.5), np.int64(ELEMENTS)),
            3 * x.nbytes,
        ),
        "cos(cos(x))": (kernel("pointwise.cu", "cos_cos_f32", results, small, np.int64(small.size)), 2 * small.nbytes),
        "attention_flash": (
            kernel(
                "attention.cu",
                "attention_flash_f32",
                *(o, q, k, v, np.float32(0.125), np.int64(heads), np.int64(n), np.int32(d)),
            ),
            4 * q.nbytes,
        ),
        "NumPy a @ a": (lambda: a @ a, 2 * a.nbytes),
    }


def rate(call: Callable[[], object], moved: int) -> float:
    """GB/s, the median of some calls."""
    seconds = []
    for _ in range(SAMPLES):
        begun = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begun)
    return moved / median(seconds) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=150)
    asked = parser.parse_args()
    calls = contenders()
    for call, _ in calls.values():
        call()
    rounds: list[dict[str, float]] = []
    until = time.monotonic() + asked.seconds
    while time.monotonic() < until:
        rounds.append({name: rate(*found) for name, found in calls.items()})
    writes = sorted(r["write probe"] for r in rounds)
    limit = SLOW * median(writes[-max(len(writes) // 10, 1) :])
    slow, fast = ([r for r in rounds if (r["write probe"] < limit) is kind] for kind in (True, False))
    now = datetime.now(timezone.utc)
    counts = f"{len(slow)} rounds with slow memory, {len(fast)} with fast"
    print(f"{now:%Y-%m-%d %H:%M} UTC, {platform.release()}, {counts}\n")
    print("| | GB/s, slow memory | GB/s, fast memory | fast ÷ slow |\n|---|---|---|---|")
    for name in calls:
        there, here = (median(r[name] for r in part) if part else float("nan") for part in (slow, fast))
        print(f"| {name} | {there:.3g} | {here:.3g} | {here / there:.2f} |")


if __name__ == "__main__":
    main()
