"""Hold a judged measurement as plain data, for transfer between processes and for all reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.code.identity import identity_of_plain
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.measured.measurement import is_credible_share
from pytest_bandwidth.domain.measured.roofline import (
    CLASS_BOUNDS,
    ClassBounds,
    bottleneck_of,
    regime_of,
    ridge_of,
    utilization_class,
)
from pytest_bandwidth.domain.measured.validity import CALL_SECONDS
from pytest_bandwidth.domain.statistics import noise, precision_of_median
from pytest_bandwidth.domain.verdict import Status
from pytest_bandwidth.judging.causes import recorded_resources
from pytest_bandwidth.judging.judge import Judged

Plain = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Hold a row of the JSON document's `results`. Seconds, bytes and GB/s; None where a figure does not exist.

    key: the baseline's key (node id, `` @ label`` where there is one).
    reason_code: the rule that decided (`Rule`). is_valid: whether the measurement can be judged at all.
    message: the failing test's message; None where it passed. xfail: why pytest expected the test to fail, as it did.
    verdict, baseline, conditions, probe, resources: the nested values as plain mappings.
    settings: what makes figures incomparable, as the device's, but with the compiler that the test used.
    samples, probe_samples, host_samples: seconds, in the order taken; `kernel_first[i]` is round i's order.
    fresh: the figures of each fresh process of a suspicious test: gbps, relative, probe_gbps, wall_seconds.
    bottleneck: what wastes bandwidth, in a sentence; None where nothing is known to waste it.
    detail: what devices and features add, by name (the traffic device: per kernel and source line).
    profile: the path of a profiler's report on a REGRESSED row; None without a report.
    tags: a suite's values for a row (operation, precision, M, N, K, …).
    code_identity: hashes of the code, by name (`CodeIdentity`). software: versions of loaded libraries, by name.
    code_diff: how the kernel's PTX differs from the entry's (`ptx_diff`); empty where it does not, or is unknown.
    """

    nodeid: str
    key: str
    label: str | None
    status: str
    reason_code: str
    reason: str
    is_valid: bool = True
    message: str | None = None
    xfail: str | None = None
    file: str | None = None
    line: int | None = None
    gbps: float | None = None
    utilization: float | None = None
    utilization_of: str = "probe"
    utilization_class: str | None = None
    sol: float | None = None
    sol_by: str | None = None
    relative: float | None = None
    probe_gbps: float | None = None
    bytes_read: int = 0
    bytes_written: int = 0
    requested_read: int | None = None
    requested_written: int | None = None
    flop: int = 0
    arithmetic_intensity: float | None = None
    ridge_point: float | None = None
    regime: str | None = None
    regime_evidence: str | None = None
    bottleneck: str | None = None
    precision: str | None = None
    method: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    seconds: float | None = None
    host_seconds: float | None = None
    noise: float | None = None
    median_precision: float | None = None
    samples: tuple[float, ...] = ()
    probe_samples: tuple[float, ...] = ()
    host_samples: tuple[float, ...] = ()
    kernel_first: tuple[bool, ...] = ()
    dropped: tuple[Mapping[str, Any], ...] = ()
    stop: str = ""
    warmup_seconds: float = 0.0
    warmup_runs: int = 0
    run_delay: float | None = None
    fresh: tuple[Mapping[str, Any], ...] = ()
    probe: Mapping[str, Any] = field(default_factory=dict)
    conditions: Mapping[str, Any] = field(default_factory=dict)
    resources: Mapping[str, Any] | None = None
    findings: tuple[Mapping[str, str], ...] = ()
    verdict: Mapping[str, Any] = field(default_factory=dict)
    baseline: Mapping[str, Any] | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    detail: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, Any] = field(default_factory=dict)
    code_identity: Mapping[str, str] = field(default_factory=dict)
    software: Mapping[str, str] = field(default_factory=dict)
    code_diff: str = ""
    profile: str | None = None

    @property
    def code_state(self) -> Literal["same", "changed"] | None:
        """Return whether the code is the entry's, or certainly another; None where that is unknown."""
        known = (self.baseline or {}).get("code")
        if not isinstance(known, Mapping):
            return None
        then = identity_of_plain(known)
        return identity_of_plain(self.code_identity).compared_with(then, by="ptx" if self.counts else "sass")

    def to_entry(self, **others: Any) -> Entry:
        """Return this row as a baseline's entry, without figures. others: fields to set or replace."""
        same = {name: getattr(self, name) for name in ("key", "bytes_read", "bytes_written", "method")}
        held = {"settings": dict(self.settings), "counts": dict(self.counts), "code": dict(self.code_identity)}
        return Entry(**{**same, **held, "resources": recorded_resources(self.resources), **others})

    @property
    def bytes_moved(self) -> int:
        return self.bytes_read + self.bytes_written

    @property
    def of_peak(self) -> float | None:
        """Return the utilization where it is a share of the device's peak."""
        return self.utilization if self.utilization_of == "peak" else None

    @property
    def valid_utilization(self) -> float | None:
        """Return the utilization for people and tables; None where it is invalid, or a share that is not credible."""
        credible = self.utilization_of == "peak" or is_credible_share(self.utilization)
        return self.utilization if self.is_valid and credible else None

    @property
    def valid_sol(self) -> float | None:
        """Return the share of the speed of light for people and tables; None where it is invalid."""
        return self.sol if self.is_valid else None

    @property
    def valid_relative(self) -> float | None:
        """Return the share of the probe for people and tables; None where it is invalid, or not credible."""
        return self.relative if self.is_valid and is_credible_share(self.relative) else None

    @property
    def short_name(self) -> str:
        """Return the test's own name with its label, without the folder."""
        path, bracket, parameters = self.nodeid.partition("[")
        name = path.rsplit("/", 1)[-1] + bracket + parameters
        return f"{name} @ {self.label}" if self.label else name

    def to_plain(self) -> Plain:
        """Return a JSON-ready mapping."""
        # Nested values are plain data already; `asdict` would copy every sample.
        return {name: getattr(self, name) for name in _NAMES}


