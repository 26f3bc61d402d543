"""Edit entries in a file's text: only the touched entries' lines change, every other character stays.

An entry that a person laid out is edited by its lines: the parser's marks say where each field stands. Where its fields
share lines it is written afresh, its comments above it. A file whose entries do not stand below an ``entries:`` line of
their own is written afresh as a whole, in the same manner.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import yaml

from pytest_bandwidth.baseline.blocks import Layout
from pytest_bandwidth.baseline.parse import Mapping, Scalar, events_of, parse
from pytest_bandwidth.baseline.reader import Document, read_text, read_undivided
from pytest_bandwidth.baseline.schema import HEADER_KEYS
from pytest_bandwidth.baseline.source import SourceText, error
from pytest_bandwidth.baseline.writer import (
    entry_fields,
    is_written_alike,
    render_device,
    render_entry,
    render_header,
    render_run,
    runs_kept,
    shift,
    word,
)
from pytest_bandwidth.domain.baseline import BaselineDevice, Change, Entry, Run
from pytest_bandwidth.domain.errors import BaselineError

_SCHEMA_LINE = re.compile(r"^schema:[^\n]*\n", re.MULTILINE)
_ENTRIES = "entries:\n"
# What is left of a text without its scalars holds a ``#`` only where a comment begins.
_COMMENT = re.compile(r"#[^\n]*")
_STARTS = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_ENDS = (yaml.MappingEndEvent, yaml.SequenceEndEvent)


class _NotInPlace(Exception):
    """Raised where an edit needs the whole file's structure."""


class NotByLines(Exception):
    """Raised where an entry's fields share lines, or stand elsewhere than below its key."""


def edited(document: Document, device: BaselineDevice | None, changes: Sequence[Change]) -> str:
    """Return the file's text after the changes. `device` is written where the file names none.

    The result is read back before it is returned. Raises BaselineError where it would not say what was intended, so
    that it is never written.
    """
    try:
        if document.layout is not None:
            with suppress(_NotInPlace, BaselineError):
                return _edited_in_place(document, document.layout, device, changes)
        return _written_afresh(document, device, changes)
    except (BaselineError, _NotInPlace) as problem:
        raise error(
            document.baseline.path or "",
            (changes[0].before.line if changes and changes[0].before else None) or 1,
            f"found a layout that cannot be edited safely ({type(problem).__name__}), expected entries as updates "
            "write them: nothing was changed; remove the entry by hand and update again",
        ) from None


def _edited_in_place(
    document: Document, layout: Layout, device: BaselineDevice | None, changes: Sequence[Change]
) -> str:
    text = document.source.text
    head = _with_device(text[: layout.body], device if document.baseline.device is None else None)
    blocks = {change.key: _block(document, layout, change) for change in changes if change.after is not None}
    foot = text[layout.foot :]
    _check("".join([*map(_ended, [head, *blocks.values()]), foot]), document, device, changes, only_touched=True)

    pieces = [head]
    at = layout.body
    replaced = [
        (document.spans[change.key], blocks.get(change.key, "")) for change in changes if change.before is not None
    ]
    for (start, end), block in sorted(replaced):
        pieces += [text[at:start], block]
        at = end
    added = "".join(blocks[change.key] for change in changes if change.before is None)
    if added:
        end = max(layout.blocks[-1][1] if layout.blocks else layout.foot, at)
        kept = text[at:end]
        pieces += [kept, "" if _is_line_end(kept or pieces[-1]) else "\n", added]
        at = end
    return "".join([*pieces, text[at:]])


def _is_line_end(text: str) -> bool:
    return not text or text.endswith("\n")


def _ended(piece: str) -> str:
    return piece if _is_line_end(piece) else piece + "\n"


def _with_device(head: str, device: BaselineDevice | None) -> str:
    if device is None:
        return head
    match = _SCHEMA_LINE.search(head)
    if match is None:
        raise _NotInPlace
    return head[: match.end()] + render_device(device) + head[match.end() :]


def _block(document: Document, layout: Layout, change: Change) -> str:
    """Return an entry's new lines: afresh where the old ones are what an update wrote, else edited with care."""
    assert change.after is not None
    fresh = shift(render_entry(change.after), layout.indent - 2)
    if change.before is None:
        return fresh
    start, end = document.spans[change.key]
    old = document.source.text[start:end]
    if old == shift(render_entry(change.before), layout.indent - 2):
        return fresh
    return _edited_block(document, layout, change, _ended(old))


def _edited_block(document: Document, layout: Layout, change: Change, block: str) -> str:
    """Edit an entry's lines, which changes least, or write them afresh below their comments."""
    assert change.before is not None
    assert change.after is not None
    head, device = document.source.text[: layout.body], document.baseline.device
    with suppress(NotByLines, BaselineError, _NotInPlace):
        text = edit_lines(block, change.before, change.after)
        _check(head + text, document, device, [change], only_touched=True)
        return text
    return shift(afresh(block, change.after), layout.indent - 2)


def afresh(block: str, entry: Entry) -> str:
    """Return an entry's lines as updates write them, the old block's comments above them."""
    return "".join(f"  {comment.text}\n" for comment in _comments(block)) + render_entry(entry)


@dataclass(slots=True)
class _Comment:
    """Hold a comment; `line` counts from 1. follows: the first line from there on with anything else, else None."""

    text: str
    line: int
    follows: int | None


