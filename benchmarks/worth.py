"""Measure what waits, further processes and blame are still worth where fresh processes have the last word.

    python benchmarks/worth.py                              # two rounds: a quarter of an hour
    python benchmarks/worth.py --rounds 8 --kernel triad --kernel exponential

Where neither the old kernel nor the baseline's commit is at hand (--bandwidth-settle=never here), the median of three
fresh processes decides. A machine whose memory has several speeds is met by four more means: processes wait until it
has the baseline's, more of them are tried where too few met it, those that met it outweigh the others, and DEVICE
blames memory that is faster than the baseline's. Every kernel is judged edited without a loss, and slower. Each verdict
of fresh processes is then taken again, from the same processes, without one of the last three, and without all; what
runs without waits is measured beside it, in turns. Baselines are renewed for every ten rounds. Prints Markdown: of
edited code what is red, of slower code what is found, blamed on the device, and passed, and how many verdicts came
otherwise. Tells of each verdict, while it runs, what it was in each way.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest.mock import patch

import pytest
from arena import KERNELS, Arena, Tally, table

from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.judging import confirmation, device_change, judge
from pytest_bandwidth.domain.judging.confirmation import Case, Evidence, FreshMetrics
from pytest_bandwidth.domain.judging.floors import Floors
from pytest_bandwidth.domain.metrics import Metrics
from pytest_bandwidth.domain.units import format_percent, parse_fraction
from pytest_bandwidth.domain.verdict import Status, Verdict
from pytest_bandwidth.session.fresh.confirm import Waiting

ROUNDS_PER_BASELINE = 10
NOTES, WITHOUT_WAITS = "BANDWIDTH_WORTH_NOTES", "BANDWIDTH_WORTH_WITHOUT_WAITS"
AS_IT_IS, NO_WAITS = "as it is", "without waits"
FINE = ("UNCHANGED", "WITHIN", "IMPROVED")

judged_as_it_is = confirmation.judge_by_fresh
# Takes what `judge_by_fresh` takes, and gives its verdict without a mechanism.
Judged = Callable[[Verdict, Case, Sequence[FreshMetrics], int, Floors, BandwidthError | None], Verdict]


def without_blame(*given: Any) -> Verdict:
    with patch.object(device_change, "blame_when_up", lambda *_: None):
        return judged_as_it_is(*given)


def without_further(first: Verdict, case: Case, fresh: Sequence[FreshMetrics], confirm: int, *others: Any) -> Verdict:
    return judged_as_it_is(first, case, fresh[:confirm], confirm, *others)


def without_choice(*given: Any) -> Verdict:
    def all_of(fresh: Sequence[Metrics], _known: object, confirm: int) -> Evidence:
        return Evidence(fresh, confirm)

    with patch.object(confirmation, "evidence_of", all_of):
        return judged_as_it_is(*given)


def without_any(first: Verdict, case: Case, fresh: Sequence[FreshMetrics], confirm: int, *others: Any) -> Verdict:
    return judged_as_it_is(first, replace(case, known=None), fresh[:confirm], confirm, *others)


WITHOUT: Mapping[str, Judged] = {
    "without further processes": without_further,
    "without outweighing": without_choice,
    "without blame": without_blame,
    "without the three": without_any,
}


def pytest_configure() -> None:
    """Note verdicts of fresh processes, and what they are without each mechanism: this file is a plugin of its runs."""
    if WITHOUT_WAITS in os.environ:
        patch.object(Waiting, "worth", lambda *_: {}).start()
    if NOTES in os.environ:
        patch.object(judge, "judge_by_fresh", noted).start()


def noted(first: Verdict, case: Case, fresh: Sequence[FreshMetrics], *others: Any) -> Verdict:
    verdict = judged_as_it_is(first, case, fresh, *others)
    differently = {name: without(first, case, fresh, *others).status.value for name, without in WITHOUT.items()}
    line = {"first": first.status.value, "now": verdict.status.value, "processes": len(fresh), "without": differently}
    with open(os.environ[NOTES], "a", encoding="utf-8") as notes:
        notes.write(json.dumps({"probe": case.figures.probe_gbps, "kernel": case.figures.gbps, **line}) + "\n")
    return verdict


@dataclass
class Kept:
    """Hold statuses by way and drop, seconds a row of what was run, and how often fresh processes had the word."""

    statuses: dict[tuple[str, float], Counter[str]] = field(default_factory=dict)
    seconds: dict[tuple[str, float], list[float]] = field(default_factory=dict)
    decided: Counter[tuple[str, float]] = field(default_factory=Counter)
    otherwise: Counter[tuple[str, float]] = field(default_factory=Counter)

    def add(self, way: str, drop: float, statuses: Sequence[str]) -> None:
        self.statuses.setdefault((way, drop), Counter()).update(statuses)

    def add_run(self, way: str, drop: float, statuses: Sequence[str], seconds: float, notes: Sequence[Note]) -> None:
        """Count a run, and, where it was as it is, what its verdicts are without a mechanism."""
        self.add(way, drop, statuses)
        self.seconds.setdefault((way, drop), []).append(seconds / len(statuses))
        self.decided[way, drop] += len(notes)
        if way != AS_IT_IS:
            return
        for name in WITHOUT:
            ended = Counter(statuses)
            for note in notes:
                ended.subtract([note.ends(note.now)])
                ended.update([note.ends(note.without[name])])
                self.otherwise[name, drop] += note.ends(note.now) != note.ends(note.without[name])
            self.add(name, drop, list(ended.elements()))

    def line(self, way: str, drops: Sequence[float]) -> Iterator[str]:
        edited = self.statuses.get((way, 0.0), Counter())
        yield way
        yield f"{edited[Status.REGRESSED]} of {edited.total()}"
        yield str(edited[Status.DEVICE])
        for drop in drops:
            slower = self.statuses.get((way, drop), Counter())
            yield f"{slower[Status.REGRESSED]} of {slower.total()}"
            yield str(slower[Status.DEVICE])
            yield str(sum(slower[status] for status in FINE))
        yield " + ".join(str(self.otherwise[way, drop]) for drop in (0.0, *drops)) if way in WITHOUT else ""
        for drop in (0.0, *drops):
            taken = self.seconds.get((way, drop))
            yield f"{fmean(taken):.1f}" if taken else ""


@dataclass(frozen=True)
class Note:
    """Hold the statuses of one verdict: at the first look, of fresh processes, and of them without each mechanism."""

    first: str
    now: str
    processes: int
    without: Mapping[str, str]

    def ends(self, status: str) -> str:
        """Return what the row would say, as `judge_test` has it."""
        return status if self.first == Status.SUSPECT or status == Status.REGRESSED else self.first


@contextmanager
def notes_in(folder: Path) -> Iterator[tuple[Path, list[Note]]]:
    """Give a file for a run's notes, and those that it holds in the end."""
    file, found = folder / "notes.jsonl", list[Note]()
    file.write_text("")
    yield file, found
    for line in file.read_text().splitlines():
        plain = json.loads(line)
        print(f"    {plain}", file=sys.stderr, flush=True)
        found.append(Note(plain["first"], plain["now"], plain["processes"], plain["without"]))


