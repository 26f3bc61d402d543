"""Measure what the history costs at a million points, and which changes its change points find in invented runs.

    python benchmarks/history.py [--runs 5150] [--tests 200] [--repeat 3] [--skip-change-points]

The script fills the store as years of runs would: it appends run by run, the project's own code merges files, and 150
runs stay in files of their own. A new process answers each question, as `pytest-bandwidth history` does, imports
included. Limit: 2 s a question.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests" / "support")]

PAGE = "history.html"
QUESTIONS = {
    "every test": [],
    "every test, HTML": ["-o", PAGE],
    "one test by commit": ["*operation[7-*"],
    "one test, JSON": ["*operation[7-*", "--json"],
    "SQL: median by test": ["--sql", "SELECT test, median(gbps) FROM history GROUP BY test ORDER BY 2 LIMIT 5"],
    "SQL: count": ["--sql", "SELECT count(*), count(DISTINCT run_id) FROM history"],
}


def fill(folder: Path, runs: int, tests: int) -> list[float]:
    """Append the runs; return the seconds of each append."""
    from run_documents import outcome, run_of

    from pytest_bandwidth.features.history.writing import append

    random_, begin, seconds = random.Random(1), datetime(2024, 1, 1, tzinfo=timezone.utc), []
    rows = [outcome(f"tests/test_suite.py::test_operation[{i}-plain-float32]", 700.0) for i in range(tests)]
    for number in range(runs):
        probe = random_.gauss(900, 15)
        varied = [_varied(row, probe, random_) for row in rows]
        at = f"{begin + timedelta(hours=3 * number):%Y-%m-%dT%H:%M:%SZ}"
        run = run_of(*varied, environment={"started_at": at, "commit": f"{number // 2:012x}"})
        started = time.perf_counter()
        append(folder, run, varied)
        seconds.append(time.perf_counter() - started)
    return seconds


def _varied(row: Any, probe: float, random_: random.Random) -> Any:
    from dataclasses import replace

    relative = 0.8 * random_.gauss(1, 0.01)
    return replace(row, gbps=relative * probe, relative=relative, probe_gbps=probe, samples=row.samples[:1])


def ask(folder: Path, arguments: Sequence[str], repeat: int) -> list[float]:
    """Return the seconds of new processes; pages are written next to the history."""
    given = [str(folder.with_name(PAGE)) if argument == PAGE else argument for argument in arguments]
    command = [sys.executable, "-m", "pytest_bandwidth.cli", "history", str(folder), *given]
    seconds = []
    for _ in range(repeat):
        started = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        seconds.append(time.perf_counter() - started)
    return seconds


def change_points_found(series: int = 400) -> None:
    """Print the shares of invented series in which a change is found, by noise, length and drop in their middle."""
    import numpy as np

    from pytest_bandwidth.features.history.change_points import change_points

    random_ = np.random.default_rng(1)
    noises = {
        "normal": lambda n: random_.normal(0, 0.01, n),
        "heavy-tailed (t3)": lambda n: 0.01 * random_.standard_t(3, n) / 3**0.5,
    }
    print("| noise of 1 % between runs | runs | false alarms, of series | 2 % drop found | 3 % | 5 % |")
    for name, noise in noises.items():
        for runs in (20, 50, 200):
            shares = []
            for drop in (0.0, 0.02, 0.03, 0.05):
                step = np.where(np.arange(runs) < runs // 2, 0.0, np.log1p(-drop))
                found = [change_points(np.exp(noise(runs) + step).tolist()) for _ in range(series)]
                near = [places if drop == 0 else [p for p in places if abs(p - runs // 2) <= 2] for places in found]
                shares.append(sum(map(bool, near)) / series)
            print(f"| {name} | {runs} | " + " | ".join(f"{share:.1%}" for share in shares) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5150)
    parser.add_argument("--tests", type=int, default=200)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--skip-change-points", action="store_true")
    options = parser.parse_args()
    if not 8 <= options.tests <= 200:
        parser.error(f"--tests: found {options.tests}, expected 8 to 200: one asks for test 7, one for a page of all")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "history"
        appended = fill(folder, options.runs, options.tests)
        files = list(os.scandir(folder))
        size = sum(file.stat().st_size for file in files)
        print(f"{options.runs * options.tests:,} points in {len(files)} files, {size / 1e6:.0f} MB", flush=True)
        print(
            f"  append of {options.tests} results   median {median(appended) * 1e3:.0f} ms   most {max(appended):.2f} s"
        )
        for question, given in QUESTIONS.items():
            seconds = ask(folder, given, options.repeat)
            print(f"  {question:24} median {median(seconds):6.3f} s   least {min(seconds):6.3f} s", flush=True)
    if not options.skip_change_points:
        change_points_found()


if __name__ == "__main__":
    main()
