"""Render runs as long CSV: a line for each figure, for data frames and SQL."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from pytest_bandwidth.domain.units import format_moment
from pytest_bandwidth.features.exports.timings import METRICS, TimedRun
from pytest_bandwidth.reports.columns import Value
from pytest_bandwidth.reports.csv import line_of

COLUMNS = (
    *("run_id", "started_at", "commit", "host", "device_kind", "device", "serial"),
    *("test", "status", "metric", "unit", "value"),
)


def render_csv_long(runs: Sequence[TimedRun]) -> str:
    """Return a header and a line for each figure there is; GB/s, seconds and fractions."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerow(COLUMNS)
    for run in runs:
        device = run.device
        fixed: tuple[Value, ...] = (
            *(run.run_id, format_moment(run.started_at), run.commit, run.host),
            *(device.kind, device.name, device.serial),
        )
        for outcome in run.outcomes:
            for metric in METRICS:
                value = metric.value(outcome)
                if value is not None:
                    row = (*fixed, outcome.key, outcome.status, metric.name, metric.unit, value)
                    writer.writerow([line_of(cell) for cell in row])
    return buffer.getvalue()
