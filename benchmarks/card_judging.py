"""Judge on the emulated card, by real runs of pytest: unchanged kernels, slower kernels, a slower card, neighbours.

    python benchmarks/card_judging.py                              # 100 unchanged tests, 20 of each drop: half an hour
    python benchmarks/card_judging.py --judged 10 --slowed 5 --slower 10%
    python benchmarks/card_judging.py --neighbour 2000/10000 --neighbour 500/20000   # µs of another, in how many

Needs what the emulated card needs (tests/emulated_card/README.md). A baseline of five fresh processes holds each
test; then processes of five tests each are judged by it, and new processes measure slow tests again. The kernels take
turns in each process: copy, scale, add, triad and write, of 0.5 MiB arrays and larger. Unchanged ones run in one block
more than in the baseline: the same code passes by itself, and here stored figures are to decide. Times are virtual,
with the card's own noise, so that a machine that is busy changes nothing. With --neighbour another process, which NVML
does not show, takes turns with ours on the card, and kernels take a millisecond, triad ten: as much longer than its
probe as what computes. Prints Markdown: the statuses, and what the rule finds on drawn noise of the same size
(docs/judging.md). Ends with 1 where an unchanged kernel is red, where the slower card is not told in one line, or where
a slower kernel passes beside a neighbour.
"""

from __future__ import annotations

import argparse
import math
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from arena import judged_by

from pytest_bandwidth.cli.selftest import Judge
from pytest_bandwidth.domain.baseline import Run
from pytest_bandwidth.domain.units import format_percent, parse_fraction
from pytest_bandwidth.domain.verdict import Status

TESTS = Path(__file__).resolve().parents[1] / "tests"
# What tells 3 % with five runs: the gate is 2.4 % (docs/judging.md, with a GPU's prior).
TOLERANCE = 0.025
RUNS, CONFIRM = 5, 3
TRIALS = 20_000
SLOW_CARD = 0.8
# One block more is another launch, and so other code (docs/judging.md): noise and the rule alone decide.
GRID, OTHER_GRID = 320, 321
TEST = """
import os
import numpy as np
import pytest

INPUTS = {"copy_f32": 1, "scale_f32": 1, "add_f32": 2, "triad_f32": 2, "write_f32": 0}
WITH_SCALAR = ("scale_f32", "triad_f32", "write_f32")

@pytest.mark.bandwidth(tolerance="{tolerance}")
@pytest.mark.parametrize("size", range({sizes}))
@pytest.mark.parametrize("kernel", INPUTS)
def test_stream(bandwidth, kernel, size):
    n = (1 << 17) + 4096 * size
    inputs = tuple(bandwidth.random(n, "float32") for _ in range(INPUTS[kernel]))
    out = bandwidth.empty(n, "float32")
    scalar = (np.float32(3),) if kernel in WITH_SCALAR else ()
    args = (out, *inputs, *scalar, np.int64(n))
    grid = int(os.environ["GRID"])
    bandwidth.launch(bandwidth.kernel("stream.cu", kernel), grid, 256, args, reads=inputs or 0, writes=out)
"""
# Beside neighbours a kernel takes about as long as contexts' slices of time do.
LONG = {"MEMORY_PACE": 0.02}
LONG_KERNEL, LONGER = "triad_f32", 10
LONG_SECONDS = 1.0
KERNELS = ("copy_f32", "scale_f32", "add_f32", "triad_f32", "write_f32")


class Arena:
    """Keep a user's folder: tests of some sizes, and their baseline. state: of the card, to which each run adds."""

    def __init__(self, folder: Path, sizes: int, settle: str, seconds: float = 0.05, **always: object) -> None:
        self._folder, self._state = folder, folder / "card"
        self._always = always
        self._given = ("-o", f"bandwidth_settle={settle}", f"--bandwidth-max-time={seconds}")
        self._state.mkdir()
        (folder / "pytest.ini").write_text("[pytest]\n")
        text = TEST.replace("{sizes}", str(sizes)).replace("{tolerance}", f"{100 * TOLERANCE}%")
        (folder / "test_stream.py").write_text(text)

    def take_baseline(self) -> None:
        status, shown, rows = self._pytest(GRID, "--bandwidth-update", f"--bandwidth-runs={RUNS}")
        if status != 0 or {row["status"] for row in rows} != {"SAVED"}:
            raise SystemExit(f"the baseline was not written:\n{shown}")

    def judge(self, size: int, grid: int = OTHER_GRID, **settings: object) -> tuple[int, str, list[dict]]:
        """Judge the kernels at one size in a process; return its exit status, what it printed, and its rows."""
        tests = (f"test_stream.py::test_stream[{kernel}-{size}]" for kernel in KERNELS)
        return self._pytest(grid, *tests, **settings)

    def _pytest(self, grid: int, *args: str, **settings: object) -> tuple[int, str, list[dict]]:
        from emulated_card.environment import card_environment  # found once `main` has said where

        plain = ("-p", "no:randomly", "-p", "no:benchmark", "-p", "no:xdist")
        ours = ("--bandwidth-device=cuda", "--bandwidth-baseline=base.yaml", *self._given)
        environ = card_environment(self._state, {"L2_BYTES": 1 << 16, **self._always, **settings})
        return judged_by(self._folder, (*plain, *ours, *args), {**environ, "GRID": str(grid)})[:3]


