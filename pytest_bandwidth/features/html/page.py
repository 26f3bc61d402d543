"""Write the HTML summary: one self-contained file that needs no network and trusts nothing in the document.

`reports.pages` describes how hostile content is kept from running.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_bandwidth.domain.text import short_commit
from pytest_bandwidth.features.html.charts import token_specs
from pytest_bandwidth.features.html.details import detail_of
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.outcomes.run_findings import DEVICE_LOSS
from pytest_bandwidth.reports.columns import Column, columns
from pytest_bandwidth.reports.pages import DARK, LIGHT, MISSING, Templates, charts_available, javascript_bundle
from pytest_bandwidth.reports.summary import Severity, attention_key, severity_in, summary_of_run
from pytest_bandwidth.reports.text_safe import clean, key_text, one_line, prose, scalar_text
from pytest_bandwidth.reports.wording import message_lines
from pytest_bandwidth.storage.saved_run import RunDevice, RunDocument, read_document

FAILURES_LISTED = 12
PAIRS_AT_MOST = 100
_TEMPLATES = Templates("pytest_bandwidth.features.html")
NAME_AT_MOST = 160
TEXT_AT_MOST = 80
# The largest number by which the page's script can sort.
LARGEST = 1e18
# Column widths in rem: of a character, of the margin, and of the bar or axis next to a cell's text.
_CHARACTER, _MARGIN, _DRAWING = 0.5, 0.6, {"share": 4.0, "change": 4.9}
_WIDEST = 15.0


def render_html(document: Mapping[str, Any]) -> str:
    """Return the page of a run document. Raises UsageError where the document is not one (see `read_document`)."""
    run = read_document(document)
    specs, library = (token_specs(run), javascript_bundle()) if charts_available() and run.outcomes else ({}, "")
    table, summary, device = table_of(run), summary_of_run(run), run.device
    memory = f"{device.memory_gib:.0f} GiB" if device.memory_gib is not None else ""
    facts = [one_line(device.name, 120), memory, "" if device.timed_on == "nothing" else _peak_words(device)]
    if commit := run.environment.get("commit"):
        facts.append(f"commit {one_line(short_commit(scalar_text(commit)), 48)}")
    facts.append(one_line(scalar_text(run.environment.get("started_at") or ""), 48))
    facts.append(f"against {one_line(run.baseline_path, 120)}" if run.baseline_path else "no baseline")
    return _TEMPLATES.page(
        "report.html.j2",
        columns=table.columns,
        script="report.js",
        library=library,
        data=_page_data(run, table, specs),
        title=f"{summary.sentence} · {one_line(device.name, 60)}",
        summary=summary,
        subtitle=[fact for fact in facts if fact],
        findings=[(clean(note.code, 80), prose(note.text)) for note in run.findings],
        notable=(DEVICE_LOSS,),
        failures=_failures(run, table),
        failures_listed=FAILURES_LISTED,
        table=table,
        rows=_TEMPLATES.render("rows.html.j2", table=table),
        charts=list(specs),
        charts_missing=None if charts_available() else MISSING,
        environment=_environment(run),
    )


def _failures(run: RunDocument, table: Table) -> list[tuple[Row, str, str]]:
    """Return failed results with the first line of their messages, and the other lines."""
    found = []
    for row in table.rows:
        if row.severity == "bad":
            first, *others = message_lines(run.outcomes[row.index])
            # The page shows the status before it.
            title = prose(first.removeprefix(f"{row.status}: "))
            found.append((row, title, prose("\n".join(line.removeprefix("    ") for line in others))))
    return found


def _peak_words(device: RunDevice) -> str:
    if device.peak_gbps is None:
        return "peak unknown"
    source = one_line(device.peak_source, 120)
    return f"peak {device.peak_gbps:.0f} GB/s ({source})" if source else f"peak {device.peak_gbps:.0f} GB/s"


def _environment(run: RunDocument) -> list[tuple[str, list[tuple[str, str]]]]:
    device = run.device
    own = [("kind", clean(device.kind, 100)), ("name", clean(device.name, 400)), ("serial", clean(device.serial, 400))]
    own += [("memory", f"{device.memory_gib:.0f} GiB")] if device.memory_gib is not None else []
    own += [("peak", _peak_words(device).removeprefix("peak "))]
    groups = [
        ("Device", [*own, *_pairs(device.settings), *_pairs(device.facts)]),
        ("Run", [("run id", clean(run.run_id, 200)), *_pairs(run.environment)]),
        ("Settings", _pairs({name: value for name, value in run.settings.items() if value not in (None, False)})),
    ]
    return [
        (title, [(name.replace("_", " "), value) for name, value in pairs if value]) for title, pairs in groups if pairs
    ]


def _pairs(plain: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(key_text(name), scalar_text(value)) for name, value in list(plain.items())[:PAIRS_AT_MOST]]


def _page_data(run: RunDocument, table: Table, specs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data for the page's script; rows in the table's order."""
    facts = columns("details")
    position = {row.index: place for place, row in enumerate(table.rows)}
    return {
        "panels": [detail_of(run.outcomes[row.index], facts) for row in table.rows],
        "sort": {column.key: [row.cells[i].sort for row in table.rows] for i, column in enumerate(table.columns)},
        "rowOf": [position[index] for index in range(len(run.outcomes))] if specs else [],
        "charts": specs,
        "palettes": {"light": LIGHT, "dark": DARK},
    }


