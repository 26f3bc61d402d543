"""What an update makes of an entry: runs that pass the gate are appended, others start the entry afresh."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import median

from pytest_bandwidth.domain.baseline import NEWEST_RUNS_KEPT, Entry, Run
from pytest_bandwidth.domain.figures import choose_figure
from pytest_bandwidth.domain.judging import REGRESSED_LEVEL
from pytest_bandwidth.domain.reference import median_figures, reference_of


def merged(old: Entry | None, fresh: Entry, tolerance: float, prior: float) -> Entry:
    """The entry after an update with `fresh`, which holds this update's runs and nothing of the past.

    What people wrote by hand (tolerance, xfail, note, judged_on, unknown keys) stays.
    """
    if old is None:
        return _summed(replace(fresh, anchor=_anchor(fresh.runs)))
    kept = replace(
        fresh,
        tolerance=old.tolerance,
        xfail=old.xfail,
        note=old.note,
        judged_on=old.judged_on or fresh.judged_on,
        extra={**old.extra, **fresh.extra},
        line=old.line,
    )
    if _continues(old, kept, tolerance, prior):
        runs = (*old.runs, *fresh.runs)[-NEWEST_RUNS_KEPT:]
        return _summed(replace(kept, runs=runs, anchor=old.anchor or _anchor(old.runs)))
    return _summed(replace(kept, anchor=_anchor(fresh.runs)))


def _continues(old: Entry, fresh: Entry, tolerance: float, prior: float) -> bool:
    """Whether the fresh runs show the same thing as the old ones, as far as the gate can tell."""
    if not old.runs or not fresh.runs:
        return False
    same = ("bytes_read", "bytes_written", "method")
    if any(getattr(old, name) not in (None, getattr(fresh, name)) for name in same):
        return False
    if any(fresh.settings.get(name, value) != value for name, value in old.settings.items()):
        return False
    figures = median_figures(fresh.runs)
    figure = choose_figure(None, replace(old, judged_on=fresh.judged_on), figures, None)
    reference = reference_of(old, figure, prior)
    value = figures.of(figure)
    if reference is None or value is None:
        return False
    return abs(reference.centre - math.log(value)) <= reference.bound(REGRESSED_LEVEL, tolerance, len(fresh.runs))


def _anchor(runs: tuple[Run, ...]) -> Run | None:
    if not runs:
        return None
    middle = median_figures(runs)
    return Run(gbps=middle.gbps, relative=middle.relative, at=runs[-1].at, commit=runs[-1].commit)


def _summed(entry: Entry) -> Entry:
    return replace(entry, gbps=median(run.gbps for run in entry.runs)) if entry.runs else entry
