"""The table of the built-in operations as Markdown: ``python -m pytest_bandwidth.suite.operations.table``.

Given a file it rewrites what stands between the two marker lines there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from pytest_bandwidth.suite.operations import OPERATIONS, KernelStep, Operation
from pytest_bandwidth.suite.operations.formulas import Formula, formula_of

BEGIN = "<!-- operations: python -m pytest_bandwidth.suite.operations.table docs/kernels.md -->"
END = "<!-- end of operations -->"
_HEADER = ("operation", "version", "kernels", "dtypes", "bytes moved", "FLOP")


class _NoData:
    """Arrays of no particular content: only the kernels' names are wanted."""

    xp = np

    def random(self, shape: int | Sequence[int], dtype: Any) -> Any:
        return np.ones(shape, dtype)

    empty = random


def markdown_table() -> str:
    """One row per version of each operation, in the suite's order."""
    by_title: dict[str, list[Operation]] = {}
    for operation in OPERATIONS:
        by_title.setdefault(operation.title, []).append(operation)
    rows = [_HEADER, *(_row(same) for same in by_title.values())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in rows]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def rewrite(text: str) -> str:
    """The text with a fresh table between the marker lines. Raises ValueError where those are missing."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"found no {BEGIN if not begin else END} in the text, expected both marker lines")
    return f"{before}{BEGIN}\n{markdown_table()}\n{END}{after}"


def _row(same: list[Operation]) -> tuple[str, ...]:
    operation, formula = same[0], formula_of(same[0].name, same[0].version)
    dtypes = [dtype for other in same for dtype in other.dtypes]
    return (
        operation.name,
        operation.version,
        _kernels(operation),
        ", ".join(dtypes),
        _bytes(formula),
        _readable(formula.flop),
    )


def _kernels(operation: Operation) -> str:
    """The launches' kernels in order, for the first dtype; the array library's own where nothing is launched."""
    if "traffic" not in operation.devices:
        return "array library"
    case = operation.prepare(_NoData(), operation.dtypes[0], operation.small[-1])
    steps = [step for step in case.steps if isinstance(step, KernelStep)]
    groups = []
    for file, launches in groupby(steps, key=lambda step: step.file):
        names = dict.fromkeys(step.kernel for step in launches)
        groups.append(f"{', '.join(f'`{name}`' for name in names)} in {file}")
    return ", ".join(groups)


def _bytes(formula: Formula) -> str:
    return _readable(formula.bytes_moved) + (f", and {formula.besides}" if formula.besides else "")


def _readable(expression: str) -> str:
    return expression.replace("**2", "²").replace("*", "·")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        path = Path(sys.argv[1])
        path.write_text(rewrite(path.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        sys.stdout.write(markdown_table() + "\n")