# Nearly all values are of these types, and a look-up of the type is faster than a check for a mapping.
_SINGLE = frozenset({str, int, float, bool, tuple, type(None)})
_NAMES = tuple(f.name for f in fields(Outcome))
_KNOWN = frozenset(_NAMES)
# By name, the function that sets a field, since the frozen dataclass's `__setattr__` refuses to.
_SLOTS = tuple((name, vars(Outcome)[name].__set__) for name in _NAMES)
# As texts, since looking a member up in its enumeration is slow, and this happens for every row.
_STATUSES = tuple(status.value for status in Status)
_SEQUENCES = ("samples", "probe_samples", "host_samples", "kernel_first", "dropped", "findings", "fresh")


def from_plain(plain: Mapping[str, Any]) -> Outcome:
    """Return the row from its mapping; unknown keys are ignored. Raises UsageError for an unknown status."""
    known = {name: plain[name] for name in plain if name in _KNOWN} if plain.keys() - _KNOWN else dict(plain)
    if known["status"] not in _STATUSES:
        raise UsageError(f"a result's status is {known['status'][:40]!r}, expected one of {', '.join(_STATUSES)}")
    for name in _SEQUENCES:
        known[name] = tuple(known.get(name) or ())
    if len(known) < len(_SLOTS):
        return Outcome(**known)
    # All fields are there: setting them takes a quarter of the time of the initializer.
    row = object.__new__(Outcome)
    for name, put in _SLOTS:
        put(row, known[name])
    return row


