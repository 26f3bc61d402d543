"""Check that `pytest --bandwidth-against=HEAD~1` finds a last commit that slows one of three kernels, and just that.

    python benchmarks/against.py                  # 10 rounds of each, about an hour and a half
    python benchmarks/against.py --rounds 3
    python benchmarks/against.py --one-of 50 --device traffic     # seconds, where one of 50 kernels changed
    python benchmarks/against.py --one-of 50 --device cpu

Every round makes a git repository. Its first commit has three kernels: a triad and a sum, which wait for memory, and an
exponential, which computes. Its last commit makes one of them take 8 % longer, or changes a comment. A round is right
if the slowed test alone fails, or no test where the last commit slows none. Prints each round's verdicts, and the
counts with 95 % limits.

With --one-of the repository has so many kernels, and the last commit changes one. The script judges it twice: with the
hashes of both commits' code compared first, and without. Prints the seconds and verdicts of each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pytest_bandwidth.domain.units import format_percent, parse_fraction
from pytest_bandwidth.judging.error_rates import upper_limit

AUTHOR = ("-c", "user.name=benchmark", "-c", "user.email=benchmark@localhost")
KERNELS = ("triad", "total", "exponential")
PAIRS = 4
PACKAGE = '''
"""Three kernels. WORK: by name, how many times the declared work each does."""
import numpy as np

WORK = {work}

def worked(name, n):
    return round(n * WORK.get(name, 1.0))

def total(x, n):
    # A sum of its own for the further elements: NumPy is slower at a length that is not a power of two.
    return np.sum(x[:n]) + np.sum(x[n : worked("total", n)])

def exponential(x, y, n):
    m = worked("exponential", n)
    return np.exp(x[:m], out=y[:m])
'''
TESTS = """
import numpy as np
import kernels

N = 1 << 24
ROOM = N + N // 2

def test_triad(bandwidth):
    a, b, c = (bandwidth.random(ROOM, "float32") for _ in range(3))
    kernel = bandwidth.kernel("stream.cu", "triad_f32")
    worked = kernels.worked("triad", N)
    launch = bandwidth.bind(kernel, 4096, 256, (a[:worked], b[:worked], c[:worked], np.float32(3), np.int64(worked)))
    bandwidth(launch, reads=8 * N, writes=4 * N)

def test_total(bandwidth):
    x = bandwidth.random(ROOM, "float32")
    bandwidth(kernels.total, x, N, reads=4 * N)

def test_exponential(bandwidth):
    n = N // 8
    x, y = bandwidth.random(ROOM // 8, "float64"), bandwidth.empty(ROOM // 8, "float64")
    bandwidth(kernels.exponential, x, y, n, reads=8 * n, writes=8 * n)
"""


OF_DEVICE = {
    "cpu": (
        "src/kernels.py",
        "import numba\n",
        """
@numba.njit
def scale_{i}(x, y):
    for i in range(x.size):
        y[i] = x[i] * {factor} + {i}
""",
        "x, y = bandwidth.random(1 << 22, 'float32'), bandwidth.empty(1 << 22, 'float32')\n"
        "    bandwidth(getattr(kernels, f'scale_{i}'), x, y, reads=x, writes=y)",
    ),
    "traffic": (
        "tests/kernels.cu",
        "",
        """
extern "C" __global__ void scale_{i}(const float* x, float* y) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i] * {factor}.0f + {i}.0f;
}}
""",
        "x, y = bandwidth.random(1 << 16, 'float32'), bandwidth.empty(1 << 16, 'float32')\n"
        "    kernel = bandwidth.kernel('kernels.cu', f'scale_{i}')\n"
        "    bandwidth.launch(kernel, 256, 256, (x, y), reads=x, writes=y)",
    ),
}
WITHOUT_CODE = "AGAINST_WITHOUT_CODE"
CONFTEST = f"""
import os

import pytest_bandwidth.session.run as run
from pytest_bandwidth.evidence.commit_pairs.told_code import NOTHING_TOLD

if {WITHOUT_CODE!r} in os.environ:
    run.Run.told_elsewhere = lambda *_: NOTHING_TOLD
