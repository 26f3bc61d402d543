"""Say once what a baseline file may hold: each field's name, how its text is read and written, what editors check.

`reader`, `writer` and `runs` go by these tables, and ``baseline.schema.json`` is written from them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from functools import lru_cache
from math import log, sqrt
from typing import Any

from pytest_bandwidth.baseline.plain_text import flow, word
from pytest_bandwidth.domain.baseline import SCHEMA, Entry
from pytest_bandwidth.domain.code.identity import DIGITS, is_digest
from pytest_bandwidth.domain.measured.metrics import value_of_run
from pytest_bandwidth.domain.statistics import median_known
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.domain.units import parse_count, parse_fraction, parse_gbps, parse_share
from pytest_bandwidth.judging.counts import COUNT_NAMES

_KIND = re.compile(r"[a-z][a-z0-9_-]{0,31}", re.ASCII)
_METRICS = ("relative", "gbps")
_EVIDENCE = re.compile(r"[0-9]{1,9}( ?± ?[0-9]{1,9}(\.[0-9]{1,9})? ?%)?")
_NUMBER = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?"


@dataclass(frozen=True, slots=True)
class Form:
    """Say how one kind of value is read and written. schema: the same for editors, as JSON Schema.

    read: raises ValueError with what was found and expected.
    """

    read: Callable[[str], Any]
    write: Callable[[Any], str]
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Field:
    """Describe a field. names: it is a mapping; which names it has, none for any.

    of: returns the field's value of an entry, None where it has none. recorded: the runs file has it of an entry with
    runs, and people may write it.
    """

    form: Form
    about: str
    names: frozenset[str] | None = None
    of: Callable[[Entry], Any] | None = None
    recorded: bool = False

    def text(self, value: Any) -> str:
        """Return a value as YAML text that fits one line."""
        if self.names is None:
            return self.form.write(value)
        return flow({name: self.form.write(one) for name, one in value.items()})


def suggestion(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that an unknown one was probably meant to be, None where it resembles none."""
    close = get_close_matches(name[:40].lower(), list(known), 1, 0.8)
    return close[0] if close else None


def figure(value: float) -> str:
    """Render six significant digits (noise is a thousand times that), a decimal point, no exponent: 0.996066."""
    text = f"{value:.6g}"
    if "e" not in text:
        return text if "." in text else f"{text}.0"
    if not 1e-9 <= value < 1e12:
        return f"{value:.5e}"
    whole, _, decimals = format(Decimal(f"{value:.5e}"), "f").partition(".")
    return f"{whole}.{decimals.rstrip('0') or '0'}"


def percent(fraction: float, significant: int = 6) -> str:
    """Render a fraction as a percentage, trailing zeros cut: 5 %, 85.7 %, 0.25 %."""
    if fraction < 1e-8:
        return f"{fraction * 100:.{significant - 1}e} %" if fraction else "0 %"
    text = format(Decimal(f"{fraction * 100:.{significant - 1}e}"), "f")
    return (text.rstrip("0").rstrip(".") if "." in text else text) + " %"


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("found nothing, expected some text or no such key")
    return text.strip()


def line_of(text: str) -> str:
    """Return the words of a text of one line, without blanks around them. Raises ValueError where it has others."""
    line = _text(text)
    if len(line.splitlines()) > 1:
        raise ValueError(f"found {shown(line)}, expected text of one line")
    return line


def _metric(text: str) -> str:
    if text not in _METRICS:
        raise ValueError(f"found {shown(text)}, expected relative or gbps")
    return text


def _kind(text: str) -> str:
    if _KIND.fullmatch(text) is None:
        raise ValueError(f"found {shown(text)}, expected a kind of device, such as cuda or cpu")
    return text


def _hash(text: str) -> str:
    if not is_digest(text):
        raise ValueError(f"found {shown(text)}, expected a hash of {DIGITS} digits 0-9a-f")
    return text


def _evidence(text: str) -> str:
    if not _EVIDENCE.fullmatch(text):
        raise ValueError(f"found {shown(text)}, expected the number of runs, such as 5 ± 0.12 %, as updates write it")
    return text


_SINGLE = {"type": ["string", "number", "boolean", "null"]}
_LINE = _SINGLE | {"pattern": r"^\s*[^\n]*\s*$"}
_PERCENTAGE = {"type": "string", "pattern": rf"^\s*[+-]?{_NUMBER}\s*%\s*$"}
_BELOW_ONE = [
    _PERCENTAGE,
    {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
    {"type": "string", "pattern": r"^\s*[+-]?(0+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?\s*$"},
]
LINE = Form(line_of, word, _LINE)
TEXT = Form(_text, word, _SINGLE)
BANDWIDTH = Form(
    parse_gbps,
    lambda gbps: f"{figure(gbps)} GB/s",
    {
        "oneOf": [
            {"type": "number", "exclusiveMinimum": 0, "maximum": 1e9},
            {"type": "string", "pattern": rf"^\s*\+?{_NUMBER}\s*((MB|GB|TB|MiB|GiB|TiB)/s)?\s*$"},
        ]
    },
)
# A file repeats few of these texts.
SHARE = Form(lru_cache(4096)(parse_share), lambda share: percent(share, 3), {"oneOf": _BELOW_ONE})
FRACTION = Form(parse_fraction, percent, {"oneOf": _BELOW_ONE})
COUNT = Form(
    lru_cache(4096)(parse_count),
    str,
    {
        "oneOf": [
            {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
            {"type": "string", "pattern": "^[0-9]{1,19}$"},
        ]
    },
)
HASH = Form(_hash, str, {"oneOf": [{"type": "string", "pattern": f"^[0-9a-f]{{{DIGITS}}}$"}, {"type": "number"}]})
EVIDENCE = Form(
    _evidence,
    str,
    {"oneOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": f"^{_EVIDENCE.pattern}$"}]},
)
METRIC = Form(_metric, word, {"enum": list(_METRICS)})
KIND = Form(_kind, word, {"type": "string", "pattern": f"^{_KIND.pattern}$"})


