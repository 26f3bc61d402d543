"""Record what a GPU shows: the suite in new processes, how far they agree, and the same copies timed by others.

    python benchmarks/gpu.py [--device cuda:0] [--processes 10] [--profile quick]

Writes baselines/DEVICE.yaml (through `pytest --bandwidth-update`, one run a process) and docs/gpu/DEVICE.md: achieved
against peak for each operation, the spread over identical processes, a cudaMemcpy device copy and
cupyx.profiler.benchmark in the same process as ours, what DRAM moved by the installed profiler's counters, and the
selftest. Every figure comes from this machine in this
run; without a GPU nothing is written and the exit status is 2, and where the suite or the selftest failed it is 1.
On the emulated card (tests/emulated_card) it writes outside this repository only, and says in both files what they are.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from gpu_page import left_out, report, spreads

from pytest_bandwidth.storage.atomic import write_whole

REPOSITORY = Path(__file__).resolve().parent.parent
# A sample's standard deviation from fewer is a guess.
FEWEST_PROCESSES = 10
MIB = 1 << 20
ARRAY_CACHES = 8
# What a card shows by its counters: each way to move bytes, and one that reads across.
COUNTED = ("write-plain", "copy-plain", "triad-plain", "sum-plain", "transpose-naive")
EMULATED = "EMULATED_CARD" in os.environ
MARK = "Emulated (tests/emulated_card): no figure here is a GPU's."
FINE, FAILED, UNUSABLE = 0, 1, 2


def slug(name: str) -> str:
    """Return a device's name as a file name: letters and digits in lower case, everything else a dash."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "device"


def describe_device(name: str, *, compare: bool, mib: int | None = None) -> dict[str, Any]:
    """Return identity, peak and perhaps the comparison with other timers, by arrays of so many MiB.

    It runs in a child, so that its context ends with it.
    """
    from pytest_bandwidth.devices.cuda.device import open_cuda

    device = open_cuda(int(name.partition(":")[2] or 0))
    identity, peak = device.identity, device.peak
    return {
        "name": identity.name,
        "memory_gib": identity.memory_gib,
        "settings": dict(identity.settings),
        "facts": dict(identity.facts),
        "peak": {"gbps": peak.gbps, "source": peak.source} if peak else None,
        "comparison": compare_timers(device, mib) if compare else [],
        "counters": why_not_counted(identity),
    }


def why_not_counted(identity: Any) -> str | None:
    """Return why no profiler counts what this device's memory moves; None where one does."""
    from pytest_bandwidth.features.counters.dram_traffic import CountersFailed
    from pytest_bandwidth.features.counters.profilers import profiler_of

    try:
        profiler_of("auto", identity)
    except CountersFailed as reason:
        return str(reason)
    return None


