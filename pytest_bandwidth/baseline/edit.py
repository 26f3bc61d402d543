"""Edit entries in a file's text: only the touched entries' lines change, every other character stays.

An entry that a person laid out is edited by its lines: the parser's marks say where each field stands. Where its fields
share lines it is written afresh, its comments above it. A file whose tests do not stand below a ``tests:`` line of
their own is written afresh as a whole, in the same manner.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pytest_bandwidth.baseline.files import error
from pytest_bandwidth.baseline.parse import LOADER, Mapping, Node, Scalar, SourceText, events_of
from pytest_bandwidth.baseline.reader import Document, read_text
from pytest_bandwidth.baseline.schema import (
    ENTRY_FIELDS,
    HEADER_KEYS,
    RECORDED,
    TESTS,
    entry_fields,
    render_device,
    render_entry,
    render_header,
    word,
)
from pytest_bandwidth.domain.baseline import BaselineDevice, Change, Entry
from pytest_bandwidth.domain.errors import BaselineError

_SCHEMA_LINE = re.compile(r"^schema:[^\n]*\n", re.MULTILINE)
# What is left of a text without its scalars holds a ``#`` only where a comment begins.
_COMMENT = re.compile(r"#[^\n]*")


class NotByLines(Exception):
    """Raised where fields share lines, or stand elsewhere than below their entry's key."""


def edited(document: Document, device: BaselineDevice | None, changes: Sequence[Change]) -> str:
    """Return the file's text after the changes. `device` is written where the file names none.

    The result is read back before it is returned. Raises BaselineError where it would not say what was intended, so
    that it is never written.
    """
    baseline = document.baseline
    written = {change.key: change.after for change in changes if change.after is not None}
    keys = baseline.entries.keys() - {change.key for change in changes} | written.keys()
    for edit in (_by_lines, _afresh):
        with suppress(BaselineError, NotByLines, yaml.YAMLError):
            text = edit(document, device if baseline.device is None else None, changes)
            found = read_text(SourceText(text), Path(baseline.path or ""), without_runs=True).baseline
            header = found.device == (baseline.device or device) and found.tolerance == baseline.tolerance
            if not header or found.entries.keys() != keys:
                continue
            # The text alone says no recorded figure; each that it does say is the entry's.
            if all(_as_written(found.entries[key]) == _as_written(entry) for key, entry in written.items()):
                return text
    first = changes[0].before if changes else None
    raise error(
        baseline.path or "",
        (first.line if first else None) or 1,
        "found a layout that cannot be edited safely, expected entries as updates write them: nothing was changed; "
        "remove the entry by hand and update again",
    )


def _as_written(entry: Entry) -> dict[str, str]:
    """Return what a text says of an entry by itself: not what follows from its runs, nor what they record."""
    derived = ("of_probe", "runs", *RECORDED)
    return {name: text for name, text in entry_fields(entry).items() if name not in derived}


def _by_lines(document: Document, device: BaselineDevice | None, changes: Sequence[Change]) -> str:
    lines = document.source.text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    spans, body = _spans(document, lines)
    indent = _indent(lines[min(spans.values())[0]]) if spans else 2
    pieces, at = [], 0
    touched = [(spans[change.key], change.before, change.after) for change in changes if change.before is not None]
    for (start, end), before, after in sorted(touched, key=lambda one: one[0]):
        pieces += lines[at:start]
        at, block = end, "".join(lines[start:end])
        if after is None:
            continue
        if block == render_entry(before, indent=_indent(block)):  # as nearly all are
            pieces.append(render_entry(after, indent=_indent(block)))
            continue
        try:  # to edit its lines changes least
            pieces.append(edit_lines(block, before, after))
        except NotByLines:
            pieces.append(afresh(block, before, after))
    end = max(at, max((end for _, end in spans.values()), default=body))
    pieces += lines[at:end]
    pieces += [render_entry(c.after, indent=indent) for c in changes if c.before is None and c.after is not None]
    text = "".join([*pieces, *lines[end:]])
    if device is None:
        return text
    match = _SCHEMA_LINE.search(text)
    if match is None:
        raise NotByLines
    return text[: match.end()] + render_device(device) + text[match.end() :]


def _spans(document: Document, lines: Sequence[str]) -> tuple[dict[str, tuple[int, int]], int]:
    """Return the lines of each entry, without blank and comment lines after it, and where the tests begin."""
    root, node = document.root, _tests(document)
    line = root.lines.get("tests", 0)
    if (
        root.flow
        or not re.fullmatch(r"tests:\s*(#.*)?\n", lines[line - 1])
        or (isinstance(node, Mapping) and node.flow)
    ):
        raise NotByLines
    foot = min((other for other in root.lines.values() if other > line), default=len(lines) + 1) - 1
    tests = node.items if isinstance(node, Mapping) else []
    starts = [key.line - 1 for key, _ in tests]
    spans = {}
    for (key, _), start, end in zip(tests, starts, [*starts, foot][1:], strict=True):
        while end > start + 1:
            last = lines[end - 1]
            if last.strip() and not (last.lstrip(" ").startswith("#") and _indent(last) <= _indent(lines[start])):
                break
            end -= 1  # not the entry's: blank, or a comment that is no deeper than its key
        spans[key.text] = start, end
    return spans, line


def _tests(document: Document) -> Node | None:
    return next((value for name, value in document.root.items if name.text == "tests"), None)


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip(" "))


def afresh(block: str, old: Entry, new: Entry) -> str:
    """Return an entry's lines as updates write them, below the old block's comments."""
    written = {name for name in RECORDED if re.search(rf"\b{name}['\"]?\s*:", block)}
    indent = _indent(block)
    above = "".join(f"{' ' * indent}{comment.text}\n" for comment in _comments(block))
    return above + render_entry(new, _still_written(written, old, new), indent)


