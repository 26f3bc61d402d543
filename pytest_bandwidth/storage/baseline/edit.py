"""New entries into a file's text: only the touched entries' lines change, every other character stays."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import ModuleType

from pytest_bandwidth.domain.baseline import BaselineDevice, Change, Entry
from pytest_bandwidth.domain.errors import BaselineError
from pytest_bandwidth.storage.baseline.blocks import Layout
from pytest_bandwidth.storage.baseline.line_edit import NotByLines, edit_lines
from pytest_bandwidth.storage.baseline.reader import Document, read_text, read_undivided
from pytest_bandwidth.storage.baseline.source import SourceText, error
from pytest_bandwidth.storage.baseline.writer import render_device, render_entry, shift

_SCHEMA_LINE = re.compile(r"^schema:[^\n]*\n", re.MULTILINE)
# ruamel.yaml reads about 2¹⁷ characters a second.
MAX_EDITED_CHARACTERS = 2**20


class _NotInPlace(Exception):
    """The edit needs the whole file's structure."""


def edited(document: Document, device: BaselineDevice | None, changes: Sequence[Change]) -> str:
    """The file's text after the changes. `device` is written where the file names none.

    The result is read back before it is returned. Raises BaselineError where it would not say what was intended, so
    that it is never written.
    """
    try:
        if document.layout is not None:
            try:
                return _edited_in_place(document, document.layout, device, changes)
            except (_NotInPlace, BaselineError):
                pass
        if len(document.source.text) > MAX_EDITED_CHARACTERS:
            raise _NotInPlace
        return _edited_whole(document, device, changes)
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
    """An entry's new lines: written afresh where the old ones are what an update wrote, else edited with care."""
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
    """By lines, which changes least, where the layout allows; else through ruamel.yaml, which may space things anew."""
    assert change.before is not None
    assert change.after is not None
    head, device = document.source.text[: layout.body], document.baseline.device
    with suppress(NotByLines, BaselineError, _NotInPlace):
        text = edit_lines(block, change.before, change.after)
        _check(head + text, document, device, [change], only_touched=True)
        return text
    with _round_trip() as roundtrip:
        edited_block: str = roundtrip.edit_block(block, change.before, change.after, layout.indent)
    return edited_block


@contextmanager
def _round_trip() -> Iterator[ModuleType]:
    """The round-trip editor, imported where it is needed: reading and ordinary updates do without ruamel.yaml."""
    from ruamel.yaml.error import YAMLError

    from pytest_bandwidth.storage.baseline import roundtrip

    try:
        yield roundtrip
    except YAMLError:
        raise _NotInPlace from None


def _edited_whole(document: Document, device: BaselineDevice | None, changes: Sequence[Change]) -> str:
    with _round_trip() as roundtrip:
        text: str = roundtrip.edit_whole(document.source.text, device, changes)
    _check(text, document, device, changes, only_touched=False)
    return text


def _check(
    text: str, document: Document, device: BaselineDevice | None, changes: Sequence[Change], *, only_touched: bool
) -> None:
    """Reads the text back and compares it with what it should say. Raises _NotInPlace or BaselineError."""
    expected: dict[str, Entry] = {} if only_touched else dict(document.baseline.entries)
    for change in changes:
        if change.after is None:
            expected.pop(change.key, None)
        else:
            expected[change.key] = change.after
    read = read_text if only_touched else read_undivided
    found = read(SourceText(text), document.baseline.path or "").baseline
    same_entries = found.entries.keys() == expected.keys() and all(
        render_entry(found.entries[key]) == render_entry(entry) for key, entry in expected.items()
    )
    if (
        not same_entries
        or found.device != (document.baseline.device or device)
        or found.tolerance != document.baseline.tolerance
    ):
        raise _NotInPlace