def compare_timers(device: Any, mib: int | None = None) -> list[dict[str, Any]]:
    """Compare a copy by our probe and by cudaMemcpyAsync, each timed by us and by cupyx.profiler.benchmark."""
    from importlib import import_module

    from pytest_bandwidth.devices.base import Budget, Workload
    from pytest_bandwidth.domain.traffic import Traffic

    benchmark = import_module("cupyx.profiler").benchmark
    runtime, stream = device.xp.cuda.runtime, device.xp.cuda.get_current_stream()
    # So large that the cache, which is filled before our samples and not before cupyx's, makes no difference.
    size = mib * MIB if mib else max(512 * MIB, ARRAY_CACHES * int(device.identity.facts["last_cache_bytes"]))
    x, y = device.random(size // 4, "float32"), device.empty(size // 4, "float32")

    def memcpy() -> None:
        runtime.memcpyAsync(y.data.ptr, x.data.ptr, size, runtime.memcpyDeviceToDevice, stream.ptr)

    traffic = Traffic(size, size)
    rows: list[dict[str, Any]] = []
    for work, call in (("probe copy kernel", device.probe(traffic).call), ("cudaMemcpyAsync device to device", memcpy)):
        ours = device.measure(Workload(call, traffic), Budget(max_seconds=2.0), lambda _: None)
        theirs = benchmark(call, name=work, n_repeat=200, n_warmup=20).gpu_times[0]
        known = {"gbps": ours.gbps} if ours.invalid is None else {"gbps": None, "why": ours.invalid.text}
        rows.append({"work": work, "timed_by": f"pytest-bandwidth ({ours.method})", **known})
        gbps = traffic.bytes_moved / median(theirs.tolist()) / 1e9
        rows.append({"work": work, "timed_by": "cupyx.profiler.benchmark", "gbps": gbps})
    return rows


def suite(device: str, out: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run the suite in a new process, whose document goes to `out`."""
    command = [sys.executable, "-m", "pytest", "--pyargs", "pytest_bandwidth.suite", "-q", "-p", "no:cacheprovider"]
    command += [f"--bandwidth-device={device}", f"--bandwidth-json={out}", *args]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


def run_suite(device: str, profile: str, baselines: Path, out: Path) -> tuple[Mapping[str, Any], int]:
    """Run the suite, appended to the device's baseline; return document and exit status."""
    update = (f"--bandwidth-baseline={baselines}", "--bandwidth-update", "--bandwidth-runs=1")
    done = suite(device, out, f"--bandwidth-suite={profile}", *update)
    if not out.is_file():
        raise SystemExit(f"the suite wrote no document (exit status {done.returncode}):\n{done.stdout[-4000:]}")
    if done.returncode:
        print(f"  the suite's exit status was {done.returncode}:\n{done.stdout[-2000:]}", file=sys.stderr)
    document: Mapping[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return document, done.returncode


def run_counted(device: str, out: Path) -> list[Mapping[str, Any]] | str:
    """Run a few of the suite's operations under the profiler; return their results, or what was said instead."""
    some = " or ".join(f"{name}-float32" for name in COUNTED)
    done = suite(device, out, "-k", some, "--bandwidth-counters=auto")
    if not out.is_file():
        said = f"{done.stdout}\n{done.stderr}".strip().splitlines()
        return f"exit status {done.returncode}: {said[-1] if said else 'no output'}"
    results: list[Mapping[str, Any]] = json.loads(out.read_text(encoding="utf-8"))["results"]
    return results


def run_selftest(device: str) -> tuple[str, int]:
    """Return the selftest's own words, where it failed with its exit status; and that status."""
    command = [sys.executable, "-m", "pytest_bandwidth.cli", "selftest", "--device", device]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode == FINE:
        return done.stdout, FINE
    said = f"{done.stdout}\n{done.stderr}".strip()
    return f"failed with exit status {done.returncode}: {said[-2000:]}", done.returncode


def ask_child(device: str, *, compare: bool = False, mib: int | None = None) -> dict[str, Any] | str:
    """Open the device in a new process; return what it reports, or its error."""
    what = ("--compare", *((f"--mib={mib}",) if mib else ())) if compare else ("--describe",)
    command = [sys.executable, str(Path(__file__).resolve()), "--device", device, *what]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit status {done.returncode}"
    described: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return described


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--processes", type=int, default=FEWEST_PROCESSES)
    parser.add_argument("--profile", default="quick", choices=("quick", "full"))
    parser.add_argument("--baselines", type=Path, default=REPOSITORY / "baselines")
    parser.add_argument("--docs", type=Path, default=REPOSITORY / "docs" / "gpu")
    parser.add_argument("--no-selftest", action="store_true", help="leave the selftest out")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no process that would not end in time")
    parser.add_argument("--mib", type=int, help="MiB of the copies' arrays (default: 512, or 8 caches if that is more)")
    parser.add_argument("--documents", type=Path, help="keep each process's document in this folder")
    parser.add_argument("--describe", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--compare", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    begun = time.monotonic()
    if options.describe or options.compare:
        return _describe(options.device, compare=options.compare, mib=options.mib)
    if options.processes < FEWEST_PROCESSES:
        parser.error(f"--processes {options.processes}: a spread needs at least {FEWEST_PROCESSES}")
    if EMULATED and any(path.resolve().is_relative_to(REPOSITORY) for path in (options.baselines, options.docs)):
        parser.error(f"the emulated card is no GPU: expected --baselines and --docs outside {REPOSITORY}")
    described = ask_child(options.device, compare=True, mib=options.mib)
    if isinstance(described, str):
        print(f"no GPU to measure, nothing written: {described}", file=sys.stderr)
        return UNUSABLE
    name = slug(described["name"])
    options.baselines.mkdir(parents=True, exist_ok=True)
    documents, failed = [], 0
    longest = 0.0
    with ExitStack() as stack:
        folder = options.documents or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        for process in range(options.processes):
            started = time.monotonic()
            if documents and started - begun + longest > options.seconds:
                print(f"no time for more than {process} of {options.processes} processes", file=sys.stderr)
                failed += 1
                break
            print(f"{described['name']}: process {process + 1} of {options.processes}", flush=True)
            out = folder.resolve() / f"{process}.json"
            document, status = run_suite(options.device, options.profile, options.baselines, out)
            documents.append(document)
            failed += status != FINE
            longest = max(longest, time.monotonic() - started)
        counted: list[Mapping[str, Any]] | str
        if described["counters"] is not None:
            counted = described["counters"]
        elif time.monotonic() - begun + longest > options.seconds:
            counted = "no time was left for it"
        else:
            counted = run_counted(options.device, folder.resolve() / "counted.json")
    selftest, status = ("left out", FINE) if options.no_selftest else run_selftest(options.device)
    command = f"python benchmarks/gpu.py --processes {options.processes} --profile {options.profile}"
    page = options.docs / f"{name}.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    rows = spreads(documents)
    text = report(
        described, rows, described["comparison"], selftest, command, left_out(documents, rows), failed, counted=counted
    )
    if EMULATED:
        text = f"{MARK}\n\n{text}"
        for baseline in options.baselines.glob("*.yaml"):
            write_whole(baseline, f"# {MARK}\n".encode() + baseline.read_bytes(), keep=True)
    write_whole(page, text.encode(), keep=True)
    print(f"wrote {page} and the device's file in {options.baselines}")
    if status != FINE:
        print(f"the selftest {selftest}", file=sys.stderr)
    return FAILED if failed or status != FINE else FINE


def _describe(device: str, *, compare: bool, mib: int | None) -> int:
    from pytest_bandwidth.domain.errors import BandwidthError

    try:
        print(json.dumps(describe_device(device, compare=compare, mib=mib)))
    except BandwidthError as error:
        print(error, file=sys.stderr)
        return UNUSABLE
    return FINE


if __name__ == "__main__":
    sys.exit(main())
