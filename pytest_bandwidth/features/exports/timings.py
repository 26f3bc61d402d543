"""Take the figures that trackers keep out of saved runs: of each run its timed, valid results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median, quantiles

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.domain.units import counted, parse_moment
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.storage.saved_run import RunDevice, RunDocument


@dataclass(frozen=True, slots=True)
class Metric:
    """Describe one figure: its name, its unit ("" for a share), and where it stands in a result."""

    name: str
    unit: str
    value: Callable[[Outcome], float | None]


BANDWIDTH = Metric("bandwidth", "GB/s", lambda outcome: outcome.gbps)
SHARE = Metric("share_of_probe", "", lambda outcome: outcome.valid_relative)
DURATION = Metric("duration", "s", lambda outcome: outcome.seconds)
PROBE = Metric("probe_bandwidth", "GB/s", lambda outcome: outcome.probe_gbps)
UTILIZATION = Metric(
    "utilization", "", lambda outcome: outcome.utilization if outcome.utilization_of == "peak" else None
)
METRICS = (BANDWIDTH, SHARE, DURATION, PROBE, UTILIZATION)


@dataclass(frozen=True, slots=True)
class TimedRun:
    """Hold one run's timed results. started_at: UTC; commit, host: "" where the run does not tell.

    left_out: keys of results that are not valid, or were not timed.
    """

    name: str
    run_id: str
    started_at: datetime
    commit: str
    host: str
    device: RunDevice
    outcomes: tuple[Outcome, ...]
    left_out: tuple[str, ...]

    @property
    def by_key(self) -> Mapping[str, Outcome]:
        return {outcome.key: outcome for outcome in self.outcomes}


@dataclass(frozen=True, slots=True)
class Spread:
    """Hold a figure and the range around it: over runs least and largest, in one run the quartiles of its samples."""

    value: float
    lower: float | None = None
    upper: float | None = None


def timed_run(document: RunDocument, name: str) -> TimedRun:
    """Return the run's timings. name: of its file. Raises UsageError where it has none, or tells no moment."""
    timed = [outcome for outcome in document.outcomes if outcome.is_valid and outcome.gbps]
    if not timed:
        results = counted(len(document.outcomes), "result")
        found = f"{results} without valid timings" if document.outcomes else "no results"
        raise UsageError(f"{name}: found {found}, expected a run that took times (the traffic device takes none)")
    kept = {outcome.key for outcome in timed}
    return TimedRun(
        name=name,
        run_id=document.run_id,
        started_at=_moment(document.environment.get("started_at"), name),
        commit=_text(document.environment.get("commit")),
        host=_text(document.environment.get("host")),
        device=document.device,
        outcomes=tuple(timed),
        left_out=tuple(outcome.key for outcome in document.outcomes if outcome.key not in kept),
    )


def refuse_doubles(runs: Sequence[TimedRun]) -> None:
    """Raise UsageError where one run is given twice: it would count as two that agree."""
    seen: dict[str, str] = {}
    for run in runs:
        if run.run_id in seen:
            raise UsageError(f"{run.name} is the run of {seen[run.run_id]} once more, expected each run once")
        seen[run.run_id] = run.name


def refuse_devices(runs: Sequence[TimedRun], form: str) -> None:
    """Raise UsageError where runs are of several devices and the form has one figure for a test."""
    devices = {(run.device.name, run.device.serial): run.name for run in runs}
    if len(devices) > 1:
        (one, first), (other, second) = list(devices.items())[:2]
        raise UsageError(
            f"{form} has one figure a test: found runs of two devices, {one[0]} ({first}) and {other[0]} ({second}); "
            "export each device by itself"
        )


def keys_of(runs: Sequence[TimedRun]) -> list[str]:
    """Return the keys that any of the runs timed, in the order in which they first come."""
    return list(dict.fromkeys(outcome.key for run in runs for outcome in run.outcomes))


def spread_of(runs: Sequence[TimedRun], key: str, metric: Metric) -> Spread | None:
    """Return a test's figure: the median over the runs, or one run's; None where no run has it."""
    outcomes = [run.by_key[key] for run in runs if key in run.by_key]
    values = [value for outcome in outcomes if (value := metric.value(outcome)) is not None]
    if not values:
        return None
    if len(values) > 1:
        return Spread(median(values), min(values), max(values))
    return Spread(values[0], *_quartiles(outcomes[0], metric))


def _quartiles(outcome: Outcome, metric: Metric) -> tuple[float | None, float | None]:
    samples = [seconds for seconds in outcome.samples if seconds > 0]
    if len(samples) < 4 or metric not in (BANDWIDTH, DURATION):
        return None, None
    first, _, third = quantiles(samples, n=4)
    if metric is DURATION:
        return first, third
    return outcome.bytes_moved / third / 1e9, outcome.bytes_moved / first / 1e9


def _moment(value: object, name: str) -> datetime:
    try:
        return parse_moment(_text(value))
    except ValueError:
        raise UsageError(
            f"{name}: environment.started_at is {shown(value)}, expected a moment like 2026-11-21T04:00:00Z"
        ) from None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
