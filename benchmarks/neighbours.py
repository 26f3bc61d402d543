"""Measure what other processes do to verdicts: kinds of kernels × kinds of neighbours, unchanged and slowed code.

    python benchmarks/neighbours.py                              # 200 unchanged rows beside each kind: some hours
    python benchmarks/neighbours.py --judged 1 --drop 10% --kernel triad --kernel sum --kernel attention   # minutes

Baselines are taken while nothing disturbs, five fresh processes for this plugin and one saved run for
pytest-benchmark, renewed for every ten rounds. A round has each kind of neighbour start, both tools judge all kernels
beside it, in turns, and the neighbours go. Kernels are slowed as in gate.py: more work in the same arrays than is
declared. The neighbours are those of tests/support/neighbours.py, and two more: `run`, a second run of these tests,
which takes turns with the first by the device's lock; and `quota`, one in a container's place: with a lock of its own,
and half of the processors' time by a control group, where this user may make one. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from statistics import fmean

import pytest

from pytest_bandwidth.domain.units import format_percent, parse_fraction

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests" / "support")]

from neighbours import KINDS, beside  # noqa: E402
from quota import quota_group  # noqa: E402

ROUNDS_PER_BASELINE = 10
BASELINE_TRIES = 5
RUN, QUOTA = "run", "quota"
EVERY_KIND = ("none", *KINDS, RUN, QUOTA)
OURS, MEDIAN, MINIMUM = "pytest-bandwidth", "pytest-benchmark, median:5%", "pytest-benchmark, min:5%"
QUOTA_SHARE = 0.5
KERNELS = ("triad", "sum", "softmax", "serial", "attention")
TEST = """
import math
import os

import numba
import numpy as np
import pytest

from pytest_bandwidth.devices.base import Launch
from pytest_bandwidth.devices.kernel_source import read_source
from pytest_bandwidth.devices.open import open_device

DROP = float(os.environ.get("DROP", "0"))
N = {mib} * 2**20 // 4
COLS = 4096

# Each: how many units of work there are, a callable for the first n of them, and what all of them read and write.

def triad(device, launched):
    a, b, c = device.empty(N, "float32"), device.random(N, "float32"), device.random(N, "float32")
    args = (a, b, c, np.float32(3))
    return N, lambda n: launched("stream.cu", "triad_f32", 4096, (*args, np.int64(n))), (b, c), a

def sum(device, launched):
    x = device.random(N, "float32")
    return N, lambda n: lambda: np.sum(x[:n]), x, None

def softmax(device, launched):
    rows = N // COLS
    x, y = device.random((rows, COLS), "float32"), device.empty((rows, COLS), "float32")
    args = (y, x)
    return rows, lambda n: launched("softmax.cu", "softmax_staged_f32", n, (*args, np.int64(n), np.int64(COLS))), x, y

@numba.njit(cache=True)
def added_in_order(x):
    total = np.float32(0)
    for value in x:
        total += value
    return total

