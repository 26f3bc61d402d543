"""Change a baseline under its lock, from its content at that moment: runs are appended, the file is replaced whole."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from pytest_bandwidth.baseline.code_files import file_names, folder_of, write_code
from pytest_bandwidth.baseline.files import error, locked, make_folder, not_writable, replace_file
from pytest_bandwidth.baseline.locate import check_device, device_of
from pytest_bandwidth.baseline.parse import LOADER, MappingNode, SourceText, events_of
from pytest_bandwidth.baseline.reader import Document, read, read_text
from pytest_bandwidth.baseline.runs import ATTRIBUTES, NOTHING, SUFFIX, append_lines, path_of, run_lines, setup_of
from pytest_bandwidth.baseline.schema import (
    ENTRY_FIELDS,
    RECORDED,
    entry_fields,
    is_measured,
    render_device,
    render_entry,
    render_header,
    word,
)
from pytest_bandwidth.domain.baseline import Baseline, BaselineDevice, Change, Entry, settled
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import BaselineError, UsageError
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.domain.units import MAX_SHARE
from pytest_bandwidth.storage.atomic import real_path

Merge = Callable[[Entry | None, Entry], Entry | None]


def update(
    path: Path,
    identity: DeviceIdentity,
    updates: Sequence[Entry],
    *,
    merge_in: Callable[[Baseline], Merge] = lambda _: lambda _old, new: new,
    files: Mapping[str, bytes] = MappingProxyType({}),
) -> list[Change]:
    """Write entries into one device's file, and return the changes. A file that does not exist is created.

    merge_in: called under the lock with the whole file at that moment; returns the function that merges. That function
    gets each of `updates`, with the file's entry (or None) before it. It returns the entry to write, or None for no
    change. So writes of other processes in the meantime are never lost. The result is settled
    (`domain.baseline.settled`) and written.
    files: code by file name; files that the written entries name are kept next to the baseline (`code_files`).
    Raises BaselineError, the file unchanged, where it is bad, another device's, locked too long or not writable.
    """
    path = real_path(path)  # behind a symbolic link: that file is replaced, not the link
    key, times = max(Counter(entry.key for entry in updates).items(), key=lambda one: one[1], default=("", 1))
    if times > 1:
        raise UsageError(f"found two updates of {key!r}, expected one: measurements in one test need different labels")
    make_folder(path.parent, path)
    with locked(path):
        created = not path.exists()
        document = read_text(SourceText(render_header(device_of(identity))), path) if created else read(path)
        check_device(document.baseline, identity)
        device = document.baseline.device or device_of(identity)
        changes = _changes(document.baseline, device, updates, merge_in(document.baseline))
        known = {**document.baseline.entries, **{change.key: change.after for change in changes}}
        named = file_names(filter(None, (known.get(new.key) for new in updates)))
        kept = {name: files[name] for name in sorted(named & files.keys())}
        with locked(folder_of(path)) if kept else nullcontext():
            write_code(path, kept)
            if changes or created:
                _write(path, document, device, changes)
    return changes


def _write(path: Path, document: Document, device: BaselineDevice, changes: Sequence[Change]) -> None:
    """Append the new runs, then replace the file: a writer killed between leaves runs that the next read counts."""
    text = edited(document, device, changes)
    measured = (
        (change.before, change.after, document.runs.tests.get(change.key, NOTHING))
        for change in changes
        if change.after is not None and is_measured(change.after)
    )
    runs, texts = path_of(path), run_lines(measured, document.runs.newest)
    try:
        undo = append_lines(runs, texts) if texts else None
        # Make git's merges of runs keep both sides' lines, where the folder sets no attributes yet.
        attributes = runs.with_name(ATTRIBUTES)
        in_repository = any((folder / ".git").exists() for folder in runs.parents)
        if runs.exists() and in_repository and not attributes.exists():
            attributes.write_text(f"*{SUFFIX} merge=union\n")
    except OSError as problem:
        raise not_writable(runs, problem) from None
    try:
        if text != document.source.text or not path.exists():
            replace_file(path, document.source.encode(text))
    except BaseException:
        if undo is not None:
            undo()
        raise


def remove(path: Path, keys: Iterable[str]) -> list[str]:
    """Remove entries; return the keys of those that the file held. Raises BaselineError as `update`."""
    path = real_path(path)
    wanted = dict.fromkeys(keys)
    if not path.is_file():
        read(path)  # raises the error
    with locked(path):
        document = read(path)
        entries = document.baseline.entries
        changes = [Change(key, entries[key], None) for key in wanted if key in entries]
        if changes:
            replace_file(path, document.source.encode(edited(document, None, changes)))
    return [change.key for change in changes]


def init(path: Path, identity: DeviceIdentity) -> Path:
    """Make a device's file without entries; return its path without links.

    Raises BaselineError where the file exists, or cannot be written.
    """
    path = real_path(path)
    make_folder(path.parent, path)
    with locked(path):
        if path.exists():
            raise error(path, 1, "found a file there already, expected none of that name")
        replace_file(path, render_header(device_of(identity)).encode())
    return path


def _changes(baseline: Baseline, device: BaselineDevice, updates: Sequence[Entry], merge: Merge) -> list[Change]:
    changes: list[Change] = []
    for new in updates:
        old = baseline.entries.get(new.key)
        merged = merge(old, new)
        if merged is None or merged is old:
            continue
        after = settled(merged, device.peak_gbps)
        if after.utilization is not None and after.utilization > MAX_SHARE:
            found = f"found {after.utilization * 100:.4g} % of the peak for {shown(new.key)}"
            message = f"{found}, expected at most {MAX_SHARE * 100:g} %: correct the device's peak"
            raise error(baseline.path or "", device.line or 1, message)
        content = (entry_fields(after), setup_of(after), after.runs)
        if old is None or content != (entry_fields(old), setup_of(old), old.runs):
            changes.append(Change(new.key, old, after))
    return changes


# ---- entries in a file's text: only the touched entries' lines change, every other character stays -------------------

# An entry in a person's layout is edited by its lines: the parser's marks give each field's place. If fields share
# lines, or a changed value has several, the entry is written afresh, with its comments above it.
_SCHEMA_LINE = re.compile(r"^schema:[^\n]*\n", re.MULTILINE)
# In a text without its scalars, a ``#`` always begins a comment.
_COMMENT = re.compile(r"#[^\n]*")


class NotByLines(Exception):
    """Raised where fields share lines, a changed value has several, or the tests are not below a line ``tests:``."""


def edited(document: Document, device: BaselineDevice | None, changes: Sequence[Change]) -> str:
    """Return the file's text after the changes. `device` is written where the file names no device.

    The function reads the result back. Raises BaselineError where that differs from the intended content, so that it is
    never written.
    """
    baseline = document.baseline
    written = {change.key: change.after for change in changes if change.after is not None}
    keys = baseline.entries.keys() - {change.key for change in changes} | written.keys()
    with suppress(BaselineError, NotByLines, yaml.YAMLError):
        text = _by_lines(document, device if baseline.device is None else None, changes)
        found = read_text(SourceText(text), Path(baseline.path or ""), without_runs=True).baseline
        header = found.device == (baseline.device or device) and found.tolerance == baseline.tolerance
        # The text alone lacks recorded figures; each figure in it must be the entry's.
        if (
            header
            and found.entries.keys() == keys
            and all(_as_written(found.entries[key]) == _as_written(entry) for key, entry in written.items())
        ):
            return text
    first = changes[0].before if changes else None
    raise error(
        baseline.path or "",
        (first.line if first else None) or 1,
        "found a layout that cannot be edited safely, expected entries below a line tests: as updates write them: "
        "nothing was changed; write them so, or remove the entry by hand and update again",
    )


def _as_written(entry: Entry) -> dict[str, str]:
    """Return the fields that an entry's text holds by itself, without fields that its runs determine or record."""
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
        if block == render_entry(before, indent=_indent(block)):  # nearly all entries
            pieces.append(render_entry(after, indent=_indent(block)))
            continue
        try:  # editing its lines changes least
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
    root, line = document.root, document.root.lines.get("tests", 0)
    node = next((value for name, value in root.items if name.text == "tests"), None)
    if (
        root.flow
        or not re.fullmatch(r"tests:\s*(#.*)?\n", lines[line - 1])
        or (isinstance(node, MappingNode) and node.flow)
    ):
        raise NotByLines
    foot = min((other for other in root.lines.values() if other > line), default=len(lines) + 1) - 1
    tests = node.items if isinstance(node, MappingNode) else []
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


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip(" "))