def is_measured(entry: Entry) -> bool:
    """Return whether a file of runs holds more of the entry, which an update wrote."""
    return bool(entry.runs or entry.code)


def _of_probe(entry: Entry) -> float | None:
    return median_known(run.relative for run in entry.runs)


def _bytes(entry: Entry) -> dict[str, int] | None:
    found = {"read": entry.bytes_read, "written": entry.bytes_written}
    return {name: count for name, count in found.items() if count is not None} or None


def _runs(entry: Entry) -> str | None:
    """Count the runs, and say how far the figure that is judged scatters between them (standard deviation)."""
    logs = [log(value) for run in entry.runs if (value := value_of_run(run, entry.judged_on or "gbps")) is not None]
    if len(logs) > 1:
        # Not `statistics.stdev`: it computes in fractions, which 10,000 entries feel.
        mean = sum(logs) / len(logs)
        spread = sqrt(sum([(value - mean) ** 2 for value in logs]) / (len(logs) - 1))
        return f"{len(entry.runs)} ± {percent(spread if spread > 1e-6 else 0.0, 2)}"
    return str(len(entry.runs) or 1) if is_measured(entry) else None


DEVICE_FIELDS: Mapping[str, Field] = {
    "name": Field(LINE, "As the run's header shows it."),
    "memory_gib": Field(COUNT, "Memory in GiB, rounded."),
    "kind": Field(KIND, "As --bandwidth-device names it."),
    "peak": Field(BANDWIDTH, "Peak bandwidth that the file's owner vouches for."),
}
# In the order in which updates write them.
ENTRY_FIELDS: Mapping[str, Field] = {
    "bandwidth": Field(
        BANDWIDTH, "Achieved bandwidth, the median of the runs; GB/s without a unit.", of=lambda e: e.gbps
    ),
    "of_peak": Field(SHARE, "Bandwidth ÷ the device's peak.", of=lambda e: e.utilization),
    "of_probe": Field(SHARE, "Bandwidth ÷ the probe's, the median of the runs.", of=_of_probe),
    "bytes": Field(COUNT, "What one run of the kernel moves.", frozenset({"read", "written"}), of=_bytes),
    "counts": Field(COUNT, "What the traffic device counted, by name.", COUNT_NAMES, of=lambda e: e.counts),
    "runs": Field(EVIDENCE, "Processes that count, and their spread; NAME.runs.jsonl holds them.", of=_runs),
    "tolerance": Field(FRACTION, "Smallest slowdown that must be caught.", of=lambda e: e.tolerance),
    "xfail": Field(LINE, "Why this test is expected to fail.", of=lambda e: e.xfail),
    "note": Field(TEXT, "A remark.", of=lambda e: e.note),
    "judged_on": Field(METRIC, "The figure that verdicts compare.", of=lambda e: e.judged_on, recorded=True),
    "method": Field(LINE, "How time was taken.", of=lambda e: e.method, recorded=True),
    "resources": Field(
        COUNT, "The compiler's and the launch's numbers.", frozenset(), of=lambda e: e.resources, recorded=True
    ),
    "settings": Field(LINE, "What makes figures incomparable.", frozenset(), of=lambda e: e.settings, recorded=True),
    "code": Field(HASH, "Hashes of the code that ran.", frozenset(), of=lambda e: e.code, recorded=True),
}
RECORDED = tuple(name for name, one in ENTRY_FIELDS.items() if one.recorded)
HEADER_KEYS = ("schema", "device", "tolerance", "tests")


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema by which editors complete and check a file."""

    def of(fields: Mapping[str, Field]) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": _SINGLE, "properties": {n: _of(f) for n, f in fields.items()}}

    device = {"description": "The device that the figures are of.", **of(DEVICE_FIELDS), "required": ["name"]}
    # `runs` alone may be valid: the bandwidth then comes from the runs file, which an editor does not read.
    some_counts = {"required": ["counts"], "properties": {"counts": {"minProperties": 1}}}
    entry = {**of(ENTRY_FIELDS), "anyOf": [{"required": ["bandwidth"]}, {"required": ["runs"]}, some_counts]}
    tests = {"type": "object", "propertyNames": {"pattern": r"^\S(.*\S)?$"}, "additionalProperties": entry}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "pytest-bandwidth baseline",
        "description": "What earlier runs of each bandwidth test showed on one device.",
        "type": "object",
        "required": ["schema"],
        "additionalProperties": _SINGLE,
        "properties": {
            "schema": {"description": "Version of this layout.", "enum": [SCHEMA, str(SCHEMA)]},
            "device": device,
            "tolerance": {"description": "Tolerance of tests that give none.", **FRACTION.schema},
            "tests": {
                "description": "By node id, then ' @ label' where a test measures several things.",
                "oneOf": [tests, {"enum": [None, ""]}],
            },
        },
    }


def _of(one: Field) -> dict[str, Any]:
    if one.names is None:
        return {"description": one.about, **one.form.schema}
    return {"description": one.about, "type": "object", "additionalProperties": dict(one.form.schema)}
