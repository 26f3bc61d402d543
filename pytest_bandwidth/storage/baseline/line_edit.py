"""Edits of a hand-formed entry by its lines: what does not change keeps every character, comments included.

The parser's marks say on which lines each field stands. An entry whose fields do not have lines of their own is for
`roundtrip`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from pytest_bandwidth.domain.baseline import Entry, Run
from pytest_bandwidth.storage.baseline.parse import events_of
from pytest_bandwidth.storage.baseline.writer import entry_fields, render_run, runs_kept, word

_STARTS = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_ENDS = (yaml.MappingEndEvent, yaml.SequenceEndEvent)


class NotByLines(Exception):
    """The entry's fields share lines, or stand elsewhere than below its key."""


@dataclass(slots=True)
class _Place:
    """Where a node stands: its first character, the end of its last, and the places of a list's items."""

    start: tuple[int, int]
    end: tuple[int, int]
    flow: bool
    items: list[_Place] = field(default_factory=list)

    @property
    def last_line(self) -> int:
        # A literal text ends where the next line begins.
        return self.end[0] - 1 if self.end[1] == 0 and self.end[0] > self.start[0] else self.end[0]


@dataclass(slots=True)
class _Field:
    name: str
    key: _Place
    value: _Place


def edit_lines(block: str, old: Entry, new: Entry) -> str:
    """The lines of one entry, edited where old and new differ. Raises NotByLines where its layout forbids that."""
    fields = _fields(block)
    lines = block.splitlines(keepends=True)
    before, after = entry_fields(old), entry_fields(new)
    present = {one.name for one in fields}
    column = fields[0].key.start[1]
    missing = [f"{' ' * column}{word(name)}: {text}\n" for name, text in after.items() if name not in present]
    added = list(missing)
    if new.runs and "runs" not in present:
        added += [f"{' ' * column}runs:\n", *_run_lines(new.runs, column + 2)]
    out = lines[: fields[0].key.start[0]]
    for number, one in enumerate(fields):
        first, last = one.key.start[0], one.value.last_line
        own = lines[first : last + 1]
        if one.name == "runs":
            # New fields go before the runs, which grow.
            out += added
            added = []
            out += _edited_runs(lines, one, old.runs, new.runs)
        elif one.name not in after:
            pass
        elif before.get(one.name) == after[one.name]:
            out += own
        else:
            out += _with_value(own, one, after[one.name])
        if number == len(fields) - 1:
            out += added
        end = fields[number + 1].key.start[0] if number + 1 < len(fields) else len(lines)
        out += lines[last + 1 : end]
    return "".join(out)


def _with_value(own: list[str], one: _Field, text: str) -> list[str]:
    (line, column), (end_line, end_column) = one.value.start, one.value.end
    if line == end_line == one.key.start[0]:
        return [own[0][:column] + text + own[0][end_column:]]
    after_colon = own[0][one.key.end[1] :].partition(":")[2]
    comment = after_colon if after_colon.lstrip().startswith("#") else "\n"
    return [f"{own[0][: one.key.end[1]]}: {text}{comment}"]


def _edited_runs(lines: list[str], one: _Field, old: Sequence[Run], new: Sequence[Run]) -> list[str]:
    """The oldest of the old runs may go and new ones follow: then every line that stays is left alone."""
    first, last = one.key.start[0], one.value.last_line
    if not new:
        comments = [line.lstrip() for line in lines[first : last + 1] if line.lstrip().startswith("#")]
        # As far left as the fields: deeper, a literal text above would take them in.
        return [f"{' ' * one.key.start[1]}{comment}" for comment in comments]
    was, shall = [render_run(run) for run in old], [render_run(run) for run in new]
    if was == shall:
        return lines[first : last + 1]
    kept = runs_kept(was, shall)
    items = one.value.items
    if one.value.flow or not items:
        after = lines[last][one.value.end[1] :]
        return [f"{lines[first][: one.key.end[1]]}:{after}", *_run_lines(new, one.key.start[1] + 2)]
    dash = _dash_column(lines, items[0])
    out = lines[first : items[0].start[0]]
    for number, item in enumerate(items):
        if number >= len(items) - kept:
            out += lines[item.start[0] : item.last_line + 1]
        if number == len(items) - 1:
            out += _run_lines(new[kept:], dash)
        else:
            out += lines[item.last_line + 1 : items[number + 1].start[0]]
    return out


def _dash_column(lines: list[str], item: _Place) -> int:
    before = lines[item.start[0]][: item.start[1]]
    if before.strip() != "-":
        raise NotByLines
    return before.index("-")


def _run_lines(runs: Sequence[Run], column: int) -> list[str]:
    return [f"{' ' * column}- {render_run(run)}\n" for run in runs]


def _fields(block: str) -> list[_Field]:
    """The fields of the only entry of a text, each with lines of its own. Raises NotByLines."""
    fields: list[_Field] = []
    path: list[_Place] = []
    key: tuple[str, _Place] | None = None
    for event in events_of(block):
        kind = type(event)
        if kind in _ENDS:
            place = path.pop()
            if place.flow:
                place.end = _mark(event.end_mark)
        elif kind is yaml.ScalarEvent or kind in _STARTS:
            flow = bool(getattr(event, "flow_style", True))
            place = _Place(_mark(event.start_mark), _mark(event.end_mark), flow)
            if len(path) == 2:
                if key is None:
                    key = (str(event.value), place)
                else:
                    fields.append(_Field(*key, place))
                    key = None
            elif len(path) == 3 and fields:
                fields[-1].value.items.append(place)
            if kind in _STARTS:
                path.append(place)
                continue
        else:
            continue
        for outer in path:
            if not outer.flow:
                outer.end = max(outer.end, place.end)
    _check_own_lines(block, fields)
    return fields


def _mark(mark: Any) -> tuple[int, int]:
    return mark.line, mark.column


def _check_own_lines(block: str, fields: list[_Field]) -> None:
    columns = {one.key.start[1] for one in fields}
    starts = [one.key.start[0] for one in fields]
    ends = [0, *(one.value.last_line for one in fields)]
    if len(columns) != 1 or any(start <= end for start, end in zip(starts, ends, strict=False)):
        raise NotByLines
    lines = block.splitlines()
    if any(lines[one.key.start[0]][: one.key.start[1]].strip() for one in fields):
        raise NotByLines
