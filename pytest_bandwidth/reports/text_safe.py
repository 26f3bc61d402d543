"""Make text from anywhere safe for terminals, logs and pages, shorten it to fit, and lay out tables of it."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from pytest_bandwidth.domain.text import escaped

if TYPE_CHECKING:
    from pytest_bandwidth.outcomes.outcome import Outcome

TEXT_AT_MOST = 4_000
_BEFORE_UNIT = re.compile(r"(?<=[0-9]) (?=(?:%|[kMGT]?B(?:/s)?|[nµm]?s|MHz|FLOP/byte)(?![A-Za-z]))")
# Commands for the runners of GitHub, Azure and TeamCity, at the beginning of a line of a log or inside it.
# https://github.com/actions/runner/blob/main/src/Runner.Common/ActionCommand.cs
_COMMAND = re.compile(r"^\s*:(?=:)|#(?=#\w*\[)")


def printable(text: str) -> str:
    """Return one line for a terminal or a log: invisible characters as escapes, commands of CI broken up."""
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in escaped(text))
    return _COMMAND.sub(r"\g<0> ", line)


def printable_lines(text: str) -> str:
    """Return text of several lines for a terminal or a log: each line by `printable`."""
    return "\n".join(map(printable, text.expandtabs().split("\n")))


def printable_sentence(text: str) -> str:
    """Return text of any number of lines as one, for a place where a second line could be taken for another message."""
    return printable(" ".join(text.split()))


def json_for_log(value: object) -> str:
    """Return strict JSON in ASCII, which every locale can carry, and in which no log finds a command of CI."""
    return json.dumps(value, indent=1, allow_nan=False).replace("##", "#\\u0023")


def width_of(text: str) -> int:
    """Return how many columns of a terminal a printable line takes: East Asian wide characters two, marks none."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def padded(text: str, width: int, *, left: bool = True) -> str:
    """Fill text up to so many columns, with spaces after it, or before it to align it at the right."""
    spaces = " " * (width - width_of(text))
    return f"{text}{spaces}" if left else f"{spaces}{text}"


def shortened(text: str, width: int) -> str:
    """Return the text, or its two ends around an ellipsis; width: in columns, as `width_of` counts them."""
    if width_of(text) <= width:
        return text
    left = (width - 1) // 4  # names of tests mostly differ at the end
    end = _fitting(reversed(text), width - 1 - left)
    return f"{start_of(text, left)}…{text[len(text) - end :]}"


def start_of(text: str, width: int) -> str:
    """Return as much of the text's start as fits into so many columns."""
    return text[: _fitting(text, width)]


def _fitting(text: Iterable[str], width: int) -> int:
    """Return how many characters of the text fit into so many columns."""
    count = 0
    for character in text:
        width -= _columns(character)
        if width < 0:
            break
        count += 1
    return count


@lru_cache(maxsize=4096)
def _columns(character: str) -> int:
    # Vowels and final consonants of Hangul, too, are drawn into the syllable before them.
    if unicodedata.category(character) in ("Mn", "Me", "Cf") or "\u1160" <= character <= "\u11ff":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def clean(value: str, at_most: int = TEXT_AT_MOST) -> str:
    """Return text fit for any page: bounded, and with marks that hide or reorder text shown as escapes."""
    cut = value if len(value) <= at_most else f"{value[:at_most]} … ({len(value) - at_most} more characters)"
    return escaped(cut)


def prose(value: str) -> str:
    """Return cleaned sentences in which no line breaks between a number and its unit."""
    return _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", clean(value))


@lru_cache(maxsize=1024)  # commits, statuses and devices repeat in thousands of rows
def one_line(value: str, at_most: int) -> str:
    """Return cleaned text on one line; an ellipsis replaces the middle of a long one, since names differ at ends."""
    flat = " ".join(value.split())
    if len(flat) > at_most:
        tail = at_most // 3
        flat = f"{flat[: at_most - tail - 1]}…{flat[-tail:]}"
    return clean(flat, at_most + 1)


def scalar_text(value: object) -> str:
    """Return a setting's or fact's value as text; nested values as they would be typed, bounded."""
    if type(value) is str:  # nearly all
        return clean(value, 400)
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return clean(", ".join(scalar_text(item) for item in value[:50]), 400)
    if isinstance(value, Mapping):
        kept = ((k, "…" if isinstance(v, Mapping | list | tuple) else scalar_text(v)) for k, v in [*value.items()][:50])
        return clean(", ".join(f"{key_text(k)}: {v}" for k, v in kept), 400)
    return clean(str(value), 400)


