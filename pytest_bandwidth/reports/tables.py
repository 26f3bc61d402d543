"""Lay out tables: names in few words that still tell tests apart, in the order that people expect, and columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import PurePosixPath

from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.reports.text_safe import padded, printable, shortened, width_of

_DIGITS = re.compile("([0-9]+)")
NARROWEST_NAME = 20
GAP = "  "


def shortest_unique(nodeids: Iterable[str]) -> dict[str, str]:
    """Map each node id to its shortest end, of whole path components, that no other of them has: ``a/test_x.py::t``."""
    parts: dict[str, tuple[tuple[str, ...], str]] = {}
    for nodeid in nodeids:
        # The folders of its file, and the rest; a slash in a parameter parts nothing.
        path, bracket, parameters = nodeid.partition("[")
        file, colons, test = path.partition("::")
        in_file = PurePosixPath(file)
        parts[nodeid] = in_file.parts[:-1], f"{in_file.name or file}{colons}{test}{bracket}{parameters}"
    names: dict[str, str] = {}
    left, folders = list(parts), 0
    while left:
        ends = {}
        for nodeid in left:
            place, rest = parts[nodeid]
            ends[nodeid] = "/".join((*place[max(len(place) - folders, 0) :], rest))
        times = Counter(ends.values())
        deepest = max(len(parts[nodeid][0]) for nodeid in left)
        names |= {nodeid: end for nodeid, end in ends.items() if times[end] == 1 or folders >= deepest}
        left, folders = [nodeid for nodeid in left if nodeid not in names], folders + 1
    return names


def names_among(outcomes: Iterable[Outcome]) -> Callable[[Outcome], str]:
    """Return what names each of the outcomes, among all of them: its shortest unique path, and its label."""
    names = shortest_unique(outcome.nodeid for outcome in outcomes)

    def name(outcome: Outcome) -> str:
        short = names[outcome.nodeid]
        return f"{short} @ {outcome.label}" if outcome.label else short

    return name


def without_common_part(names: Sequence[str]) -> tuple[str, list[str]]:
    """Return a column's heading and its names, less the file, or the test, that all of them share.

    Of one parametrized test the heading keeps the name, ``test_operation[…]``, and the rows their parameters.
    """
    if len(names) < 2:
        return "test", list(names)
    tests = {name.partition("[")[0] for name in names}
    if len(tests) == 1 and all("[" in name and name.endswith("]") for name in names):
        (test,) = tests
        return f"{test.rpartition('::')[2]}[…]", [name[len(test) + 1 : -1] for name in names]
    if len({name.partition("::")[0] for name in names}) == 1:
        return "test", [name.partition("::")[2] or name for name in names]
    return "test", list(names)


def natural(name: str) -> tuple[tuple[int, str] | str, ...]:
    """Return a sort key that puts 2 before 10; numbers of any length."""
    parts = _DIGITS.split(name)
    return tuple((len(part.lstrip("0")), part.lstrip("0")) if i % 2 else part for i, part in enumerate(parts))


def laid_out(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: Collection[str] = (),
    width: int | None = None,
    names_whole: bool = False,
) -> list[tuple[str | None, list[str]]]:
    """Return the heading's padded cells and those of each row. Columns without content in any row are left out.

    left: headings of further columns that hold words; all others hold figures and stand at the right.
    width: columns to keep to by shortening names, where that leaves them legible; None for as many as it takes.
    names_whole: whether a name that does not fit is not shortened, but stands before its row's cells, for a line above.
    """
    kept = [i for i in range(len(headings)) if i == 0 or any(row[i] for row in rows)]
    texts = [[printable(line[i]) for i in kept] for line in (headings, *rows)]
    widths = [max(map(width_of, column)) for column in zip(*texts, strict=True)]
    if width is not None:
        widths[0] = min(widths[0], max(width - sum(widths[1:]) - len(GAP) * (len(widths) - 1), NARROWEST_NAME))
    at_left = [i == 0 or headings[i] in left for i in kept]
    lines: list[tuple[str | None, list[str]]] = []
    for cells in texts:
        name = cells[0] if names_whole and width_of(cells[0]) > widths[0] else None
        shown = cells if name is None else ["", *cells[1:]]
        fitted = [
            padded(shortened(cell, size) if left else cell, size, left=left)
            for cell, size, left in zip(shown, widths, at_left, strict=True)
        ]
        lines.append((name, fitted))
    return lines


def aligned(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[str] = (), width: int | None = None
) -> list[str]:
    """Return the lines of a table as `laid_out` has it, names shortened."""
    return [GAP.join(cells).rstrip() for _, cells in laid_out(headings, rows, left=left, width=width)]
