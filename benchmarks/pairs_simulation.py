"""Compare rules that say when pairs of fresh processes are enough, on drawn noise: fixed numbers, and sequential.

    python benchmarks/pairs_simulation.py                   # about a minute
    python benchmarks/pairs_simulation.py --trials 200000

Every rule looks at the drops after some numbers of pairs, eight at most but for the rules that the plugin uses. It is
REGRESSED where the mean is past the tolerance and the rule excludes no drop, WITHIN where 99 % exclude that more than
the tolerance was lost; else it goes on, and the last look decides as `Looks.tell` says. The rules share the level of
two looks at 1/1000:

    4, then 8     two looks by Student's t at 99.9 %
    5, then 10    --bandwidth-against
    each of 3–8   six looks by Student's t that share 2/1000 evenly: by the union bound it holds at any of them
    each of 5–8   four looks that share it
    4 to 12       what settles suspects: after 4, 5, 6, 8 and 12, and then once more without the two extreme ones (six
                  looks share the level); of pairs that had not all in common none before the fifth
    4 to 8        the same without the look after 12
    … untrimmed   the same without that
    … granted     the same, but WITHIN wherever the mean is inside the tolerance and the 99 % interval no wider: a drop
                  of the tolerance itself is granted every other time
    mixture       as granted, by the scale-invariant e-process of the t-test (right Haar prior of the spread, normal
                  mixture over the effect's size, in spreads): past 1/level, by Ville's inequality, at any of 3 to 8

Prints Markdown: the level with a tolerance of nothing, where the interval alone decides; false alarms, drops found and
passed, and pairs taken, with the tolerance that is asked for. Noise is that of two processes, each as
judge_simulation.py draws it: of processes with one of two speeds a pair has one of three ratios; "disturbed" is one in
twenty that is eight standard deviations slower.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from judge_simulation import NOISES, Draw, disturbed

from pytest_bandwidth.domain.judging.by_code.looks import WITHIN_LEVEL, Looks, mean_of, trimmed_mean_of
from pytest_bandwidth.domain.judging.by_code.paired import SETTLING, looks_of
from pytest_bandwidth.domain.judging.rule import REGRESSED_LEVEL
from pytest_bandwidth.domain.statistics import t_quantile
from pytest_bandwidth.domain.units import format_percent, log_of_drop, parse_fraction

MOST_PAIRS = 8
EACH = tuple(range(3, MOST_PAIRS + 1))
# Of two looks at 99.9 %.
LEVEL = 2 * (1 - REGRESSED_LEVEL)

EVERY_NOISE = {**NOISES, "disturbed": disturbed}
# Whether so many pairs of this mean and standard deviation exclude that there is no drop.
Excludes = Callable[[int, float, float], bool]


@dataclass(frozen=True)
class Granting:
    """Hold after how many pairs a rule looks, and what it takes for a drop, which else is granted up to the tolerance.

    trims: at which level the last look is taken once more without the extreme pairs; None: not at all.
    """

    after: Sequence[int]
    excludes: Excludes
    trims: float | None = None

    def outcome(self, drops: Sequence[float], allowed: float) -> tuple[str, int]:
        for n in self.after:
            told = mean_of(drops[:n])
            if told.centre > allowed and self.excludes(n, told.centre, told.spread):
                return "REGRESSED", n
            if told.centre <= allowed and told.reach(WITHIN_LEVEL) <= allowed:
                return "WITHIN", n
        if self.trims is not None:
            told = trimmed_mean_of(drops)
            if told.centre > allowed and told.centre > told.reach(self.trims):
                return "REGRESSED", len(drops)
            if told.centre <= allowed and told.reach(WITHIN_LEVEL) <= allowed:
                return "WITHIN", len(drops)
        return "INSUFFICIENT", self.after[-1]


def student(level: float) -> Excludes:
    return lambda n, centre, spread: centre * math.sqrt(n) > t_quantile(1 - level, n - 1) * spread


def mixture(effect: float) -> Excludes:
    """Return the e-process for effects of about so many spreads, past half of 1/level: it counts both sides."""

    def excludes(n: int, centre: float, spread: float) -> bool:
        if centre <= 0:
            return False
        squared, shrunk = n * (centre / spread) ** 2 / (n - 1), 1 + n * effect**2
        log_e = 0.5 * n * (math.log1p(squared) - math.log1p(squared / shrunk)) - 0.5 * math.log(shrunk)
        return log_e > math.log(0.5 / LEVEL)

    return excludes


RULES: dict[str, Looks | Granting] = {
    "4, then 8": Looks((4, 8), LEVEL),
    "5, then 10": looks_of(5),
    "each of 3–8": Looks(EACH, LEVEL),
    "each of 5–8": Looks((5, 6, 7, 8), LEVEL),
    "4 to 12": SETTLING,
    "4 to 8": replace(SETTLING, after=(4, 5, 6, 8)),
    "4 to 12 untrimmed": replace(SETTLING, trims=False),
    "4 to 12 granted": Granting(SETTLING.after, student(1 - SETTLING.loss_level), SETTLING.loss_level),
    "mixture, effect 3": Granting(EACH, mixture(3.0)),
    "mixture, effect 10": Granting(EACH, mixture(10.0)),
}


def outcome(rule: Looks | Granting, drops: Sequence[float], allowed: float) -> tuple[str, int]:
    """Return the verdict on the drops of one test, and how many pairs it took."""
    if isinstance(rule, Granting):
        return rule.outcome(drops, allowed)
    for n in rule.after:
        status = rule.tell(drops[:n], allowed, last=n == rule.most).status
        if status is not None:
            return str(status), n
    return "INSUFFICIENT", rule.after[-1]


def shares(
    rule: Looks | Granting, noise: Draw, spread: float, drop: float, allowed: float, trials: int
) -> tuple[dict[str, float], float]:
    """Return the share of each verdict, and the mean number of pairs. drop, allowed: as logarithms."""
    draw = random.Random(f"{spread} {drop}")
    counts: dict[str, int] = {}
    pairs = 0
    for _ in range(trials):
        drops = [drop + spread * (noise(draw) - noise(draw)) / math.sqrt(2) for _ in range(rule.after[-1])]
        verdict, taken = outcome(rule, drops, allowed)
        counts[verdict] = counts.get(verdict, 0) + 1
        pairs += taken
    return {name: count / trials for name, count in counts.items()}, pairs / trials


def row(name: str, of_noise: str, spread: float, drops: Sequence[float], tolerance: float, trials: int) -> str:
    rule, noise, allowed = RULES[name], EVERY_NOISE[of_noise], log_of_drop(tolerance)
    level, _ = shares(rule, noise, spread, 0.0, 0.0, trials)
    same, pairs = shares(rule, noise, spread, 0.0, allowed, trials)
    cells = [
        name,
        of_noise,
        format_percent(level.get("REGRESSED", 0.0), 2),
        format_percent(same.get("REGRESSED", 0), 2),
    ]
    cells += [format_percent(same.get("INSUFFICIENT", 0.0), 1), f"{pairs:.1f}"]
    for drop in drops:
        found, pairs = shares(rule, noise, spread, log_of_drop(drop), allowed, trials)
        cells += [format_percent(found.get("REGRESSED", 0.0), 1), format_percent(found.get("WITHIN", 0.0), 2)]
        cells.append(f"{pairs:.1f}")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=10_000, help="of each kind (default: 10000)")
    parser.add_argument("--spread", type=parse_fraction, action="append", help="from pair to pair (default: 1%% 2%%)")
    parser.add_argument("--tolerance", type=parse_fraction, default=0.05, help="default: 5%%")
    parser.add_argument("--drop", type=parse_fraction, action="append", help="drops to look for (default: 7%% 10%%)")
    parser.add_argument("--rule", choices=RULES, action="append", help="default: all")
    parser.add_argument("--noise", choices=EVERY_NOISE, action="append", help="default: Gaussian")
    options = parser.parse_args()
    drops = options.drop or [0.07, 0.10]
    for spread in options.spread or [0.01, 0.02]:
        print(f"\nSpread {format_percent(spread, 1)}, tolerance {format_percent(options.tolerance, 1)}, ", end="")
        print(f"{options.trials} trials a cell:\n")
        print("| looks | noise | level | false alarms | INSUFFICIENT | pairs |", end="")
        print("".join(f" found {format_percent(d)} | passed | pairs |" for d in drops))
        print("|---|---|---|---|---|---|" + "---|---|---|" * len(drops))
        for of_noise in options.noise or ["Gaussian"]:
            for name in options.rule or RULES:
                print(row(name, of_noise, spread, drops, options.tolerance, options.trials), flush=True)


if __name__ == "__main__":
    main()