def key_text(name: object) -> str:
    """Return a mapping's key as text."""
    return clean(str(name), 100)


# ---- tables: short names that are still distinct, in the order that people expect, and columns -----------------------

_DIGITS = re.compile("([0-9]+)")
NARROWEST_NAME = 20
GAP = "  "


def shortest_unique(nodeids: Iterable[str]) -> dict[str, str]:
    """Map each node id to its shortest unique end of whole path components: ``a/test_x.py::t``."""
    parts: dict[str, tuple[tuple[str, ...], str]] = {}
    for nodeid in nodeids:
        # The folders of its file, and the rest; a slash in a parameter is not a separator.
        path, bracket, parameters = nodeid.partition("[")
        file, colons, test = path.partition("::")
        in_file = PurePosixPath(file)
        parts[nodeid] = in_file.parts[:-1], f"{in_file.name or file}{colons}{test}{bracket}{parameters}"
    names: dict[str, str] = {}
    left, folders = list(parts), 0
    while left:
        ends = {}
        for nodeid in left:
            place, rest = parts[nodeid]
            ends[nodeid] = "/".join((*place[max(len(place) - folders, 0) :], rest))
        times = Counter(ends.values())
        deepest = max(len(parts[nodeid][0]) for nodeid in left)
        names |= {nodeid: end for nodeid, end in ends.items() if times[end] == 1 or folders >= deepest}
        left, folders = [nodeid for nodeid in left if nodeid not in names], folders + 1
    return names


def names_among(outcomes: Iterable[Outcome]) -> Callable[[Outcome], str]:
    """Return a function that names each outcome by its shortest unique path and its label."""
    names = shortest_unique(outcome.nodeid for outcome in outcomes)

    def name(outcome: Outcome) -> str:
        short = names[outcome.nodeid]
        return f"{short} @ {outcome.label}" if outcome.label else short

    return name


def without_common_part(names: Sequence[str]) -> tuple[str, list[str]]:
    """Return a column's heading and its names, without the file or the test that all of them have in common.

    For one parametrized test, the heading has the name, ``test_operation[…]``, and the rows have the parameters.
    """
    if len(names) < 2:
        return "test", list(names)
    tests = {name.partition("[")[0] for name in names}
    if len(tests) == 1 and all("[" in name and name.endswith("]") for name in names):
        (test,) = tests
        return f"{test.rpartition('::')[2]}[…]", [name[len(test) + 1 : -1] for name in names]
    if len({name.partition("::")[0] for name in names}) == 1:
        return "test", [name.partition("::")[2] or name for name in names]
    return "test", list(names)


def natural(name: str) -> tuple[tuple[int, str] | str, ...]:
    """Return a sort key that puts 2 before 10; numbers of any length."""
    parts = _DIGITS.split(name)
    return tuple((len(part.lstrip("0")), part.lstrip("0")) if i % 2 else part for i, part in enumerate(parts))


def laid_out(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: Collection[str] = (),
    width: int | None = None,
    names_whole: bool = False,
) -> list[tuple[str | None, list[str]]]:
    """Return the heading's padded cells and those of each row. Columns without content in any row are left out.

    left: headings of further columns of words; all others hold figures, which are aligned at the right.
    width: the limit in columns, for which names are shortened as long as they stay legible; None for no limit.
    names_whole: return a name that does not fit before its row's cells, for a line above, instead of shortening it.
    """
    kept = [i for i in range(len(headings)) if i == 0 or any(row[i] for row in rows)]
    texts = [[printable(line[i]) for i in kept] for line in (headings, *rows)]
    widths = [max(map(width_of, column)) for column in zip(*texts, strict=True)]
    if width is not None:
        widths[0] = min(widths[0], max(width - sum(widths[1:]) - len(GAP) * (len(widths) - 1), NARROWEST_NAME))
    at_left = [i == 0 or headings[i] in left for i in kept]
    lines: list[tuple[str | None, list[str]]] = []
    for cells in texts:
        name = cells[0] if names_whole and width_of(cells[0]) > widths[0] else None
        shown = cells if name is None else ["", *cells[1:]]
        fitted = [
            padded(shortened(cell, size) if left else cell, size, left=left)
            for cell, size, left in zip(shown, widths, at_left, strict=True)
        ]
        lines.append((name, fitted))
    return lines


def aligned(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[str] = (), width: int | None = None
) -> list[str]:
    """Return the lines of a table by `laid_out`, with names shortened."""
    return [GAP.join(cells).rstrip() for _, cells in laid_out(headings, rows, left=left, width=width)]