# ---- the table: its columns, and each result as a row of finished text -----------------------------------------------


@dataclass(frozen=True, slots=True)
class Cell:
    """Hold a cell. text: as shown; sort: the number to sort by, None for text; mark: where the bar or axis is marked.

    For a share, mark is the filled part of the bar, 0 … 1. For a change it is a place on an axis, 0 … 1, whose middle
    third is the tolerance.
    """

    text: str
    sort: float | None = None
    mark: float | None = None


NOTHING = Cell("–")


@dataclass(frozen=True, slots=True)
class Head:
    """Hold a column's head. key: name in the page's data; hint: what the figure means; kind: of the drawing."""

    key: str
    title: str
    hint: str
    kind: str
    width: str


@dataclass(frozen=True, slots=True)
class Row:
    """Hold one result. index: its place in the document; anchor: the element's id, alike in every run of the test."""

    index: int
    anchor: str
    status: str
    severity: Severity
    name: str
    place: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Hold rows in order of attention, and the columns that are not empty."""

    columns: tuple[Head, ...]
    rows: tuple[Row, ...]


def table_of(run: RunDocument) -> Table:
    """Return the table of a run."""
    found = ((column, [_cell(column, outcome) for outcome in run.outcomes]) for column in columns("html"))
    filled = [(column, cells) for column, cells in found if any(cell != NOTHING for cell in cells)]
    rows: list[Row] = []
    met: dict[str, int] = {}
    for index, outcome in enumerate(run.outcomes):
        digest = hashlib.sha256(outcome.key.encode("utf-8", "replace")).hexdigest()[:10]
        met[digest] = times = met.get(digest, 0) + 1
        anchor = f"t-{digest}" if times == 1 else f"t-{digest}-{times}"
        place, _, test = outcome.nodeid.partition("::")
        place, test = (place, test) if test else ("", outcome.nodeid)
        name = one_line(f"{test} @ {outcome.label}" if outcome.label else test, NAME_AT_MOST) or "(unnamed)"
        severity = severity_in(outcome, strict=run.strict)
        of_row = tuple(cells[index] for _, cells in filled)
        rows.append(Row(index, anchor, outcome.status, severity, name, one_line(place, NAME_AT_MOST), of_row))
    rows.sort(key=lambda row: attention_key(run.outcomes[row.index], strict=run.strict))
    heads = []
    for column, cells in filled:
        kind = "plain" if column.bar is None else column.bar.kind
        longest = max(len(column.heading), *(len(cell.text) for cell in cells))
        width = min(longest * _CHARACTER + _MARGIN, _WIDEST) + _DRAWING.get(kind, 0.0)
        heads.append(Head(column.key, one_line(column.heading, TEXT_AT_MOST), column.hint, kind, f"{width:.1f}rem"))
    return Table(tuple(heads), tuple(rows))


def _cell(column: Column, outcome: Outcome) -> Cell:
    value = column.value(outcome)
    if value is None or value == "":
        return NOTHING
    sort = value if column.sort is None else column.sort(outcome)
    number = float(max(-LARGEST, min(LARGEST, sort))) if isinstance(sort, int | float) else None
    mark = None if column.bar is None else column.bar.of(outcome)
    shown = one_line(column.text(value), TEXT_AT_MOST)
    return Cell(shown, number, None if mark is None else max(0.0, min(1.0, mark)))
