"""Judge the same kernel, size and time budget by this plugin and by pytest-benchmark, side by side in one run.

    python benchmarks/gate.py                               # short: about 10 minutes
    python benchmarks/gate.py --judged 200 --dropped 60     # long: what the claims are held to, most of an hour
    python benchmarks/gate.py --judged 10 --drop 10%

Every judged test is a fresh `pytest` process, confirmation included. A drop is injected by letting the kernel work
1/(1 − drop) times as much as it declares, in the same arrays. Baselines: five fresh processes for this plugin, one
saved run for pytest-benchmark, renewed for every ten judged tests. The two tools take turns. Prints false alarms on
identical code, found drops, and seconds per judged test, with n and one-sided 95 % limits.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest

from pytest_bandwidth.domain.judging.error_rates import upper_limit
from pytest_bandwidth.domain.units import format_percent, parse_fraction
from pytest_bandwidth.session.fresh.confirm import LONG_WAIT_SECONDS

JUDGED_PER_BASELINE = 10
LIMIT_SECONDS = 10.0
BASELINE_TRIES = 3
TEST = """
import os
import numpy as np
import pytest
from pytest_bandwidth.devices.base import Launch
from pytest_bandwidth.devices.kernel_source import read_source
from pytest_bandwidth.devices.open import open_device

N = {elements}
# In the same arrays whatever the drop: memory's speed depends on where they lie to each other.
WHOLE, REST = divmod(round(N / (1 - float(os.environ.get("DROP", "0")))), N)
GRID, BLOCK = (4096, 1, 1), (256, 1, 1)

def work(device, launcher):
    b, c = device.random(N, "float32"), device.random(N, "float32")
    arrays = device.empty(N, "float32"), b, c, np.float32(3)
    calls = [launcher((*arrays, np.int64(n))) for n in (*[N] * WHOLE, REST) if n]
    return arrays, calls[0] if len(calls) == 1 else lambda: [call() for call in calls]

def test_ours(bandwidth):
    triad = bandwidth.kernel("stream.cu", "triad_f32")
    (a, b, c, _), call = work(bandwidth, lambda args: bandwidth.bind(triad, GRID, BLOCK, args))
    bandwidth(call, reads=(b, c), writes=a)

def test_theirs(benchmark):
    device = open_device("cpu")
    kernel = device.kernel(read_source("stream.cu", "triad_f32", ()))
    _, call = work(device, lambda args: device.launcher(Launch(kernel, GRID, BLOCK, args), None))
    benchmark(call)
"""


@dataclass
class Tool:
    """Count what one way of judging did: per drop (0 for identical code) how many alarms in how many tests."""

    name: str
    alarms: dict[float, int] = field(default_factory=dict)
    judged: dict[float, int] = field(default_factory=dict)
    statuses: dict[float, list[str]] = field(default_factory=dict)
    seconds: dict[float, list[float]] = field(default_factory=dict)

    def add(self, drop: float, alarm: bool, seconds: float, status: str = "") -> None:
        self.alarms[drop] = self.alarms.get(drop, 0) + alarm
        self.judged[drop] = self.judged.get(drop, 0) + 1
        self.statuses.setdefault(drop, []).append(status)
        self.seconds.setdefault(drop, []).append(seconds)


class Arena:
    """Hold a folder with the kernel's test, and both tools' baselines in it."""

    def __init__(self, folder: Path, mib: int, tolerance: str) -> None:
        self._folder = folder
        self._tolerance = tolerance
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "test_kernel.py").write_text(TEST.replace("{elements}", str(mib * 2**20 // 4)))
        self.ours = Tool(f"pytest-bandwidth, tolerance {tolerance}")
        self.median = Tool("pytest-benchmark, median:5%")
        self.minimum = Tool("pytest-benchmark, min:5%")
        self.fresh: list[dict[str, Any]] = []

    def take_baselines(self) -> None:
        baseline = self._folder / "ours.yaml"
        baseline.unlink(missing_ok=True)
        for _ in range(BASELINE_TRIES):  # what is measured beside others does not enter
            code, text, _ = self._pytest(0.0, "test_ours", "--bandwidth-update", "--bandwidth-runs=5", *self._ours())
            if baseline.exists():
                break
        if code != 0 or not baseline.exists():
            raise SystemExit(f"the baseline was not written:\n{text}")
        storage = self._folder / "theirs"
        for old in storage.rglob("*.json"):
            old.unlink()
        code, text, _ = self._pytest(0.0, "test_theirs", "--benchmark-save=base", *self._theirs())
        if code != 0:
            raise SystemExit(f"pytest-benchmark saved nothing:\n{text}")

    def judge(self, drop: float) -> None:
        given = (f"--bandwidth-tolerance={self._tolerance}", "--bandwidth-json=ours.json", *self._ours())
        code, text, seconds = self._pytest(drop, "test_ours", *given)
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            raise SystemExit(f"nothing was judged:\n{text}")
        [row] = json.loads((self._folder / "ours.json").read_text())["results"]
        self.ours.add(drop, code != 0, seconds, row["status"])
        if row["status"] != ("REGRESSED" if drop else "WITHIN"):
            print(f"  drop {format_percent(drop)}: {row['status']}: {row['reason']}", flush=True)
        if seconds > LIMIT_SECONDS:
            print(f"  drop {format_percent(drop)}: {seconds:.1f} s; {costs(row)}", flush=True)
        self.fresh += row["fresh"]
        fails = ("--benchmark-compare-fail=median:5%", "--benchmark-compare-fail=min:5%")
        _, text, seconds = self._pytest(drop, "test_theirs", "--benchmark-compare", *fails, *self._theirs())
        self.median.add(drop, "Field 'median' has failed" in text, seconds)
        self.minimum.add(drop, "Field 'min' has failed" in text, seconds)

    def _ours(self) -> tuple[str, ...]:
        return ("-p", "no:benchmark", "--bandwidth-device=cpu", "--bandwidth-baseline=ours.yaml")

    def _theirs(self) -> tuple[str, ...]:
        return ("-p", "no:bandwidth", "--benchmark-storage=file://theirs", "--benchmark-max-time=1")

    def _pytest(self, drop: float, name: str, *args: str) -> tuple[int, str, float]:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:randomly", *args]
        # Plugins that take no part would add start-up time to one side or both.
        environment = {**os.environ, "DROP": str(drop), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        command += ["-p", "bandwidth"] if name == "test_ours" else ["-p", "benchmark"]
        begun = time.monotonic()
        done = subprocess.run(
            [*command, f"test_kernel.py::{name}"],
            cwd=self._folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr, time.monotonic() - begun


def table(tools: list[Tool], drops: list[float]) -> str:
    lines = [f"{'':34}{'false alarms':>26}" + "".join(f"{f'found {format_percent(d)}':>26}" for d in drops[1:])]
    for tool in tools:
        cells = f"{tool.name:34}{counted(tool, 0.0):>26}" + "".join(f"{counted(tool, drop):>26}" for drop in drops[1:])
        lines.append(cells)
    lines.append("")
    for tool in tools[:2]:
        for kind, seconds in (
            ("all", [s for drop in drops for s in tool.seconds.get(drop, [])]),
            ("unchanged", tool.seconds.get(0.0, [])),
            ("slowed", [s for drop in drops[1:] for s in tool.seconds.get(drop, [])]),
        ):
            if seconds:
                lines.append(f"{tool.name.split(',')[0]}, seconds a judged test, {kind}: {spent(seconds)}")
    return "\n".join(lines)


def counted(tool: Tool, drop: float) -> str:
    """Return how many alarms, and their rate's limit: at most on identical code, at least of drops."""
    alarms, judged = tool.alarms.get(drop, 0), tool.judged.get(drop, 0)
    if not judged:
        return "none judged"
    limit = f"≥ {format_percent(1 - upper_limit(judged - alarms, judged), 1)}"
    if not drop:
        limit = f"≤ {format_percent(upper_limit(alarms, judged), 1)}"
    return f"{alarms} of {judged} ({limit})"


