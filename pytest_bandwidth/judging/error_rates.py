"""Estimate false-alarm and detection rates by resampling measured processes."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb

from pytest_bandwidth.domain.baseline import Entry, Metric, Run
from pytest_bandwidth.domain.measured.metrics import value_of_run
from pytest_bandwidth.domain.verdict import Decision, Status
from pytest_bandwidth.judging.decide import decide_stored
from pytest_bandwidth.judging.stored import reference_of


@dataclass(frozen=True, slots=True)
class Rates:
    """Hold the shares of judged tests that ended REGRESSED: identical code (false alarms), and slowed code by its drop.

    unjudged: the share of tests of identical code that were UNDECIDED.
    """

    tolerance: float
    baseline_runs: int
    false_alarms: float
    found: dict[float, float]
    unjudged: float


def rates(
    same: Sequence[Run],
    slowed: Mapping[float, Sequence[Run]],
    *,
    figure: Metric,
    tolerance: float,
    baseline_runs: int,
    confirm: int,
    on_host: bool,
    trials: int = 2000,
    seed: int = 1,
) -> Rates:
    """Judge `trials` random divisions of the processes into baseline, judged process and new ones.

    same: one run a fresh process of identical code, at least ``baseline_runs + 1 + confirm`` of them; slowed: those of
    the slowed kernel by drop. Divisions share processes, so the rates are no more certain than the processes are many.
    Raises ValueError where there are too few.
    """
    if len(same) < baseline_runs + 1 + confirm:
        raise ValueError(f"{len(same)} processes, expected at least {baseline_runs + 1 + confirm}")
    draw = random.Random(seed)
    alarms, unjudged = 0, 0
    hits = dict.fromkeys(slowed, 0)
    for _ in range(trials):
        drawn = draw.sample(same, baseline_runs + 1 + confirm)
        judge = Judge(drawn[:baseline_runs], figure, tolerance, confirm, on_host=on_host)
        status = judge.decision(drawn[baseline_runs:]).status
        alarms += status is Status.REGRESSED
        unjudged += status is Status.UNDECIDED
        for drop, runs in slowed.items():
            hits[drop] += judge.decision(draw.sample(runs, 1 + confirm)).status is Status.REGRESSED
    found = {drop: n / trials for drop, n in hits.items()}
    return Rates(tolerance, baseline_runs, alarms / trials, found, unjudged / trials)


class Judge:
    """Apply the stored figures' rule for one baseline. Raises ValueError where its runs do not hold the figure.

    known: the baseline's runs. confirm: how many new processes measure a slow test again.
    """

    def __init__(self, known: Sequence[Run], figure: Metric, tolerance: float, confirm: int, *, on_host: bool) -> None:
        reference = reference_of(Entry("drawn", runs=tuple(known)), figure, on_host)
        if reference is None:
            raise ValueError("the processes hold no figure to judge")
        self._reference, self._figure, self._tolerance, self._confirm = reference, figure, tolerance, confirm

    def decision(self, judged: Sequence[Run]) -> Decision:
        """Return what the rule says of a test: its first process and `confirm` new ones, which hold the figure."""
        first, *fresh = [value for run in judged if (value := value_of_run(run, self._figure)) is not None]
        decided = decide_stored(self._reference, first, fresh, self._tolerance, self._confirm, None)
        if not isinstance(decided, Decision):
            raise ValueError(f"{len(fresh)} new processes, expected {self._confirm}")
        return decided


def upper_limit(events: int, cases: int, confidence: float = 0.95) -> float:
    """Return a rate's one-sided upper limit, `events` seen in `cases` independent cases (Clopper and Pearson, 1934)."""
    if events >= cases:
        return 1.0
    low, high = events / cases, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _at_most(events, cases, middle) > 1 - confidence else (low, middle)
    return high


def _at_most(events: int, cases: int, rate: float) -> float:
    return sum(comb(cases, i) * rate**i * (1 - rate) ** (cases - i) for i in range(events + 1))
