"""Show what this plugin is for (`make demo`), by four kernels on the best device here.

    python benchmarks/demo.py [FOLDER]

The machine's figures, a baseline, the unchanged kernels, one that is slowed on purpose and found, the reports of all
that in FOLDER (default: demo-results). Where other processes disturb the measurements it says so and ends well: the
exit status is 0 unless the plugin fails, raises a false alarm or lets the slowed kernel pass.
"""

from __future__ import annotations

import difflib
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

# Few processes stand for the baseline here, so the tolerance is wide; five and 3 % are for a gate.
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
# Statuses of a test that was judged and is as fast as before.
FINE = ("UNCHANGED", "WITHIN", "IMPROVED")


class Failed(Exception):
    """Says that the plugin did not do what it is for."""


def told(text: str) -> None:
    print(text, flush=True)


def pytest_run(folder: Path, name: str, tests: str, *args: str) -> dict[str, str]:
    """Run the tests; return the status of each by its name. Raises Failed where pytest or a test went wrong."""
    (folder / "test_kernels.py").write_text(tests, encoding="utf-8")
    files = [f"--bandwidth-{kind}={name}.{kind}" for kind in ("json", "html")]
    command = [sys.executable, "-m", "pytest", *NOTHING_ELSE, "--bandwidth-baseline=baseline.yaml", *BUDGET, *files]
    status = subprocess.run([*command, *args], cwd=folder, check=False).returncode
    document = folder / f"{name}.json"
    if status not in (0, 1) or not document.is_file():
        raise Failed(f"pytest ended with exit status {status}, see above")
    rows = json.loads(document.read_text(encoding="utf-8"))["results"]
    found = {row["nodeid"].rpartition("::")[2]: row["status"] for row in rows}
    if missing := sorted({*KERNELS} - {*found}):
        raise Failed(f"{', '.join(missing)} was not measured, see above")
    return found


def explain(statuses: Mapping[str, str]) -> None:
    """Say which tests were not judged, and what follows. Pytest has just said why."""
    for status in sorted({*statuses.values()} - {*FINE, "REGRESSED", "UPDATED"}):
        names = [name for name, found in statuses.items() if found == status]
        told(f"   {status}, so not judged, for the reason above: {', '.join(names)}.")
    if "INVALID" in statuses.values():
        told("   What is measured beside other work says nothing of a kernel, so nothing fails by it.")
        told("   On a quieter machine `make demo` shows more.")


def take_baseline(folder: Path) -> None:
    update = ("--bandwidth-update", f"--bandwidth-runs={BASELINE_PROCESSES}")
    statuses = pytest_run(folder, "baseline", TESTS, *update)
    explain(statuses)
    written = [name for name, status in statuses.items() if status == "UPDATED"]
    told(f"   {len(written)} of {len(statuses)} kernels have a baseline now.")


def judged(folder: Path, name: str, tests: str) -> dict[str, str]:
    """Measure the tests and judge them by the baseline. Raises Failed where one fails that nobody changed."""
    statuses = pytest_run(folder, name, tests, f"--bandwidth-tolerance={TOLERANCE}")
    changed = {SLOWED} if tests != TESTS else set()
    explain(statuses)
    if alarms := [test for test, status in statuses.items() if status == "REGRESSED" and test not in changed]:
        raise Failed(f"a false alarm: {', '.join(alarms)} was not changed")
    return statuses


def judge_unchanged(folder: Path) -> None:
    statuses = judged(folder, "unchanged", TESTS)
    fine = [name for name, status in statuses.items() if status in FINE]
    told(f"   {len(fine)} of {len(statuses)} kernels are as fast as their baseline says, none fails.")


def judge_slowed(folder: Path) -> None:
    diff = difflib.unified_diff(TESTS.splitlines(), SLOWED_TESTS.splitlines(), n=1, lineterm="")
    told("".join(f"   {line}\n" for line in [*diff][3:]))
    status = judged(folder, "slowed", SLOWED_TESTS)[SLOWED]
    if status in FINE:
        raise Failed(f"{SLOWED} takes twice as long and was not found")
    if status == "REGRESSED":
        told(f"   Found, as it should be: {SLOWED} takes twice as long and fails, the kernels beside it do not.")


def main(folder: Path) -> int:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    begun = time.monotonic()
    try:
        told("1. This machine:")
        if subprocess.run([sys.executable, "-m", "pytest_bandwidth.cli", "device"], check=False).returncode != 0:
            raise Failed("pytest-bandwidth device failed, see above")
        told(f"\n2. A baseline, of {BASELINE_PROCESSES} fresh processes:")
        take_baseline(folder)
        if (folder / "baseline.yaml").is_file():
            told("\n3. The same kernels again:")
            judge_unchanged(folder)
            told("\n4. Somebody slows one of them, and does not notice:")
            judge_slowed(folder)
    except Failed as failure:
        told(f"\nThe demo failed: {failure}")
        return 1
    pages = ", ".join(str(page) for page in sorted(folder.glob("*.html"), key=lambda page: page.stat().st_mtime))
    told(f"\nAll of it took {time.monotonic() - begun:.0f} s. The reports, for a browser: {pages}")
    told("The built-in suite measures some forty operations more: pytest --pyargs pytest_bandwidth.suite")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-results")))
