"""Lay out the table of the HTML summary: its columns, and each result as a row of finished text."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.reports.columns import Column, columns
from pytest_bandwidth.reports.summary import Severity, attention_key, severity_in
from pytest_bandwidth.reports.text_safe import one_line
from pytest_bandwidth.storage.saved_run import RunDocument

NAME_AT_MOST = 160
TEXT_AT_MOST = 80
# What the page's script can sort by.
LARGEST = 1e18
# In rem: what a character takes, what is added, and what a drawing takes beside its text.
_CHARACTER, _MARGIN, _DRAWING = 0.5, 0.6, {"share": 4.0, "change": 4.9}
_WIDEST = 15.0


@dataclass(frozen=True, slots=True)
class Cell:
    """Hold a cell. text: as shown; sort: its number, None where there is none; mark: of the little drawing.

    mark of a share: 0 … 1 of the bar; of a change: 0 … 1 of an axis whose middle third is what is allowed.
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
    """Hold rows in order of attention, and the columns that hold anything at all."""

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
        met[digest] = count = met.get(digest, 0) + 1
        anchor = f"t-{digest}" if count == 1 else f"t-{digest}-{count}"
        place, _, test = outcome.nodeid.partition("::")
        place, test = (place, test) if test else ("", outcome.nodeid)
        name = one_line(f"{test} @ {outcome.label}" if outcome.label else test, NAME_AT_MOST) or "(unnamed)"
        severity = severity_in(outcome, strict=run.strict)
        of_row = tuple(cells[index] for _, cells in filled)
        rows.append(Row(index, anchor, outcome.status, severity, name, one_line(place, NAME_AT_MOST), of_row))
    rows.sort(key=lambda row: attention_key(run.outcomes[row.index], strict=run.strict))
    return Table(tuple(_head(column, cells) for column, cells in filled), tuple(rows))


def _head(column: Column, cells: Sequence[Cell]) -> Head:
    kind = "plain" if column.bar is None else column.bar.kind
    longest = max(len(column.heading), *(len(cell.text) for cell in cells))
    width = min(longest * _CHARACTER + _MARGIN, _WIDEST) + _DRAWING.get(kind, 0.0)
    return Head(column.key, one_line(column.heading, TEXT_AT_MOST), column.hint, kind, f"{width:.1f}rem")


def _cell(column: Column, outcome: Outcome) -> Cell:
    value = column.value(outcome)
    if value is None or value == "":
        return NOTHING
    sort = value if column.sort is None else column.sort(outcome)
    number = float(max(-LARGEST, min(LARGEST, sort))) if isinstance(sort, int | float) else None
    mark = None if column.bar is None else column.bar.of(outcome)
    shown = one_line(column.text(value), TEXT_AT_MOST)
    return Cell(shown, number, None if mark is None else max(0.0, min(1.0, mark)))
