"""Estimate false-alarm and detection rates by resampling measured processes."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb, log

from pytest_bandwidth.domain.baseline import Entry, Metric, Run
from pytest_bandwidth.domain.judging.reference import NO_PAST, Past, prior_spread, reference_of
from pytest_bandwidth.domain.judging.rule import bounds_of, first_status, median_drop
from pytest_bandwidth.domain.measured.metrics import value_of_run
from pytest_bandwidth.domain.verdict import Status


@dataclass(frozen=True, slots=True)
class Rates:
    """Hold the shares of judged tests that ended REGRESSED: identical code (false alarms), and slowed code by its drop.

    unjudged: the share of tests of identical code that were INSUFFICIENT.
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
    """Judge `trials` random divisions of the processes into baseline, suspect and confirmations.

    same: one run a fresh process of identical code, at least ``baseline_runs + 1 + confirm`` of them; slowed: those of
    the slowed kernel by drop. Divisions share processes, so the rates are no more certain than the processes are many.
    Raises ValueError where there are too few.
    """
    if len(same) < baseline_runs + 1 + confirm:
        raise ValueError(f"{len(same)} processes, expected at least {baseline_runs + 1 + confirm}")
    draw = random.Random(seed)
    prior = prior_spread(figure, on_host)
    alarms, unjudged = 0, 0
    hits = dict.fromkeys(slowed, 0)
    for _ in range(trials):
        drawn = draw.sample(same, baseline_runs + 1 + confirm)
        judge = Judge(drawn[:baseline_runs], figure, tolerance, prior, confirm)
        status = judge.status(drawn[baseline_runs:])
        alarms += status is Status.REGRESSED
        unjudged += status is Status.INSUFFICIENT
        for drop, runs in slowed.items():
            hits[drop] += judge.status(draw.sample(runs, 1 + confirm)) is Status.REGRESSED
    found = {drop: n / trials for drop, n in hits.items()}
    return Rates(tolerance, baseline_runs, alarms / trials, found, unjudged / trials)


class Judge:
    """Apply the rule for one baseline; known: its runs. Raises ValueError where they do not hold the figure.

    past: what a history would add.
    """

    def __init__(
        self,
        known: Sequence[Run],
        figure: Metric,
        tolerance: float,
        prior: float,
        confirm: int,
        past: Past = NO_PAST,
    ) -> None:
        reference = reference_of(Entry("drawn", runs=tuple(known)), figure, prior, past=past)
        if reference is None:
            raise ValueError("the processes hold no figure to judge")
        self._reference = reference
        self._figure = figure
        self._confirm = confirm
        self._bounds = bounds_of(reference, tolerance, confirm)

    def status(self, judged: Sequence[Run]) -> Status:
        """Return what the rule says of a test: a suspect and its `confirm` fresh processes, which hold the figure."""
        first, *fresh = [value for run in judged if (value := value_of_run(run, self._figure)) is not None]
        drop = self._reference.centre - log(first)
        status = first_status(drop, self._bounds, self._confirm)
        if status is not Status.SUSPECT and drop <= self._bounds.doubt:
            return status
        if median_drop(self._reference, fresh) > self._bounds.gate:
            return Status.REGRESSED
        return Status.UNCONFIRMED if status is Status.SUSPECT else status


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
