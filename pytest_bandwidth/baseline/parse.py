"""Parse YAML text into a tree of text scalars with line numbers; refuse what a baseline has no use for.

Nothing is typed and nothing constructed here: YAML 1.1 would turn the commit ``0123456`` into 42798.
The parser is asked for one event at a time, so that a hostile file ends at its first excess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

from pytest_bandwidth.baseline.source import TooMuch, Unreadable
from pytest_bandwidth.domain.text import INVISIBLE, shown

# libyaml's parser where PyYAML was built with it, else PyYAML's own: slower, same events.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

MAX_EVENTS = 500_000
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
    """Hold key and value pairs in the file's order."""

    line: int
    flow: bool
    items: list[tuple[Scalar, Node]] = field(default_factory=list)


@dataclass(slots=True)
class Sequence:
    line: int
    items: list[Node] = field(default_factory=list)


Node: TypeAlias = "Scalar | Mapping | Sequence"

Report = Callable[[int, str], None]


def parse(
    text: str, report: Report, line_of: Callable[[int], int] = lambda line: line, *, roots_repeat: bool = False
) -> Node | None:
    """Return the tree of a text's only document; None where there is none.

    report: called with each anchor, alias, tag, duplicate key or unsuitable scalar, with its line; reading goes on.
    line_of: line of the text (from 1) → line of the file.
    roots_repeat: leave it to the caller to find keys of the outermost mapping that are there twice.
    Raises Unreadable where reading cannot go on: no YAML, several documents, too deep, too much.
    """
    builder = _Builder(report, line_of, roots_repeat)
    try:
        for count, event in enumerate(events_of(text)):
            if count >= MAX_EVENTS:
                raise TooMuch(
                    builder.line_of(event.start_mark.line + 1),
                    f"found more than {MAX_EVENTS} YAML items, expected fewer",
                )
            builder.take(event)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        line = line_of(1 if mark is None else mark.line + 1)
        about = ", ".join(part for part in (problem.context, problem.problem) if part)
        raise Unreadable(line, f"found text that is no YAML ({about}), expected a baseline") from None
    except yaml.YAMLError as problem:
        raise Unreadable(
            line_of(1), f"found text that is no YAML ({shown(str(problem))}), expected a baseline"
        ) from None
    return builder.root


def events_of(text: str) -> Iterator[Any]:
    """Return the parser's events, with marks that count lines and columns from 0. Raises yaml.YAMLError."""
    events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)
    return events


class _Builder:
    """Put events together; a stack instead of recursion, because depth is the writer's choice."""

    def __init__(self, report: Report, line_of: Callable[[int], int], roots_repeat: bool) -> None:
        self.roots_repeat = roots_repeat
        self.report = report
        self.line_of = line_of
        self.root: Node | None = None
        self.documents = 0
        self.stack: list[Mapping | Sequence] = []
        self.pending: list[Scalar | None] = []
        self.seen: list[dict[str, int]] = []

    def take(self, event: Any) -> None:
        kind = type(event)
        if kind is yaml.ScalarEvent:
            line = self.line_of(event.start_mark.line + 1)
            self._refuse_properties(event, line)
            self._add(Scalar(self._checked(event.value, line), line))
        elif kind is yaml.MappingStartEvent:
            line = self.line_of(event.start_mark.line + 1)
            self._refuse_properties(event, line)
            self._open(Mapping(line, bool(event.flow_style)))
        elif kind is yaml.SequenceStartEvent:
            line = self.line_of(event.start_mark.line + 1)
            self._refuse_properties(event, line)
            self._open(Sequence(line))
        elif kind in (yaml.MappingEndEvent, yaml.SequenceEndEvent):
            self.stack.pop()
            self.pending.pop()
            self.seen.pop()
        elif kind is yaml.AliasEvent:
            line = self.line_of(event.start_mark.line + 1)
            self.report(line, f"found the alias *{event.anchor[:40]}, expected its value written out")
            self._add(Scalar("", line))
        elif kind is yaml.DocumentStartEvent:
            self.documents += 1
            line = self.line_of(event.start_mark.line + 1)
            if self.documents > 1:
                raise Unreadable(line, "found a second YAML document, expected one")
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
        # Escapes inside double quotes can spell what the raw text may not hold.
        if match := INVISIBLE.search(text):
            self.report(line, f"found the character U+{ord(match[0]):04X}, expected visible text")
        return text

    def _open(self, node: Mapping | Sequence) -> None:
        if len(self.stack) >= MAX_DEPTH:
            raise Unreadable(
                node.line,
                f"found values nested deeper than {MAX_DEPTH}, expected schema → entries → entry → runs → run",
            )
        self._add(node)
        self.stack.append(node)
        self.pending.append(None)
        self.seen.append({})

    def _add(self, node: Node) -> None:
        if not self.stack:
            self.root = node
            return
        parent = self.stack[-1]
        if isinstance(parent, Sequence):
            parent.items.append(node)
            return
        key = self.pending[-1]
        if key is None:
            self.pending[-1] = self._key(node)
        else:
            parent.items.append((key, node))
            self.pending[-1] = None

    def _key(self, node: Node) -> Scalar:
        if not isinstance(node, Scalar):
            self.report(node.line, "found a list or mapping as a key, expected text")
            node = Scalar("", node.line)
        if len(node.text) > MAX_KEY_CHARACTERS or "\n" in node.text:
            self.report(
                node.line,
                f"found the key {shown(node.text)}, expected one line of at most {MAX_KEY_CHARACTERS} characters",
            )
        seen = self.seen[-1]
        if self.roots_repeat and len(self.stack) == 1:
            return node
        if node.text in seen:
            self.report(
                node.line, f"found {shown(node.text)} twice (first on line {seen[node.text]}), expected it once"
            )
        else:
            seen[node.text] = node.line
        return node
