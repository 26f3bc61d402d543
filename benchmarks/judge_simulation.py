"""Estimate false-alarm and detection rates of the rule of docs/method.md, on drawn between-process noise.

    python benchmarks/judge_simulation.py                  # about three minutes
    python benchmarks/judge_simulation.py --trials 100000
    python benchmarks/judge_simulation.py --constants      # the rule's constants against others, one changed at a time
    python benchmarks/judge_simulation.py --files          # an entry among a file's others, quieter and noisier ones
    python benchmarks/judge_simulation.py --histories      # an entry whose test has runs in a history, as noisy
    python benchmarks/judge_simulation.py --longer         # a baseline whose runs take more rounds than what is judged
    python benchmarks/judge_simulation.py --estimators     # other middles of the fresh processes than their median

The rule is the one that judges tests (pytest_bandwidth.domain.judging.rule), not a copy. Every trial draws a baseline
of k processes, a suspect and three confirmations, all from the same noise; a drop is taken from the figures of the
latter four. The noises all have the standard deviation that is asked for:

    Gaussian      the logarithm is normal
    heavy-tailed  Student's t with three degrees of freedom: now and then a process far off
    bimodal       two states, equally likely, 2 × 0.97 sd apart, each with a quarter of the sd of its own

Prints Markdown: false alarms with a 95 % upper limit, the share of identical code that is told to be INSUFFICIENT
instead, and the share of drops found. With --constants, --files, --histories, --longer and --estimators each figure is
the worst of the three noises; with --estimators of a fourth as well, Gaussian but for one process in twenty, which is
eight standard deviations slower. Of rounds k times as many, noise is taken to be 1/√k: true of noise in time, not of
what a process keeps.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import fmean, median
from unittest.mock import patch

from pytest_bandwidth.domain.baseline import Entry, Run
from pytest_bandwidth.domain.judging import error_rates, reference, rule
from pytest_bandwidth.domain.judging.error_rates import Judge, upper_limit
from pytest_bandwidth.domain.units import format_percent, parse_fraction
from pytest_bandwidth.domain.verdict import Status

CONFIRM = 3
RUNS = (1, 2, 3, 5, 8, 12, 20)
FEW_RUNS = (3, 5)
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


def disturbed(draw: random.Random) -> float:
    return draw.gauss(0, 1) - (8 if draw.random() < 0.05 else 0)


@dataclass(frozen=True)
class Constants:
    """Hold what the rule takes as given; the defaults are its own."""

    prior: float = reference.PRIOR_SPREAD["relative"]
    prior_degrees: int = reference.PRIOR_DEGREES
    doubt_level: float = rule.DOUBT_LEVEL
    suspect_level: float = rule.SUSPECT_LEVEL
    regressed_level: float = rule.REGRESSED_LEVEL
    confirm: int = CONFIRM

    @contextmanager
    def in_force(self) -> Iterator[None]:
        levels = {
            "DOUBT_LEVEL": self.doubt_level,
            "SUSPECT_LEVEL": self.suspect_level,
            "REGRESSED_LEVEL": self.regressed_level,
        }
        with patch.object(reference, "PRIOR_DEGREES", self.prior_degrees), patch.multiple(rule, **levels):
            yield


CHOSEN = Constants()
OTHERS = {
    "the rule's own": CHOSEN,
    "prior 0.5 %": replace(CHOSEN, prior=0.005),
    "prior 2 %": replace(CHOSEN, prior=0.02),
    "2 prior degrees": replace(CHOSEN, prior_degrees=2),
    "10 prior degrees": replace(CHOSEN, prior_degrees=10),
    "no doubt": replace(CHOSEN, doubt_level=1 - 1e-9),
    "doubt at 90 %": replace(CHOSEN, doubt_level=0.9),
    "suspect at 95 %": replace(CHOSEN, suspect_level=0.95),
    "suspect at 99.9 %": replace(CHOSEN, suspect_level=0.999),
    "regressed at 99 %": replace(CHOSEN, regressed_level=0.99),
    "regressed at 99.99 %": replace(CHOSEN, regressed_level=0.9999),
    "no confirmation": replace(CHOSEN, confirm=0),
    "1 confirmation": replace(CHOSEN, confirm=1),
    "5 confirmations": replace(CHOSEN, confirm=5),
}
# Spreads of a file's other entries, as multiples of that of the entry which is judged.
FILES: dict[str, tuple[float, ...]] = {
    "alone": (),
    "nine alike": (1,) * 9,
    "two alike": (1, 1),
    "two four times as noisy": (4, 4),
    "two ten times as noisy": (10, 10),
    "two of a fifth": (0.2, 0.2),
    "nine of a half": (0.5,) * 9,
    "nine of a fifth": (0.2,) * 9,
}
# How many runs a history has of the test, an hour apart.
HISTORIES = {f"{runs} runs": runs for runs in (0, 7, 14, 30)}
FEWEST_RUNS = (1, 3, 5)
# How many times the rounds of what is judged a baseline's runs take.
LONGER = {f"{times} × the rounds": times for times in (1, 2, 3, 5)}
# A process further from the median than so many of the entry's spreads counts as an outlier.
OUTLIER_SPREADS = 3.0


def without_outliers(known: reference.Reference, logs: Sequence[float]) -> list[float]:
    centre = median(logs)
    return [value for value in logs if abs(value - centre) <= OUTLIER_SPREADS * known.spread]


# What stands for the fresh processes, of the logarithms of their figures.
ESTIMATORS: dict[str, Callable[[reference.Reference, Sequence[float]], float]] = {
    "median, the rule's own": lambda _, logs: median(logs),
    "mean": lambda _, logs: fmean(logs),
    "mean without outliers": lambda known, logs: fmean(without_outliers(known, logs)),
    "of mean and median the smaller drop": lambda _, logs: max(median(logs), fmean(logs)),
}
# The level of the F test by which an entry keeps clear of the others; 0: it never does.
# And the lowest share of the prior that others bring it to; 1: they never lower it.
POOLED: dict[str, dict[str, object]] = {
    "": {"UNLIKE_OTHERS": reference.UNLIKE_OTHERS},
    ", always pooled": {"UNLIKE_OTHERS": 0.0},
    ", never lowered": {"LOWEST_SHARE": {"relative": 1.0}},
    ", lowered to a fifth": {"LOWEST_SHARE": {"relative": 0.2}},
}


def shares(
    noise: Draw,
    spread: float,
    runs: int,
    drop: float,
    tolerance: float,
    trials: int,
    constants: Constants = CHOSEN,
    others: Sequence[float] = (),
    rounds: float = 1.0,
    history: int = 0,
) -> dict[Status, float]:
    """Return the share of each status over the trials.

    others: of the file's other entries, multiples of the spread. rounds: of the baseline's runs, as multiples of those
    of what is judged. history: how many runs of the test it has.
    """
    draw = random.Random(f"{runs} {drop} {spread}")
    counts: dict[Status, int] = {}

    def processes(count: int, shift: float, times: float = 1.0) -> list[Run]:
        values = (math.exp(times * spread * noise(draw) + shift) for _ in range(count))
        return [Run(gbps=100 * value, relative=value) for value in values]

    for _ in range(trials):
        known = processes(runs, 0.0, 1 / math.sqrt(rounds))
        judged = processes(1 + constants.confirm, math.log1p(-drop))
        entries = entries_of((known, *(processes(runs, 0.0, times) for times in others)))
        prior = reference.pool_of(entries, "relative").prior_beside(entries[0], constants.prior)
        past = _past(processes(history, 0.0))
        status = Judge(known, "relative", tolerance, prior, constants.confirm, past).status(judged)
        counts[status] = counts.get(status, 0) + 1
    return {status: count / trials for status, count in counts.items()}


def _past(runs: Sequence[Run]) -> reference.Past:
    found = reference.scatter_of(runs, "relative")
    return reference.NO_PAST if found is None else reference.Past(found.squares, found.runs - 1)


def entries_of(runs: Sequence[Sequence[Run]]) -> list[Entry]:
    return [Entry(f"{number}", runs=tuple(of)) for number, of in enumerate(runs)]


def row(name: str, runs: int, spread: float, drops: list[float], tolerance: float, trials: int) -> str:
    same = shares(NOISES[name], spread, runs, 0.0, tolerance, trials)
    alarms = same.get(Status.REGRESSED, 0.0)
    limit = upper_limit(round(alarms * trials), trials)
    cells = [name, str(runs), f"{100 * alarms:.2f} % (≤ {100 * limit:.2f} %)"]
    cells.append(format_percent(same.get(Status.INSUFFICIENT, 0.0)))
    found = (shares(NOISES[name], spread, runs, drop, tolerance, trials) for drop in drops)
    cells.extend(format_percent(one.get(Status.REGRESSED, 0.0), 1) for one in found)
    return f"| {' | '.join(cells)} |"


def constants_row(name: str, runs: int, spread: float, drops: list[float], tolerance: float, trials: int) -> str:
    with OTHERS[name].in_force():
        return worst_row(name, runs, spread, drops, tolerance, trials, OTHERS[name])


def files_row(name: str, runs: int, spread: float, drops: list[float], tolerance: float, trials: int) -> str:
    file = name.partition(",")[0]
    with patch.multiple(reference, **POOLED[name.removeprefix(file)]):
        return worst_row(name, runs, spread, drops, tolerance, trials, CHOSEN, FILES[file])


def histories_row(name: str, runs: int, spread: float, drops: list[float], tolerance: float, trials: int) -> str:
    return worst_row(name, runs, spread, drops, tolerance, trials, history=HISTORIES[name])


def longer_row(name: str, runs: int, spread: float, drops: list[float], tolerance: float, trials: int) -> str:
    return worst_row(name, runs, spread, drops, tolerance, trials, rounds=LONGER[name])


def estimators_row(name: str, runs: int, spread: float, drops: list[float], tolerance: float, trials: int) -> str:
    def drop_of(known: reference.Reference, fresh: Sequence[float]) -> float:
        return known.centre - ESTIMATORS[name](known, [math.log(value) for value in fresh])

    with patch.object(error_rates, "median_drop", drop_of):
        return worst_row(name, runs, spread, drops, tolerance, trials, noises=(*NOISES.values(), disturbed))


def worst_row(
    name: str,
    runs: int,
    spread: float,
    drops: list[float],
    tolerance: float,
    trials: int,
    constants: Constants = CHOSEN,
    others: Sequence[float] = (),
    rounds: float = 1.0,
    noises: Sequence[Draw] = tuple(NOISES.values()),
    history: int = 0,
) -> str:
    """Return the worst row of the noises."""
    same, *dropped = (
        [shares(noise, spread, runs, drop, tolerance, trials, constants, others, rounds, history) for noise in noises]
        for drop in (0.0, *drops)
    )
    alarms = max(one.get(Status.REGRESSED, 0.0) for one in same)
    unjudged = max(one.get(Status.INSUFFICIENT, 0.0) for one in same)
    found = [min(one.get(Status.REGRESSED, 0.0) for one in slowed) for slowed in dropped]
    cells = [name, str(runs), format_percent(alarms, 2), *(format_percent(share, 1) for share in (unjudged, *found))]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=10_000, help="of each kind (default: 10000)")
    parser.add_argument(
        "--spread", type=parse_fraction, action="append", help="between-process sd (default: 0.7%% 2%%)"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--constants", action="store_true", help="compare the rule's constants with others")
    what.add_argument("--files", action="store_true", help="judge an entry by a file with others, of other noise")
    what.add_argument("--histories", action="store_true", help="judge a test with runs in a history")
    what.add_argument("--longer", action="store_true", help="judge by a baseline whose runs take more rounds")
    what.add_argument("--estimators", action="store_true", help="compare the median of fresh processes with means")
    parser.add_argument("--tolerance", type=parse_fraction, default=0.03, help="default: 3%%")
    parser.add_argument("--drop", type=parse_fraction, action="append", help="drops to look for (default: 5%% 10%%)")
    options = parser.parse_args()
    drops = options.drop or [0.05, 0.10]
    for spread in options.spread or [0.007, 0.02]:
        print(f"\nSpread {format_percent(spread, 1)}, tolerance {format_percent(options.tolerance, 1)}, ", end="")
        print(f"{CONFIRM} confirmations, {options.trials} trials a cell:\n")
        kind, names, numbers, line = "noise", list(NOISES), RUNS, row
        if options.constants:
            kind, names, numbers, line = "constants", list(OTHERS), FEW_RUNS, constants_row
        if options.files:
            files = [f"{file}{pooled}" for file in FILES for pooled in POOLED]
            kind, names, numbers, line = "others in the file", files, FEW_RUNS, files_row
        if options.histories:
            kind, names, numbers, line = "in the history", list(HISTORIES), FEWEST_RUNS, histories_row
        if options.longer:
            kind, names, numbers, line = "baseline's runs", list(LONGER), FEW_RUNS, longer_row
        if options.estimators:
            kind, names, numbers, line = "of the fresh processes", list(ESTIMATORS), FEW_RUNS, estimators_row
        print(f"| {kind} | k | false alarms | INSUFFICIENT |" + "".join(f" found {format_percent(d)} |" for d in drops))
        print("|---|---|---|---|" + "---|" * len(drops))
        for name in names:
            for runs in numbers:
                print(line(name, runs, spread, drops, options.tolerance, options.trials), flush=True)


if __name__ == "__main__":
    main()
