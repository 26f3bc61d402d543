"""Simulate the fallback by stored figures: false alarms, drops found, and what `detects` promises.

    python benchmarks/judge_simulation.py                  # about a minute
    python benchmarks/judge_simulation.py --trials 20000

The rule is the one that judges tests (`domain.judging.decide.decide_stored`), not a copy. Each trial draws a baseline
of k processes, the judged process and three new ones, all from the same noise; a drop is taken from the latter four.
The noises have the standard deviation that is asked for:

    Gaussian      the logarithm is normal
    heavy-tailed  Student's t with three degrees of freedom
    bimodal       two states, equally likely, 2 × 0.97 sd apart, each with a quarter of the sd of its own

Prints Markdown: of unchanged code the share that is REGRESSED, with a 95 % upper limit, and UNDECIDED; of a drop of the
tolerance, of twice the tolerance, and of the median `detects`, the share that is found. One run shows no noise, and has
no `detects`.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import Counter
from collections.abc import Callable
from statistics import median

from pytest_bandwidth.cli.selftest import Judge, upper_limit
from pytest_bandwidth.domain.baseline import Run
from pytest_bandwidth.domain.units import format_percent, parse_fraction
from pytest_bandwidth.domain.verdict import Status

CONFIRM = 3
RUNS = (1, 2, 3, 5, 10, 20)
HEAVY_DEGREES = 3
# 0.25² + 0.968² = 1: each state's own spread, and half the distance between the two, in units of the whole.
STATE_SPREAD = 0.25
HALF_DISTANCE = math.sqrt(1 - STATE_SPREAD**2)

Draw = Callable[[random.Random], float]


def gaussian(draw: random.Random) -> float:
    return draw.gauss(0, 1)


def heavy_tailed(draw: random.Random) -> float:
    # t = z / √(χ²/ν); its variance is ν/(ν−2).
    chi_squared = draw.gammavariate(HEAVY_DEGREES / 2, 2)
    return draw.gauss(0, 1) / math.sqrt(chi_squared / HEAVY_DEGREES) / math.sqrt(HEAVY_DEGREES / (HEAVY_DEGREES - 2))


def bimodal(draw: random.Random) -> float:
    return math.copysign(HALF_DISTANCE, draw.random() - 0.5) + draw.gauss(0, STATE_SPREAD)


NOISES: dict[str, Draw] = {"Gaussian": gaussian, "heavy-tailed": heavy_tailed, "bimodal": bimodal}


def shares(
    name: str, spread: float, runs: int, drop: float, tolerance: float, trials: int
) -> tuple[Counter[Status], float | None]:
    """Return the verdicts of the trials, and the median of `detects`. drop: a fraction."""
    draw, noise = random.Random(f"{name} {runs} {drop} {spread}"), NOISES[name]
    verdicts: Counter[Status] = Counter()
    detects = []

    def processes(count: int, shift: float) -> list[Run]:
        values = (math.exp(spread * noise(draw) + shift) for _ in range(count))
        return [Run(gbps=100 * value, relative=value) for value in values]

    for _ in range(trials):
        judge = Judge(processes(runs, 0.0), "relative", tolerance, CONFIRM, on_host=False)
        found = judge.decision(processes(1 + CONFIRM, math.log1p(-drop)))
        verdicts[found.status] += 1
        if found.numbers.detects is not None:
            detects.append(found.numbers.detects)
    return verdicts, median(detects) if detects else None


def row(name: str, runs: int, spread: float, tolerance: float, trials: int) -> str:
    same, detects = shares(name, spread, runs, 0.0, tolerance, trials)
    alarms = same[Status.REGRESSED]
    cells = [
        name,
        str(runs),
        f"{format_percent(alarms / trials, 2)} (≤ {format_percent(upper_limit(alarms, trials), 2)})",
    ]
    cells.append(format_percent(same[Status.UNDECIDED] / trials, 1))
    cells += [found_of(name, spread, runs, drop, tolerance, trials) for drop in (tolerance, 2 * tolerance)]
    if detects is None:
        cells += ["", ""]
    else:
        cells += [format_percent(detects, 1), found_of(name, spread, runs, detects, tolerance, trials)]
    return f"| {' | '.join(cells)} |"


def found_of(name: str, spread: float, runs: int, drop: float, tolerance: float, trials: int) -> str:
    found, _ = shares(name, spread, runs, drop, tolerance, trials)
    return format_percent(found[Status.REGRESSED] / trials, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=2000, help="of each cell (default: 2000)")
    parser.add_argument("--spread", type=parse_fraction, action="append", help="default: 0.5%% 1%% 2%%")
    parser.add_argument("--tolerance", type=parse_fraction, default=0.05, help="default: 5%%")
    options = parser.parse_args()
    for spread in options.spread or [0.005, 0.01, 0.02]:
        print(f"\nSpread {format_percent(spread, 1)}, tolerance {format_percent(options.tolerance, 1)}, ", end="")
        print(f"{CONFIRM} new processes, {options.trials} trials a cell:\n")
        print("| noise | k | unchanged: REGRESSED | UNDECIDED | found T | found 2 T | detects | found at that |")
        print("|---|" + "---:|" * 7)
        for name in NOISES:
            for runs in RUNS:
                print(row(name, runs, spread, options.tolerance, options.trials), flush=True)


if __name__ == "__main__":
    main()