def judged(arena: Arena, kept: Kept, way: str, drop: float) -> None:
    arena.slow_down(drop, edited=True)
    document = arena.folder / "ours.json"
    document.unlink(missing_ok=True)
    more = {"PYTHONPATH": str(Path(__file__).parent)} | ({WITHOUT_WAITS: "1"} if way == NO_WAITS else {})
    with notes_in(arena.folder) as (file, notes):
        args = (*arena.options, "-p", "worth", "--bandwidth-settle=never", f"--bandwidth-json={document.name}")
        code, text, seconds = arena.pytest("ours", *args, **{NOTES: str(file)}, **more)
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) or not document.is_file():
        raise SystemExit(f"nothing was judged:\n{text}")
    rows = json.loads(document.read_text())["results"]
    kept.add_run(way, drop, [row["status"] for row in rows], seconds, notes)


def result(kept: Kept, drops: Sequence[float]) -> str:
    heads = ["", "edited: red", "DEVICE"]
    for drop in drops:
        heads += [f"{format_percent(drop)} slower: found", "DEVICE", "passed"]
    heads += ["decided otherwise", "seconds a row, edited", *(f"{format_percent(drop)} slower" for drop in drops)]
    return table(heads, [list(kept.line(way, drops)) for way in (AS_IT_IS, NO_WAITS, *WITHOUT)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2, help="of edited and of slower code, each way (default: 2)")
    parser.add_argument("--drop", type=parse_fraction, action="append", help="drop to inject (default: 10%%)")
    parser.add_argument("--kernel", action="append", choices=tuple(KERNELS), help="kernel to judge (default: all)")
    parser.add_argument("--tolerance", default="5%")
    parser.add_argument("--mib", type=int, default=128, help="MiB of each array (default: 128)")
    options = parser.parse_args()
    drops, kernels = options.drop or [0.1], options.kernel or list(KERNELS)
    kept, begun = Kept(), datetime.now(timezone.utc)
    with tempfile.TemporaryDirectory() as folder:
        arena = Arena(Path(folder), Tally(), mib=options.mib, kernels=kernels, tolerance=options.tolerance)
        for number in range(options.rounds):
            if number % ROUNDS_PER_BASELINE == 0:
                arena.take_baselines(of_theirs=False)
            for drop in (0.0, *drops):
                ways = (AS_IT_IS, NO_WAITS) if number % 2 == 0 else (NO_WAITS, AS_IT_IS)
                for way in ways:
                    judged(arena, kept, way, drop)
            print(f"… {datetime.now(timezone.utc):%H:%M} UTC, {number + 1} of {options.rounds}", file=sys.stderr)
    ended = datetime.now(timezone.utc)
    print(f"{begun:%Y-%m-%d %H:%M} to {ended:%H:%M} UTC, {platform.machine()}, {os.cpu_count()} processors, ", end="")
    print(f"load {os.getloadavg()[0]:.2f}; tolerance {options.tolerance}, arrays of {options.mib} MiB\n")
    print(result(kept, drops))
    words = (f"{kept.decided[way, d]} of {format_percent(d)}" for way in (AS_IT_IS, NO_WAITS) for d in (0.0, *drops))
    print(f"\nFresh processes had the word on ({AS_IT_IS}, then {NO_WAITS}): {', '.join(words)}.")


if __name__ == "__main__":
    main()
