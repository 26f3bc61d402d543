"""Render runs as OpenMetrics 1.0 text, for Prometheus and what reads its format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.exports.timings import BANDWIDTH, DURATION, PROBE, SHARE, UTILIZATION, Metric, TimedRun
from pytest_bandwidth.reports.text_safe import printable_sentence

# Base units, as the specification asks for; a family's name ends in its unit.
_FAMILIES = (
    ("bandwidth", "bytes_per_second", BANDWIDTH, 1e9, "Declared bytes of one run over its median time."),
    ("probe_bandwidth", "bytes_per_second", PROBE, 1e9, "The same of the probe, in the same rounds."),
    ("share_of_probe", "ratio", SHARE, 1.0, "Median over the rounds of the work's bandwidth over the probe's."),
    ("utilization", "ratio", UTILIZATION, 1.0, "Share of the device's known peak bandwidth."),
    ("duration", "seconds", DURATION, 1.0, "Median time of one run."),
)
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"'})


@dataclass(frozen=True, slots=True)
class _Sample:
    labels: str
    moment: float
    value: float


def render_openmetrics(runs: Sequence[TimedRun]) -> str:
    """Return gauges by test and device, with the run's start as time stamp.

    Raises UsageError where two runs of one device began in the same second: their samples could not be told apart.
    """
    _refuse_same_moment(runs)
    lines: list[str] = []
    for name, unit, metric, scale, text in _FAMILIES:
        samples = _samples(runs, metric, scale)
        if samples:
            family = f"pytest_bandwidth_{name}_{unit}"
            lines += [f"# TYPE {family} gauge", f"# UNIT {family} {unit}", f"# HELP {family} {text}"]
            lines += [f"{family}{{{one.labels}}} {one.value:.9g} {one.moment:.0f}" for one in samples]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _samples(runs: Sequence[TimedRun], metric: Metric, scale: float) -> list[_Sample]:
    """Return a family's samples: all of one set of labels together, oldest first, as the format wants them."""
    found = [
        _Sample(_labels(run, outcome.key), run.started_at.timestamp(), value * scale)
        for run in runs
        for outcome in run.outcomes
        if (value := metric.value(outcome)) is not None
    ]
    return sorted(found, key=lambda one: (one.labels, one.moment))


def _labels(run: TimedRun, key: str) -> str:
    device = run.device
    labels: Mapping[str, str] = {"test": key, "device": device.name, "serial": device.serial, "host": run.host}
    return ",".join(f'{name}="{_value(text)}"' for name, text in labels.items())


def _value(text: str) -> str:
    return printable_sentence(text).translate(_ESCAPES)


def _refuse_same_moment(runs: Sequence[TimedRun]) -> None:
    seen: dict[tuple[object, ...], str] = {}
    for run in runs:
        one = (run.device.name, run.device.serial, run.host, run.started_at)
        if one in seen:
            raise UsageError(
                f"{seen[one]} and {run.name} began in the same second on {run.device.name}: OpenMetrics tells samples "
                "apart by device and time; export one of them"
            )
        seen[one] = run.name