"""


def many_kernels(folder: Path, device: str, count: int) -> None:
    """Make two commits of so many kernels; the last one changes the one in the middle."""
    file, head, kernel, body = OF_DEVICE[device]
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = src\n")
    for name in ("src", "tests"):
        (folder / name).mkdir()
    (folder / "src/kernels.py").touch()
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "tests/test_kernels.py").write_text(
        f"import kernels\nimport pytest\n\n@pytest.mark.parametrize('i', range({count}))\n"
        f"def test_scale(bandwidth, i):\n    {body}\n"
    )
    git(folder, "init", "--quiet")
    for changed in (None, count // 2):
        parts = (kernel.format(i=i, factor=3 if i == changed else 2) for i in range(count))
        (folder / file).write_text(head + "".join(parts))
        git(folder, "add", "--all")
        git(folder, *AUTHOR, "commit", "--quiet", "-m", "kernels")


def one_of(count: int, device: str, pairs: int) -> None:
    """Print how long it takes to judge so many kernels after one changed, with and without comparing hashes."""
    with tempfile.TemporaryDirectory() as name:
        many_kernels(Path(name), device, count)
        for text, environment in (("with hashes", {}), ("without hashes", {WITHOUT_CODE: "1"})):
            begun = time.monotonic()
            rows, _ = judged(Path(name), device, pairs, environment)
            verdicts = Counter((row["status"], row["reason_code"]) for row in rows.values())
            counts = ", ".join(f"{number} {status} ({rule})" for (status, rule), number in verdicts.items())
            print(f"{device}, 1 of {count} changed, {text}: {time.monotonic() - begun:.0f} s ({counts})", flush=True)


def repository(folder: Path, slowed: str | None, share: float) -> None:
    """Make two commits; the last one slows a kernel by doing `share` more work, or changes a comment."""
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = src\n")
    for name in ("src", "tests"):
        (folder / name).mkdir()
    (folder / "tests/test_kernels.py").write_text(TESTS)
    git(folder, "init", "--quiet")
    commit(folder, {}, "")
    commit(folder, {} if slowed is None else {slowed: 1 + share}, "\n# a comment\n")


def commit(folder: Path, work: dict[str, float], tail: str) -> None:
    (folder / "src/kernels.py").write_text(PACKAGE.format(work=work) + tail)
    git(folder, "add", "--all")
    git(folder, *AUTHOR, "commit", "--quiet", "-m", "kernels")


def git(folder: Path, *args: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *args], check=True, capture_output=True, text=True).stdout


def judged(
    folder: Path, device: str = "cpu", pairs: int = PAIRS, environment: Mapping[str, str] = MappingProxyType({})
) -> tuple[dict[str, dict[str, Any]], int]:
    """Return the verdict of each test by its kernel's name, and pytest's exit status."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    command += ["--bandwidth-against=HEAD~1", "-o", f"bandwidth_pairs={pairs}"]
    command += [f"--bandwidth-device={device}", "--bandwidth-json=run.json"]
    own = {**os.environ, **environment}
    done = subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, check=False)
    document = folder / "run.json"
    if not document.exists():
        raise SystemExit(f"nothing was measured:\n{done.stdout}{done.stderr}")
    left = git(folder, "worktree", "list").strip().splitlines()
    if len(left) != 1:
        raise SystemExit(f"a worktree was left behind: {left}")
    rows = json.loads(document.read_text())["results"]
    return {row["nodeid"].rpartition("test_")[2]: row for row in rows}, done.returncode


def described(name: str, row: dict[str, Any]) -> str:
    verdict = row["verdict"]
    if verdict["drop"] is None:
        return f"{name} {row['status']}: {row['reason']}"
    pairs, spread = verdict["runs"], format_percent(verdict["spread"], 1)
    return (
        f"{name} {row['status']} ({-verdict['drop'] * 100:+.1f} % on {verdict['figure']}, {pairs} pairs, sd {spread})"
    )


def one_round(slowed: str | None, share: float) -> bool:
    """Return whether pytest failed just the slowed kernel's test."""
    with tempfile.TemporaryDirectory() as name:
        repository(Path(name), slowed, share)
        begun = time.monotonic()
        rows, code = judged(Path(name))
        failed = [kernel for kernel, row in rows.items() if row["status"] == "REGRESSED"]
        right = len(rows) == len(KERNELS) and failed == [slowed] * (slowed is not None) and code == bool(slowed)
        texts = "; ".join(described(kernel, rows[kernel]) for kernel in rows)
        print(
            f"{'right' if right else 'WRONG'}, slowed: {slowed}, {time.monotonic() - begun:.0f} s: {texts}", flush=True
        )
        return right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=10, help="rounds with and rounds without a slow-down (default: 10)"
    )
    parser.add_argument(
        "--slower", type=parse_fraction, default=0.08, help="longer the slowed kernel takes (default: 8%%)"
    )
    parser.add_argument("--one-of", type=int, metavar="N", help="time a repository of N kernels of which one changed")
    parser.add_argument("--device", choices=OF_DEVICE, default="cpu", help="of --one-of (default: cpu)")
    parser.add_argument("--pairs", type=int, default=PAIRS, help=f"of --one-of, {PAIRS} at least (default: {PAIRS})")
    options = parser.parse_args()
    print(
        f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC, {os.cpu_count()} processors, load {os.getloadavg()[0]:.2f}"
    )
    if options.one_of is not None:
        one_of(options.one_of, options.device, options.pairs)
        return
    wrong = {True: 0, False: 0}
    for i in range(options.rounds):
        for slow in (True, False):
            wrong[slow] += not one_round(KERNELS[i % len(KERNELS)] if slow else None, options.slower)
    for slow, text in ((True, f"{format_percent(options.slower)} longer"), (False, "unchanged")):
        limit = format_percent(upper_limit(wrong[slow], options.rounds), 1)
        print(f"{text}: {options.rounds - wrong[slow]} of {options.rounds} right (wrong in ≤ {limit}, 95 %)")


if __name__ == "__main__":
    main()
