"""How often the rule of docs/method.md cries wolf and how often it sleeps, on drawn between-process noise.

    python benchmarks/judge_simulation.py                  # about three minutes
    python benchmarks/judge_simulation.py --trials 100000

The rule is the one that judges tests (pytest_bandwidth.domain.judging), not a copy. Every trial draws a baseline of k
processes, a suspect and three confirmations, all from the same noise; a drop is taken from the figures of the latter
four. The noises all have the standard deviation that is asked for:

    Gaussian      the logarithm is normal
    heavy-tailed  Student's t with three degrees of freedom: now and then a process far off
    bimodal       two states, equally likely, 2 × 0.97 sd apart, each with a quarter of the sd of its own

Prints Markdown: false alarms with a 95 % upper limit, the share of identical code that is told to be INSUFFICIENT
instead, and the share of drops found.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable

from pytest_bandwidth.domain.baseline import Run
from pytest_bandwidth.domain.reference import PRIOR_SPREAD
from pytest_bandwidth.domain.resampling import upper_limit, verdict_of
from pytest_bandwidth.domain.units import format_percent, parse_fraction
from pytest_bandwidth.domain.verdict import Status

CONFIRM = 3
RUNS = (1, 2, 3, 5, 8, 12, 20)
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


def shares(noise: Draw, spread: float, runs: int, drop: float, tolerance: float, trials: int) -> dict[Status, float]:
    """Share of each status over the trials."""
    draw = random.Random(f"{runs} {drop} {spread}")
    counts: dict[Status, int] = {}

    def processes(count: int, shift: float) -> list[Run]:
        values = (math.exp(spread * noise(draw) + shift) for _ in range(count))
        return [Run(gbps=100 * value, relative=value) for value in values]

    for _ in range(trials):
        known, judged = processes(runs, 0.0), processes(1 + CONFIRM, math.log1p(-drop))
        status = verdict_of(known, judged, "relative", tolerance, PRIOR_SPREAD["relative"])
        counts[status] = counts.get(status, 0) + 1
    return {status: count / trials for status, count in counts.items()}


def row(name: str, runs: int, spread: float, drops: list[float], tolerance: float, trials: int) -> str:
    same = shares(NOISES[name], spread, runs, 0.0, tolerance, trials)
    alarms = same.get(Status.REGRESSED, 0.0)
    limit = upper_limit(round(alarms * trials), trials)
    cells = [name, str(runs), f"{100 * alarms:.2f} % (≤ {100 * limit:.2f} %)"]
    cells.append(format_percent(same.get(Status.INSUFFICIENT, 0.0)))
    found = (shares(NOISES[name], spread, runs, drop, tolerance, trials) for drop in drops)
    cells.extend(format_percent(one.get(Status.REGRESSED, 0.0), 1) for one in found)
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=10_000, help="of each kind (default: 10000)")
    parser.add_argument(
        "--spread", type=parse_fraction, action="append", help="between-process sd (default: 0.7%% 2%%)"
    )
    parser.add_argument("--tolerance", type=parse_fraction, default=0.03, help="default: 3%%")
    parser.add_argument("--drop", type=parse_fraction, action="append", help="drops to look for (default: 5%% 10%%)")
    options = parser.parse_args()
    drops = options.drop or [0.05, 0.10]
    for spread in options.spread or [0.007, 0.02]:
        print(f"\nSpread {format_percent(spread, 1)}, tolerance {format_percent(options.tolerance, 1)}, ", end="")
        print(f"{CONFIRM} confirmations, {options.trials} trials a cell:\n")
        print("| noise | k | false alarms | INSUFFICIENT |" + "".join(f" found {format_percent(d)} |" for d in drops))
        print("|---|---|---|---|" + "---|" * len(drops))
        for name in NOISES:
            for runs in RUNS:
                print(row(name, runs, spread, drops, options.tolerance, options.trials), flush=True)


if __name__ == "__main__":
    main()