def serial(device, launched):
    x = device.random(N // 4, "float32")  # one thread, that waits for each addition
    return x.size, lambda n: lambda: added_in_order(x[:n]), x, None

def attention(device, launched):
    heads, tokens, d = 100, 128, 64  # computes
    q, k, v = (device.random((heads, tokens, d), "float32") for _ in range(3))
    o = device.empty(q.shape, "float32")
    args = (o, q, k, v, np.float32(1 / math.sqrt(d)))
    extents, name = (np.int64(tokens), np.int64(d)), "attention_flash_f32"
    return heads, lambda n: launched("attention.cu", name, 4 * n, (*args, np.int64(n), *extents)), (q, k, v), o

def work(kernel, device, launched):
    units, first, reads, writes = globals()[kernel](device, launched)
    # In the same arrays whatever the drop: memory's speed depends on where they lie to each other.
    whole, rest = divmod(round(units / (1 - DROP)), units)
    calls = [first(n) for n in (*[units] * whole, rest) if n]
    return (calls[0] if len(calls) == 1 else lambda: [call() for call in calls]), reads, writes

@pytest.mark.parametrize("kernel", {kernels})
def test_ours(bandwidth, kernel):
    def launched(file, name, grid, args):
        return bandwidth.bind(bandwidth.kernel(file, name), grid, 256, args)

    call, reads, writes = work(kernel, bandwidth, launched)
    bandwidth(call, reads=reads, writes=writes)

@pytest.mark.parametrize("kernel", {kernels})
def test_theirs(benchmark, kernel):
    device = open_device("cpu")

    def launched(file, name, grid, args):
        found = device.kernel(read_source(file, name, ()))
        return device.launcher(Launch(found, (grid, 1, 1), (256, 1, 1), args), None)

    call, _, _ = work(kernel, device, launched)
    benchmark(call)
"""
FAILED = re.compile(r"test_theirs\[(\w+)\].* - Field '(median|min)' has failed")


@dataclass
class Tally:
    """Count which status was given, by judge, kind of neighbours, kernel and drop; keep the seconds of a row."""

    statuses: dict[tuple[str, str, str, float], Counter[str]] = field(default_factory=dict)
    seconds: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def add(self, judge: str, kind: str, drop: float, statuses: Mapping[str, str], seconds: float) -> None:
        for kernel, status in statuses.items():
            self.statuses.setdefault((judge, kind, kernel, drop), Counter())[status] += 1
        self.seconds.setdefault((judge, kind), []).append(seconds / len(statuses))

    def count(self, judge: str, kinds: Sequence[str], kernels: Sequence[str], drop: float) -> Counter[str]:
        found: Counter[str] = Counter()
        for kind in kinds:
            for kernel in kernels:
                found.update(self.statuses.get((judge, kind, kernel, drop), Counter()))
        return found


class Arena:
    """Keep a folder with the kernels' tests, and both tools' baselines in it."""

    def __init__(self, folder: Path, mib: int, kernels: Sequence[str], tolerance: str, kept: Tally) -> None:
        self.folder = folder
        self._kernels = kernels
        self._tolerance = tolerance
        self._kept = kept
        (folder / "pytest.ini").write_text("[pytest]\n")
        test = TEST.replace("{mib}", str(mib)).replace("{kernels}", repr(list(kernels)))
        (folder / "test_kernels.py").write_text(test)

    def take_baselines(self) -> None:
        baseline = self.folder / "ours.yaml"
        baseline.unlink(missing_ok=True)
        for _ in range(BASELINE_TRIES):  # what is measured beside others does not enter
            code, text, _ = self._pytest("ours", 0.0, "--bandwidth-update-new", "--bandwidth-runs=5")
            if baseline.is_file() and all(f"test_ours[{kernel}]" in baseline.read_text() for kernel in self._kernels):
                break
        else:
            raise SystemExit(f"not every kernel has a baseline; pytest ended with {code}:\n{text}")
        for old in (self.folder / "theirs").rglob("*.json"):
            old.unlink()
        code, text, _ = self._pytest("theirs", 0.0, "--benchmark-save=base")
        if code != 0:
            raise SystemExit(f"pytest-benchmark saved nothing:\n{text}")

    def judge(self, kind: str, drop: float, ours_first: bool) -> None:
        turns = (self._judge_ours, self._judge_theirs)
        for turn in turns if ours_first else reversed(turns):
            turn(kind, drop)

    def _judge_ours(self, kind: str, drop: float) -> None:
        document = self.folder / "ours.json"
        document.unlink(missing_ok=True)
        given = (f"--bandwidth-tolerance={self._tolerance}", f"--bandwidth-json={document.name}")
        code, text, seconds = self._pytest("ours", drop, *given)
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) or not document.is_file():
            raise SystemExit(f"nothing was judged:\n{text}")
        rows = json.loads(document.read_text())["results"]
        statuses = {row["nodeid"].partition("[")[2].rstrip("]"): row["status"] for row in rows}
        self._kept.add(OURS, kind, drop, statuses, seconds)
        for row in rows:
            if row["status"] == ("WITHIN" if drop else "REGRESSED"):
                said = f"{kind}, {format_percent(drop)}: {row['nodeid']}: {row['status']}: {row['reason']}"
                print(f"  {said}", file=sys.stderr, flush=True)

    def _judge_theirs(self, kind: str, drop: float) -> None:
        fails = ("--benchmark-compare", "--benchmark-compare-fail=median:5%", "--benchmark-compare-fail=min:5%")
        _, text, seconds = self._pytest("theirs", drop, *fails)
        failed = set(FAILED.findall(text))
        for judge, figure in ((MEDIAN, "median"), (MINIMUM, "min")):
            statuses = {name: "REGRESSED" if (name, figure) in failed else "WITHIN" for name in self._kernels}
            self._kept.add(judge, kind, drop, statuses, seconds)

    def _pytest(self, tool: str, drop: float, *args: str) -> tuple[int, str, float]:
        begun = time.monotonic()
        done = subprocess.run(
            [*command(tool), *args],
            cwd=self.folder,
            env=environment(drop),
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr, time.monotonic() - begun

    @contextmanager
    def second_run(self, group: Path | None) -> Iterator[None]:
        """Have a second process judge the same tests over and over. group: the control group of one in a container."""
        own = environment(0.0)
        started = command("ours")
        with tempfile.TemporaryDirectory() as elsewhere:
            if group is not None:
                own["TMPDIR"] = elsewhere
                procs = str(group / "cgroup.procs")
                started = ["sh", "-c", f'echo $$ > {procs} && exec "$@"', "sh", *started]
            running: list[subprocess.Popen[bytes]] = []
            over = threading.Event()

            def run_on() -> None:
                silent = subprocess.DEVNULL
                while not over.is_set():
                    running[:] = [subprocess.Popen(started, cwd=self.folder, env=own, stdout=silent, stderr=silent)]
                    running[0].wait()

            thread = threading.Thread(target=run_on)
            thread.start()
            try:
                yield
            finally:
                over.set()
                for process in running:
                    process.terminate()
                thread.join()


def command(tool: str) -> list[str]:
    plugins = ["-p", "no:cacheprovider", "-p", "no:randomly"]
    ours = ["-p", "bandwidth", "--bandwidth-device=cpu", "--bandwidth-baseline=ours.yaml"]
    theirs = ["-p", "benchmark", "--benchmark-storage=file://theirs", "--benchmark-max-time=1"]
    own = ours if tool == "ours" else theirs
    return [sys.executable, "-m", "pytest", *plugins, *own, "test_kernels.py", "-k", f"test_{tool}"]


def environment(drop: float) -> dict[str, str]:
    # Plugins that take no part would add start-up time to one side or both.
    return {**os.environ, "DROP": str(drop), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def table(kept: Tally, kinds: Sequence[str], kernels: Sequence[str], drops: Sequence[float], *, each: str) -> str:
    """Compare the judges in a table, with rows for each kind of neighbours or for each kernel."""
    of_kinds = each == "neighbours"
    heads = [f"{what} {format_percent(drop)}" for what in ("found", "passed") for drop in drops[1:]]
    head = (each, "judged by", "red, unchanged", "INVALID, unchanged", *heads, *(["seconds a row"] * of_kinds))
    lines = [row(*head), row(*["---"] * len(head))]
    for name in kinds if of_kinds else kernels:
        for judge in (OURS, MEDIAN, MINIMUM):
            figures = cells(kept, judge, (name,) if of_kinds else kinds, kernels if of_kinds else (name,), drops)
            seconds = [f"{fmean(kept.seconds[judge, name]):.1f}"] if of_kinds else []
            lines.append(row(name, judge, *figures, *seconds))
    return "\n".join(lines)


def cells(
    kept: Tally, judge: str, kinds: Sequence[str], kernels: Sequence[str], drops: Sequence[float]
) -> Iterator[str]:
    """Give red and INVALID of unchanged code, then what was found of each drop, then what passed of it."""
    unchanged = kept.count(judge, kinds, kernels, drops[0])
    yield f"{unchanged['REGRESSED']} of {unchanged.total()}"
    yield str(unchanged["INVALID"]) if judge == OURS else ""
    slowed = [kept.count(judge, kinds, kernels, drop) for drop in drops[1:]]
    yield from (f"{found['REGRESSED']} of {found.total()}" for found in slowed)
    yield from (str(sum(found[status] for status in ("UNCHANGED", "WITHIN", "IMPROVED"))) for found in slowed)


def row(*values: str) -> str:
    return f"| {' | '.join(values)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--judged", type=int, default=40, help="rounds of unchanged code (default: 40)")
    parser.add_argument("--dropped", type=int, help="rounds of each drop, of so many at most (default: as many)")
    parser.add_argument("--drop", action="append", help="drop to inject (default: 5%% 10%%)")
    parser.add_argument("--kind", action="append", choices=EVERY_KIND, help="kind of neighbours (default: all)")
    parser.add_argument("--kernel", action="append", choices=KERNELS, help="kernel to judge (default: all)")
    parser.add_argument("--tolerance", default="5%")
    parser.add_argument("--mib", type=int, default=128, help="MiB of each array (default: 128)")
    options = parser.parse_args()
    dropped = options.judged if options.dropped is None else min(options.dropped, options.judged)
    drops = [0.0, *map(parse_fraction, options.drop or ["5%", "10%"])]
    kinds, kernels = list(options.kind or EVERY_KIND), list(options.kernel or KERNELS)
    kept = Tally()
    begun = datetime.now(timezone.utc)
    with tempfile.TemporaryDirectory() as folder, quota_group(QUOTA_SHARE) as group:
        if QUOTA in kinds and group is None:
            kinds.remove(QUOTA)
            print(f"Left out: {QUOTA}, since no control group with a quota of processor time can be made here.\n")
        arena = Arena(Path(folder), options.mib, kernels, options.tolerance, kept)
        for i in range(options.judged):
            if i % ROUNDS_PER_BASELINE == 0:
                arena.take_baselines()
            asked = drops if (i + 1) * dropped // options.judged > i * dropped // options.judged else drops[:1]
            for kind in kinds[i % len(kinds) :] + kinds[: i % len(kinds)]:
                second = kind in (RUN, QUOTA)
                with arena.second_run(group if kind == QUOTA else None) if second else beside(kind):
                    for drop in asked[i % len(asked) :] + asked[: i % len(asked)]:
                        arena.judge(kind, drop, ours_first=i % 2 == 0)
                red = kept.count(OURS, [kind], kernels, 0.0)
                print(f"… {i + 1} of {options.judged}, {kind}: unchanged {dict(red)}", file=sys.stderr, flush=True)
    ended = datetime.now(timezone.utc)
    print(f"{begun:%Y-%m-%d %H:%M} to {ended:%H:%M} UTC, {platform.processor() or platform.machine()}, ", end="")
    print(f"{os.cpu_count()} processors; tolerance {options.tolerance}, arrays of {options.mib} MiB\n")
    for each in ("neighbours", "kernel"):
        print(table(kept, kinds, kernels, drops, each=each), end="\n\n")
    for kind in kinds:
        for drop in drops:
            counts = kept.count(OURS, [kind], kernels, drop)
            said = ", ".join(f"{n} {status}" for status, n in counts.most_common())
            print(f"- {kind}, {format_percent(drop)} slower: {said}")


if __name__ == "__main__":
    main()
