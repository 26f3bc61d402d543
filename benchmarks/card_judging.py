"""Count verdicts on the emulated card while another process uses it: of unchanged kernels and of slower ones.

    python benchmarks/card_judging.py --neighbour 2000/10000 --neighbour 500/20000   # µs of another, in how many
    python benchmarks/card_judging.py --neighbour 2000/10000 --judged 5 --slower 10%

Needs what the emulated card needs (tests/emulated_card/README.md). A baseline of five new processes holds each
test; then processes of five tests each are judged by it, and new processes measure slow tests again. Unchanged kernels
run in one block more than in the baseline: the same code passes by itself, and here stored figures are to decide. The
neighbour is another process, which NVML does not show, and takes turns with ours on the card. Kernels take a
millisecond, triad ten: as much longer than its probe as what computes. Times are virtual, with the card's own noise, so
that a machine that is busy changes nothing. Prints Markdown. Ends with 1 where an unchanged kernel is red, or a slower
kernel passes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from arena import judged_by

from pytest_bandwidth.domain.units import format_percent, parse_fraction

TESTS = Path(__file__).resolve().parents[1] / "tests"
# What tells 3 % with five runs: the gate is 2.4 % (docs/judging.md, with a GPU's prior).
TOLERANCE = "2.5%"
RUNS = 5
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
KERNELS = ("copy_f32", "scale_f32", "add_f32", "triad_f32", "write_f32")
LONG_KERNEL, LONGER = "triad_f32", 10
# So slow a memory that a kernel takes about as long as contexts' slices of time do.
CARD = {"L2_BYTES": 1 << 16, "MEMORY_PACE": 0.02}


class Arena:
    """Keep a user's folder: tests of some sizes, and their baseline. The card's state is in it, and each run adds."""

    def __init__(self, folder: Path, sizes: int) -> None:
        self._folder, self._state = folder, folder / "card"
        self._state.mkdir()
        (folder / "pytest.ini").write_text("[pytest]\nbandwidth_settle = never\n")
        text = TEST.replace("{sizes}", str(sizes)).replace("{tolerance}", TOLERANCE)
        (folder / "test_stream.py").write_text(text)

    def run(self, grid: int, *args: str, **settings: object) -> list[dict]:
        """Run tests on the card in a process of their own; return the rows."""
        from emulated_card.environment import card_environment  # found once `main` has said where

        plain = ("-p", "no:randomly", "-p", "no:benchmark", "-p", "no:xdist")
        ours = ("--bandwidth-device=cuda", "--bandwidth-baseline=base.yaml")
        environ = {**card_environment(self._state, {**CARD, **settings}), "GRID": str(grid)}
        return judged_by(self._folder, (*plain, *ours, *args), environ)[2]


def factors(slower: float) -> str:
    """Return how much longer each kernel takes, as the card is asked for it."""
    return ",".join(f"{kernel}={(1 + slower) * (LONGER if kernel == LONG_KERNEL else 1)}" for kernel in KERNELS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--neighbour", action="append", required=True, metavar="BUSY/PERIOD", help="in µs")
    parser.add_argument("--judged", type=int, default=20, help="tests a row (default: 20; by fives)")
    parser.add_argument("--slower", action="append", help="by how much longer they take (default: 10%%)")
    options = parser.parse_args()
    sys.path.insert(0, str(TESTS))  # for emulated_card
    sizes = -(-options.judged // len(KERNELS))
    well = True
    with tempfile.TemporaryDirectory() as folder:
        arena = Arena(Path(folder), sizes)
        rows = arena.run(GRID, "--bandwidth-update", f"--bandwidth-runs={RUNS}", SLOW_KERNELS=factors(0.0))
        if {row["status"] for row in rows} != {"SAVED"}:
            raise SystemExit(f"the baseline was not written: {rows}")
        print("| µs of others ÷ period | kernels | tests | statuses |\n|---|---|---|---|")
        for neighbour in options.neighbour:
            for drop in (0.0, *map(parse_fraction, options.slower or ["10%"])):
                found: Counter[str] = Counter()
                for size in range(sizes):
                    tests = (f"test_stream.py::test_stream[{kernel}-{size}]" for kernel in KERNELS)
                    rows = arena.run(OTHER_GRID, *tests, NEIGHBOUR=neighbour, SLOW_KERNELS=factors(drop))
                    found.update(row["status"] for row in rows)
                what = f"{format_percent(drop)} slower" if drop else "unchanged"
                counted = ", ".join(f"{count} {status}" for status, count in found.most_common())
                print(f"| {neighbour} | {what} | {found.total()} | {counted} |", flush=True)
                well &= not (found["OK"] if drop else found["REGRESSED"])
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