def judged(arena: Arena, tests: int, **settings: object) -> tuple[Counter[str], list[float]]:
    """Judge so many tests, the sizes one after the other; return their statuses and the shares seen at first."""
    statuses: Counter[str] = Counter()
    shares: list[float] = []
    for size in range(tests // len(KERNELS)):
        _, _, rows = arena.judge(size, **settings)
        statuses.update(row["status"] for row in rows)
        shares += [row["relative"] for row in rows]
        print(f"… {statuses.total()} of {tests}: {dict(statuses)}", file=sys.stderr, flush=True)
    return statuses, shares


def beside_neighbours(neighbours: Sequence[str], tests: int, slower: Sequence[float], settle: str) -> bool:
    """Judge beside each neighbour, and print a row for each and each drop; return whether all is as it should be."""
    well = True
    with tempfile.TemporaryDirectory() as folder:
        sizes = -(-tests // len(KERNELS))
        arena = Arena(Path(folder), sizes, settle, LONG_SECONDS, **LONG, SLOW_KERNELS=factors(0.0))
        arena.take_baseline()
        print("| µs of others ÷ period | kernels | tests | statuses |\n|---|---|---|---|")
        for neighbour in neighbours:
            for drop in (0.0, *slower):
                found, _ = judged(arena, tests, NEIGHBOUR=neighbour, SLOW_KERNELS=factors(drop))
                what = f"{format_percent(drop)} slower" if drop else "unchanged"
                print(f"| {neighbour} | {what} | {found.total()} | {counted(found)} |", flush=True)
                well &= not (found["OK"] if drop else found["REGRESSED"])
    return well


def factors(slower: float) -> str:
    """Return how much longer each kernel takes, as the card is asked for it."""
    return ",".join(f"{kernel}={(1 + slower) * (LONGER if kernel == LONG_KERNEL else 1)}" for kernel in KERNELS)


def promised(drop: float, spread: float) -> float:
    """Return the share of tests that the rule makes REGRESSED, where processes differ by so much."""
    draw = random.Random(f"{drop} {spread}")

    def processes(count: int, shift: float = 0.0) -> list[Run]:
        return [Run(gbps=100, relative=math.exp(draw.gauss(0, spread) + shift)) for _ in range(count)]

    found = 0
    for _ in range(TRIALS):
        judge = Judge(processes(RUNS), "relative", TOLERANCE, CONFIRM, on_host=False)
        found += judge.decision(processes(1 + CONFIRM, math.log1p(-drop))).status is Status.REGRESSED
    return found / TRIALS


def spread_of(shares: Sequence[float]) -> float:
    """Return the standard deviation of shares that are all nearly 1, as the kernels' here."""
    logs = [math.log(share) for share in shares]
    mean = sum(logs) / len(logs)
    return math.sqrt(sum((value - mean) ** 2 for value in logs) / max(len(logs) - 1, 1))


def device_lines(shown: str) -> list[str]:
    return re.findall(r"^DEVICE .*$", shown, re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--judged", type=int, default=100, help="unchanged tests (default: 100; by fives)")
    parser.add_argument("--slowed", type=int, default=20, help="tests of each slower kernel (default: 20; by fives)")
    parser.add_argument("--neighbour", action="append", metavar="BUSY/PERIOD", help="judge beside another process, µs")
    parser.add_argument("--settle", default="never", help="as bandwidth_settle (default: never: by stored runs)")
    parser.add_argument("--slower", action="append", help="by how much longer they take (default: 3%% 5%% 10%%)")
    options = parser.parse_args()
    slower = [parse_fraction(given) for given in options.slower or ["3%", "5%", "10%"]]
    sys.path.insert(0, str(TESTS))  # for emulated_card
    if options.neighbour:
        drops = slower if options.slower else [0.1]
        return 0 if beside_neighbours(options.neighbour, options.slowed, drops, options.settle) else 1
    with tempfile.TemporaryDirectory() as folder:
        arena = Arena(Path(folder), max(options.judged, options.slowed) // len(KERNELS), options.settle)
        arena.take_baseline()
        unchanged, shares = judged(arena, options.judged)
        spread = spread_of(shares)
        print(f"tolerance {format_percent(TOLERANCE, 1)}, {RUNS} runs; shares differ by {format_percent(spread, 2)}\n")
        print("| kernels | tests | REGRESSED | by the rule on drawn noise | statuses |\n|---|---|---|---|---|")
        print(row("unchanged", unchanged, promised(0.0, spread)), flush=True)
        for drop in slower:
            found, _ = judged(arena, options.slowed, SLOW_KERNELS=",".join(f"{k}={1 + drop}" for k in KERNELS))
            print(row(f"{format_percent(drop)} slower", found, promised(1 - 1 / (1 + drop), spread)), flush=True)
        status, shown, rows = arena.judge(0, GRID, MEMORY_PACE=SLOW_CARD)
        told = device_lines(shown)
        down = Counter(r["status"] for r in rows)
        print(row(f"unchanged, the card's memory at {format_percent(SLOW_CARD)}", down, 0.0))
        print("", *told, sep="\n")
    return 1 if unchanged["REGRESSED"] or status or len(told) != 1 or set(down) != {"OK"} else 0


def row(what: str, statuses: Counter[str], expected: float) -> str:
    many = statuses.total()
    return f"| {what} | {many} | {statuses['REGRESSED']} | {format_percent(expected, 1)} | {counted(statuses)} |"


def counted(statuses: Counter[str]) -> str:
    return ", ".join(f"{count} {status}" for status, count in statuses.most_common())


if __name__ == "__main__":
    sys.exit(main())
