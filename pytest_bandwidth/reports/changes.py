"""Tell what an update changed, like a diff: one line an entry."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.units import counted, digits
from pytest_bandwidth.judging.stored import since_anchor
from pytest_bandwidth.reports.names import natural
from pytest_bandwidth.reports.terminal import Span, TerminalLine
from pytest_bandwidth.reports.text_safe import printable

MOST_LINES = 40

# An entry before an update, None where it is new, and after it.
Change = tuple[Entry | None, Entry]
# A creep of so much since an entry's anchor is told with the entry; `domain.judging.drift` judges it.
LEAST_CREEP = 0.01


def change_lines(path: str, changes: Sequence[Change]) -> list[TerminalLine]:
    """Write ``+ key  277 GB/s (1 run)`` for new entries, ``~ key  310 → 277 GB/s, −10.6 %`` for changed ones.

    Where there are many, new entries and those that stayed are only counted, and the largest changes come first.
    """
    told = sorted(changes, key=lambda change: natural(change[1].key))
    if len(changes) > MOST_LINES:
        moved = [change for change in told if change[0] is not None and _moved(*change)]
        told = sorted(moved, key=lambda change: -abs(_change(*change) or 0.0))
    lines: list[TerminalLine] = [(Span(f"baseline {path}: {_counted(changes)}", ("bold",)),)]
    lines += [_line(before, after) for before, after in told[:MOST_LINES]]
    if len(told) > MOST_LINES:
        lines.append((Span(f"… and {len(told) - MOST_LINES} more that changed"),))
    return lines


def _counted(changes: Sequence[Change]) -> str:
    new = sum(before is None for before, _ in changes)
    stayed = sum(before is not None and not _moved(before, after) for before, after in changes)
    return f"{new} new, {len(changes) - new} updated" + (f", {stayed} of them as before" if stayed else "")


def _change(before: Entry | None, after: Entry) -> float | None:
    """Return by which share an entry's figure rose: its GB/s, or its sectors; None where one side has no figure."""
    old, new = (None if before is None else _figure(before)), _figure(after)
    return new / old - 1 if old and new else None


def _moved(before: Entry | None, after: Entry) -> bool:
    """Return whether an update changed more than the number of an entry's runs, as far as a line shows it."""
    return (
        f"{(_change(before, after) or 0.0) * 100:.1f}".lstrip("-") != "0.0"
        or (before is not None and (_figure(before) is None) != (_figure(after) is None))
        or _afresh(before, after)
        or bool(_crept(after))
    )


def _afresh(before: Entry | None, after: Entry) -> bool:
    return before is not None and bool(before.runs) and len(after.runs) <= len(before.runs) and not after.counts


def _figure(entry: Entry) -> float | None:
    if entry.counts:
        return entry.counts.get("load_sectors", 0) + entry.counts.get("store_sectors", 0)
    return entry.gbps


def _line(before: Entry | None, after: Entry) -> TerminalLine:
    figure, unit = _figure(after), "sectors" if after.counts else "GB/s"
    text = "" if figure is None else f"{_digits(after)} {unit}"
    runs = "" if after.counts else f" ({counted(len(after.runs), 'run')})"
    if before is None:
        return (Span("+ ", ("green",)), Span(f"{printable(after.key)}  {text}{runs}".rstrip()))
    change = _change(before, after)
    if change is not None:
        text = f"{_digits(before)} → {text}, {change * 100:+.1f} %"
    afresh = ", started afresh" if _afresh(before, after) else ""
    return (Span("~ ", ("cyan",)), Span(f"{printable(after.key)}  {text}{runs}{afresh}{_crept(after)}".rstrip()))


def _digits(entry: Entry) -> str:
    figure = _figure(entry) or 0.0
    return f"{figure:,.0f}" if entry.counts else digits(figure)


def _crept(entry: Entry) -> str:
    gained = since_anchor(entry, entry.judged_on or "gbps")
    return "" if gained is None or gained > -LEAST_CREEP else f", {gained * 100:+.1f} % since its anchor"
