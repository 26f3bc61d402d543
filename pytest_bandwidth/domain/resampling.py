"""How often the rule cries wolf and how often it sleeps, on processes that really ran."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb

from pytest_bandwidth.domain.baseline import Entry, Figure, Run
from pytest_bandwidth.domain.figures import figures_of_run
from pytest_bandwidth.domain.judging import confirm_drop, look
from pytest_bandwidth.domain.reference import prior_spread, reference_of
from pytest_bandwidth.domain.verdict import Status


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares of judged tests that ended REGRESSED: identical code (false alarms), and slowed code by its drop."""

    tolerance: float
    baseline_runs: int
    false_alarms: float
    found: dict[float, float]


def rates(
    same: Sequence[Run],
    slowed: Mapping[float, Sequence[Run]],
    *,
    figure: Figure,
    tolerance: float,
    baseline_runs: int,
    confirm: int,
    on_host: bool,
    trials: int = 2000,
    seed: int = 1,
) -> Rates:
    """Judges `trials` random divisions of the processes into baseline, suspect and confirmations.

    same: one run a fresh process of identical code, at least ``baseline_runs + 1 + confirm`` of them; slowed: those of
    the slowed kernel by drop. Divisions share processes, so the rates are no more certain than the processes are many.
    Raises ValueError where there are too few.
    """
    if len(same) < baseline_runs + 1 + confirm:
        raise ValueError(f"{len(same)} processes, expected at least {baseline_runs + 1 + confirm}")
    draw = random.Random(seed)
    prior = prior_spread(figure, on_host)

    def regressed(known: Sequence[Run], judged: Sequence[Run]) -> bool:
        return verdict_of(known, judged, figure, tolerance, prior) is Status.REGRESSED

    alarms = 0
    hits = dict.fromkeys(slowed, 0)
    for _ in range(trials):
        drawn = draw.sample(list(same), baseline_runs + 1 + confirm)
        known = drawn[:baseline_runs]
        alarms += regressed(known, drawn[baseline_runs:])
        for drop, runs in slowed.items():
            hits[drop] += regressed(known, draw.sample(list(runs), 1 + confirm))
    return Rates(tolerance, baseline_runs, alarms / trials, {drop: n / trials for drop, n in hits.items()})


def verdict_of(known: Sequence[Run], judged: Sequence[Run], figure: Figure, tolerance: float, prior: float) -> Status:
    """What the rule says of a test: `known` are the baseline's runs, `judged` the suspect and its confirmations.

    Raises ValueError where the runs do not hold the figure.
    """
    reference = reference_of(Entry("drawn", runs=tuple(known)), figure, prior)
    if reference is None:
        raise ValueError("the processes hold no figure to judge")
    first = look(figures_of_run(judged[0]), reference, tolerance, len(judged) - 1)
    if first.status is not Status.SUSPECT:
        return first.status
    values = [v for run in judged[1:] if (v := figures_of_run(run).of(figure)) is not None]
    return confirm_drop(first, reference, values, tolerance).status


def upper_limit(events: int, cases: int, confidence: float = 0.95) -> float:
    """One-sided upper limit of a rate, `events` seen in `cases` independent cases (Clopper and Pearson, 1934)."""
    if events >= cases:
        return 1.0
    low, high = events / cases, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _at_most(events, cases, middle) > 1 - confidence else (low, middle)
    return high


def _at_most(events: int, cases: int, rate: float) -> float:
    return sum(comb(cases, i) * rate**i * (1 - rate) ** (cases - i) for i in range(events + 1))
