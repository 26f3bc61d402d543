"""Turn a file's bytes into checked text, and YAML into a tree of text scalars with line numbers.

This module refuses features that a baseline does not need. It leaves scalars as text: YAML 1.1 would turn the commit
``0123456`` into 42798. PyYAML's loader returns one event at a time, so that reading stops at a hostile file's first
excess.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from pytest_bandwidth.baseline.files import error, read_bytes
from pytest_bandwidth.domain.errors import BaselineError, Problem
from pytest_bandwidth.domain.text import INVISIBLE, shown

MAX_FILE_BYTES = 512 * 2**20
MAX_PROBLEMS = 1000

_WANTED_BYTES = b"\t\n\r" + bytes(range(0x20, 0x7F)) + bytes(range(0x80, 0x100))
_LONE_RETURN = re.compile(r"\r(?!\n)")
_LONE_NEWLINE = re.compile(r"(?<!\r)\n")


@dataclass(slots=True)
class Problems:
    """Collect the problems of one file; limited, so that a hostile file cannot fill memory.

    expected: the expected kind of file, for messages.
    """

    file: str
    expected: str = "a baseline"
    found: list[Problem] = field(default_factory=list)

    def add(self, line: int, message: str) -> None:
        """Note a problem. Raises BaselineError with all so far once there are too many to be worth reading."""
        self.found.append(Problem(self.file, line, message))
        if len(self.found) >= MAX_PROBLEMS:
            more = Problem(self.file, line, f"stopped here: the file has {MAX_PROBLEMS} problems or more")
            raise BaselineError([*_sorted(self.found), more])

    def last(self, line: int, message: str) -> BaselineError:
        """Return the error of all so far and this one, after which reading cannot go on."""
        return BaselineError(_sorted([*self.found, Problem(self.file, line, message)]))

    def raise_all(self) -> None:
        """Raise BaselineError, by line, where anything was found."""
        if self.found:
            raise BaselineError(_sorted(self.found))


def _sorted(problems: list[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda problem: (problem.line, problem.message))


@dataclass(frozen=True, slots=True)
class SourceText:
    """Hold a file's text with ``\\n`` line ends, and the line end that the file itself uses."""

    text: str
    newline: str = "\n"

    def encode(self, text: str) -> bytes:
        """Return the bytes of a new text in this file's own line ends."""
        return (text if self.newline == "\n" else text.replace("\n", self.newline)).encode("utf-8")


def read_source(path: Path) -> SourceText:
    """Return a file's checked text. Raises BaselineError, with one problem, for what is no UTF-8 text or too large."""
    try:
        return decode(read_bytes(path, MAX_FILE_BYTES, "a baseline file"), Problems(str(path)))
    except FileNotFoundError:
        raise error(path, 0, "found no such file, expected a baseline: --bandwidth-update makes one") from None


def decode(data: bytes, problems: Problems) -> SourceText:
    """Return the checked text of a file's bytes. Raises BaselineError."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")):
        name = "UTF-8" if data[0] == 0xEF else "UTF-16"
        raise problems.last(1, f"found a byte order mark of {name}, expected plain UTF-8: save the file without one")
    if unwanted := data.translate(None, _WANTED_BYTES):
        at = data.index(unwanted[:1])
        message = f"found the byte 0x{unwanted[0]:02x}, expected text: this is not a YAML file"
        raise problems.last(data.count(b"\n", 0, at) + 1, message)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        message = f"found the byte 0x{data[problem.start]:02x}, expected UTF-8 text"
        raise problems.last(data.count(b"\n", 0, problem.start) + 1, message) from None
    newline = "\n"
    if "\r" in text:
        if not text.count("\r") == text.count("\r\n") == text.count("\n"):
            match = _LONE_RETURN.search(text) or _LONE_NEWLINE.search(text)
            assert match is not None  # the counts differ
            kind = "a lone carriage return" if match[0] == "\r" else "line ends of two kinds"
            line = text.count("\n", 0, match.start()) + 1
            raise problems.last(line, f"found {kind}, expected the same line ends throughout: convert the file")
        text, newline = text.replace("\r\n", "\n"), "\r\n"
    # `_WANTED_BYTES` excludes all other invisible characters of ASCII.
    if not data.isascii() and (match := INVISIBLE.search(text)):
        line = text.count("\n", 0, match.start()) + 1
        raise problems.last(line, f"found the character U+{ord(match[0]):04X}, expected visible text")
    return SourceText(text, newline)


# libyaml's parser where PyYAML was built with it, else PyYAML's own: slower, same events.
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# An entry takes about 18: so many events are 50,000 entries.
MAX_EVENTS = 1_000_000
MAX_DEPTH = 6
MAX_SCALAR_CHARACTERS = 8192
MAX_KEY_CHARACTERS = 4096


@dataclass(slots=True)
class Scalar:
    """Hold text as the file has it, after quotes and escapes; `line` counts from 1."""

    text: str
    line: int


@dataclass(slots=True)
class MappingNode:
    """Hold key and value pairs in the file's order, and the lines of the keys."""

    line: int
    flow: bool
    items: list[tuple[Scalar, Node]] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)
    key: Scalar | None = None


