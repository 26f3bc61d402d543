"""Read a baseline file: canonical entries by the fast reader, all others by the YAML parser, together."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pytest_bandwidth.baseline.blocks import ENTRIES_LINE, Layout, divide
from pytest_bandwidth.baseline.fast_reader import CanonicalReader
from pytest_bandwidth.baseline.parse import Mapping, Scalar, parse
from pytest_bandwidth.baseline.schema import SchemaReader
from pytest_bandwidth.baseline.source import Problems, SourceText, TooMuch, Unreadable, read_source
from pytest_bandwidth.domain.baseline import Baseline, BaselineDevice, Entry
from pytest_bandwidth.domain.errors import BaselineError
from pytest_bandwidth.domain.gc_disabled import gc_disabled
from pytest_bandwidth.domain.text import shown

# What the YAML parser gets to see of one file, in characters: it needs about 0.3 s for each 2²⁰ of ordinary text, and
# at worst 1 s for each 2¹⁹ of whatever somebody thinks up.
MAX_PARSED_CHARACTERS = 4 * 2**20
_CONFLICT_MARKERS = ("\n<<<<<<< ", "\n=======\n", "\n>>>>>>> ")


@dataclass(frozen=True, slots=True)
class Document:
    """Hold a file as read: its values, and where each entry stands in its text (`layout` None: not known)."""

    source: SourceText
    baseline: Baseline
    layout: Layout | None
    spans: dict[str, tuple[int, int]]


def read(path: Path) -> Document:
    """Read a file. Raises BaselineError with all problems."""
    return read_text(read_source(path), str(path))


def read_device(path: Path) -> BaselineDevice | None:
    """Return the device of a file, by its head where that says so: a folder's other files are not read whole.

    Raises BaselineError where it cannot be told.
    """
    source = read_source(path)
    entries_line = ENTRIES_LINE.search(source.text)
    if entries_line is not None and entries_line.start() <= MAX_PARSED_CHARACTERS:
        problems = Problems(str(path))
        with suppress(Unreadable, BaselineError):
            head = parse(f"{source.text[: entries_line.start()]}entries: 0\n", problems.add)
            device, _, _ = SchemaReader(problems).header(head)
            if device is not None and not problems.found:
                return device
    return read_text(source, str(path)).baseline.device


def read_text(source: SourceText, file: str) -> Document:
    """Read a file's text. Raises BaselineError with all problems of `file`."""
    return _read_with(_read, source, file)


def read_undivided(source: SourceText, file: str) -> Document:
    """Read like `read_text`, by the YAML parser alone: the reference that the fast reading is held to."""
    return _read_with(_read_whole, source, file)


def _read_with(reader: Callable[[SourceText, Problems], Document], source: SourceText, file: str) -> Document:
    problems = Problems(file)
    try:
        with gc_disabled():  # what a file holds stays: looking through it again and again slows a large file's load
            document = reader(source, problems)
    except Unreadable as problem:
        problems.add(problem.line, problem.message)
    problems.raise_all()
    return document


def _read(source: SourceText, problems: Problems) -> Document:
    layout = divide(source.text)
    if layout is None:
        return _read_whole(source, problems)
    try:
        return _DividedReader(source, layout, problems).read()
    except TooMuch:
        raise
    except Unreadable as reason:
        problems.found.clear()
        try:
            return _read_whole(source, problems)
        except TooMuch:
            raise _explained(source.text, reason) from None


def _read_whole(source: SourceText, problems: Problems) -> Document:
    text = source.text
    if len(text) > MAX_PARSED_CHARACTERS:
        raise TooMuch(
            1,
            f"found {len(text)} characters unlike what updates write, expected at most {MAX_PARSED_CHARACTERS}",
        )
    try:
        root = parse(text, problems.add)
    except Unreadable as problem:
        raise _explained(text, problem) from None
    reader = SchemaReader(problems)
    device, tolerance, node = reader.header(root)
    entries: dict[str, Entry] = {}
    if isinstance(node, Mapping):
        for key, value in node.items:
            entry = reader.entry(key, value, device.peak_gbps if device else None)
            if entry is not None:
                entries[entry.key] = entry
    elif node is not None and not (isinstance(node, Scalar) and node.text == ""):
        problems.add(node.line, "entries: found no mapping, expected node ids, each with its fields below it")
    return Document(source, Baseline(device, entries, tolerance, problems.file), None, {})


def _explained(text: str, problem: Unreadable) -> Unreadable:
    """Name a merge conflict, which the parser stumbles over without knowing it for one."""
    lines = f"\n{text}\n"
    found = [(at, marker) for marker in _CONFLICT_MARKERS if (at := lines.find(marker)) >= 0]
    if not found:
        return problem
    at, marker = min(found)
    line = text.count("\n", 0, at) + 1
    return Unreadable(
        line, f"found the merge conflict marker {shown(marker.strip(chr(10)))}, expected a finished merge"
    )


