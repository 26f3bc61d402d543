"""What a GPU shows: the suite in fresh processes, how far they agree, and the same copies timed by others.

    python benchmarks/gpu.py [--device cuda:0] [--processes 10] [--profile quick]

Writes baselines/DEVICE.yaml (through `pytest --bandwidth-update`, one run a process) and docs/gpu/DEVICE.md: achieved
against peak for each operation, the spread over identical processes, a cudaMemcpy device copy and
cupyx.profiler.benchmark in the same process as ours, and the selftest. Every figure comes from this machine in this
run; without a GPU nothing is written and the exit status is 2, and where the selftest failed it is 1.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from statistics import median, stdev
from typing import Any

from pytest_bandwidth.domain.measurement import Measurement
from pytest_bandwidth.whole_files import write_whole

REPOSITORY = Path(__file__).resolve().parent.parent
# A sample's standard deviation from fewer is a guess.
FEWEST_PROCESSES = 10
MIB = 1 << 20
FINE, FAILED, UNUSABLE = 0, 1, 2


@dataclass(frozen=True)
class Spread:
    """One measurement over fresh processes: medians, and standard deviations of the logarithms as fractions.

    utilization: of the peak; None where that is unknown.
    """

    key: str
    processes: int
    gbps: float
    utilization: float | None
    relative: float | None
    gbps_sd: float
    relative_sd: float | None


def slug(name: str) -> str:
    """A device's name as a file name: letters and digits in lower case, everything else a dash."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "device"


def log_sd(values: Sequence[float]) -> float:
    """Standard deviation of ln(value): the relative spread, for small spreads. 0 below two values."""
    return stdev([math.log(value) for value in values]) if len(values) > 1 else 0.0


def spreads(documents: Sequence[Mapping[str, Any]]) -> list[Spread]:
    """Each measurement that every document holds a valid figure of, in the order of the first."""
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for document in documents:
        for result in document["results"]:
            if result.get("gbps") and result.get("status") != "INVALID":
                rows.setdefault(key_of(result), []).append(result)
    return [_spread(key, found) for key, found in rows.items() if len(found) == len(documents)]


def left_out(documents: Sequence[Mapping[str, Any]], rows: Sequence[Spread]) -> list[str]:
    """Keys of what a process measured, and not every one validly."""
    keys = dict.fromkeys(key_of(result) for document in documents for result in document["results"])
    shown = {row.key for row in rows}
    return [key for key in keys if key not in shown]


def key_of(result: Mapping[str, Any]) -> str:
    """Node id and label as in baselines."""
    label = result.get("label")
    return f"{result['nodeid']} @ {label}" if label else str(result["nodeid"])


def _spread(key: str, found: Sequence[Mapping[str, Any]]) -> Spread:
    relative = [r["relative"] for r in found if r.get("relative")]
    # Where the peak is unknown a document's utilization is of the probe.
    utilization = [r["utilization"] for r in found if r.get("utilization") and r.get("utilization_of") == "peak"]
    return Spread(
        key=key,
        processes=len(found),
        gbps=median(r["gbps"] for r in found),
        utilization=median(utilization) if len(utilization) == len(found) else None,
        relative=median(relative) if len(relative) == len(found) else None,
        gbps_sd=log_sd([r["gbps"] for r in found]),
        relative_sd=log_sd(relative) if len(relative) == len(found) else None,
    )


def report(
    device: Mapping[str, Any],
    rows: Sequence[Spread],
    comparison: Sequence[Mapping[str, Any]],
    selftest: str,
    command: str,
    absent: Sequence[str] = (),
) -> str:
    """docs/gpu/DEVICE.md, from finished values. absent: what the first table leaves out."""
    peak = device.get("peak") or {}
    facts = device.get("facts") or {}
    known = f"{peak['gbps']:.0f} GB/s ({peak['source']})" if peak else "unknown"
    lines = [
        f"# {device['name']}",
        "",
        f"Measured {datetime.now(timezone.utc):%Y-%m-%d} by `{command}`.",
        "",
        f"- memory {device.get('memory_gib')} GiB, peak {known}",
        *(f"- {name}: {value}" for name, value in {**(device.get("settings") or {}), **facts}.items()),
        "",
        f"## Achieved against peak, over {rows[0].processes if rows else 0} fresh processes",
        "",
        "Medians over the processes; spread: standard deviation of the logarithm between identical processes.",
        "",
        "| measurement | GB/s | of peak | ÷ probe | spread GB/s | spread ÷ probe |",
        "|---|---:|---:|---:|---:|---:|",
        *(_row(row) for row in rows),
        "",
        *((f"Left out, since not every process measured it validly: {', '.join(absent)}.", "") if absent else ()),
        "## The same copies, timed by others in the same process",
        "",
        "Bytes count in both directions. `cupyx.profiler.benchmark` neither empties the cache nor holds the stream.",
        "",
        "| work | timed by | GB/s |",
        "|---|---|---:|",
        *(_comparison_row(one) for one in comparison),
        "",
        "## Selftest",
        "",
        "```",
        selftest.strip(),
        "```",
        "",
    ]
    return "\n".join(lines)


def _row(row: Spread) -> str:
    cells = (
        _cell(row.key),
        f"{row.gbps:.1f}",
        _percent(row.utilization, 1),
        "–" if row.relative is None else f"{row.relative:.3f}",
        _percent(row.gbps_sd, 2),
        _percent(row.relative_sd, 2),
    )
    return f"| {' | '.join(cells)} |"


def _comparison_row(one: Mapping[str, Any]) -> str:
    why = f" ({_cell(one['why'])})" if one.get("why") else ""
    gbps = "–" if one["gbps"] is None else f"{one['gbps']:.1f}"
    return f"| {one['work']} | {one['timed_by']} | {gbps}{why} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _percent(fraction: float | None, decimals: int) -> str:
    return "–" if fraction is None else f"{fraction * 100:.{decimals}f} %"


