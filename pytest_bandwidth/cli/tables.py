"""Print tables for people, and the commands' JSON documents for programs."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pytest_bandwidth.reports.text_safe import json_for_log, padded, printable, shortened, width_of

# Version of the documents that the commands print; docs/cli.md describes them.
SCHEMA = 1
NARROWEST_NAME = 20
_GAP = "  "


def aligned(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[str] = (), width: int | None = None
) -> list[str]:
    """Align a table whose first column is a name. Columns without content in any row are left out.

    left: headings of the further columns that hold words; all others hold figures and stand at the right.
    width: columns to keep to by shortening names, where that leaves them legible; None for as many as it takes.
    """
    kept = [i for i in range(len(headings)) if i == 0 or any(row[i] for row in rows)]
    titles = [printable(headings[i]) for i in kept]
    cells = [[printable(row[i]) for i in kept] for row in rows]
    widths = [max(map(width_of, column)) for column in zip(titles, *cells, strict=True)]
    if width is not None:
        widths[0] = min(widths[0], max(width - sum(widths[1:]) - len(_GAP) * (len(widths) - 1), NARROWEST_NAME))
    at_left = [place == 0 or headings[i] in left for place, i in enumerate(kept)]
    return [
        _GAP.join(
            padded(shortened(cell, size) if to_left else cell, size, left=to_left)
            for cell, size, to_left in zip(line, widths, at_left, strict=True)
        ).rstrip()
        for line in (titles, *cells)
    ]


def terminal_width() -> int | None:
    """Return the columns of the terminal; None where the output goes to a file or a program, which want names whole."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_json(document: Mapping[str, Any]) -> None:
    """Print JSON with the version of the form first."""
    print(json_for_log({"schema": SCHEMA, **document}))