def outcome_of(
    nodeid: str,
    key: str,
    judged: Judged,
    reason: str,
    *,
    message: str | None = None,
    file: str | None = None,
    line: int | None = None,
    tags: Mapping[str, Any] | None = None,
    class_bounds: ClassBounds = CLASS_BOUNDS,
    code_diff: str = "",
) -> Outcome:
    """Flatten a measurement and the decision on it into a row. reason: the decision in words."""
    measurement, decision, entry = judged.measurement, judged.decision, judged.entry
    rounds, regime, ridge = measurement.rounds, regime_of(measurement), ridge_of(measurement)
    utilization = measurement.utilization
    positive = bool(rounds.kernel_seconds) and min(rounds.kernel_seconds) > 0
    precise = precision_of_median(rounds.kernel_seconds) if positive and len(rounds.kernel_seconds) >= 4 else None
    return Outcome(
        **_named(measurement, _OF_MEASUREMENT),
        **_named(measurement.traffic, _OF_TRAFFIC),
        **_named(rounds, _OF_ROUNDS),
        nodeid=nodeid,
        key=key,
        status=decision.status.value,
        reason_code=decision.rule,
        reason=reason,
        is_valid=measurement.invalid is None,
        message=message,
        file=file,
        line=line,
        sol_by=None if measurement.least is None else measurement.least.by,
        utilization_class=None if utilization is None else utilization_class(utilization, class_bounds),
        ridge_point=None if ridge is None else ridge.point,
        regime=None if regime is None else regime.regime,
        regime_evidence=None if regime is None else regime.evidence,
        bottleneck=bottleneck_of(measurement),
        noise=noise(rounds.kernel_seconds) if positive else None,
        median_precision=precise,
        samples=rounds.kernel_seconds,
        probe_samples=rounds.probe_seconds,
        host_samples=rounds.host_kernel_seconds,
        dropped=tuple(map(flat, rounds.dropped)),
        fresh=tuple({**_named(row.figures, _OF_FRESH), "wall_seconds": row.wall_seconds} for row in judged.fresh),
        probe={"name": rounds.probe_name, "bytes_moved": rounds.probe_bytes} if rounds.probe_name else {},
        conditions={"before": flat(measurement.conditions_before), "after": flat(measurement.conditions_after)},
        resources=None if measurement.resources is None else flat(measurement.resources),
        settings=dict(measurement.device.settings),
        findings=tuple(map(flat, measurement.findings)),
        verdict={
            "status": decision.status.value,
            "rule": decision.rule,
            **flat(decision.numbers),
            "facts": dict(decision.facts),
            "why_not": decision.why_not,
        },
        baseline=None if entry is None else _entry_plain(entry),
        counts=dict(measurement.counts),
        # The time of a call is known only where a sample was short, and so not in each run.
        detail={name: value for name, value in measurement.detail.items() if name != CALL_SECONDS},
        tags=dict(tags or {}),
        code_identity=measurement.code.known(),
        software=dict(measurement.software),
        code_diff=code_diff,
        profile=judged.profile,
    )


# Fields that a row has by the same name.
_OF_MEASUREMENT = (
    *("label", "gbps", "utilization", "utilization_of", "sol", "relative", "probe_gbps"),
    *("arithmetic_intensity", "precision", "method", "seconds", "host_seconds"),
)
_OF_TRAFFIC = ("bytes_read", "bytes_written", "requested_read", "requested_written", "flop")
_OF_FRESH = ("gbps", "relative", "probe_gbps")
_OF_ROUNDS = ("kernel_first", "stop", "warmup_seconds", "warmup_runs", "run_delay")


def _named(one: object, names: Iterable[str]) -> Plain:
    return {name: getattr(one, name) for name in names}


def flat(one: Any) -> Plain:
    """Return a dataclass of plain values, and of mappings of such, as a mapping of its own.

    `asdict` copies every value, which takes many times as long.
    """
    found = _named(one, one.__dataclass_fields__)
    for name, value in found.items():
        if type(value) not in _SINGLE and isinstance(value, Mapping):
            found[name] = dict(value)
    return found


def _entry_plain(entry: Entry) -> Plain:
    plain = flat(entry)
    del plain["line"], plain["extra"]
    plain["anchor"] = None if entry.anchor is None else flat(entry.anchor)
    plain["runs"] = tuple(map(flat, entry.runs))
    return plain


# ---- values of a row's nested mappings, which a saved run may hold in any form ---------------------------------------

Nested = Mapping[str, Any]


def number(plain: Nested, name: str) -> float | None:
    """Return a number; None for anything else."""
    value = plain.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def whole(value: object) -> int | None:
    """Return a whole number; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text(plain: Nested, name: str) -> str:
    """Return a text, empty for anything else."""
    value = plain.get(name)
    return value if isinstance(value, str) else ""


def mapping(plain: Nested, name: str) -> Nested:
    """Return a mapping, empty for anything else."""
    value = plain.get(name)
    return value if isinstance(value, Mapping) else {}


def sequence(plain: Nested, name: str) -> Sequence[Any]:
    """Return a list, empty for anything else."""
    value = plain.get(name)
    return value if isinstance(value, list | tuple) else ()


def mappings(plain: Nested, name: str) -> list[Nested]:
    """Return the mappings among a list's values."""
    return [value for value in sequence(plain, name) if isinstance(value, Mapping)]