def _still_written(written: set[str], old: Entry, new: Entry) -> set[str]:
    """Return the recorded fields that people wrote and an update leaves alone, for they still hold."""
    return {name for name in written & set(RECORDED) if getattr(old, name) == getattr(new, name)}


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
            begun: Any = event.start_mark
            ended: Any = event.end_mark
            # The text of a literal block begins on the next line; a comment may follow the mark.
            start = starts[begun.line + 1] if event.style in ("|", ">") else starts[begun.line] + begun.column
            end = max(start, starts[ended.line] + ended.column)
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


def _afresh(document: Document, device: BaselineDevice | None, changes: Sequence[Change]) -> str:
    """Return the whole file as updates write it. A comment at the end of a line moves to a line above it."""
    text, baseline = document.source.text, document.baseline
    header = render_header(baseline.device or device, baseline.tolerance).removesuffix(TESTS)
    unknown = [(key.text, value) for key, value in document.root.items if key.text not in HEADER_KEYS]
    header += "".join(f"{word(name)}: {word(value.text)}\n" for name, value in unknown if isinstance(value, Scalar))
    above: dict[str | None, list[str]] = {}
    keys = {entry.line or 1: entry.key for entry in baseline.entries.values()}
    for comment in _comments(text):
        begun = [line for line in keys if line <= (comment.follows or comment.line)]
        above.setdefault(keys[max(begun)] if begun else None, []).append(comment.text)
    tests = _tests(document)
    nodes = {key.text: node for key, node in tests.items} if isinstance(tests, Mapping) else {}
    after = {change.key: change.after for change in changes}
    pieces = [*(f"{comment}\n" for comment in above.get(None, ())), header, TESTS]
    for key, old in baseline.entries.items():
        new = after.pop(key, old)
        pieces += [f"  {comment}\n" for comment in above.get(key, ())]
        if new is not None:
            node = nodes[key]
            written = set(node.lines) if isinstance(node, Mapping) else set()
            pieces.append(render_entry(new, _still_written(written, old, new)))
    return "".join([*pieces, *(render_entry(entry) for entry in after.values() if entry is not None)])


def edit_lines(block: str, old: Entry, new: Entry) -> str:
    """Edit the lines of one entry where old and new differ. Raises NotByLines where its layout forbids that."""
    fields, lines = _fields(block), block.splitlines(keepends=True)
    present = {one.name for one in fields}
    before = entry_fields(old, present)
    after = entry_fields(new, _still_written(present, old, new))
    places = {name: place for place, name in enumerate(ENTRY_FIELDS)}
    missing = [name for name in after if name not in present]
    blanks = " " * fields[0].column
    comments = [(comment.line - 1, f"{blanks}{comment.text}\n") for comment in _comments(block)]
    out = lines[: fields[0].first]
    for one, end in zip(fields, [*(later.first for later in fields[1:]), len(lines)], strict=True):
        own = lines[one.first : one.last + 1]
        earlier = [n for n in missing if places.get(n, len(places)) < places.get(one.name, 0)]
        missing = [name for name in missing if name not in earlier]
        out += [f"{blanks}{name}: {after[name]}\n" for name in earlier]
        if one.name in after and before.get(one.name) == after[one.name]:
            out += own
        elif one.name in after:
            out += _with_value(own, one, after[one.name], [c for c in comments if one.first <= c[0] <= one.last])
        if one is fields[-1]:
            out += [f"{blanks}{word(name)}: {after[name]}\n" for name in missing]
        out += lines[one.last + 1 : end]
    return "".join(out)


def _with_value(own: list[str], one: _Field, text: str, beside: Sequence[tuple[int, str]]) -> list[str]:
    """Return the field's lines with another value; the comments of lines that go stand above it.

    beside: the comments on the field's lines: line, and text as a line of its own.
    """
    if one.value.line == one.end.line == one.first:
        return [own[0][: one.value.column] + text + own[0][one.end.column :]]
    # A literal text's mark stands before the comment.
    after_key = re.match(r" *:(?: *[|>][0-9+-]*)?( *(?: #.*)?\n)", own[0][one.key_end :])
    comment = after_key[1] if after_key else "\n"
    above = [above for at, above in beside if at != one.first or not comment.strip()]
    return [*above, f"{own[0][: one.key_end]}: {text}{comment}"]


@dataclass(slots=True)
class _Field:
    """Locate a field of an entry in its text. Lines and columns count from 0.

    first, column: where the key begins; key_end: the column behind it. value, end: where the value begins and ends.
    last: the line of its end.
    """

    name: str
    first: int
    column: int
    key_end: int
    value: yaml.Mark
    end: yaml.Mark
    last: int


def _fields(block: str) -> list[_Field]:
    """Return the fields of the only entry of a text, each with lines of its own. Raises NotByLines."""
    root: Any = yaml.compose(block, Loader=LOADER)  # its only entry
    fields: list[_Field] = []
    for key, value in root.value[0][1].value:
        # A block's own end lies on a later line: its last value ends it.
        of_last = value.value[-1][1] if isinstance(value, yaml.MappingNode) and not value.flow_style else value
        begun, behind, start, end = key.start_mark, key.end_mark, value.start_mark, of_last.end_mark
        # A literal text ends where the next line begins.
        last = end.line - 1 if end.column == 0 and end.line > start.line else end.line
        fields.append(_Field(key.value, begun.line, begun.column, behind.column, start, end, last))
    lines, ends = block.splitlines(), [0, *(one.last for one in fields)]
    if (
        len({one.column for one in fields}) != 1
        or any(one.first <= end for one, end in zip(fields, ends, strict=False))
        or any(lines[one.first][: one.column].strip() for one in fields)
    ):
        raise NotByLines
    return fields
