"""Parse YAML text into a tree of text scalars with line numbers; refuse what a baseline has no use for.

Nothing is typed and nothing constructed here: YAML 1.1 would turn the commit ``0123456`` into 42798.
PyYAML's loader is asked for one event at a time, so that a hostile file ends at its first excess.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

from pytest_bandwidth.baseline.source import Problems
from pytest_bandwidth.domain.text import INVISIBLE, shown

# libyaml's parser where PyYAML was built with it, else PyYAML's own: slower, same events.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# An entry takes about 18: so many are 50,000 entries.
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
class Mapping:
    """Hold key and value pairs in the file's order, and the lines of the keys."""

    line: int
    flow: bool
    items: list[tuple[Scalar, Node]] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)
    key: Scalar | None = None


@dataclass(slots=True)
class Sequence:
    line: int
    items: list[Node] = field(default_factory=list)


Node: TypeAlias = "Scalar | Mapping | Sequence"


def parse(text: str, problems: Problems) -> Node | None:
    """Return the tree of a text's only document; None where there is none.

    Each anchor, alias, tag, duplicate key or unsuitable scalar is a problem, and reading goes on. Raises BaselineError
    where it cannot: no YAML, several documents, too deep, too much.
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
        raise problems.last(line, f"found text that is no YAML ({about}), expected a baseline") from None
    return builder.root


def events_of(text: str) -> Iterator[Any]:
    """Return the parser's events, with marks that count lines and columns from 0. Raises yaml.YAMLError."""
    events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)
    return events


class _Builder:
    """Put events together; a stack instead of recursion, because depth is the writer's choice."""

    def __init__(self, problems: Problems) -> None:
        self.problems, self.report = problems, problems.add
        self.root: Node | None = None
        self.documents = 0
        self.stack: list[Mapping | Sequence] = []

    def take(self, event: Any) -> None:
        kind = type(event)
        if kind is yaml.ScalarEvent:
            line = event.start_mark.line + 1
            if event.anchor is not None or event.tag is not None:
                self._refuse_properties(event, line)
            text = event.value
            # Escapes inside double quotes can spell what the raw text may not hold.
            if len(text) > MAX_SCALAR_CHARACTERS or not text.isprintable():
                text = self._checked(text, line)
            self._add(Scalar(text, line))
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            self.stack.pop()
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            line = event.start_mark.line + 1
            self._refuse_properties(event, line)
            if len(self.stack) >= MAX_DEPTH:
                message = f"found values nested deeper than {MAX_DEPTH}, expected tests → test → bytes → read"
                raise self.problems.last(line, message)
            node = Mapping(line, bool(event.flow_style)) if kind is yaml.MappingStartEvent else Sequence(line)
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
        if type(parent) is Sequence:
            parent.items.append(node)
        elif type(parent) is Mapping:
            if parent.key is None:
                parent.key = self._key(parent, node)
            else:
                parent.items.append((parent.key, node))
                parent.key = None

    def _key(self, parent: Mapping, node: Node) -> Scalar:
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
        return node
