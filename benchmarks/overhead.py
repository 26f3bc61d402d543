"""Measure what the plugin costs a project that does not use it, and what it adds to a measured sample.

    python benchmarks/overhead.py [--pairs 20]

Start-up: `pytest --collect-only` on a project without bandwidth tests, alternately with the plugin and with
`-p no:bandwidth`; it names each heavy module that was loaded as well. Per sample: the host's time for an empty callable
as a sample, and without the plugin. Opened files: what callables take in processes with the audit hook that notes
opened files, and without it, alternated, and how often Python calls the hook.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

HEAVY = ("numpy", "yaml", "jinja2", "numba", "cupy", "pynvml")
_CHECK = f"""
import sys
def pytest_sessionfinish():
    print("HEAVY", [name for name in {HEAVY!r} if name in sys.modules])
"""


def start_up_seconds(folder: Path, *, with_plugin: bool) -> tuple[float, str]:
    """Return the wall seconds of one collection, and the line that names heavy modules."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    # Other installed plugins would add noise and imports. The plugin is named by its module: for the name of an entry
    # point pytest would search all packages first.
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # pytest would compile the plugin at every start
    command += ["-p", "pytest_bandwidth.plugin" if with_plugin else "no:pytest_bandwidth.plugin"]
    begun = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - begun
    return seconds, next(line for line in done.stdout.splitlines() if line.startswith("HEAVY"))


def start_up(pairs: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "conftest.py").write_text(_CHECK)
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "test_plain.py").write_text("".join(f"def test_{i}(): pass\n" for i in range(20)))
        start_up_seconds(folder, with_plugin=True)  # byte code is written once
        start_up_seconds(folder, with_plugin=False)
        on, off, differences, heavy = [], [], [], "HEAVY []"
        for i in range(pairs):
            seconds = {}
            for with_plugin in (True, False) if i % 2 == 0 else (False, True):  # each goes first in every other pair
                seconds[with_plugin], loaded = start_up_seconds(folder, with_plugin=with_plugin)
                heavy = loaded if with_plugin else heavy
            on.append(seconds[True])
            off.append(seconds[False])
            differences.append(seconds[True] - seconds[False])
    print(
        f"start-up, median of {pairs} alternated: with {median(on) * 1e3:.1f} ms, without {median(off) * 1e3:.1f} ms, "
        f"difference {median(differences) * 1e3:+.1f} ms (limit 10 ms); heavy modules loaded: {heavy[6:]}"
    )


def per_sample(rounds: int = 2000) -> None:
    from pytest_bandwidth.devices.base import Budget, Workload
    from pytest_bandwidth.devices.open import open_device
    from pytest_bandwidth.devices.sampling import take_rounds
    from pytest_bandwidth.domain.traffic import Traffic

    device = open_device("cpu")

    def nothing() -> None:
        return None

    bare = []
    for _ in range(rounds):
        begun = time.perf_counter_ns()
        nothing()
        bare.append(time.perf_counter_ns() - begun)
    budget = Budget(min_samples=rounds, max_seconds=5.0, precision=1e-9, tolerates_run_delay="all")
    taken, *_ = take_rounds(device, Workload(nothing, Traffic(0, 0)), budget, lambda _: None)
    loop = median(taken.kernel_seconds)
    a_round = taken.wall_seconds / len(taken.kernel_seconds)
    print(
        f"per sample: an empty callable takes {median(bare) / 1e3:.2f} µs bare, {loop * 1e6:.2f} µs as a sample; "
        f"{a_round * 1e6:.0f} µs a round without a probe"
    )


CALLABLES = {
    "np.copyto of 4 kB": "np.copyto(b, a)",
    "np.add of 4 MB": "np.add(c, 1.0, out=d)",
    "a Numba function": "triad(c, d)",
    "a call by ctypes": "library.getpid()",
    "a file opened": "open(name).close()",
}
_WATCHED = f"""
import ctypes, json, sys, tempfile, time
from statistics import median
import numba, numpy as np
from pytest_bandwidth.read_files import opened

a, b, c, d = (np.zeros(n, "f4") for n in (2**10, 2**10, 2**20, 2**20))
library = ctypes.CDLL(None)
name = tempfile.NamedTemporaryFile().name
open(name, "w").close()

@numba.njit
def triad(x, y):
    for i in range(x.size):
        y[i] = x[i] * 3

triad(c, d)
if sys.argv[1] == "watched":
    opened.watch("/")
elif sys.argv[1] == "counted":
    seen = []
    sys.addaudithook(lambda event, args: seen.append(event))
found = {{}}
for what, text in {CALLABLES!r}.items():
    call = eval(f"lambda: {{text}}")
    taken = []
    for _ in range(1 if sys.argv[1] == "counted" else 500):
        if sys.argv[1] == "counted":
            seen.clear()
        begun = time.perf_counter_ns()
        call()
        taken.append(time.perf_counter_ns() - begun)
        if sys.argv[1] == "counted":
            taken[-1] = len(seen)
    found[what] = median(taken)
print(json.dumps(found))
"""


def watching(pairs: int) -> None:
    def run(how: str) -> dict[str, float]:
        done = subprocess.run([sys.executable, "-c", _WATCHED, how], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    runs = {how: [] for how in ("watched", "plain")}
    for i in range(pairs):
        for how in sorted(runs, reverse=bool(i % 2)):
            runs[how].append(run(how))
    events = run("counted")
    for what in CALLABLES:
        differences = [w[what] - p[what] for w, p in zip(runs["watched"], runs["plain"], strict=True)]
        plain = median(p[what] for p in runs["plain"])
        print(
            f"watching files, {what}: {plain / 1e3:.2f} µs without, {median(differences) / 1e3:+.2f} µs with "
            f"(median of {pairs} pairs of processes); {events[what]:.0f} events a call"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=20)
    pairs = parser.parse_args().pairs
    start_up(pairs)
    per_sample()
    watching(pairs)
