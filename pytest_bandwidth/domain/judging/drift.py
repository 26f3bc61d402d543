"""Find a slow creep: drops small enough to be accepted one by one, and together more than the tolerance."""

from __future__ import annotations

import math

from pytest_bandwidth.domain.baseline import Entry, Metric
from pytest_bandwidth.domain.judging.reference import Reference, median_metrics
from pytest_bandwidth.domain.judging.rule import SUSPECT_LEVEL
from pytest_bandwidth.domain.measured.measurement import Finding
from pytest_bandwidth.domain.measured.metrics import metrics_of_run, value_of_run
from pytest_bandwidth.domain.units import drop_of_log, format_percent
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


def drift_of(entry: Entry | None, own: Reference | None, verdict: Verdict) -> Finding | None:
    """Return what the entry's accepted runs have lost since its anchor, where that is more than one run may lose.

    own: the entry seen through the verdict's figure. The anchor counts as one process.
    None where the verdict does not rest on the entry's own runs: old code that ran again tells how fast the machine is
    now. None, too, where the entry has no anchor with that figure.
    """
    if entry is None or entry.anchor is None or not entry.runs:
        return None
    if own is None or verdict.tolerance is None or verdict.reference != own.value:
        return None
    first, allowed = metrics_of_run(entry.anchor).of(own.figure), own.bound(SUSPECT_LEVEL, verdict.tolerance, 1)
    if not first or math.log(first) - own.centre <= allowed:
        return None
    since = f" of {entry.anchor.at[:10]}" if entry.anchor.at else ""
    return Finding(
        DRIFT,
        f"the baseline itself has crept {format_percent(1 - own.value / first, 1)} below its anchor{since}, "
        f"{format_percent(drop_of_log(allowed), 1)} allowed: find out why, or accept it by removing the entry's anchor",
    )
