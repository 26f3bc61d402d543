"""Find a slow creep: drops small enough to be accepted one by one, and together more than the tolerance."""

from __future__ import annotations

import math

from pytest_bandwidth.domain.baseline import Entry, Metric
from pytest_bandwidth.domain.judging.reference import median_metrics
from pytest_bandwidth.domain.measured.measurement import Finding
from pytest_bandwidth.domain.measured.metrics import metrics_of_run, value_of_run
from pytest_bandwidth.domain.units import format_percent, log_of_drop
from pytest_bandwidth.domain.verdict import Verdict

DRIFT = "drift"


def since_anchor(entry: Entry, figure: Metric) -> float | None:
    """Return what the entry's runs have gained since its anchor, as a fraction.

    None where one of them lacks the figure.
    """
    if entry.anchor is None or not entry.runs:
        return None
    then, now = value_of_run(entry.anchor, figure), median_metrics(entry.runs).of(figure)
    return now / then - 1 if then and now else None


def drift_of(entry: Entry | None, verdict: Verdict) -> Finding | None:
    """Return what the entry's accepted runs have lost since its anchor, where that is more than one run may lose.

    The anchor counts as one process: the bound is the allowed drop of the verdict, which knows the entry's noise.
    None where nothing was judged, or the entry has no anchor with that figure.
    """
    if entry is None or entry.anchor is None or not entry.runs:
        return None
    if verdict.figure is None or verdict.reference is None or verdict.allowed_drop is None:
        return None
    first = metrics_of_run(entry.anchor).of(verdict.figure)
    if not first or math.log(first / verdict.reference) <= log_of_drop(verdict.allowed_drop):
        return None
    since = f" of {entry.anchor.at[:10]}" if entry.anchor.at else ""
    return Finding(
        DRIFT,
        f"the baseline itself has crept {format_percent(1 - verdict.reference / first, 1)} below its anchor{since}, "
        f"{format_percent(verdict.allowed_drop, 1)} allowed: find out why, or accept it by removing the entry's anchor",
    )
