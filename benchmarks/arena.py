"""Judge the same kernels by this plugin and by pytest-benchmark, for gate.py.

The kernels are streams, reductions, rows, NumPy on one thread, and compute-bound ones: of `cuda_src/`, of NumPy, and
Numba functions of the tests' own. The tests are in a git repository, and the baselines belong to its only commit. An
edit changes the working tree and costs next to nothing. The tests' own Numba functions get a few instructions that
never run, so that the compiler lays their code out anew. One more function makes the calls of the other kernels, which
takes some 15 µs with cold caches. A drop is an edit after which the kernel does 1/(1 − drop) times the work that it
declares, in the same arrays.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pytest

from pytest_bandwidth.domain.units import format_percent

BASELINE_TRIES = 5
OURS, STRICT = "pytest-bandwidth", "pytest-bandwidth, strict"
MEDIAN, MINIMUM = "pytest-benchmark, median:5%", "pytest-benchmark, min:5%"
PEERS = (MEDIAN, MINIMUM)
# The option takes all of its values at once: given twice, the last one counts alone.
LIMITS = ("--benchmark-compare", "--benchmark-compare-fail", "median:5%", "min:5%")
MODES = MappingProxyType({OURS: (), STRICT: ("--bandwidth-strict",)})
# The kind of each: the same things disturb the kernels of a kind.
KERNELS = MappingProxyType(
    {
        "triad": "streams",
        "scaled": "streams",
        "sum": "reductions",
        "logsumexp": "reductions",
        "softmax": "rows",
        "layer_norm": "rows",
        "add": "NumPy, one thread",
        "exponential": "NumPy, one thread",
        "attention": "computes",
        "gemm": "computes",
        "serial": "computes",
    }
)
UNCHANGED, EDITED = "unchanged", "edited"
AUTHOR = ("-c", "user.name=benchmark", "-c", "user.email=benchmark@localhost")
TEST = """
import math

import numba
import numpy as np
import pytest

from drop import DROP, EDITED
from pytest_bandwidth.devices.base import Launch
from pytest_bandwidth.devices.kernel_source import read_source
from pytest_bandwidth.devices.open import open_device

# An edit changes these functions themselves.
RECOMPILED = ("scaled", "serial")
N = {mib} * 2**20 // 4
COLS = 4096
ROWS = N // COLS

# Each returns: the units of work, a call (function and arguments) for the first n of them, and the arrays that all of
# them read and write.

def triad(device, launched):
    a, b, c = device.empty(N, "float32"), device.random(N, "float32"), device.random(N, "float32")
    args = (a, b, c, np.float32(3))
    return N, lambda n: launched("stream.cu", "triad_f32", 4096, (*args, np.int64(n))), (b, c), a

@numba.njit(parallel=True, cache=True)
def three_times(y, x, n):
{never_run}    for i in numba.prange(n):
        y[i] = np.float32(3) * x[i]

def scaled(device, launched):
    x, y = device.random(N, "float32"), device.empty(N, "float32")
    return N, lambda n: (three_times, y, x, n), x, y

def sum(device, launched):
    x = device.random(N, "float32")
    return N, lambda n: (lambda: np.sum(x[:n]),), x, None

def logsumexp(device, launched):
    x, out = device.random((ROWS, COLS), "float32"), device.empty(ROWS, "float32")
    args, cols = (out, x), np.int64(COLS)
    return ROWS, lambda n: launched("logsumexp.cu", "logsumexp_fused_f32", n, (*args, np.int64(n), cols)), x, out

def softmax(device, launched):
    x, y = device.random((ROWS, COLS), "float32"), device.empty((ROWS, COLS), "float32")
    args, cols = (y, x), np.int64(COLS)
    return ROWS, lambda n: launched("softmax.cu", "softmax_staged_f32", n, (*args, np.int64(n), cols)), x, y

def layer_norm(device, launched):
    x, y = device.random((ROWS, COLS), "float32"), device.empty((ROWS, COLS), "float32")
    gamma, beta = device.random(COLS, "float32"), device.random(COLS, "float32")
    args, cols, name = (y, x, gamma, beta, np.float32(1e-5)), np.int64(COLS), "layer_norm_staged_f32"
    return ROWS, lambda n: launched("layernorm.cu", name, n, (*args, np.int64(n), cols)), (x, gamma, beta), y

