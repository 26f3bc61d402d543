"""Flatten a judged measurement into a row of plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.measured.bottleneck import bottleneck_of
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.measured.regime import regime_of, ridge_of
from pytest_bandwidth.domain.measured.roofline import CLASS_BOUNDS, ClassBounds, utilization_class
from pytest_bandwidth.domain.measured.validity import CALL_SECONDS
from pytest_bandwidth.domain.statistics import noise, precision_of_median
from pytest_bandwidth.domain.verdict import Decision
from pytest_bandwidth.judging.judge import FreshRow
from pytest_bandwidth.outcomes.outcome import Outcome, Plain

# Nearly all values are of these types, and asking whether one is a mapping takes longer than asking for its type.
_SINGLE = frozenset({str, int, float, bool, tuple, type(None)})


def outcome_of(
    nodeid: str,
    key: str,
    measurement: Measurement,
    decision: Decision,
    reason: str,
    *,
    entry: Entry | None = None,
    message: str | None = None,
    file: str | None = None,
    line: int | None = None,
    tags: Mapping[str, Any] | None = None,
    class_bounds: ClassBounds = CLASS_BOUNDS,
    fresh: Sequence[FreshRow] = (),
    code_diff: str = "",
    profile: str | None = None,
) -> Outcome:
    """Flatten a measurement and the decision on it into a row. reason: the decision in words."""
    rounds, regime, ridge = measurement.rounds, regime_of(measurement), ridge_of(measurement)
    utilization = measurement.utilization
    positive = bool(rounds.kernel_seconds) and min(rounds.kernel_seconds) > 0
    precise = precision_of_median(rounds.kernel_seconds) if positive and len(rounds.kernel_seconds) >= 4 else None
    return Outcome(
        nodeid=nodeid,
        key=key,
        label=measurement.label,
        status=decision.status.value,
        reason_code=decision.rule,
        reason=reason,
        is_valid=measurement.invalid is None,
        message=message,
        file=file,
        line=line,
        gbps=measurement.gbps,
        utilization=utilization,
        utilization_of=measurement.utilization_of,
        utilization_class=None if utilization is None else utilization_class(utilization, class_bounds),
        relative=measurement.relative,
        probe_gbps=measurement.probe_gbps,
        bytes_read=measurement.traffic.bytes_read,
        bytes_written=measurement.traffic.bytes_written,
        requested_read=measurement.traffic.requested_read,
        requested_written=measurement.traffic.requested_written,
        flop=measurement.traffic.flop,
        arithmetic_intensity=measurement.arithmetic_intensity,
        ridge_point=None if ridge is None else ridge.point,
        regime=None if regime is None else regime.regime,
        regime_evidence=None if regime is None else regime.evidence,
        bottleneck=bottleneck_of(measurement),
        precision=measurement.precision,
        method=measurement.method,
        seconds=measurement.seconds,
        host_seconds=measurement.host_seconds,
        noise=noise(rounds.kernel_seconds) if positive else None,
        median_precision=precise,
        samples=rounds.kernel_seconds,
        probe_samples=rounds.probe_seconds,
        host_samples=rounds.host_kernel_seconds,
        kernel_first=rounds.kernel_first,
        dropped=tuple(map(flat, rounds.dropped)),
        stop=rounds.stop,
        warmup_seconds=rounds.warmup_seconds,
        warmup_runs=rounds.warmup_runs,
        run_delay=rounds.run_delay,
        fresh=tuple(_fresh_plain(row) for row in fresh),
        probe={"name": rounds.probe_name, "bytes_moved": rounds.probe_bytes} if rounds.probe_name else {},
        conditions={
            "before": flat(measurement.conditions_before),
            "after": flat(measurement.conditions_after),
        },
        resources=None if measurement.resources is None else flat(measurement.resources),
        findings=tuple(map(flat, measurement.findings)),
        verdict=_decision_plain(decision),
        baseline=None if entry is None else _entry_plain(entry),
        counts=dict(measurement.counts),
        detail=_without_calls(measurement.detail),
        tags=dict(tags or {}),
        code_identity=measurement.code.known(),
        software=dict(measurement.software),
        code_diff=code_diff,
        profile=profile,
    )


def flat(one: Any) -> Plain:
    """Return a dataclass of plain values, and of mappings of such, as a mapping of its own.

    `asdict` copies every value by itself, which takes many times as long.
    """
    kind: type = type(one)
    found: Plain = {name: getattr(one, name) for name in _names_of(kind)}
    for name, value in found.items():
        if type(value) not in _SINGLE and isinstance(value, Mapping):
            found[name] = dict(value)
    return found


def _without_calls(detail: Mapping[str, Any]) -> Plain:
    """Leave out what a call takes: it is there where a sample was short, and so not in each run."""
    return {name: value for name, value in detail.items() if name != CALL_SECONDS}


def _decision_plain(decision: Decision) -> Plain:
    plain = {"status": decision.status.value, "rule": decision.rule, **flat(decision.numbers)}
    return {**plain, "facts": dict(decision.facts), "why_not": decision.why_not}


def _fresh_plain(row: FreshRow) -> Plain:
    seen = row.figures
    return {
        "gbps": seen.gbps,
        "relative": seen.relative,
        "probe_gbps": seen.probe_gbps,
        "wall_seconds": row.wall_seconds,
    }


def _entry_plain(entry: Entry) -> Plain:
    plain = flat(entry)
    del plain["line"], plain["extra"]
    plain["anchor"] = None if entry.anchor is None else flat(entry.anchor)
    plain["runs"] = tuple(map(flat, entry.runs))
    return plain


@cache
def _names_of(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind))
