"""Define the content of a baseline file: each field's name, how its text is read and written, and editors' checks.

`reader` and `runs` use these tables. ``baseline.schema.json`` and updates are written from them. Updates write one line
per field, and each value as a YAML scalar that all parsers read alike.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from math import log, sqrt
from typing import Any

from pytest_bandwidth.domain.baseline import SCHEMA, BaselineDevice, Entry
from pytest_bandwidth.domain.code.identity import DIGITS
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.measured.metrics import METRICS, value_of_run
from pytest_bandwidth.domain.statistics import median_known
from pytest_bandwidth.domain.text import INVISIBLE, shown
from pytest_bandwidth.domain.units import parse_count, parse_fraction, parse_gbps, parse_share
from pytest_bandwidth.judging.decide import COUNT_NAMES

_NUMBER = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?"
# Text without quotes: a subset of YAML's plain scalars on which block and flow context, YAML 1.1 and 1.2 agree.
# One blank or some colons only between two such characters, so neither ": " nor " #" can occur.
# Limited, because a regular expression stores every turn of a loop.
_WORD = re.compile(r"[A-Za-z0-9](?:(?: |:{1,4})?[\w./+@%()~^*=<>$;'-]){0,500}", re.ASCII)
_KEY = re.compile(r"[A-Za-z0-9_/.](?:(?: |:{1,4})?[\w./+@%()~^*=<>$;'&!?,\[\]-]){0,900}", re.ASCII)
# A plain key may take 1024 characters (YAML 1.2, 7.4.2); a longer one needs the "? key" form.
_MAX_SIMPLE_KEY = 1000


@dataclass(frozen=True, slots=True)
class Form:
    """Define how one kind of value is read and written. schema: the same for editors, as JSON Schema.

    name: of its definition there. read: raises ValueError, which names the found and the expected value.
    """

    name: str
    read: Callable[[str], Any]
    write: Callable[[Any], str]
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Field:
    """Describe a field. names: the names that a mapping may have, empty for any names; None for a single value.

    of: returns an entry's value of the field, or None; by default the attribute of the field's name.
    recorded: the runs file has it for an entry with runs, and people may write it.
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
    """Return a text of one line without blanks around it. Raises ValueError for several lines, or an empty text."""
    line = _text(text)
    if len(line.splitlines()) > 1:
        raise ValueError(f"found {shown(line)}, expected text of one line")
    return line


def _matched(name: str, pattern: str, expected: str, *others: Mapping[str, Any]) -> Form:
    """Return the form of text that matches a pattern. others: schemas of values that editors do not read as text."""
    form = re.compile(pattern, re.ASCII)

    def read(text: str) -> str:
        if form.fullmatch(text) is None:
            raise ValueError(f"found {shown(text)}, expected {expected}")
        return text

    texts = {"type": "string", "pattern": f"^({pattern})$"}
    return Form(name, read, str, {"oneOf": [texts, *others]} if others else texts)


@lru_cache(maxsize=4096)
def word(text: str) -> str:
    """Render text as a scalar. Raises UsageError for text that no baseline may hold."""
    return text if _WORD.fullmatch(text) else _quoted(text)


def flow(fields: Mapping[str, str]) -> str:
    """Render a mapping of YAML texts on one line."""
    return "{" + ", ".join(f"{word(name)}: {text}" for name, text in fields.items()) + "}"


def refuse_invisible(text: str) -> None:
    """Raise UsageError for text that no baseline may hold."""
    if match := INVISIBLE.search(text):
        raise UsageError(
            f"found the character U+{ord(match[0]):04X} in {shown(text)}, expected visible text in a baseline"
        )


def _quoted(text: str) -> str:
    refuse_invisible(text)
    return json.dumps(text, ensure_ascii=False)  # YAML reads JSON's texts, with the same escapes