@dataclass(slots=True)
class SequenceNode:
    line: int
    items: list[Node] = field(default_factory=list)


Node: TypeAlias = "Scalar | MappingNode | SequenceNode"


def parse(text: str, problems: Problems) -> Node | None:
    """Return the tree of a text's only document; None for a text without a document.

    Each anchor, alias, tag, duplicate key or unsuitable scalar is a problem, and reading goes on. Raises BaselineError
    where it cannot go on: no YAML, several documents, too deep, too much.
    """
    builder = _Builder(problems)
    try:
        for count, event in enumerate(events_of(text)):
            if count >= MAX_EVENTS:
                message = f"found more than {MAX_EVENTS} YAML items, expected fewer"
                raise problems.last(event.start_mark.line + 1, message)
            builder.take(event)
    except yaml.YAMLError as problem:
        line, about = 1, shown(str(problem))
        if isinstance(problem, yaml.MarkedYAMLError):
            mark = problem.problem_mark or problem.context_mark
            line = 1 if mark is None else mark.line + 1
            about = ", ".join(part for part in (problem.context, problem.problem) if part)
        raise problems.last(line, f"found text that is not YAML ({about}), expected {problems.expected}") from None
    return builder.root


def events_of(text: str) -> Iterator[Any]:
    """Return the parser's events, with marks that count lines and columns from 0. Raises yaml.YAMLError."""
    events: Iterator[Any] = yaml.parse(text, Loader=LOADER)
    return events


class _Builder:
    """Build the tree from events; with a stack instead of recursion, because the file's writer chooses its depth."""

    def __init__(self, problems: Problems) -> None:
        self.problems, self.report = problems, problems.add
        self.root: Node | None = None
        self.documents = 0
        self.stack: list[MappingNode | SequenceNode] = []

    def take(self, event: Any) -> None:
        kind = type(event)
        if kind is yaml.ScalarEvent:
            line = event.start_mark.line + 1
            if event.anchor is not None or event.tag is not None:
                self._refuse_properties(event, line)
            text = event.value
            # Escapes inside double quotes can produce characters that the raw text may not hold.
            if len(text) > MAX_SCALAR_CHARACTERS or not text.isprintable():
                text = self._checked(text, line)
            self._add(Scalar(text, line))
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            self.stack.pop()
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            line = event.start_mark.line + 1
            self._refuse_properties(event, line)
            if len(self.stack) >= MAX_DEPTH:
                raise self.problems.last(line, f"found values nested deeper than {MAX_DEPTH}, expected fewer levels")
            node = MappingNode(line, bool(event.flow_style)) if kind is yaml.MappingStartEvent else SequenceNode(line)
            self._add(node)
            self.stack.append(node)
        elif kind is yaml.AliasEvent:
            line = event.start_mark.line + 1
            self.report(line, f"found the alias *{event.anchor[:40]}, expected its value written out")
            self._add(Scalar("", line))
        elif kind is yaml.DocumentStartEvent:
            self.documents += 1
            line = event.start_mark.line + 1
            if self.documents > 1:
                raise self.problems.last(line, "found a second YAML document, expected one")
            if event.version or event.tags:
                self.report(line, "found a YAML directive, expected none: remove the line that begins with %")

    def _refuse_properties(self, event: Any, line: int) -> None:
        if event.anchor is not None:
            self.report(line, f"found the anchor &{event.anchor[:40]}, expected values written out where they are used")
        if event.tag is not None:
            self.report(line, f"found the tag {shown(event.tag, 40)}, expected none: all values are plain text")

    def _checked(self, text: str, line: int) -> str:
        if len(text) > MAX_SCALAR_CHARACTERS:
            self.report(line, f"found {len(text)} characters, expected at most {MAX_SCALAR_CHARACTERS}")
            return text[:MAX_SCALAR_CHARACTERS]
        if match := INVISIBLE.search(text):
            self.report(line, f"found the character U+{ord(match[0]):04X}, expected visible text")
        return text

    def _add(self, node: Node) -> None:
        if not self.stack:
            self.root = node
            return
        parent = self.stack[-1]
        if isinstance(parent, SequenceNode):
            parent.items.append(node)
            return
        if parent.key is not None:
            parent.items.append((parent.key, node))
            parent.key = None
            return
        if not isinstance(node, Scalar):
            self.report(node.line, "found a list or mapping as a key, expected text")
            node = Scalar("", node.line)
        text = node.text
        if len(text) > MAX_KEY_CHARACTERS or "\n" in text:
            expected = f"expected one line of at most {MAX_KEY_CHARACTERS} characters"
            self.report(node.line, f"found the key {shown(text)}, {expected}")
        if text in parent.lines:
            self.report(node.line, f"found {shown(text)} twice (first on line {parent.lines[text]}), expected it once")
        else:
            parent.lines[text] = node.line
        parent.key = node