def describe_device(name: str) -> dict[str, Any]:
    """Identity, peak and the comparison with other timers; runs in a child, so that its context ends with it."""
    from pytest_bandwidth.devices.cuda import open_cuda

    device = open_cuda(int(name.partition(":")[2] or 0))
    identity, peak = device.identity, device.peak
    return {
        "name": identity.name,
        "memory_gib": identity.memory_gib,
        "settings": dict(identity.settings),
        "facts": dict(identity.facts),
        "peak": {"gbps": peak.gbps, "source": peak.source} if peak else None,
        "comparison": compare_timers(device),
    }


def compare_timers(device: Any) -> list[dict[str, Any]]:
    """A copy by our probe and by cudaMemcpyAsync, each timed by us and by cupyx.profiler.benchmark."""
    from importlib import import_module

    from pytest_bandwidth.devices.base import Budget, Workload
    from pytest_bandwidth.domain.traffic import Traffic

    benchmark = import_module("cupyx.profiler").benchmark
    runtime, stream = device.xp.cuda.runtime, device.xp.cuda.get_current_stream()
    size = max(512 * MIB, 4 * int(device.identity.facts["last_cache_bytes"]))
    x, y = device.random(size // 4, "float32"), device.empty(size // 4, "float32")

    def memcpy() -> None:
        runtime.memcpyAsync(y.data.ptr, x.data.ptr, size, runtime.memcpyDeviceToDevice, stream.ptr)

    traffic = Traffic(size, size)
    rows: list[dict[str, Any]] = []
    for work, call in (("probe copy kernel", device.probe(traffic).call), ("cudaMemcpyAsync device to device", memcpy)):
        ours = device.measure(Workload(call, traffic), Budget(max_seconds=2.0), lambda _: None)
        theirs = benchmark(call, name=work, n_repeat=200, n_warmup=20).gpu_times[0]
        rows.append({"work": work, "timed_by": f"pytest-bandwidth ({ours.method})", **valid_gbps(ours)})
        gbps = traffic.bytes_moved / median(theirs.tolist()) / 1e9
        rows.append({"work": work, "timed_by": "cupyx.profiler.benchmark", "gbps": gbps})
    return rows


def valid_gbps(ours: Measurement) -> dict[str, Any]:
    """What a measurement of ours comes to; where it is invalid, why."""
    if ours.invalid is not None:
        return {"gbps": None, "why": ours.invalid.text}
    return {"gbps": ours.gbps}


def run_suite(device: str, profile: str, baselines: Path, out: Path) -> Mapping[str, Any]:
    """One fresh process of the suite; appends its run to the device's baseline and returns its document."""
    command = [
        sys.executable, "-m", "pytest", "--pyargs", "pytest_bandwidth.suite", "-q", "-p", "no:cacheprovider",
        f"--bandwidth-device={device}", f"--bandwidth-suite={profile}", f"--bandwidth-json={out}",
        f"--bandwidth-baseline={baselines}", "--bandwidth-update",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if not out.is_file():
        raise SystemExit(f"the suite wrote no document (exit status {done.returncode}):\n{done.stdout[-4000:]}")
    if done.returncode:
        print(f"  the suite's exit status was {done.returncode}:\n{done.stdout[-2000:]}", file=sys.stderr)
    document: Mapping[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return document


def run_selftest(device: str) -> tuple[str, int]:
    """The selftest's own words, where it failed with its exit status; and that status."""
    command = [sys.executable, "-m", "pytest_bandwidth.cli", "selftest", "--device", device]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode == FINE:
        return done.stdout, FINE
    said = f"{done.stdout}\n{done.stderr}".strip()
    return f"failed with exit status {done.returncode}: {said[-2000:]}", done.returncode


def ask_child(device: str) -> dict[str, Any] | str:
    """The device as a fresh process sees it, or why there is none."""
    command = [sys.executable, str(Path(__file__).resolve()), "--device", device, "--describe"]
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
    parser.add_argument("--describe", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.describe:
        return _describe(options.device)
    if options.processes < FEWEST_PROCESSES:
        parser.error(f"--processes {options.processes}: a spread needs at least {FEWEST_PROCESSES}")
    described = ask_child(options.device)
    if isinstance(described, str):
        print(f"no GPU to measure, nothing written: {described}", file=sys.stderr)
        return UNUSABLE
    name = slug(described["name"])
    options.baselines.mkdir(parents=True, exist_ok=True)
    documents = []
    with tempfile.TemporaryDirectory() as folder:
        for process in range(options.processes):
            print(f"{described['name']}: process {process + 1} of {options.processes}", flush=True)
            document = run_suite(options.device, options.profile, options.baselines, Path(folder) / f"{process}.json")
            documents.append(document)
    selftest, status = ("left out", FINE) if options.no_selftest else run_selftest(options.device)
    command = f"python benchmarks/gpu.py --processes {options.processes} --profile {options.profile}"
    page = options.docs / f"{name}.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    rows = spreads(documents)
    text = report(described, rows, described["comparison"], selftest, command, left_out(documents, rows))
    write_whole(page, text.encode(), keep=True)
    print(f"wrote {page} and the device's file in {options.baselines}")
    if status != FINE:
        print(f"the selftest {selftest}", file=sys.stderr)
        return FAILED
    return FINE


def _describe(device: str) -> int:
    from pytest_bandwidth.domain.errors import BandwidthError

    try:
        print(json.dumps(describe_device(device)))
    except BandwidthError as error:
        print(error, file=sys.stderr)
        return UNUSABLE
    return FINE


if __name__ == "__main__":
    sys.exit(main())
