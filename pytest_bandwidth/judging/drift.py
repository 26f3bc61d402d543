"""Show what an entry's runs have gained or lost since its first ones."""

from __future__ import annotations

from pytest_bandwidth.domain.baseline import Entry, Metric
from pytest_bandwidth.domain.measured.metrics import value_of_run
from pytest_bandwidth.judging.stored import median_metrics


def since_anchor(entry: Entry, figure: Metric) -> float | None:
    """Return what the entry's runs have gained since its anchor, as a fraction.

    None where one of them lacks the figure.
    """
    if entry.anchor is None or not entry.runs:
        return None
    then, now = value_of_run(entry.anchor, figure), median_metrics(entry.runs).of(figure)
    return now / then - 1 if then and now else None
