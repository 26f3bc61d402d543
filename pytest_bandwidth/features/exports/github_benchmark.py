"""Render runs as JSON for the action github-action-benchmark, tool `customBiggerIsBetter`."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_bandwidth.features.exports.timings import BANDWIDTH, SHARE, TimedRun, keys_of, spread_of
from pytest_bandwidth.reports.text_safe import json_for_log


def render_github_benchmark(runs: Sequence[TimedRun]) -> str:
    """Return the JSON: a list of `name`, `unit`, `value`, `range` and `extra`; each test by GB/s and by its share.

    The share of the probe, in percent, is what a shared machine can be judged by.
    """
    entries: list[dict[str, str | float]] = []
    extra = f"{len(runs)} runs" if len(runs) > 1 else f"run {runs[0].run_id}"
    extra += f" on {runs[0].device.name}"
    for key in keys_of(runs):
        for metric, name, unit, scale in (
            (BANDWIDTH, key, "GB/s", 1.0),
            (SHARE, f"{key} (share of probe)", "%", 100.0),
        ):
            spread = spread_of(runs, key, metric)
            if spread is None:
                continue
            entry: dict[str, str | float] = {"name": name, "unit": unit, "value": spread.value * scale}
            if spread.lower is not None and spread.upper is not None:
                entry["range"] = f"{spread.lower * scale:.6g} to {spread.upper * scale:.6g}"
            entries.append({**entry, "extra": extra})
    return json_for_log(entries) + "\n"
