"""Measure what merging a fleet's documents costs: reading them, comparing the cards, the fleet's JSON and HTML.

    python benchmarks/fleet.py [--cards 200] [--tests 200] [--samples 30] [--repeat 3]

The script invents the documents, with one card slower than the others. Each merge is a new process that reads them from
files. Seconds are of its processor, since a fleet's documents arrive one by one while other cards still measure.
Limits: 10 s and 1 GB for 200 cards of 200 tests, 15 MB of HTML.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests" / "support")]


def write_documents(folder: Path, cards: int, tests: int, samples: int) -> None:
    """Write a saved run for each card; the last is 10 % slower."""
    from run_documents import GPU, outcome, run_of

    from pytest_bandwidth.domain.device import device_plain
    from pytest_bandwidth.reports.documents import render_json

    random_ = random.Random(1)
    rows = [outcome(f"tests/test_suite.py::test_operation[{i}-plain-float32]", 700.0) for i in range(tests)]
    for number in range(cards):
        factor = random_.gauss(1.0, 0.005) * (0.9 if number == cards - 1 else 1.0)
        varied = [_varied(row, factor * random_.gauss(1.0, 0.002), samples, random_) for row in rows]
        document = run_of(*varied)
        document["device"] = device_plain(replace(GPU, serial=f"GPU-{number:04d}"), None)
        (folder / f"{number:04d}.json").write_text(render_json(document))


def _varied(row: Any, factor: float, samples: int, random_: random.Random) -> Any:
    seconds = [row.seconds / factor * random_.gauss(1.0, 0.003) for _ in range(samples)]
    return replace(
        row,
        gbps=row.gbps * factor,
        samples=tuple(seconds),
        probe_samples=tuple(seconds),
        host_samples=tuple(seconds),
        kernel_first=(True, False) * (samples // 2),
    )


def merge(folder: Path) -> None:
    """Merge the folder's documents as the command does; print seconds, memory and sizes."""
    from pytest_bandwidth.features.fleet.cards import Card, Returned, read_result
    from pytest_bandwidth.features.fleet.overview import fleet_document, render_fleet
    from pytest_bandwidth.outcomes.devices import unlike_others
    from pytest_bandwidth.reports.documents import render_json
    from pytest_bandwidth.session.publishing.gathered import names_of

    begun = time.process_time()
    rows, reports = [], []
    for number, path in enumerate(sorted(folder.glob("*.json"))):
        node = f"gpu{number // 8}"
        card = Card(number, f"{node} GPU {number % 8}", node, node, node, "192.0.2.1", "Imaginary", 1)
        data = path.read_bytes()
        row, results = read_result(card, Returned(0, 1.0, (), data, len(data)), 1, 1.0, 60.0)
        if results is None:
            raise SystemExit(f"{path}: {row.reason}")
        rows.append(row)
        reports.append(results)
    read = time.process_time()
    devices = [one.device for one in reports]
    found = unlike_others(devices, names_of(devices), [one.outcomes for one in reports], 0.05)
    unlike = {i: finding.text for i, finding in enumerate(found) if finding is not None}
    compared = time.process_time()
    document = fleet_document("r", {}, rows, unlike, 0)
    text, page = render_json(document), render_fleet(document)
    written = time.process_time()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    print(
        f"| {len(rows)} | {read - begun:.1f} s | {compared - read:.1f} s | {written - compared:.1f} s | {most:.0f} MB "
        f"| {len(text.encode()) / 1e6:.1f} MB | {len(page.encode()) / 1e6:.2f} MB | {len(unlike)} |"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cards", type=int, default=200)
    parser.add_argument("--tests", type=int, default=200)
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--merge", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.merge is not None:
        merge(options.merge)
        return
    with tempfile.TemporaryDirectory() as name:
        write_documents(Path(name), options.cards, options.tests, options.samples)
        size = sum(path.stat().st_size for path in Path(name).iterdir())
        print(f"{options.cards} documents of {options.tests} tests, {size / 1e6:.0f} MB\n")
        print("| cards | read and check | compare | JSON and HTML | most memory | JSON | HTML | outliers |")
        print("|---|---|---|---|---|---|---|---|")
        for _ in range(options.repeat):
            subprocess.run([sys.executable, __file__, "--merge", name], check=True)


if __name__ == "__main__":
    main()
