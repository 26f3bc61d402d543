"""Show the explanation of a framework's callable from a result's `detail`: its operators and their bytes."""

from __future__ import annotations

from collections.abc import Callable

from pytest_bandwidth.domain.measured.explanation import EXPLAINED
from pytest_bandwidth.domain.units import digits, format_bytes
from pytest_bandwidth.outcomes.outcome import Nested, Outcome, mapping, mappings, number, text
from pytest_bandwidth.reports.columns import Column, SmallTable
from pytest_bandwidth.reports.text_safe import one_line

OPERATORS_AT_MOST = 100


def _operators(outcome: Outcome) -> SmallTable | None:
    explained = mapping(outcome.detail, EXPLAINED)
    found = mappings(explained, "operators")
    if not found:
        return None
    compiled = _written(explained, "compiled_bytes", format_bytes, "")
    sums = [
        f"in all {_written(explained, 'bytes_moved', format_bytes, '0 B')}",
        *([f"compiled, {compiled}"] if compiled else []),
        f"{_written(explained, 'least_bytes', format_bytes, '0 B')} if fused",
    ]
    rows = []
    for operator in found[:OPERATORS_AT_MOST]:
        name, bound = one_line(text(operator, "name"), 60) or "–", one_line(text(operator, "bound"), 20) or "–"
        moved = [_written(operator, f"bytes_{way}", format_bytes) for way in ("read", "written", "moved")]
        rows.append([name, *moved, _written(operator, "arithmetic_intensity", digits), bound])
    return SmallTable(
        f"{one_line(text(explained, 'framework'), 40)}: {'; '.join(sums)}",
        ("operator", "read", "written", "moved", "FLOP/byte", "bound by"),
        rows,
        max(0, int(number(explained, "operator_count") or 0) - len(rows)),
    )


def _written(plain: Nested, name: str, show: Callable[[float], str], none: str = "–") -> str:
    value = number(plain, name)
    return none if value is None else show(value)


COLUMNS = (Column("operators", "operators", _operators, outputs=("details",)),)
