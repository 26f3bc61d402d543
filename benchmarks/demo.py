"""Run the built-in suite (`make demo`) on the best device here, judged by a baseline that was taken just before.

    python benchmarks/demo.py [FOLDER]

Leaves summary (HTML), JSON, CSV and baseline in FOLDER (default: demo-results). Exit status is pytest's own.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

# One process stands for the baseline here, so the tolerance is wide; five and 3 % are for a gate.
TOLERANCE = "15%"
BUDGET = ("--bandwidth-max-time=0.25", "--bandwidth-min-samples=8")


def pytest_run(folder: Path, *args: str) -> int:
    suite = ["-p", "no:cacheprovider", "-q", "--pyargs", "pytest_bandwidth.suite"]
    baseline = f"--bandwidth-baseline={folder / 'baseline.yaml'}"
    command = [sys.executable, "-m", "pytest", *suite, "--rootdir", str(folder), baseline, *BUDGET, *args]
    return subprocess.run(command, check=False).returncode


def main(folder: Path) -> int:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    begun = time.monotonic()
    print("1. Taking a baseline of this machine …", flush=True)
    status = pytest_run(folder, "--bandwidth-update", "--no-summary")
    if status != 0:
        return status
    print("\n2. Measuring again and judging by it …", flush=True)
    files = [f"--bandwidth-{kind}={folder / f'bandwidth_report.{kind}'}" for kind in ("html", "json", "csv")]
    status = pytest_run(folder, f"--bandwidth-tolerance={TOLERANCE}", *files)
    print(f"\n{time.monotonic() - begun:.0f} s. Look at {folder / 'bandwidth_report.html'}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-results")))
