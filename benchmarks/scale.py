"""Measure how baselines scale: time and memory of loading, matching, judging and updating, measured in new processes.

``python benchmarks/scale.py [ENTRIES …]`` (1,000 and 10,000 without arguments) prints a Markdown table.
Each figure is the median of three new processes (`--repeat`); memory is the process's peak, the interpreter included.
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
from pytest_bandwidth.domain.measured.measurement import Rounds
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
    """Return median seconds and MiB of new processes that take one step on a copy of the file."""
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
    parser.add_argument("--repeat", type=int, default=3, help="processes of which the median counts (default: 3)")
    options = parser.parse_args()
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} CPUs, {RUNS_PER_ENTRY} runs per entry\n")
    print("| entries | file + runs | step | seconds | µs per entry | peak memory |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for entries in options.entries:
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