def add(device, launched):
    a, b, c = device.empty(N, "float32"), device.random(N, "float32"), device.random(N, "float32")
    return N, lambda n: (lambda: np.add(b[:n], c[:n], out=a[:n]),), (b, c), a

def exponential(device, launched):
    size = N // 8
    x, y = device.random(size, "float64"), device.empty(size, "float64")
    return size, lambda n: (lambda: np.exp(x[:n], out=y[:n]),), x, y

def attention(device, launched):
    heads, tokens, d = 380, 64, 64
    q, k, v = (device.random((heads, tokens, d), "float32") for _ in range(3))
    o = device.empty(q.shape, "float32")
    args = (o, q, k, v, np.float32(1 / math.sqrt(d)))
    extents, name = (np.int64(tokens), np.int64(d)), "attention_flash_f32"
    return heads, lambda n: launched("attention.cu", name, 2 * n, (*args, np.int64(n), *extents)), (q, k, v), o

def gemm(device, launched):
    m, n, k = 512, 512, 256
    c, a, b = (device.random(shape, "float32") for shape in ((m, n), (m, k), (k, n)))
    extents = np.int64(n), np.int64(k)
    args, name = (c, a, b), "gemm_naive_f32"
    return m, lambda rows: launched("gemm.cu", name, rows, (*args, np.int64(rows), *extents)), (a, b), c

@numba.njit(cache=True)
def added_in_order(x, n):
{never_run}    total = np.float32(0)
    for i in range(n):
        total += x[i]
    return total

