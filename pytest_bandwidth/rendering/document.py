"""A run document read defensively: saved runs come from elsewhere, so every value is checked before it is rendered.

The document is what ``--bandwidth-json`` writes: `schema`, `run_id`, `environment`, `device`, `settings`, `results`,
`findings`, `baseline_path`. Values of the wrong type are errors that say where; numbers that are not finite count as
absent, because a report with a gap is of more use than none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.outcome import Outcome, from_plain
from pytest_bandwidth.domain.verdict import Status

SCHEMA = 1
RESULTS_AT_MOST = 50_000
TEXT_AT_MOST = 4_000
# Controls, line separators, lone surrogates, and the marks that reorder or hide text around them (Unicode TR36, TR39).
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
_BEFORE_UNIT = re.compile(r"(?<=[0-9]) (?=(?:%|[kMGT]?B(?:/s)?|[nµm]?s|MHz|FLOP/byte)(?![A-Za-z]))")

Plain = Mapping[str, Any]


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
        raise UsageError(f"the document's schema is {_shown(document.get('schema'))}, expected {SCHEMA}")
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


def clean(value: str, at_most: int = TEXT_AT_MOST) -> str:
    """Text fit for any page: bounded, and with marks that hide or reorder text shown as escapes."""
    cut = value if len(value) <= at_most else f"{value[:at_most]} … ({len(value) - at_most} more characters)"
    return _UNSEEN.sub(_escape, cut) if _UNSEEN.search(cut) else cut


def prose(value: str, at_most: int = TEXT_AT_MOST) -> str:
    """Cleaned sentences in which no line breaks between a number and its unit."""
    return _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", clean(value, at_most))


def one_line(value: str, at_most: int) -> str:
    """Cleaned text on one line; where too long, its middle gives way to an ellipsis, for the ends tell tests apart."""
    flat = " ".join(value.split())
    if len(flat) > at_most:
        tail = at_most // 3
        flat = f"{flat[: at_most - tail - 1]}…{flat[-tail:]}"
    return clean(flat, at_most + 1)


def number(plain: Plain, name: str, where: str = "") -> float | None:
    """A finite number or None. Raises UsageError for any other type."""
    value = plain.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(where, name, value, "a number")
    return float(value) if abs(value) < 1e300 and math.isfinite(value) else None


def text(plain: Plain, name: str, where: str = "") -> str:
    """Text, empty where absent. Raises UsageError for any other type."""
    return optional_text(plain, name, where) or ""


def optional_text(plain: Plain, name: str, where: str = "") -> str | None:
    value = plain.get(name)
    if value is not None and not isinstance(value, str):
        raise _wrong(where, name, value, "text")
    return value


def mapping(plain: Plain, name: str, where: str = "") -> Mapping[str, Any]:
    """A mapping, empty where absent. Raises UsageError for any other type."""
    value = plain.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _wrong(where, name, value, "a mapping")
    return value


def sequence(plain: Plain, name: str, where: str = "") -> Sequence[Any]:
    """A list, empty where absent. Raises UsageError for any other type."""
    value = plain.get(name)
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise _wrong(where, name, value, "a list")
    return value


def mappings(plain: Plain, name: str, where: str = "") -> list[Mapping[str, Any]]:
    """A list of mappings, empty where absent. Raises UsageError for anything else in it."""
    found = sequence(plain, name, where)
    for item in found:
        if not isinstance(item, Mapping):
            raise _wrong(where, name, item, "mappings only")
    return list(found)


def numbers(plain: Plain, name: str, where: str = "") -> tuple[float, ...]:
    """The finite numbers of a list. Raises UsageError for anything else in it."""
    found = (number({name: value}, name, where) for value in sequence(plain, name, where))
    return tuple(value for value in found if value is not None)


def read_notes(plain: Plain, name: str, where: str = "") -> Iterable[Note]:
    """The findings of a row or a run."""
    for note in mappings(plain, name, where):
        yield Note(text(note, "code", where), text(note, "text", where))


def scalar_text(value: object) -> str:
    """A setting's or fact's value as text; nested values as they would be typed, bounded."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return clean(", ".join(scalar_text(item) for item in value[:50]), 400)
    if isinstance(value, Mapping):
        return clean(", ".join(f"{_key(k)}: {_short(v)}" for k, v in list(value.items())[:50]), 400)
    return clean(str(value), 400)


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
    (number, ("line", "bytes_read", "bytes_written", "flop", "requested_read", "requested_written")),
    (number, ("gbps", "utilization", "relative", "probe_gbps", "arithmetic_intensity", "ridge_point")),
    (number, ("seconds", "host_seconds", "noise", "median_precision", "warmup_seconds", "warmup_runs")),
    (numbers, ("samples", "probe_samples", "host_samples")),
    (mappings, ("dropped", "findings")),
    (mapping, ("probe", "conditions", "resources", "verdict", "baseline", "counts", "detail", "tags")),
)
_WHOLE = ("line", "bytes_read", "bytes_written", "flop", "requested_read", "requested_written", "warmup_runs")


def _read_outcome(result: object, where: str) -> Outcome:
    if not isinstance(result, Mapping):
        raise UsageError(f"{where} is a {type(result).__name__}, expected a mapping")
    try:
        from_plain(result)
    except UsageError as error:
        raise UsageError(f"{where}: {one_line(str(error), 200)}") from None
    known: dict[str, Any] = {}
    for read, names in _FIELDS:
        for name in names:
            value = read(result, name, where)
            if value is not None and name in result:
                known[name] = int(value) if name in _WHOLE else value
    # What is absent takes the row's own default; resources and baseline are absent, not empty.
    for name in ("resources", "baseline"):
        known[name] = known.get(name) or None
    return Outcome(**{"label": None, **known})


def _pairs(plain: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((_key(name), scalar_text(value)) for name, value in list(plain.items())[:100])


def _key(name: object) -> str:
    return clean(str(name), 100)


def _short(value: object) -> str:
    return "…" if isinstance(value, Mapping | list | tuple) else scalar_text(value)


def _positive(value: float | None) -> float | None:
    return value if value is not None and value > 0 else None


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xD800 <= code <= 0xDFFF:
        return "\N{REPLACEMENT CHARACTER}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _shown(value: object) -> str:
    return clean(repr(value)[:60])


def _wrong(where: str, name: str, value: object, expected: str) -> UsageError:
    place = f"{where}.{name}" if where else name
    return UsageError(f"{place} is {_shown(value)}, expected {expected}")