def _comments(text: str) -> list[_Comment]:
    """Return the comments of a text in order: what begins with ``#`` outside of its scalars."""
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    rest, at = [], 0
    for event in events_of(text):
        if isinstance(event, yaml.ScalarEvent):
            (row, column), (end_row, end_column) = _mark(event.start_mark), _mark(event.end_mark)
            # A literal text begins below its mark, beside which a comment may stand.
            start = starts[row + 1] if event.style in ("|", ">") else starts[row] + column
            end = max(start, starts[end_row] + end_column)
            # A stand-in for each of its characters: the rest keeps its place.
            rest += [text[at:start], re.sub(r"[^\n]", "x", text[start:end])]
            at = end
    masked = "".join([*rest, text[at:]]).split("\n")
    bare = [_COMMENT.sub("", line).strip() for line in masked]
    found: list[_Comment] = []
    follows: int | None = None
    for number in range(len(masked), 0, -1):
        if bare[number - 1]:
            follows = number
        if match := _COMMENT.search(masked[number - 1]):
            found.append(_Comment(lines[number - 1][match.start() :].rstrip(), number, follows))
    return found[::-1]


def _written_afresh(document: Document, device: BaselineDevice | None, changes: Sequence[Change]) -> str:
    """Return the whole file as updates write it; each comment goes above what it stands beside or above."""
    text, baseline = document.source.text, document.baseline
    root = parse(text, lambda _line, _message: None)
    if not isinstance(root, Mapping):
        raise _NotInPlace
    unknown = [(key.text, value) for key, value in root.items if key.text not in HEADER_KEYS]
    later = "".join(f"{word(name)}: {word(value.text)}\n" for name, value in unknown if isinstance(value, Scalar))
    header = render_header(baseline.device or device, baseline.tolerance).removesuffix(_ENTRIES) + later + _ENTRIES
    above: dict[str | None, list[str]] = {}
    keys: dict[int, str] = {}
    for entry in baseline.entries.values():
        keys[entry.line or 1] = entry.key
    for comment in _comments(text):
        begun = [line for line in keys if line <= (comment.follows or comment.line)]
        above.setdefault(keys[max(begun)] if begun else None, []).append(comment.text)
    entries: dict[str, Entry | None] = {**baseline.entries}
    entries.update((change.key, change.after) for change in changes)
    pieces = [f"{comment}\n" for comment in above.get(None, ())] + [header]
    for key, one in entries.items():
        pieces += [f"  {comment}\n" for comment in above.get(key, ())]
        pieces += [] if one is None else [render_entry(one)]
    result = "".join(pieces)
    _check(result, document, device, changes, only_touched=False)
    return result


def _check(
    text: str, document: Document, device: BaselineDevice | None, changes: Sequence[Change], *, only_touched: bool
) -> None:
    """Read the text back and compare it with what it should say. Raises _NotInPlace or BaselineError."""
    expected: dict[str, Entry] = {} if only_touched else dict(document.baseline.entries)
    for change in changes:
        if change.after is None:
            expected.pop(change.key, None)
        else:
            expected[change.key] = change.after
    read = read_text if only_touched else read_undivided
    found = read(SourceText(text), document.baseline.path or "").baseline
    same_entries = found.entries.keys() == expected.keys() and all(
        is_written_alike(found.entries[key], entry) for key, entry in expected.items()
    )
    if (
        not same_entries
        or found.device != (document.baseline.device or device)
        or found.tolerance != document.baseline.tolerance
    ):
        raise _NotInPlace


@dataclass(slots=True)
class _Place:
    """Say where a node stands: its first character, the end of its last, and the places of a list's items."""

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
    """Edit the lines of one entry where old and new differ. Raises NotByLines where its layout forbids that."""
    fields = _fields(block)
    lines = block.splitlines(keepends=True)
    comments = _comments(block)
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
        beside = [
            (comment.line - 1, f"{' ' * column}{comment.text}\n")
            for comment in comments
            if first <= comment.line - 1 <= last
        ]
        if one.name == "runs":
            # New fields go before the runs, which grow.
            out += added
            added = []
            out += _edited_runs(lines, one, old.runs, new.runs, beside)
        elif one.name not in after:
            pass
        elif before.get(one.name) == after[one.name]:
            out += own
        else:
            out += _with_value(own, one, after[one.name], beside)
        if number == len(fields) - 1:
            out += added
        end = fields[number + 1].key.start[0] if number + 1 < len(fields) else len(lines)
        out += lines[last + 1 : end]
    return "".join(out)


_Beside = Sequence[tuple[int, str]]  # the comments on a field's lines: line, and text as a line of its own


def _with_value(own: list[str], one: _Field, text: str, beside: _Beside) -> list[str]:
    """Return the field's lines with another value; the comments of lines that go stand above it."""
    first = one.key.start[0]
    (line, column), (end_line, end_column) = one.value.start, one.value.end
    if line == end_line == first:
        return [own[0][:column] + text + own[0][end_column:]]
    # A literal text's mark stands before the comment.
    after_key = re.match(r" *:(?: *[|>][0-9+-]*)?( *(?: #.*)?\n)", own[0][one.key.end[1] :])
    comment = after_key[1] if after_key else "\n"
    above = [above for at, above in beside if at != first or not comment.strip()]
    return [*above, f"{own[0][: one.key.end[1]]}: {text}{comment}"]


def _edited_runs(lines: list[str], one: _Field, old: Sequence[Run], new: Sequence[Run], beside: _Beside) -> list[str]:
    """Edit the lines of runs: the oldest may go and new ones follow, and each line that stays is left alone."""
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
        above = [above for at, above in beside if at != last or not after.strip()]
        return [*above, f"{lines[first][: one.key.end[1]]}:{after}", *_run_lines(new, one.key.start[1] + 2)]
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
    """Return the fields of the only entry of a text, each with lines of its own. Raises NotByLines."""
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
