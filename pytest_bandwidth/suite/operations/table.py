"""List the built-in operations with their bytes and FLOP: ``python -m pytest_bandwidth.suite.operations.table``.

Prints Markdown.
"""

from __future__ import annotations

import sys
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import numpy as np

from pytest_bandwidth.suite.operations import OPERATIONS
from pytest_bandwidth.suite.operations.model import KernelStep, Operation
from pytest_bandwidth.suite.traffic_models import formula_of

_HEADER = ("operation", "version", "kernels", "dtypes", "bytes read", "bytes written", "FLOP")


def markdown_table() -> str:
    """Return one row per version of each operation, in the suite's order."""
    by_title: dict[str, list[Operation]] = {}
    for operation in OPERATIONS:
        by_title.setdefault(operation.title, []).append(operation)
    rows: list[tuple[str, ...]] = [_HEADER, ("---",) * len(_HEADER)]
    for same in by_title.values():
        operation, formula = same[0], formula_of(same[0].name, same[0].version)
        dtypes = [dtype for other in same for dtype in other.dtypes]
        read = formula.read + (f", and {formula.besides}" if formula.besides else "")
        named = (operation.name, operation.version, _kernels(operation))
        rows.append((*named, ", ".join(dtypes), read, formula.written, formula.flop))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _kernels(operation: Operation) -> str:
    """Return the launches' kernels in order, for the first dtype; the array library's own where nothing is launched."""
    if "traffic" not in operation.devices:
        return "array library"
    arrays: Any = SimpleNamespace(xp=np, random=np.ones, empty=np.ones)  # only the kernels' names are wanted
    case = operation.prepare(arrays, operation.dtypes[0], operation.small[-1])
    steps = [step for step in case.steps if isinstance(step, KernelStep)]
    groups = []
    for file, launches in groupby(steps, key=lambda step: step.file):
        names = dict.fromkeys(step.kernel for step in launches)
        groups.append(f"{', '.join(f'`{name}`' for name in names)} in {file}")
    return ", ".join(groups)


if __name__ == "__main__":
    sys.stdout.write(markdown_table() + "\n")
