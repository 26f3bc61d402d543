"""A run document read defensively: saved runs come from elsewhere, so every value is checked before it is rendered.

The document is what ``--bandwidth-json`` writes: `schema`, `run_id`, `environment`, `device`, `settings`, `results`,
`findings`, `baseline_path`. Values of the wrong type are errors that say where; numbers that are not finite count as
absent, because a report with a gap is of more use than none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.outcome import Outcome
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.domain.verdict import Status
from pytest_bandwidth.reports.text_safe import key_text, scalar_text
from pytest_bandwidth.reports.values import (
    Plain,
    mapping,
    mappings,
    number,
    numbers,
    optional_text,
    sequence,
    text,
    wrong_type,
)

SCHEMA = 1
RESULTS_AT_MOST = 50_000


@dataclass(frozen=True, slots=True)
class Note:
    """A finding about the device or the run: code for programs, sentence for people."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class RunDevice:
    """The device of a run; GB/s and GiB, None where unknown. settings and facts: (name, value) as text."""

    kind: str = ""
    name: str = "unnamed device"
    memory_gib: float | None = None
    serial: str = ""
    peak_gbps: float | None = None
    peak_source: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class RunDocument:
    """A whole run, checked. `outcomes` in the order of the document."""

    run_id: str
    environment: tuple[tuple[str, str], ...]
    device: RunDevice
    strict: bool
    settings: tuple[tuple[str, str], ...]
    outcomes: tuple[Outcome, ...]
    findings: tuple[Note, ...]
    baseline_path: str | None

    def fact(self, name: str) -> str | None:
        """An environment value by name, None where the document has none."""
        return next((value for key, value in self.environment if key == name), None)

    def fails(self, outcome: Outcome) -> bool:
        """Whether the outcome fails its test under this run's settings."""
        return Status[outcome.status].fails(strict=self.strict)


def read_document(document: Mapping[str, Any]) -> RunDocument:
    """The document with every type checked. Raises UsageError: where, what was found, what is expected."""
    if not isinstance(document, Mapping):
        raise UsageError(f"the document is a {type(document).__name__}, expected a mapping")
    if document.get("schema") != SCHEMA:
        raise UsageError(f"the document's schema is {shown(document.get('schema'))}, expected {SCHEMA}")
    results = sequence(document, "results")
    if len(results) > RESULTS_AT_MOST:
        raise UsageError(f"the document has {len(results)} results, expected at most {RESULTS_AT_MOST}: split it")
    settings = mapping(document, "settings")
    return RunDocument(
        run_id=text(document, "run_id"),
        environment=_pairs(mapping(document, "environment")),
        device=_read_device(mapping(document, "device")),
        strict=settings.get("strict") is True,
        settings=_pairs(settings),
        outcomes=tuple(_read_outcome(result, f"results[{i}]") for i, result in enumerate(results)),
        findings=tuple(read_notes(document, "findings")),
        baseline_path=optional_text(document, "baseline_path"),
    )


def read_notes(plain: Plain, name: str, where: str = "") -> Iterable[Note]:
    """The findings of a row or a run."""
    for note in mappings(plain, name, where):
        yield Note(text(note, "code", where), text(note, "text", where))


def _read_device(plain: Plain) -> RunDevice:
    peak = mapping(plain, "peak", "device")
    return RunDevice(
        kind=text(plain, "kind", "device"),
        name=text(plain, "name", "device") or "unnamed device",
        memory_gib=number(plain, "memory_gib", "device"),
        serial=text(plain, "serial", "device"),
        peak_gbps=_positive(number(peak, "gbps", "device.peak")),
        peak_source=text(peak, "source", "device.peak"),
        settings=_pairs(mapping(plain, "settings", "device")),
        facts=_pairs(mapping(plain, "facts", "device")),
    )


_Reader = Callable[[Plain, str, str], Any]
_FIELDS: tuple[tuple[_Reader, tuple[str, ...]], ...] = (
    (text, ("nodeid", "key", "status", "code", "reason", "utilization_of", "method", "stop")),
    (optional_text, ("label", "message", "file", "utilization_class", "regime", "regime_evidence", "precision")),
    (optional_text, ("bottleneck",)),
    (number, ("line", "bytes_read", "bytes_written", "flop", "requested_read", "requested_written")),
    (number, ("gbps", "utilization", "relative", "probe_gbps", "arithmetic_intensity", "ridge_point")),
    (number, ("seconds", "host_seconds", "noise", "median_precision", "warmup_seconds", "warmup_runs")),
    (number, ("waited_seconds",)),
    (numbers, ("samples", "probe_samples", "host_samples")),
    (mappings, ("dropped", "findings", "fresh")),
    (mapping, ("probe", "conditions", "resources", "verdict", "baseline", "counts", "detail", "tags")),
)
_REQUIRED = ("nodeid", "key", "status", "code", "reason")
_VERDICT_NUMBERS = (
    *("observed", "reference", "tolerance", "drop", "allowed_drop", "visible_drop"),
    *("spread", "degrees", "baseline_runs", "runs_advised"),
)
_WHOLE = ("line", "bytes_read", "bytes_written", "flop", "requested_read", "requested_written", "warmup_runs")


def _read_outcome(result: object, where: str) -> Outcome:
    if not isinstance(result, Mapping):
        raise UsageError(f"{where} is a {type(result).__name__}, expected a mapping")
    for name in _REQUIRED:
        if not isinstance(result.get(name), str):
            raise wrong_type(where, name, result.get(name), "text")
    if result["status"] not in Status.__members__:
        raise wrong_type(where, "status", result["status"], f"one of {', '.join(Status.__members__)}")
    known: dict[str, Any] = {}
    for read, names in _FIELDS:
        for name in names:
            value = read(result, name, where)
            if value is not None and name in result:
                known[name] = int(value) if name in _WHOLE else value
    _check_verdict(known.get("verdict", {}), f"{where}.verdict")
    # What is absent takes the row's own default; resources and baseline are absent, not empty.
    for name in ("resources", "baseline"):
        known[name] = known.get(name) or None
    return Outcome(**{"label": None, **known})


def _check_verdict(verdict: Plain, where: str) -> None:
    """Every renderer reads the verdict's figures: their types are checked once, here."""
    for name in ("status", "code", "reason", "figure"):
        optional_text(verdict, name, where)
    for name in _VERDICT_NUMBERS:
        number(verdict, name, where)
    numbers(verdict, "confirmations", where)


def _pairs(plain: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((key_text(name), scalar_text(value)) for name, value in list(plain.items())[:100])


def _positive(value: float | None) -> float | None:
    return value if value is not None and value > 0 else None
