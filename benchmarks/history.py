"""Measure what the history costs at a million points, and which changes its change points find in invented runs.

    python benchmarks/history.py [--runs 5150] [--tests 200] [--repeat 3] [--skip-change-points]
    python benchmarks/history.py --fleet [--cards 200] [--runs 500] [--tests 200] [--repeat 3]

The script fills the store as years of runs would: it appends run by run, the project's own code merges files, and 150
runs stay in files of their own. A new process answers each question, as `pytest-bandwidth history` does, imports
included. Limit: 2 s a question.

With --fleet each card has a run every night. A night is one file, as after a merge, and the last night has a file for
each run. DuckDB invents them: one card loses 4 % over the last 40 % of the nights, another is 4 % slow from the first
night on. The script checks that only the first is reported as drifting. Limit: 5 s a question. It prints seconds by the
clock and of processors, since other processes lengthen the first.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
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
DRIFTING, SLOW = 1, 2
FLEET_QUESTIONS = {
    "every card (--by gpu)": ["--by", "gpu"],
    "every card, HTML": ["--by", "gpu", "-o", PAGE],
    "every card, one test": ["*operation[7-*", "--by", "gpu"],
    "SQL: the slowest cards": [
        "--sql",
        "SELECT serial, median(gbps) FROM history WHERE test LIKE '%operation[7-%' GROUP BY serial ORDER BY 2 LIMIT 5",
    ],
    "SQL: count": QUESTIONS["SQL: count"],
}
# What a night's rows are made of; what is not named is null.
MADE_UP = {
    "run_id": "printf('%06dZ-%04d', night, card)",
    "started_at": "TIMESTAMP '2025-01-01 02:00:00' + to_days(night::INTEGER) + to_seconds(card)",
    "commit": "printf('%012x', night // 2)",
    "uncommitted": "false",
    "host": "printf('node%03d', card // 8)",
    "ci": "true",
    "plugin": "'1.0'",
    "device_kind": "'cuda'",
    "device": "'Imaginary GPU'",
    "serial": "printf('GPU-%04d', card)",
    "test": "printf('tests/test_suite.py::test_operation[%d-plain-float32]', test)",
    "status": "'OK'",
    "is_valid": "true",
    "figure": "'relative'",
    "gbps": "factor * (800 + test) * (1 + 0.01 * sqrt(-2 * ln(u)) * cos(2 * pi() * v))",
    "probe_gbps": "1000.0",
    "relative": "0.8 * (1 + 0.01 * sqrt(-2 * ln(u)) * sin(2 * pi() * v))",
    "seconds": "0.001",
    "noise": "0.01",
    "samples": "30",
    "bytes_read": "134217728",
    "bytes_written": "134217728",
    "method": "'events'",
}
# What a page of trends holds.
TESTS_AT_MOST = 200


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


def fill_fleet(folder: Path, cards: int, nights: int, tests: int) -> None:
    """Write every night as a merge would, sorted by test, and the last one run by run."""
    from pytest_bandwidth.features.history.reading import database
    from pytest_bandwidth.features.history.table import FORM
    from pytest_bandwidth.features.history.writing import ROWS_OF_GROUP, copy_to

    columns = ", ".join(f'({MADE_UP.get(name, "NULL")})::{type_} AS "{name}"' for name, type_ in FORM)
    # Two even figures from 0 to 1 by hashes, so that every machine makes the same rows.
    u, v = (f"((hash(night, card, test, {i}) >> 12) + 0.5) / 4503599627370496.0" for i in (1, 2))
    lost = f"0.04 * greatest(0, night - 0.6 * {nights}) / (0.4 * {nights})"
    factor = f"CASE card WHEN {DRIFTING} THEN 1 - {lost} WHEN {SLOW} THEN 0.96 ELSE 1 END"

    def rows(night: int, first_card: int, cards: int) -> str:
        return (
            f"SELECT {columns} FROM (SELECT night, card, test, {u} AS u, {v} AS v, {factor} AS factor "
            f"FROM range({night}, {night + 1}) nights(night), range({first_card}, {first_card + cards}) cards(card), "
            f"range({tests}) tests(test)) ORDER BY test, started_at"
        )

    folder.mkdir()
    with database() as connection:
        for night in range(nights - 1):
            copy_to(
                connection, rows(night, 0, cards), folder / f"merged-{night:06d}.parquet", rows_of_group=ROWS_OF_GROUP
            )
        for card in range(cards):
            copy_to(connection, rows(nights - 1, card, 1), folder / f"{nights - 1:06d}Z-{card:04d}.parquet")


def check_drift(folder: Path) -> None:
    """End the script unless the history reports the drifting card, and no other."""
    command = [sys.executable, "-m", "pytest_bandwidth.cli", "history", str(folder), "--by", "gpu", "--json"]
    document = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    drifting = [card["serial"] for card in document["cards"] if card["drifts"]]
    if drifting != [f"GPU-{DRIFTING:04d}"]:
        sys.exit(f"found {drifting} drifting, expected GPU-{DRIFTING:04d}")
    print(f"  reported as drifting: {drifting[0]}, of {len(document['cards'])} cards", flush=True)


def ask(folder: Path, arguments: Sequence[str], repeat: int) -> tuple[list[float], float]:
    """Return the seconds of new processes, and of processors for one; pages are written next to the history."""
    given = [str(folder.with_name(PAGE)) if argument == PAGE else argument for argument in arguments]
    command = [sys.executable, "-m", "pytest_bandwidth.cli", "history", str(folder), *given]
    seconds, before = [], _processor_seconds()
    for _ in range(repeat):
        started = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        seconds.append(time.perf_counter() - started)
    return seconds, (_processor_seconds() - before) / repeat


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--fleet", action="store_true", help="many cards, asked by card")
    parser.add_argument("--cards", type=int, default=200, help="of the fleet (200)")
    parser.add_argument("--runs", type=int, help="of the one card (5150), or of each of the fleet (500)")
    parser.add_argument("--tests", type=int, default=200)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--skip-change-points", action="store_true")
    options = parser.parse_args(arguments)
    runs = options.runs or (500 if options.fleet else 5150)
    if not 8 <= options.tests <= TESTS_AT_MOST:
        parser.error(
            f"--tests: found {options.tests}, expected 8 to {TESTS_AT_MOST}: the questions ask for test 7, "
            "and for a page of all"
        )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "history"
        if options.fleet:
            fill_fleet(folder, options.cards, runs, options.tests)
        else:
            appended = fill(folder, runs, options.tests)
        files = list(os.scandir(folder))
        size = sum(file.stat().st_size for file in files)
        points = runs * options.tests * (options.cards if options.fleet else 1)
        print(f"{points:,} points in {len(files)} files, {size / 1e6:.0f} MB", flush=True)
        if options.fleet:
            check_drift(folder)
        else:
            print(
                f"  append of {options.tests} results   median {median(appended) * 1e3:.0f} ms   "
                f"most {max(appended):.2f} s"
            )
        for question, given in (FLEET_QUESTIONS if options.fleet else QUESTIONS).items():
            seconds, used = ask(folder, given, options.repeat)
            print(
                f"  {question:24} median {median(seconds):6.3f} s   least {min(seconds):6.3f} s   "
                f"processors {used:6.3f} s",
                flush=True,
            )
    if not options.skip_change_points and not options.fleet:
        change_points_found()


if __name__ == "__main__":
    main()
