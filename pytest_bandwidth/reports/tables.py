"""Lay out tables for terminals: the first column holds names, the others stand as wide as their cells."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pytest_bandwidth.reports.text_safe import padded, printable, shortened, width_of

NARROWEST_NAME = 20
GAP = "  "


@dataclass(frozen=True, slots=True)
class Line:
    """Hold a line of a table: its cells, padded; name: one that is too long for its column, for a line of its own."""

    cells: tuple[str, ...]
    name: str | None = None


def laid_out(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: Collection[str] = (),
    width: int | None = None,
    names_whole: bool = False,
) -> list[Line]:
    """Return the heading's line and one for each row. Columns without content in any row are left out.

    left: headings of further columns that hold words; all others hold figures and stand at the right.
    width: columns to keep to by shortening names, where that leaves them legible; None for as many as it takes.
    names_whole: whether a name that does not fit gets a line of its own in place of being shortened.
    """
    kept = [i for i in range(len(headings)) if i == 0 or any(row[i] for row in rows)]
    lines = [[printable(line[i]) for i in kept] for line in (headings, *rows)]
    widths = [max(map(width_of, column)) for column in zip(*lines, strict=True)]
    if width is not None:
        widths[0] = min(widths[0], max(width - sum(widths[1:]) - len(GAP) * (len(widths) - 1), NARROWEST_NAME))
    at_left = [i == 0 or headings[i] in left for i in kept]
    return [_line(cells, widths, at_left, names_whole=names_whole) for cells in lines]


def _line(cells: Sequence[str], widths: Sequence[int], at_left: Sequence[bool], *, names_whole: bool) -> Line:
    name = cells[0] if names_whole and width_of(cells[0]) > widths[0] else None
    shown = cells if name is None else ["", *cells[1:]]
    fitted = (
        padded(shortened(cell, size) if left else cell, size, left=left)
        for cell, size, left in zip(shown, widths, at_left, strict=True)
    )
    return Line(tuple(fitted), name)


def table_width(columns: Sequence[Sequence[str]], longest_name: int | None = None) -> int:
    """Return how wide a table of these columns is, heading first; longest_name: bounds the first column's width."""
    name, *others = (max(map(width_of, column)) for column in columns)
    return min(name, longest_name or name) + sum(others) + len(GAP) * len(others)


def aligned(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[str] = (), width: int | None = None
) -> list[str]:
    """Return the lines of a table as `laid_out` has it, names shortened."""
    return [GAP.join(line.cells).rstrip() for line in laid_out(headings, rows, left=left, width=width)]
