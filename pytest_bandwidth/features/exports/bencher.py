"""Render runs as Bencher Metric Format (JSON): https://bencher.dev/docs/reference/bencher-metric-format/."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.features.exports.timings import BANDWIDTH, DURATION, SHARE, Spread, TimedRun, keys_of, spread_of
from pytest_bandwidth.reports.text_safe import json_for_log

LONGEST_NAME = 1024  # bytes
# Bencher's own measure of time is in nanoseconds; the others come to be when they are first sent.
_MEASURES = (("bandwidth", BANDWIDTH, 1.0), ("share-of-probe", SHARE, 1.0), ("latency", DURATION, 1e9))


def render_bencher(runs: Sequence[TimedRun]) -> str:
    """Return the JSON: by test `bandwidth` (GB/s), `share-of-probe` (a fraction) and `latency` (nanoseconds).

    Raises UsageError for a name that Bencher does not take.
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    for key in keys_of(runs):
        size = len(key.encode("utf-8", "surrogatepass"))
        if size > LONGEST_NAME:
            raise UsageError(f"{shown(key)} has {size} bytes, Bencher takes names of {LONGEST_NAME} at most")
        spreads = [(name, spread_of(runs, key, metric), scale) for name, metric, scale in _MEASURES]
        found[key] = {name: _plain(spread, scale) for name, spread, scale in spreads if spread is not None}
    return json_for_log(found) + "\n"


def _plain(spread: Spread, scale: float) -> dict[str, float]:
    values = {"value": spread.value, "lower_value": spread.lower, "upper_value": spread.upper}
    return {name: value * scale for name, value in values.items() if value is not None}
