"""Find where the entries of a baseline file begin and end, as text.

Lines are divided here by their indentation alone. `reader` then checks that YAML divides them at the same places;
where it does not (a quoted text over several lines, say), the division is dropped and the parser gets the whole file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pytest_bandwidth.baseline.source import TooMuch

# Blank and comment lines after entries, in all of a file: each is looked at by itself, a million in about a second.
MAX_LINES_BETWEEN = 1_000_000
ENTRIES_LINE = re.compile(r"^entries:(?:[ ]*|[ ]+#[^\n]*)(?:\n|\Z)", re.MULTILINE)
_FOOT = re.compile(r"\n[^ \n#]")
_FIRST_ENTRY = re.compile(r"\n( +)[^ \n#]")


@dataclass(frozen=True, slots=True)
class Layout:
    """Hold offsets into a file's text: head (with the ``entries:`` line) [0, body), body [body, foot), foot to the end.

    blocks: one (start, end) per entry, without blank and comment lines after it.
    indent: blanks before an entry's key.
    """

    head_end: int
    body: int
    foot: int
    indent: int
    blocks: tuple[tuple[int, int], ...]


def divide(text: str) -> Layout | None:
    """Return the layout of a file whose entries stand in block style under an ``entries:`` line; None for any other.

    Raises TooMuch for more than `MAX_LINES_BETWEEN` blank and comment lines.
    """
    entries_line = ENTRIES_LINE.search(text)
    if entries_line is None:
        return None
    body = entries_line.end()
    # Each pattern begins at the newline before a line: a literal first character makes the search fast.
    foot_match = _FOOT.search(text, body - 1)
    foot = len(text) if foot_match is None else foot_match.start() + 1
    first = _FIRST_ENTRY.search(text, body - 1, foot)
    if first is None:
        return Layout(entries_line.start(), body, foot, 2, ())
    indent = len(first[1])
    starts = [match.start() + 1 for match in _block_start(indent).finditer(text, body - 1, foot)]
    if not starts or starts[0] != first.start() + 1:
        return None
    ends = [*starts[1:], foot]
    trivia = re.compile(rf"[ ]*(?:\n|\Z)|[ ]{{0,{indent}}}#[^\n]*(?:\n|\Z)")
    blocks = []
    left = MAX_LINES_BETWEEN
    for start, end in zip(starts, ends, strict=True):
        content, left = _without_trivia(text, start, end, trivia, left)
        blocks.append((start, content))
    return Layout(entries_line.start(), body, foot, indent, tuple(blocks))


def _block_start(indent: int) -> re.Pattern[str]:
    # A line that begins with ": " is the value of a "? key" line above it.
    return re.compile(rf"\n {{{indent}}}(?:(?=[^ \n#:])|(?=:[^ \n]))")


def _without_trivia(text: str, start: int, end: int, trivia: re.Pattern[str], left: int) -> tuple[int, int]:
    """Return where a block ends without the blank and comment lines after it, and how many more there may be."""
    while True:
        line = text.rfind("\n", start, end - 1) + 1
        if line <= start or not trivia.fullmatch(text, line, end):
            return end, left
        if left == 0:
            at = text.count("\n", 0, line) + 1
            raise TooMuch(at, f"found more than {MAX_LINES_BETWEEN} blank and comment lines, expected fewer")
        end = line
        left -= 1