def afresh(block: str, old: Entry, new: Entry) -> str:
    """Return an entry's lines as updates write them, below the old block's comments."""
    written = {name for name in RECORDED if re.search(rf"\b{name}['\"]?\s*:", block)}
    indent = _indent(block)
    above = "".join(f"{' ' * indent}{comment}\n" for comment in _comments(block))
    return above + render_entry(new, _still_written(written, old, new), indent)


def _still_written(written: set[str], old: Entry, new: Entry) -> set[str]:
    """Return the recorded fields that people wrote and an update keeps, because their values stay the same."""
    return {name for name in written & set(RECORDED) if getattr(old, name) == getattr(new, name)}


def _comments(text: str) -> list[str]:
    """Return the comments of a text in order: each begins with ``#`` outside of the scalars."""
    rest, at = [], 0
    for event in events_of(text):
        if isinstance(event, yaml.ScalarEvent):
            begun: Any = event.start_mark
            ended: Any = event.end_mark
            start = begun.index
            if event.style in ("|", ">"):  # the text of a literal block begins on the next line, after a comment
                start = text.index("\n", start) + 1
            end = max(start, ended.index)
            # Each of its characters is replaced: the rest keeps its place.
            rest += [text[at:start], re.sub(r"[^\n]", "x", text[start:end])]
            at = end
    masked = "".join([*rest, text[at:]])
    return [text[match.start() : match.end()].rstrip() for match in _COMMENT.finditer(masked)]