def spent(seconds: list[float]) -> str:
    over = sum(s > LIMIT_SECONDS for s in seconds)
    return (
        f"median {median(seconds):.1f}, mean {fmean(seconds):.1f}, at most {max(seconds):.1f}; "
        f"{over} of {len(seconds)} over {LIMIT_SECONDS:.0f}"
    )


def costs(row: Mapping[str, Any]) -> str:
    """Return what a judged test's seconds went to: sampling here, and each fresh process with what it waited for."""
    own = sum(row["samples"]) + sum(row["probe_samples"]) + row["warmup_seconds"]
    fresh = ", ".join(f"{f['wall_seconds']:.1f} ({f['waited_seconds']:.1f} of them waiting)" for f in row["fresh"])
    return f"sampled for {own:.1f} s here, fresh processes: {fresh or 'none'}"


def waits(fresh: list[dict[str, Any]]) -> str:
    """Return how many fresh processes there were, and how many waited for the baseline's memory speed, how long."""
    waited = [f["waited_seconds"] for f in fresh if f["waited_seconds"] > LONG_WAIT_SECONDS]
    longest = f", at most {max(waited):.1f} s" if waited else ""
    return f"{len(fresh)} fresh processes, {len(waited)} of them waited for the baseline's memory speed{longest}"


def has_drops(i: int, judged: int, dropped: int) -> bool:
    """Return whether the i-th judged test comes with dropped ones, so that these are spread evenly."""
    return (i + 1) * dropped // judged > i * dropped // judged


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--judged", type=int, default=12, help="tests of identical code (default: 12)")
    parser.add_argument("--dropped", type=int, help="tests of each drop, of so many at most (default: as many)")
    parser.add_argument("--drop", action="append", help="drop to inject (default: 3%% 5%% 10%%)")
    parser.add_argument("--tolerance", default="3%")
    parser.add_argument("--mib", type=int, default=128, help="MiB of each of three arrays (default: 128)")
    options = parser.parse_args()
    dropped = options.judged if options.dropped is None else min(options.dropped, options.judged)
    drops = [0.0, *map(parse_fraction, options.drop or ["3%", "5%", "10%"])]
    print(f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC, {platform.processor() or platform.machine()}, ", end="")
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.2f}; triad of three {options.mib} MiB arrays")
    with tempfile.TemporaryDirectory() as folder:
        arena = Arena(Path(folder), options.mib, options.tolerance)
        for i in range(options.judged):
            if i % JUDGED_PER_BASELINE == 0:
                arena.take_baselines()
            kinds = drops if has_drops(i, options.judged, dropped) else drops[:1]
            for drop in kinds[i % len(kinds) :] + kinds[: i % len(kinds)]:
                arena.judge(drop)
            so_far = ", ".join(f"{format_percent(drop)}: {counted(arena.ours, drop)}" for drop in drops)
            print(f"… {i + 1} of {options.judged}; alarms by drop: {so_far}", file=sys.stderr, flush=True)
        print(table([arena.ours, arena.median, arena.minimum], drops))
        print(waits(arena.fresh))
        for drop, statuses in sorted(arena.ours.statuses.items()):
            counts = ", ".join(f"{statuses.count(s)} {s}" for s in dict.fromkeys(statuses))
            print(f"  drop {format_percent(drop)}: {counts}")


if __name__ == "__main__":
    main()
