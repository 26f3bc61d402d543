"""Make text from anywhere fit for terminals, logs and pages: bounded, without marks that hide or reorder others."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import lru_cache

from pytest_bandwidth.domain.text import escaped

TEXT_AT_MOST = 4_000
_BEFORE_UNIT = re.compile(r"(?<=[0-9]) (?=(?:%|[kMGT]?B(?:/s)?|[nµm]?s|MHz|FLOP/byte)(?![A-Za-z]))")
# What GitHub's runner takes for a command, where a line of a log begins with it, or holds it; Azure's and TeamCity's
# likewise. https://github.com/actions/runner/blob/main/src/Runner.Common/ActionCommand.cs
_COMMAND = re.compile(r"^\s*:(?=:)|#(?=#\w*\[)")


def printable(text: str) -> str:
    """Return one line for a terminal or a log: invisible characters as escapes, commands of CI broken up."""
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in escaped(text))
    return _COMMAND.sub(r"\g<0> ", line)


def printable_lines(text: str) -> str:
    """Return text of several lines for a terminal or a log: each as `printable` has it."""
    return "\n".join(map(printable, text.expandtabs().split("\n")))


def printable_sentence(text: str) -> str:
    """Return text of any number of lines as one, for where another line would be taken for somebody else's."""
    return printable(" ".join(text.split()))


def json_for_log(value: object) -> str:
    """Return strict JSON in ASCII, which every locale can carry, and in which no log finds a command of CI."""
    return json.dumps(value, indent=1, allow_nan=False).replace("##", "#\\u0023")


def width_of(text: str) -> int:
    """Return how many columns of a terminal a printable line takes: East Asian wide characters two, marks none."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def padded(text: str, width: int, *, left: bool = True) -> str:
    """Fill text up to so many columns, with spaces after it, or before it where it is to stand at the right."""
    spaces = " " * (width - width_of(text))
    return f"{text}{spaces}" if left else f"{spaces}{text}"


def shortened(text: str, width: int) -> str:
    """Return the text, or its two ends around an ellipsis; width: in columns, as `width_of` counts them."""
    if width_of(text) <= width:
        return text
    left = (width - 1) // 4  # what tells tests apart mostly stands at the end
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


@lru_cache(maxsize=1024)  # commits, statuses and devices stand in thousands of rows
def one_line(value: str, at_most: int) -> str:
    """Return cleaned text on one line; an ellipsis for its middle where it is too long: ends tell tests apart."""
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
        told = ((k, "…" if isinstance(v, Mapping | list | tuple) else scalar_text(v)) for k, v in [*value.items()][:50])
        return clean(", ".join(f"{key_text(k)}: {v}" for k, v in told), 400)
    return clean(str(value), 400)


def key_text(name: object) -> str:
    """Return a mapping's key as text."""
    return clean(str(name), 100)