def edit_lines(block: str, old: Entry, new: Entry) -> str:
    """Edit the lines of one entry where old and new differ. Raises NotByLines where its layout forbids that."""
    fields, lines = _fields(block), block.splitlines(keepends=True)
    present = {one.name for one in fields}
    before = entry_fields(old, present)
    after = entry_fields(new, _still_written(present, old, new))
    places = {name: place for place, name in enumerate(ENTRY_FIELDS)}
    missing = [name for name in after if name not in present]
    blanks = " " * fields[0].column
    out = lines[: fields[0].first]
    for one, end in zip(fields, [*(later.first for later in fields[1:]), len(lines)], strict=True):
        own = lines[one.first : one.last + 1]
        earlier = [n for n in missing if places.get(n, len(places)) < places.get(one.name, 0)]
        missing = [name for name in missing if name not in earlier]
        out += [f"{blanks}{name}: {after[name]}\n" for name in earlier]
        if one.name in after and before.get(one.name) == after[one.name]:
            out += own
        elif one.name in after:
            if not one.value.line == one.end.line == one.first:
                raise NotByLines
            out.append(own[0][: one.value.column] + after[one.name] + own[0][one.end.column :])
        if one is fields[-1]:
            out += [f"{blanks}{word(name)}: {after[name]}\n" for name in missing]
        out += lines[one.last + 1 : end]
    return "".join(out)


@dataclass(slots=True)
class _Field:
    """Locate a field of an entry in its text. Lines and columns count from 0.

    first, column: where the key begins. value, end: where the value begins and ends. last: the line of its end.
    """

    name: str
    first: int
    column: int
    value: yaml.Mark
    end: yaml.Mark
    last: int


def _fields(block: str) -> list[_Field]:
    """Return the fields of the only entry of a text, each with lines of its own. Raises NotByLines."""
    root: Any = yaml.compose(block, Loader=LOADER)  # its only entry
    fields: list[_Field] = []
    for key, value in root.value[0][1].value:
        # A block's own end mark is on a later line: its last value's end counts.
        of_last = value.value[-1][1] if isinstance(value, yaml.MappingNode) and not value.flow_style else value
        begun, start, end = key.start_mark, value.start_mark, of_last.end_mark
        # A literal text ends where the next line begins.
        last = end.line - 1 if end.column == 0 and end.line > start.line else end.line
        fields.append(_Field(key.value, begun.line, begun.column, start, end, last))
    lines, ends = block.splitlines(), [0, *(one.last for one in fields)]
    if (
        len({one.column for one in fields}) != 1
        or any(one.first <= end for one, end in zip(fields, ends, strict=False))
        or any(lines[one.first][: one.column].strip() for one in fields)
    ):
        raise NotByLines
    return fields
