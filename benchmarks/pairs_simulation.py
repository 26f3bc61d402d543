"""Simulate the comparison of new code with old code: false alarms, drops found, and what `detects` promises.

    python benchmarks/pairs_simulation.py                   # about two minutes
    python benchmarks/pairs_simulation.py --trials 20000

The rule is the one that judges tests (`domain.judging.decide.decide_comparison`), not a copy. Each trial draws the log
ratios of twelve pairs; noise is that of both processes together, with the standard deviation that is asked for:

    Gaussian       the log ratio is normal
    heavy-tailed   Student's t with three degrees of freedom
    1 in 20 slow   Gaussian, and one process in twenty is 10 % slower than its twin throughout
    two speeds     each process has one of two speeds 5 % apart, and Gaussian noise; its pairs are not alike, so
                   that the first look comes after eight

Prints Markdown: of unchanged code the share that is REGRESSED and UNDECIDED, and the mean number of pairs; of a drop of
the tolerance, and of the drop that the row's own `detects` names, what is found, passes, and stays undecided.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import mean, median

from pytest_bandwidth.domain.units import format_percent, log_of_drop, parse_fraction
from pytest_bandwidth.domain.verdict import Decision, Rule, Status
from pytest_bandwidth.judging.decide import decide_comparison
from pytest_bandwidth.judging.evidence import OldCodeComparison
from pytest_bandwidth.judging.pairs import Looks

SLOW_PROCESS = math.log(1.10)
SLOW_CHANCE = 0.05
SPEEDS_APART = 0.05
LOOKS = Looks()
Draw = Callable[[random.Random, float], float]


def gaussian(draw: random.Random, spread: float) -> float:
    return draw.gauss(0, spread)


def heavy_tailed(draw: random.Random, spread: float) -> float:
    # t = z / √(χ²/ν); its variance is ν/(ν−2).
    return draw.gauss(0, spread) / math.sqrt(draw.gammavariate(1.5, 2) / 3) / math.sqrt(3)


def one_in_twenty(draw: random.Random, spread: float) -> float:
    new, old = (SLOW_PROCESS * (draw.random() < SLOW_CHANCE) for _ in range(2))
    return draw.gauss(0, spread) + new - old


def two_speeds(draw: random.Random, spread: float) -> float:
    return draw.gauss(0, spread) + SPEEDS_APART * (draw.randrange(2) - draw.randrange(2))


NOISES: dict[str, Draw] = {
    "Gaussian": gaussian,
    "heavy-tailed": heavy_tailed,
    "1 in 20 slow": one_in_twenty,
    "two speeds": two_speeds,
}


def decided(drops: Sequence[float], tolerance: float, *, alike: bool) -> tuple[Decision, int]:
    """Return the decision on the drops of one test, and how many pairs it took."""
    whole = OldCodeComparison(Rule.PAIRS, "gbps", (), (), (), "old", alike=alike)
    for number in LOOKS.after:
        seen = tuple(drops[:number])
        so_far = replace(whole, drops=seen, new=(1.0,) * number, old=(1.0,) * number, ended=number == LOOKS.most)
        found = decide_comparison(so_far, tolerance, LOOKS)
        if isinstance(found, Decision):
            return found, number
    raise AssertionError("the last look decides")


def shares(
    name: str, spread: float, drop: float, tolerance: float, trials: int
) -> tuple[Counter[Status], float, float]:
    """Return verdicts, the mean number of pairs, and the median of `detects`. drop: log ratio that is lost."""
    draw, noise = random.Random(f"{name} {spread} {drop}"), NOISES[name]
    verdicts: Counter[Status] = Counter()
    pairs, detects = [], []
    for _ in range(trials):
        found, taken = decided(
            [drop + noise(draw, spread) for _ in range(LOOKS.most)], tolerance, alike=noise is not two_speeds
        )
        verdicts[found.status] += 1
        pairs.append(taken)
        detects.append(found.numbers.detects or 0.0)
    return verdicts, mean(pairs), median(detects)


def row(name: str, spread: float, tolerance: float, trials: int) -> str:
    same, pairs, detects = shares(name, spread, 0.0, tolerance, trials)
    at_t, pairs_at_t, _ = shares(name, spread, log_of_drop(tolerance), tolerance, trials)
    promised, _, _ = shares(name, spread, log_of_drop(detects), tolerance, trials)

    def of(verdicts: Counter[Status], status: Status, decimals: int = 1) -> str:
        return format_percent(verdicts[status] / trials, decimals)

    cells = [
        *(name, format_percent(spread, 1), of(same, Status.REGRESSED, 2), of(same, Status.UNDECIDED), f"{pairs:.1f}"),
        *(of(at_t, Status.REGRESSED), of(at_t, Status.OK), of(at_t, Status.UNDECIDED), f"{pairs_at_t:.1f}"),
        *(format_percent(detects, 1), of(promised, Status.REGRESSED)),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=2000, help="of each cell (default: 2000)")
    parser.add_argument("--spread", type=parse_fraction, action="append", help="default: 0.3%% 1%% 1.5%% 2%%")
    parser.add_argument("--tolerance", type=parse_fraction, action="append", help="default: 3%% 5%%")
    parser.add_argument("--noise", choices=NOISES, action="append", help="default: all")
    options = parser.parse_args()
    for tolerance in options.tolerance or [0.03, 0.05]:
        print(f"\nTolerance {format_percent(tolerance, 1)}, {options.trials} trials a cell:\n")
        print("| noise | spread | unchanged: REGRESSED | UNDECIDED | pairs ", end="")
        print("| drop of T: found | passed | UNDECIDED | pairs | detects | found at that |")
        print("|---|" + "---:|" * 10)
        for name in options.noise or NOISES:
            for spread in options.spread or [0.003, 0.01, 0.015, 0.02]:
                print(row(name, spread, tolerance, options.trials), flush=True)


if __name__ == "__main__":
    main()
