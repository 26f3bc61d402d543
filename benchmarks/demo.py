"""Show what this plugin is for (`make demo`), by four kernels on the best device here.

    python benchmarks/demo.py [FOLDER]

It shows the machine's figures, writes a baseline, judges the unchanged kernels, slows one on purpose and finds it. The
reports are in FOLDER (default: demo-results). The exit status is 0 unless the plugin fails, raises a false alarm or
lets the slowed kernel pass. Where other processes disturb the measurements, it says so.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# Three runs are few for a baseline, so the tolerance is wide. For a gate take five runs and 3 to 5 %.
BASELINE_PROCESSES = 3
TOLERANCE = "20%"
BUDGET = ("--bandwidth-max-time=0.5",)
NOTHING_ELSE = ("-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:benchmark")
SLOWED = "test_triad"
TESTS = """\
import numpy as np

N = 1 << 25  # elements: 128 MiB of floats
GRID, BLOCK = 4096, 256


def test_copy(bandwidth):
    x, y = bandwidth.random(N, "float32"), bandwidth.empty(N, "float32")
    copy = bandwidth.kernel("stream.cu", "copy_f32")
    bandwidth.launch(copy, GRID, BLOCK, (y, x, np.int64(N)), reads=x, writes=y)


def test_triad(bandwidth):
    a, b, c = bandwidth.empty(N, "float32"), bandwidth.random(N, "float32"), bandwidth.random(N, "float32")
    kernel = bandwidth.kernel("stream.cu", "triad_f32")
    triad = bandwidth.bind(kernel, GRID, BLOCK, (a, b, c, np.float32(3), np.int64(N)))

    def step():
        triad()

    bandwidth(step, reads=(b, c), writes=a)


def test_softmax(bandwidth):
    rows, cols = N // 4096, 4096
    x, y = bandwidth.random((rows, cols), "float32"), bandwidth.empty((rows, cols), "float32")
    softmax = bandwidth.kernel("softmax.cu", "softmax_staged_f32")
    bandwidth.launch(softmax, rows, BLOCK, (y, x, np.int64(rows), np.int64(cols)), reads=x, writes=y)


def test_sum(bandwidth):
    x = bandwidth.random(N, "float32")
    bandwidth(bandwidth.xp.sum, x, reads=x)
"""
KERNELS = re.findall(r"def (test_\w+)", TESTS)
SLOWED_TESTS = TESTS.replace("        triad()\n", "        triad()\n        triad()  # left over from debugging\n")
# Statuses of a test that is as fast as before.
FINE = ("OK", "IMPROVED")


class Failed(Exception):
    """Says what the plugin did wrong."""


@dataclass(frozen=True)
class Verdict:
    """Hold a test's status, and whether its measurement is valid."""

    status: str
    is_valid: bool


def say(text: str) -> None:
    print(text, flush=True)


def pytest_run(folder: Path, name: str, tests: str, *args: str) -> dict[str, Verdict]:
    """Run the tests; return the verdict of each by its name. Raises Failed where pytest or a test went wrong."""
    (folder / "test_kernels.py").write_text(tests, encoding="utf-8")
    files = [f"--bandwidth-{kind}={name}.{kind}" for kind in ("json", "html")]
    command = [sys.executable, "-m", "pytest", *NOTHING_ELSE, "--bandwidth-baseline=baseline.yaml", *BUDGET, *files]
    status = subprocess.run([*command, *args], cwd=folder, check=False).returncode
    document = folder / f"{name}.json"
    if status not in (0, 1) or not document.is_file():
        raise Failed(f"pytest ended with exit status {status}, see above")
    rows = json.loads(document.read_text(encoding="utf-8"))["results"]
    found = {row["nodeid"].rpartition("::")[2]: Verdict(row["status"], row["is_valid"]) for row in rows}
    if missing := sorted({*KERNELS} - {*found}):
        raise Failed(f"{', '.join(missing)} was not measured, see above")
    return found


def explain(verdicts: Mapping[str, Verdict]) -> None:
    """Say which tests have no verdict, and what follows. Pytest has just said why."""
    for status in sorted({verdict.status for verdict in verdicts.values()} - {*FINE, "REGRESSED", "SAVED"}):
        names = [name for name, verdict in verdicts.items() if verdict.status == status]
        say(f"   {status} for the reason above: {', '.join(names)}.")
    if not all(verdict.is_valid for verdict in verdicts.values()):
        say("   Other processes disturbed these measurements: only the code is judged, and no test fails.")
        say("   On a quieter machine `make demo` shows more.")


def take_baseline(folder: Path) -> None:
    update = ("--bandwidth-update", f"--bandwidth-runs={BASELINE_PROCESSES}")
    verdicts = pytest_run(folder, "baseline", TESTS, *update)
    explain(verdicts)
    written = [name for name, verdict in verdicts.items() if verdict.status == "SAVED"]
    say(f"   {len(written)} of {len(verdicts)} kernels have a baseline now.")


def judged(folder: Path, name: str, tests: str) -> dict[str, str]:
    """Measure the tests and compare them with the baseline. Raises Failed where an unchanged one fails."""
    verdicts = pytest_run(folder, name, tests, f"--bandwidth-tolerance={TOLERANCE}")
    changed = {SLOWED} if tests != TESTS else set()
    explain(verdicts)
    statuses = {test: verdict.status for test, verdict in verdicts.items()}
    if alarms := [test for test, status in statuses.items() if status == "REGRESSED" and test not in changed]:
        raise Failed(f"a false alarm: {', '.join(alarms)} was not changed")
    return statuses


def judge_unchanged(folder: Path) -> None:
    statuses = judged(folder, "unchanged", TESTS)
    fine = [name for name, status in statuses.items() if status in FINE]
    say(f"   {len(fine)} of {len(statuses)} kernels are as fast as in the baseline, none fails.")


def judge_slowed(folder: Path) -> None:
    diff = difflib.unified_diff(TESTS.splitlines(), SLOWED_TESTS.splitlines(), n=1, lineterm="")
    say("".join(f"   {line}\n" for line in [*diff][3:]))
    status = judged(folder, "slowed", SLOWED_TESTS)[SLOWED]
    if status in FINE:
        raise Failed(f"{SLOWED} takes twice as long and was not found")
    if status == "REGRESSED":
        say(f"   Found, as it should be: {SLOWED} takes twice as long and fails. The other kernels do not fail.")


def show(folder: Path) -> int:
    """Show it all, with the reports in this folder; return the exit status."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    begun = time.monotonic()
    try:
        say("1. This machine:")
        if subprocess.run([sys.executable, "-m", "pytest_bandwidth.cli", "device"], check=False).returncode != 0:
            raise Failed("pytest-bandwidth device failed, see above")
        say(f"\n2. A baseline of {BASELINE_PROCESSES} runs, each in a new process:")
        take_baseline(folder)
        if (folder / "baseline.yaml").is_file():
            say("\n3. The same kernels again:")
            judge_unchanged(folder)
            say("\n4. Somebody slows one of them and does not notice:")
            judge_slowed(folder)
    except Failed as failure:
        say(f"\nThe demo failed: {failure}")
        return 1
    pages = ", ".join(str(page) for page in sorted(folder.glob("*.html"), key=lambda page: page.stat().st_mtime))
    say(f"\nThe demo took {time.monotonic() - begun:.0f} s. Its reports, for a browser: {pages}")
    say("The built-in suite measures some forty operations more: pytest --pyargs pytest_bandwidth.suite")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("demo-results"), help="default: demo-results")
    return show(parser.parse_args().folder)


if __name__ == "__main__":
    sys.exit(main())