class _Found(NamedTuple):
    span: tuple[int, int]
    line: int
    key: str
    entry: Entry | None


class _Undivided(Unreadable):
    """Raised where YAML does not divide a file as its indentation suggests, with a message for very large files."""

    def __init__(self, line: int) -> None:
        super().__init__(
            line,
            f"found entries unlike what updates write, expected such only in files of up to {MAX_PARSED_CHARACTERS} "
            "characters: give this part the form of the other entries",
        )


class _DividedReader:
    """Read a file by its layout."""

    def __init__(self, source: SourceText, layout: Layout, problems: Problems) -> None:
        self.source = source
        self.text = source.text
        self.layout = layout
        self.problems = problems
        self.reader = SchemaReader(problems)

    def read(self) -> Document:
        """Return the document. Raises Unreadable where only the whole file can tell; its problems are no use then."""
        device, tolerance = self._header()
        entries, spans = self._entries(device)
        return Document(self.source, Baseline(device, entries, tolerance, self.problems.file), self.layout, spans)

    def _header(self) -> tuple[BaselineDevice | None, float | None]:
        """Parse head and foot with a placeholder for the entries: where it lands shows if it is top-level."""
        layout, text = self.layout, self.text
        head, foot = text[: layout.head_end], text[layout.foot :]
        head_lines = head.count("\n")
        foot_line = text.count("\n", 0, layout.foot) + 1
        if len(head) + len(foot) > MAX_PARSED_CHARACTERS:
            raise _Undivided(1 if len(head) > len(foot) else foot_line)
        root = parse(
            f"{head}entries: 0\n{foot}",
            self.problems.add,
            lambda line: line if line <= head_lines + 1 else line - head_lines - 2 + foot_line,
        )
        places = (
            [(key.line, value) for key, value in root.items if key.text == "entries"]
            if isinstance(root, Mapping)
            else []
        )
        if (
            len(places) != 1
            or places[0][0] != head_lines + 1
            or not isinstance(places[0][1], Scalar)
            or places[0][1].text != "0"
        ):
            raise _Undivided(head_lines + 1)
        device, tolerance, _ = self.reader.header(root)
        return device, tolerance

    def _entries(self, device: BaselineDevice | None) -> tuple[dict[str, Entry], dict[str, tuple[int, int]]]:
        text, layout = self.text, self.layout
        canonical = CanonicalReader(device.peak_gbps if device else None)
        found: list[_Found] = []
        odd: list[_Found] = []
        line, at = 1, 0
        for span in layout.blocks:
            line += text.count("\n", at, span[0])
            at = span[0]
            entry = canonical.entry(text, *span, line) if layout.indent == 2 else None
            if entry is None:
                odd.append(_Found(span, line, "", None))
            else:
                found.append(_Found(span, line, entry.key, entry))
        if odd:
            parsed = self._parsed(odd, canonical.peak_gbps)
            found = sorted([*found, *parsed], key=lambda one: one.line)
        return self._without_duplicates(found)

    def _without_duplicates(self, found: list[_Found]) -> tuple[dict[str, Entry], dict[str, tuple[int, int]]]:
        lines: dict[str, int] = {}
        entries: dict[str, Entry] = {}
        spans: dict[str, tuple[int, int]] = {}
        for one in found:
            first = lines.setdefault(one.key, one.line)
            if first != one.line:
                self.problems.add(one.line, f"found {shown(one.key)} twice (first on line {first}), expected it once")
            if one.entry is not None:
                entries[one.key] = one.entry
                spans[one.key] = one.span
        return entries, spans

    def _parsed(self, odd: list[_Found], peak_gbps: float | None) -> list[_Found]:
        """Parse the blocks that are not canonical as one text.

        Sound because a block that is a whole key with its value, taken alone, is that in its file as well; that every
        block's first line holds a top-level key, and no other line does, shows that none reaches into the next.
        """
        if sum(end - start for (start, end), *_ in odd) > MAX_PARSED_CHARACTERS:
            raise _Undivided(odd[0].line)
        pieces = [self._piece(one) for one in odd]
        starts = [1]
        for piece in pieces:
            starts.append(starts[-1] + piece.count("\n"))

        def line_of(line: int) -> int:
            at = min(bisect_right(starts, line), len(odd)) - 1
            return odd[at].line + line - starts[at]

        root = parse("".join(pieces), self.problems.add, line_of, roots_repeat=True)
        if not isinstance(root, Mapping) or [key.line for key, _ in root.items] != [one.line for one in odd]:
            raise _Undivided(odd[0].line)
        return [
            _Found(one.span, one.line, key.text, self.reader.entry(key, value, peak_gbps))
            for one, (key, value) in zip(odd, root.items, strict=True)
        ]

    def _piece(self, one: _Found) -> str:
        piece = self.text[slice(*one.span)]
        return piece if piece.endswith("\n") else piece + "\n"
