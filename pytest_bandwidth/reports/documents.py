"""Write a run for programs: the JSON document (docs/json.md), and a CSV table with a line for each result."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.reports.columns import PRECISIONS, Column, Value, columns, precision_of
from pytest_bandwidth.reports.text_safe import clean, printable_sentence
from pytest_bandwidth.storage.saved_run import SCHEMA

# The first columns, in this order: other tools read this benchmark table.
FIRST = ("operation", "precision", "M", "N", "K", "time_ms", "bandwidth_gb_s", "bytes_read", "bytes_written")
# A spreadsheet reads these, after any white space, as the start of a formula (OWASP, CSV Injection).
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_SPACE = ("\t", "\n")
_PRECISION = re.compile(rf"(?<![A-Za-z0-9])({'|'.join(PRECISIONS)})(?![A-Za-z0-9])")
# Two results move equally many bytes if these differ by no more than this share.
_BYTES_ALIKE = 0.01


def render_csv(outcomes: Iterable[Outcome]) -> str:
    """Render a header and a line for each result: milliseconds, GB/s, bytes, fractions; empty cells without a figure.

    Every cell is quoted, so that a spreadsheet with another separator does not split texts.
    The FP16 half of a pair has both its ratios to the FP32 half.
    """
    rows = list(outcomes)
    ratios = _fp16_over_fp32(rows)
    of_pairs = (
        Column("fp16_over_fp32_gb_s", "", lambda outcome: ratios.get(id(outcome), (None, None))[0]),
        Column("fp16_over_fp32_time", "", lambda outcome: ratios.get(id(outcome), (None, None))[1]),
    )
    kept = sorted((*columns("csv"), *of_pairs), key=lambda c: FIRST.index(c.key) if c.key in FIRST else len(FIRST))
    lines = ([written(column.value(outcome)) for column in kept] for outcome in rows)
    return csv_text([[line_of(column.key) for column in kept], *lines])


def _fp16_over_fp32(outcomes: Iterable[Outcome]) -> dict[int, tuple[float | None, float | None]]:
    """Return the ratios of GB/s and of times, by the id of a pair's FP16 half.

    A pair has one shape, else one operation and as many bytes: then the times are of different work, without a ratio.
    """
    known = [outcome for outcome in outcomes if outcome.gbps]
    same = _pairs(known, lambda o: _tags(o, object) if "operation" in o.tags else (_PRECISION.sub("*", o.key),))
    taken = {id(half) for pair in same for half in pair}
    rest = [o for o in known if id(o) not in taken and isinstance(o.tags.get("operation"), str)]
    of_operation = _pairs(rest, lambda o: _tags(o, str))
    return {
        **{id(fp16): (_ratio(fp16.gbps, fp32.gbps), _ratio(fp16.seconds, fp32.seconds)) for fp32, fp16 in same},
        **{
            id(fp16): (_ratio(fp16.gbps, fp32.gbps), None)
            for fp32, fp16 in of_operation
            if abs(fp32.bytes_moved - fp16.bytes_moved) <= _BYTES_ALIKE * fp32.bytes_moved
        },
    }


def _tags(outcome: Outcome, kind: type) -> tuple[str, ...]:
    return tuple(sorted(f"{k}={v}" for k, v in outcome.tags.items() if k != "precision" and isinstance(v, kind)))


def _pairs(outcomes: Iterable[Outcome], work: Callable[[Outcome], tuple[str, ...]]) -> list[tuple[Outcome, Outcome]]:
    """Return (FP32, FP16) of each work that has exactly one of each."""
    groups: dict[tuple[str, ...], dict[str | None, list[Outcome]]] = {}
    for outcome in outcomes:
        groups.setdefault(work(outcome), {}).setdefault(precision_of(outcome), []).append(outcome)
    halves = [(group.get("fp32", ()), group.get("fp16", ())) for group in groups.values()]
    return [(fp32[0], fp16[0]) for fp32, fp16 in halves if len(fp32) == len(fp16) == 1]


def _ratio(figure: float | None, reference: float | None) -> float | None:
    return figure / reference if figure and reference else None


def csv_text(rows: Iterable[Sequence[str | int]]) -> str:
    """Write cells as CSV, every one quoted."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    return buffer.getvalue()


def line_of(cell: Value) -> str | int:
    """Return a cell for another program or a CI log: as `written`, on one line."""
    return written(printable_sentence(cell) if isinstance(cell, str) else cell)


def written(cell: Value) -> str | int:
    """Return a cell that is safe in a spreadsheet, which would read some texts as formulas."""
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.9g}"
    if isinstance(cell, int):
        return cell
    shown = clean(str(cell))
    return f"'{shown}" if shown.startswith(_SPACE) or shown.lstrip().startswith(_FORMULA) else shown


def document(
    run_id: str,
    environment: Mapping[str, Any],
    device: Mapping[str, Any],
    settings: Mapping[str, Any],
    outcomes: Sequence[Outcome],
    baseline_path: str | None,
    findings: Sequence[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """Return the run as one JSON-ready mapping. `results` is sorted by key, so that equal runs give equal text."""
    return {
        "schema": SCHEMA,
        "run_id": run_id,
        "environment": dict(environment),
        "device": dict(device),
        "settings": dict(settings),
        "baseline_path": baseline_path,
        "findings": [dict(f) for f in findings],
        "results": [o.to_plain() for o in sorted(outcomes, key=lambda o: (o.key, o.nodeid))],
    }


def render_json(document: Mapping[str, Any]) -> str:
    """Return strict JSON text (no NaN) that UTF-8 can hold, characters kept, keys in the document's order."""
    text = json.dumps(_finite(document), ensure_ascii=False, allow_nan=False, indent=1) + "\n"
    # A lone surrogate, as in a file name that is not UTF-8: Python's escape for it is also JSON's.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _finite(value: Any) -> Any:
    """Replace NaN and infinities, which JSON lacks, by null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return value
