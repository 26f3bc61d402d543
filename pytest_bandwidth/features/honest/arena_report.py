"""Show an arena's rows: a table with a line for each finding, or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from statistics import geometric_mean
from typing import Any

from pytest_bandwidth.cli.output import SCHEMA, device_words, terminal_width
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.measured.measurement import CONFIDENCE
from pytest_bandwidth.domain.units import format_percent
from pytest_bandwidth.features.honest.arena_rounds import Row
from pytest_bandwidth.reports.tables import aligned
from pytest_bandwidth.reports.text_safe import printable_sentence
from pytest_bandwidth.storage.atomic import FileForm

FORM = FileForm((".json",), r'\{\s*"schema": \d+,\s*"reference":')
_UNKNOWN = "–"
_WORDS = {True: "yes", False: "no", None: _UNKNOWN}


def document_of(reference: str, device: DeviceIdentity, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the document: candidates with their whole result, and a row for each case of each."""
    names = dict.fromkeys(row.candidate for row in rows)
    return {
        "reference": reference,
        "device": {"kind": device.kind, "name": device.name},
        "confidence": CONFIDENCE,
        "candidates": [_whole(name, [row for row in rows if row.candidate == name]) for name in names],
        "rows": [asdict(row) for row in rows],
    }


def _whole(name: str, rows: Sequence[Row]) -> dict[str, Any]:
    known = [row.speed_up for row in rows if row.speed_up is not None]
    is_fine = all(row.is_fine for row in rows)
    return {
        "candidate": name,
        "correct": all(row.correct is True for row in rows),
        "honest": all(row.honest is True for row in rows),
        "speed_up": geometric_mean(known) if is_fine and len(known) == len(rows) else None,
    }


def text_of(document: Mapping[str, Any]) -> str:
    """Return the document as a file holds it."""
    return json.dumps({"schema": SCHEMA, **document}, indent=1, allow_nan=False) + "\n"


def lines_of(reference: str, device: DeviceIdentity, rows: Sequence[Row]) -> list[str]:
    """Return a table of the rows, then a line for each finding and for each candidate."""
    headings = ["candidate", "case", "correct", "honest", "speed-up", "interval", "of light", "findings"]
    cells = [
        [
            row.candidate,
            row.case,
            _WORDS[row.correct],
            _WORDS[row.honest],
            _UNKNOWN if row.speed_up is None else f"{row.speed_up:.3g}×",
            _UNKNOWN if row.low is None or row.high is None else f"{row.low:.3g} to {row.high:.3g}",
            "" if row.sol is None else format_percent(row.sol),
            ", ".join(finding.code for finding in row.findings),
        ]
        for row in rows
    ]
    about = printable_sentence(f"reference {reference} on {', '.join(device_words(device.name, None, None))}")
    table = aligned(headings, cells, left=headings, width=terminal_width())
    return [about, *table, *map(printable_sentence, _sentences(rows)), *map(printable_sentence, _results(rows))]


def _sentences(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        for finding in row.findings:
            yield f"{row.candidate} {row.case}: {finding.code} ({finding.level}): {finding.text}"


def _results(rows: Sequence[Row]) -> Iterator[str]:
    for name in dict.fromkeys(row.candidate for row in rows):
        whole = _whole(name, [row for row in rows if row.candidate == name])
        said = "correct and honest" if whole["correct"] and whole["honest"] else "not correct and honest"
        speed_up = whole["speed_up"]
        yield f"{name}: {said}{'' if speed_up is None else f', {speed_up:.3g}× as fast'}"