SINGLE = {"$ref": "#/definitions/single"}
_LINE = {"allOf": [SINGLE], "pattern": r"^\s*[^\n]*\s*$"}
_PERCENTAGE = {"type": "string", "pattern": rf"^\s*[+-]?{_NUMBER}\s*%\s*$"}
_BELOW_ONE = [
    _PERCENTAGE,
    {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
    {"type": "string", "pattern": r"^\s*[+-]?(0+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?\s*$"},
]
LINE = Form("line", line_of, word, _LINE)
TEXT = Form("text", _text, word, SINGLE)
BANDWIDTH = Form(
    "bandwidth",
    parse_gbps,
    lambda gbps: f"{figure(gbps)} GB/s",
    {
        "oneOf": [
            {"type": "number", "exclusiveMinimum": 0, "maximum": 1e9},
            {"type": "string", "pattern": rf"^\s*\+?{_NUMBER}\s*((MB|GB|TB|MiB|GiB|TiB)/s)?\s*$"},
        ]
    },
)
# A file has few different texts of this form, many times.
SHARE = Form("fraction", lru_cache(4096)(parse_share), lambda share: percent(share, 3), {"oneOf": _BELOW_ONE})
FRACTION = Form("fraction", parse_fraction, percent, {"oneOf": _BELOW_ONE})
COUNT = Form(
    "count",
    lru_cache(4096)(parse_count),
    str,
    {
        "oneOf": [
            {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
            {"type": "string", "pattern": "^[0-9]{1,19}$"},
        ]
    },
)
HASH = _matched("hash", f"[0-9a-f]{{{DIGITS}}}", f"a hash of {DIGITS} digits 0-9a-f", {"type": "number"})
EVIDENCE = _matched(
    "evidence",
    r"[0-9]{1,9}( ?± ?[0-9]{1,9}(\.[0-9]{1,9})? ?%)?",
    "the number of runs, such as 5 ± 0.12 %, as updates write it",
    {"type": "integer", "minimum": 0},
)
METRIC = _matched("metric", "|".join(METRICS), " or ".join(METRICS))
KIND = _matched("kind", "[a-z][a-z0-9_-]{0,31}", "a kind of device, such as cuda or cpu")


def is_measured(entry: Entry) -> bool:
    """Return whether an update wrote the entry, so that a file of runs holds more of it."""
    return bool(entry.runs or entry.code)


def _bytes(entry: Entry) -> dict[str, int] | None:
    found = {"read": entry.bytes_read, "written": entry.bytes_written}
    return {name: count for name, count in found.items() if count is not None} or None


def _runs(entry: Entry) -> str | None:
    """Return the number of runs, and the standard deviation between them of the figure that is judged."""
    logs = [log(value) for run in entry.runs if (value := value_of_run(run, entry.judged_on or "gbps")) is not None]
    if len(logs) > 1:
        # Not `statistics.stdev`: it computes in fractions, which is slow for 10,000 entries.
        mean = sum(logs) / len(logs)
        spread = sqrt(sum([(value - mean) ** 2 for value in logs]) / (len(logs) - 1))
        return f"{len(entry.runs)} ± {percent(spread if spread > 1e-6 else 0.0, 2)}"
    return str(len(entry.runs) or 1) if is_measured(entry) else None


DEVICE_FIELDS: Mapping[str, Field] = {
    "name": Field(LINE, "As the run's header shows it."),
    "memory_gib": Field(COUNT, "Memory in GiB, rounded."),
    "kind": Field(KIND, "As --bandwidth-device names it."),
    "peak": Field(BANDWIDTH, "Peak bandwidth, set by the file's owner."),
}
# In the order in which updates write them.
ENTRY_FIELDS: Mapping[str, Field] = {
    "bandwidth": Field(
        BANDWIDTH, "Achieved bandwidth, the median of the runs; GB/s without a unit.", of=lambda e: e.gbps
    ),
    "of_peak": Field(SHARE, "Bandwidth ÷ the device's peak.", of=lambda e: e.utilization),
    "of_probe": Field(
        SHARE, "Bandwidth ÷ the probe's, the median of the runs.", of=lambda e: median_known(r.relative for r in e.runs)
    ),
    "bytes": Field(COUNT, "What one run of the kernel moves.", frozenset({"read", "written"}), of=_bytes),
    "counts": Field(COUNT, "What the traffic device counted, by name.", COUNT_NAMES),
    "runs": Field(EVIDENCE, "Processes that count, and their spread; NAME.runs.jsonl has their figures.", of=_runs),
    "tolerance": Field(FRACTION, "Smallest slowdown that must be caught."),
    "xfail": Field(LINE, "Why this test is expected to fail."),
    "note": Field(TEXT, "A remark."),
    "judged_on": Field(METRIC, "The figure that verdicts compare.", recorded=True),
    "method": Field(LINE, "How time was taken.", recorded=True),
    "resources": Field(COUNT, "The compiler's and the launch's numbers.", frozenset(), recorded=True),
    "settings": Field(LINE, "What makes figures incomparable.", frozenset(), recorded=True),
    "code": Field(HASH, "Hashes of the code that ran.", frozenset(), recorded=True),
}
RECORDED = tuple(name for name, one in ENTRY_FIELDS.items() if one.recorded)
HEADER_KEYS = ("schema", "device", "tolerance", "tests")


def render_header(device: BaselineDevice) -> str:
    """Render the lines before the first entry."""
    return f"schema: {SCHEMA}\n{render_device(device)}tests:\n"


def render_device(device: BaselineDevice) -> str:
    """Render the device's line."""
    values = {"name": device.name, "memory_gib": device.memory_gib, "kind": device.kind, "peak": device.peak_gbps}
    texts = {name: DEVICE_FIELDS[name].text(value) for name, value in values.items() if value is not None}
    return f"device: {flow(texts)}\n"


def render_entry(entry: Entry, written: Collection[str] = (), indent: int = 2) -> str:
    """Render an entry's lines, without settling it (`domain.baseline.settled`)."""
    blanks = " " * indent
    key = entry.key if _KEY.fullmatch(entry.key) else _quoted(entry.key)
    first = f"{blanks}{key}:\n" if len(key) <= _MAX_SIMPLE_KEY else f"{blanks}? {key}\n{blanks}:\n"
    fields = entry_fields(entry, written).items()
    return first + "".join(f"{blanks}  {word(name)}: {text}\n" for name, text in fields)


def entry_fields(entry: Entry, written: Collection[str] = ()) -> dict[str, str]:
    """Return the fields by name, each value as YAML text that fits one line, in the order of the schema.

    A measured entry's fields in the runs' file are left out, except those that people have written.
    """
    measured = is_measured(entry)
    texts: dict[str, str] = {}
    for name, one in ENTRY_FIELDS.items():
        if measured and one.recorded and name not in written:
            continue
        value = getattr(entry, name) if one.of is None else one.of(entry)
        if value is not None and value != {}:
            texts[name] = one.text(value)
    return texts | {name: word(text) for name, text in entry.extra.items()}