def serial(device, launched):
    x = device.random(N // 4, "float32")  # one thread, that waits for each addition
    return x.size, lambda n: (added_in_order, x, n), x, None

def work(kernel, device, launched):
    units, first, reads, writes = globals()[kernel](device, launched)
    # In the same arrays whatever the drop: memory's speed depends on where they lie to each other.
    whole, rest = divmod(math.ceil(round(units / (1 - DROP), 6)), units)
    calls = [first(n) for n in (*[units] * whole, rest) if n]
    if len(calls) == 1 and (not EDITED or kernel in RECOMPILED):
        return calls[0], reads, writes
    return (lambda: [function(*args) for function, *args in calls],), reads, writes

@pytest.mark.parametrize("kernel", {kernels})
def test_ours(bandwidth, kernel):
    def launched(file, name, grid, args):
        return (bandwidth.bind(bandwidth.kernel(file, name), grid, 256, args),)

    call, reads, writes = work(kernel, bandwidth, launched)
    bandwidth(*call, reads=reads, writes=writes)

@pytest.mark.parametrize("kernel", {kernels})
def test_theirs(benchmark, kernel):
    device = open_device("cpu")

    def launched(file, name, grid, args):
        found = device.kernel(read_source(file, name, ()))
        return (device.launcher(Launch(found, (grid, 1, 1), (256, 1, 1), args), None),)

    call, _, _ = work(kernel, device, launched)
    benchmark(*call)
"""
IGNORED = "/ours.*\n/code/\n/theirs/\n__pycache__/\n.pytest_cache/\n"
FAILED = re.compile(r"test_theirs\[(\w+)\].* - Field '(median|min)' has failed")
# A test's outcome in pytest's summary of -rA.
REPORTED = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) test_kernels\.py::test_ours\[(\w+)\]", re.MULTILINE)
TOOK = re.compile(r"^([\d.]+)s call +test_kernels\.py::test_ours\[(\w+)\]", re.MULTILINE)
# The status of a test that failed before it was judged.
UNJUDGED = "unjudged"


@dataclass(frozen=True)
class Row:
    """Hold what became of one kernel in one run. circumstance: what was changed; failed: whether pytest failed it."""

    judge: str
    circumstance: str
    kernel: str
    drop: float
    status: str
    failed: bool
    seconds: float | None


class Arena:
    """Keep a repository with the kernels' tests, and both tools' baselines in it. rows: of all that was judged."""

    def __init__(
        self,
        folder: Path,
        *,
        mib: int,
        kernels: Sequence[str],
        tolerance: str,
        modes: Sequence[str] = (OURS,),
    ) -> None:
        self.folder, self.baseline = folder, folder / "ours.yaml"
        self._kernels = tuple(kernels)
        self.rows: list[Row] = []
        self._tolerance, self._modes = f"--bandwidth-tolerance={tolerance}", tuple(modes)
        self._mib = mib
        self._draw = random.Random(1)
        (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
        (folder / ".gitignore").write_text(IGNORED)
        self._write(0.0, edited=False)
        if (folder / ".git").is_dir():
            return
        for given in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "The code of the baselines")):
            subprocess.run(["git", *AUTHOR, *given], cwd=folder, check=True)

    def take_baselines(self) -> None:
        self.baseline.unlink(missing_ok=True)
        self._write(0.0, edited=False)
        for _ in range(BASELINE_TRIES):  # a disturbed measurement is not saved
            code, text, _ = self._pytest("ours", "--bandwidth-update-new", "--bandwidth-runs=5")
            saved = self.baseline.read_text() if self.baseline.is_file() else ""
            if all(f"test_ours[{kernel}]" in saved for kernel in self._kernels):
                break
        else:
            raise SystemExit(f"not every kernel has a baseline; pytest ended with {code}:\n{text}")
        for old in (self.folder / "theirs").rglob("*.json"):
            old.unlink()
        code, text, _ = self._pytest("theirs", "--benchmark-save=base")
        if code != 0:
            raise SystemExit(f"pytest-benchmark saved nothing:\n{text}")

    def judge(
        self, circumstance: str, drop: float, *, ours_first: bool, edited: bool = False, compare: bool = True
    ) -> None:
        """Judge every kernel by both tools, slowed by `drop`; `circumstance` names the circumstance in the rows.

        edited: whether the code changes even without a drop. compare: whether pytest-benchmark judges, too.
        """
        self._write(drop, edited=edited)
        turns = (self._judge_ours, self._judge_theirs)[: 1 + compare]
        for turn in turns if ours_first else reversed(turns):
            turn(circumstance, drop)

    def edit(self, drop: float = 0.0) -> None:
        """Change the code so that it does the same, or is slower by so much."""
        self._write(drop, edited=True)

    def _write(self, drop: float, *, edited: bool) -> None:
        """Write the tests. Edited Numba functions compare their length with a few negative numbers first."""
        changed = edited or drop > 0
        numbers = self._draw.sample(range(1, 2**30), self._draw.randint(1, 8)) if changed else ()
        never_run = "".join(f"    if n == -{number}:\n        x[0] = {number}\n" for number in numbers)
        (self.folder / "test_kernels.py").write_text(text_of_tests(self._mib, self._kernels, never_run))
        (self.folder / "drop.py").write_text(f"DROP = {drop!r}\nEDITED = {changed!r}\n")

    def _judge_ours(self, circumstance: str, drop: float) -> None:
        for mode in self._modes:
            self._judge_in(mode, circumstance, drop)

    def _judge_in(self, mode: str, circumstance: str, drop: float) -> None:
        document = self.folder / "ours.json"
        document.unlink(missing_ok=True)
        options = (self._tolerance, *MODES[mode], "-rA", "--durations=0", f"--bandwidth-json={document.name}")
        code, text, _ = self._pytest("ours", *options)
        failed = failed_by_pytest(code, text, self._kernels)
        if not document.is_file():
            raise SystemExit(f"nothing was judged:\n{text}")
        rows = json.loads(document.read_text())["results"]
        statuses = dict.fromkeys(self._kernels, UNJUDGED)
        statuses |= {row["nodeid"].partition("[")[2].rstrip("]"): row["status"] for row in rows}
        seconds = {kernel: float(taken) for taken, kernel in TOOK.findall(text)}
        for kernel, status in statuses.items():
            self.rows.append(Row(mode, circumstance, kernel, drop, status, kernel in failed, seconds.get(kernel)))
        expected = {"REGRESSED"} if drop else {"OK", "IMPROVED"}
        for row in rows:
            if row["status"] not in expected:
                line = (
                    f"{mode}, {circumstance}, {format_percent(drop)}: {row['nodeid']}: {row['status']}: {row['reason']}"
                )
                print(f"  {line}", file=sys.stderr, flush=True)

    def _judge_theirs(self, circumstance: str, drop: float) -> None:
        code, text, seconds = self._pytest("theirs", *LIMITS)
        found = set(FAILED.findall(text))
        if (code == 0) is bool(found):
            raise SystemExit(f"pytest-benchmark ended with {code}, and found {len(found)} regressions:\n{text}")
        for judge, figure in ((MEDIAN, "median"), (MINIMUM, "min")):
            for kernel in self._kernels:
                failed = (kernel, figure) in found
                status, of_kernel = "REGRESSED" if failed else "OK", seconds / len(self._kernels)
                self.rows.append(Row(judge, circumstance, kernel, drop, status, failed, of_kernel))

    def _pytest(self, tool: str, *args: str) -> tuple[int, str, float]:
        return run([*command(tool), *args], self.folder, environment())


def run(command: Sequence[str], folder: Path, environ: Mapping[str, str] | None = None) -> tuple[int, str, float]:
    """Run a command in a folder; return its exit status, what it printed, and seconds."""
    begun = time.monotonic()
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr, time.monotonic() - begun


def judged_by(
    folder: Path, args: Sequence[str], environ: Mapping[str, str] | None = None
) -> tuple[int, str, list[dict], float]:
    """Run pytest in a folder; return what `run` does, and the rows of its document. Raises SystemExit for none."""
    document = folder / "out.json"
    document.unlink(missing_ok=True)
    pytest_ = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--bandwidth-json={document}")
    code, text, seconds = run([*pytest_, *args], folder, environ)
    if code not in (0, 1) or not document.exists():
        raise SystemExit(f"nothing was judged:\n{text}")
    return code, text, json.loads(document.read_text())["results"], seconds


def text_of_tests(mib: int, kernels: Sequence[str], never_run: str = "") -> str:
    """Return the tests' source. never_run: lines at the start of Numba functions."""
    return TEST.replace("{mib}", str(mib)).replace("{kernels}", repr(list(kernels))).replace("{never_run}", never_run)


def failed_by_pytest(code: int, text: str, kernels: Sequence[str]) -> set[str]:
    """Return the kernels whose tests a run failed. Raises SystemExit where its exit status says otherwise.

    text: what the run printed, with -rA.
    """
    reported: dict[str, set[str]] = {kernel: set() for kernel in kernels}
    for word, kernel in REPORTED.findall(text):
        reported.setdefault(kernel, set()).add(word)
    if silent := [kernel for kernel, words in reported.items() if not words]:
        raise SystemExit(f"no outcome of {', '.join(silent)}:\n{text}")
    failed = {kernel for kernel, words in reported.items() if words & {"FAILED", "ERROR"}}
    if code != (pytest.ExitCode.TESTS_FAILED if failed else pytest.ExitCode.OK):
        raise SystemExit(f"pytest ended with {code}, and failed {len(failed)} tests:\n{text}")
    return failed


def command(tool: str) -> list[str]:
    """Return the command that runs the kernels' tests of one tool: `ours` or `theirs`."""
    plugins = ["-p", "no:cacheprovider", "-p", "no:randomly"]
    ours = ["-p", "bandwidth", "--bandwidth-device=cpu", "--bandwidth-baseline=ours.yaml"]
    theirs = ["-p", "benchmark", "--benchmark-storage=file://theirs", "--benchmark-max-time=1"]
    own = ours if tool == "ours" else theirs
    return [sys.executable, "-m", "pytest", *plugins, *own, "test_kernels.py", "-k", f"test_{tool}"]


def environment() -> dict[str, str]:
    # Other plugins would add start-up time to one side or both.
    # Each process would compile the plugin anew where Python is told to write no byte code.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return Markdown's table of so many columns."""
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), *lines))
