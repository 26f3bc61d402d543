"""Measure how baselines scale: time and memory of loading, matching, judging and updating, measured in fresh processes.

``python benchmarks/scale.py [ENTRIES …]`` (1,000 and 10,000 without arguments) prints a Markdown table.
``python benchmarks/scale.py --tests N`` runs N small tests on the traffic device instead: it updates, judges, and
judges by two workers of pytest-xdist, alternately with as many empty tests without the plugin. It prints the median
seconds of each, the processors' seconds, and the ratios of the runs. ``--threads`` sets the threads of each kernel.
Each figure is the median of three fresh processes (`--repeat`); memory is the process's peak, the interpreter included.
Every entry has ten runs, as after ten updates, and settings, bytes and an anchor. The files lie on whatever $TMPDIR is.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

RUNS_PER_ENTRY = 10

# Each program gets the file's path and the number of entries; it prints seconds and peak memory in MiB.
_REPORT = """
import json, resource, sys, time
from dataclasses import replace
from pathlib import Path
from pytest_bandwidth import baseline as baseline_files
from pytest_bandwidth.domain.device import DeviceIdentity
path, entries = Path(sys.argv[1]), int(sys.argv[2])
keys = [f"tests/test_scale.py::test_kernel[{number}-float32]" for number in range(entries)]
device = DeviceIdentity("cuda", "Scale", 80 * 2**30, "GPU-0")
begin = time.perf_counter()
{work}
print(json.dumps([time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""
_LOAD = "baseline = baseline_files.load(path)\nassert all(key in baseline.entries for key in keys)"
# As a run does for its tests: every entry is matched with a measurement of its own and judged.
_JUDGE = """
from pytest_bandwidth.judging.limits import Limits
from pytest_bandwidth.judging.limits import MarkerOptions
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.measured.rounds import Rounds
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.judging.evidence import first_evidence
from pytest_bandwidth.judging.judge import judge
rounds = Rounds(kernel_seconds=(2**29 / 1.754e12,), probe_seconds=(2**29 / 1.754e12,), kernel_first=(True,),
                probe_bytes=2**29)
settings = {"mig": "off", "ecc": "on"}
device = replace(device, settings=settings)
seen = Measurement(None, Traffic(2**28, 2**28), device, "events+block", rounds)
limits = Limits(MarkerOptions(), 0.05, 3)
begin = time.perf_counter()
baseline = baseline_files.load(path)
decided = [judge(first_evidence({key: seen}, baseline, limits), limits)[key].decision for key in keys]
assert {str(decision.status) for decision in decided} <= {"OK", "UNDECIDED"}, decided[0]
"""
_UPDATE_ONE = """
def append(old, new):
    return replace(old, runs=(*old.runs, *new.runs))
entry = baseline_files.load(path).entries.get(keys[len(keys) // 2])
begin = time.perf_counter()
new = [replace(entry, runs=entry.runs[:1])]
assert len(baseline_files.update(path, device, new, merge_in=lambda _: append)) == 1
"""
_UPDATE_ALL = """
def append(old, new):
    return replace(old, runs=(*old.runs, *new.runs))
new = [replace(entry, runs=entry.runs[:1]) for entry in baseline_files.load(path).entries.values()]
begin = time.perf_counter()
assert len(baseline_files.update(path, device, new, merge_in=lambda _: append)) == len(keys)
"""
STEPS = {
    "load and match": _LOAD,
    "load, match and judge": _JUDGE,
    "update one entry": _UPDATE_ONE,
    "update every entry": _UPDATE_ALL,
}


# One measurement of one element a thread.
_TESTS = """
import numpy as np
import pytest

SOURCE = '''extern "C" __global__ void scale(const float* a, float* b, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i] = 2.0f * a[i];
}}'''


@pytest.mark.parametrize("number", range({tests}))
def test_scale(bandwidth, number):
    a, b = bandwidth.random({threads}, "float32"), bandwidth.empty({threads}, "float32")
    kernel = bandwidth.kernel(SOURCE, "scale")
    bandwidth.launch(kernel, {threads} // 256, 256, (a, b, np.int32({threads})), reads=a, writes=b)
"""
# As many empty tests: the time that pytest and xdist take themselves.
_EMPTY = """
import pytest


@pytest.mark.parametrize("number", range({tests}))
def test_empty(number):
    pass
"""
_OURS = ("-p", "bandwidth", "--bandwidth-device=traffic")
_HALVES = ("test_first.py", "test_second.py")
_TWO_WORKERS = ("-p", "xdist", "-n2")
# Each: the arguments of processes that run at once. Two independent processes show the most that this machine's second
# processor can give: it may be another thread of the same core.
RUNS = {
    "update": ((*_HALVES, *_OURS, "--bandwidth-update"),),
    "judge": ((*_HALVES, *_OURS, "--bandwidth-strict"),),
    "judge with -n 2": ((*_HALVES, *_OURS, "--bandwidth-strict", *_TWO_WORKERS),),
    "judge, two runs of half each at once": tuple((half, *_OURS, "--bandwidth-strict") for half in _HALVES),
    # As -n 2, if each of its three processes had a processor.
    "judge half with -n 1": ((_HALVES[0], *_OURS, "--bandwidth-strict", "-p", "xdist", "-n1"),),
    "empty tests, without the plugin": (("test_empty.py",),),
    "the same with -n 2": (("test_empty.py", *_TWO_WORKERS),),
}


def time_tests(tests: int, threads: int, repeat: int) -> dict[str, tuple[float, float]]:
    """Median seconds, and processors' seconds, of so many small tests on the traffic device, by RUNS; alternated."""
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in RUNS}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    # This times the plugin and xdist, with their bytecode kept as usual, and no other plugin.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "pytest.ini").write_text("[pytest]\nbandwidth_baseline = b.yaml\n")
        for half, count in zip(_HALVES, (tests - tests // 2, tests // 2), strict=True):
            Path(folder, half).write_text(_TESTS.format(tests=count, threads=threads))
        Path(folder, "test_empty.py").write_text(_EMPTY.format(tests=tests))

        def run(at_once: tuple[tuple[str, ...], ...]) -> None:
            running = []
            for number, options in enumerate(at_once):
                # Otherwise pytest removes old temporary files of other runs at the end.
                own = [*command, f"--basetemp={folder}/temporary{number}", *options]
                silent = subprocess.DEVNULL
                running.append(subprocess.Popen(own, cwd=folder, env=environment, stdout=silent, stderr=silent))
            for process in running:
                if process.wait() != 0:
                    raise subprocess.CalledProcessError(process.returncode, process.args)

        run(RUNS["update"])  # compiles loops
        for i in range(repeat):
            first, second, *others = RUNS
            # Runs that are compared follow each other, in alternating order.
            for name in (first, second, *others) if i % 2 == 0 else (second, first, *others):
                at_once = RUNS[name]
                began, spent = time.perf_counter(), _spent_by_children()
                run(at_once)
                seconds[name].append((time.perf_counter() - began, _spent_by_children() - spent))
    return {name: (median(s for s, _ in taken), median(s for _, s in taken)) for name, taken in seconds.items()}


def _spent_by_children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def print_tests(tests: int, threads: int, repeat: int) -> None:
    """Print what `time_tests` finds."""
    found = time_tests(tests, threads, repeat)
    print("| tests | run | seconds | ms per test | processors' seconds |")
    print("|---|---|---|---|---|")
    for name, (seconds, spent) in found.items():
        print(f"| {tests} | {name} | {seconds:.1f} | {seconds / tests * 1e3:.1f} | {spent:.1f} |")
    update, judge, with_two, halves, half, empty, empty_with_two = (seconds for seconds, _ in found.values())
    print(
        f"\njudge ÷ update: {judge / update:.2f}; -n 2 ÷ one process: {with_two / judge:.2f}, "
        f"beyond what empty tests take: {(with_two - empty_with_two) / (judge - empty):.2f}; "
        f"two runs of half each at once ÷ one process: {halves / judge:.2f}; "
        f"half with -n 1 ÷ one process: {half / judge:.2f}"
    )


def write_baseline(path: Path, entries: int) -> None:
    """Write a baseline as updates do, by the package's own writer."""
    from pytest_bandwidth import baseline as baseline_files
    from pytest_bandwidth.domain.baseline import Entry, Run
    from pytest_bandwidth.domain.device import DeviceIdentity

    def run(number: int, process: int) -> Run:
        gbps = 1700.0 + (number + process) % 97
        at = f"2026-11-{1 + process:02d}T04:00:00Z"
        gpu, extra = "GPU-8a2f8a3d-0001-0001-0001-0123456789ab", {"driver_version": "580.65.06"}
        return Run(gbps, 1754.0, gbps / 1754.0, 212, gpu, f"{process:012x}", at, extra)

    found = {}
    for number in range(entries):
        key = f"tests/test_scale.py::test_kernel[{number}-float32]"
        runs = tuple(run(number, process) for process in range(RUNS_PER_ENTRY))
        found[key] = Entry(
            key,
            judged_on="relative",
            bytes_read=2**28,
            bytes_written=2**28,
            method="events+block",
            settings={"mig": "off", "ecc": "on"},
            anchor=runs[0],
            runs=runs,
        )
    path.write_text("schema: 2\ndevice: {name: Scale, memory_gib: 80, kind: cuda, peak: 2039 GB/s}\ntests:\n")
    baseline_files.update(path, DeviceIdentity("cuda", "Scale", 80 * 2**30, "GPU-0"), list(found.values()))


def measure(step: str, path: Path, entries: int, repeat: int) -> tuple[float, float]:
    """Return median seconds and MiB of fresh processes that take one step on a copy of the file."""
    seen: list[list[float]] = []
    program = _REPORT.replace("{work}", STEPS[step])
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder, "copy.yaml")
            for one in (path, path.with_suffix(".runs.jsonl")):
                shutil.copy(one, Path(folder, one.name.replace(path.stem, "copy")))
            done = subprocess.run(
                [sys.executable, "-c", program, copy, str(entries)], capture_output=True, text=True, check=True
            )
        seen.append(json.loads(done.stdout))
    return median(seconds for seconds, _ in seen), median(mebibytes for _, mebibytes in seen)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("entries", type=int, nargs="*", default=[1_000, 10_000], help="(default: 1000 10000)")
    parser.add_argument(
        "--tests", type=int, metavar="N", help="time N small tests of the traffic device in place of that"
    )
    parser.add_argument(
        "--threads", type=int, metavar="N", default=1024, help="of each such test, a multiple of 256 (default: 1024)"
    )
    parser.add_argument("--repeat", type=int, default=3, help="processes of which the median counts (default: 3)")
    options = parser.parse_args()
    sizes = options.entries
    if options.threads < 256 or options.threads % 256:
        parser.error(f"--threads={options.threads} is not a multiple of 256, the threads of a block")
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} CPUs, {RUNS_PER_ENTRY} runs per entry\n")
    if options.tests is not None:
        print_tests(options.tests, options.threads, options.repeat)
        return
    print("| entries | file + runs | step | seconds | µs per entry | peak memory |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for entries in sizes:
            path = Path(folder, f"{entries}.yaml")
            write_baseline(path, entries)
            size, of_runs = (one.stat().st_size / 1e6 for one in (path, path.with_suffix(".runs.jsonl")))
            for step in STEPS:
                seconds, mebibytes = measure(step, path, entries, options.repeat)
                per_entry = seconds / entries * 1e6
                print(
                    f"| {entries} | {size:.1f} + {of_runs:.1f} MB | {step} | {seconds:.2f} | {per_entry:.0f} | "
                    f"{mebibytes:.0f} MiB |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
