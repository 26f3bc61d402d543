"""Render runs as the CSV that Apache Otava imports: a line a run, a column a test."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from pytest_bandwidth.features.exports.timings import BANDWIDTH, TimedRun, keys_of
from pytest_bandwidth.reports.csv import line_of

# Its importer takes `branch` for a filter of its own; this has none.
FIXED = ("time", "run_id", "commit", "device")


def columns_of(runs: Sequence[TimedRun]) -> tuple[list[str], list[str]]:
    """Return the tests that every run timed, and those that not every run did: Otava's columns have no gaps."""
    whole = [key for key in keys_of(runs) if all(key in run.by_key for run in runs)]
    return whole, [key for key in keys_of(runs) if key not in whole]


def render_otava(runs: Sequence[TimedRun]) -> str:
    """Return a header and a line for each run, oldest first: time (UTC), run, commit, device, and GB/s by test."""
    keys, _ = columns_of(runs)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerow([*FIXED, *map(line_of, keys)])
    for run in sorted(runs, key=lambda one: (one.started_at, one.run_id)):
        figures = [BANDWIDTH.value(run.by_key[key]) for key in keys]
        fixed = (run.started_at.isoformat(), run.run_id, run.commit, run.device.name)
        writer.writerow([*map(line_of, fixed), *(f"{figure:.9g}" for figure in figures)])
    return buffer.getvalue()
