"""What an update changed, like a diff: one line an entry."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.judging.drift import since_anchor
from pytest_bandwidth.domain.units import counted, digits
from pytest_bandwidth.reports.terminal import Line, Span
from pytest_bandwidth.reports.text_safe import printable

MOST_LINES = 40
# A creep of so much since an entry's anchor is told with the entry; `domain.drift` judges it.
LEAST_CREEP = 0.01


def change_lines(path: str, changes: Sequence[tuple[Entry | None, Entry]]) -> list[Line]:
    """``+ key  277 GB/s (1 run)`` for new entries, ``~ key  310 → 277 GB/s, −10.6 %`` for changed ones."""
    lines: list[Line] = [(Span(f"baseline {path}: {_counted(changes)}", ("bold",)),)]
    for before, after in changes[:MOST_LINES]:
        lines.append(_line(before, after))
    if len(changes) > MOST_LINES:
        lines.append((Span(f"… and {len(changes) - MOST_LINES} more"),))
    return lines


def _counted(changes: Sequence[tuple[Entry | None, Entry]]) -> str:
    new = sum(before is None for before, _ in changes)
    return f"{new} new, {len(changes) - new} updated"


def _line(before: Entry | None, after: Entry) -> Line:
    name, runs = printable(after.key), f"({counted(len(after.runs), 'run')})"
    figure = "" if after.gbps is None else f"{digits(after.gbps)} GB/s"
    if after.counts:
        sectors = after.counts.get("load_sectors", 0) + after.counts.get("store_sectors", 0)
        figure, runs = f"{sectors:,} sectors", ""
    if before is None or before.gbps is None or after.gbps is None:
        return (Span("+ ", ("green",)), Span(f"{name}  {figure} {runs}"))
    change = f"{(after.gbps / before.gbps - 1) * 100:+.1f} %"
    afresh = "" if len(after.runs) > len(before.runs) or not before.runs else ", started afresh"
    return (
        Span("~ ", ("cyan",)),
        Span(f"{name}  {digits(before.gbps)} → {figure}, {change} {runs}{afresh}{_crept(after)}"),
    )


def _crept(entry: Entry) -> str:
    gained = since_anchor(entry, entry.judged_on or "gbps")
    return "" if gained is None or gained > -LEAST_CREEP else f", {gained * 100:+.1f} % since its anchor"
