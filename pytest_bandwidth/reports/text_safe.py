"""Make text from anywhere fit for terminals, logs and pages: bounded, without marks that hide or reorder others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from pytest_bandwidth.domain.text import escaped

TEXT_AT_MOST = 4_000
_BEFORE_UNIT = re.compile(r"(?<=[0-9]) (?=(?:%|[kMGT]?B(?:/s)?|[nµm]?s|MHz|FLOP/byte)(?![A-Za-z]))")
# What GitHub's runner takes for a command, where a line of a log begins with it, or holds it; Azure's likewise.
# https://github.com/actions/runner/blob/main/src/Runner.Common/ActionCommand.cs
_COMMAND = re.compile(r"^\s*:(?=:)|#(?=#(?:vso)?\[)")


def printable(text: str) -> str:
    """Return one line for a terminal or a log: invisible characters as escapes, commands of CI broken up."""
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in escaped(text))
    return _COMMAND.sub(r"\g<0> ", line)


def shortened(text: str, width: int) -> str:
    """Return the text, or its two ends around an ellipsis."""
    if len(text) <= width:
        return text
    left = (width - 1) // 4  # what tells tests apart mostly stands at the end
    return f"{text[:left]}…{text[len(text) - (width - 1 - left) :]}"


def clean(value: str, at_most: int = TEXT_AT_MOST) -> str:
    """Return text fit for any page: bounded, and with marks that hide or reorder text shown as escapes."""
    cut = value if len(value) <= at_most else f"{value[:at_most]} … ({len(value) - at_most} more characters)"
    return escaped(cut)


def prose(value: str, at_most: int = TEXT_AT_MOST) -> str:
    """Return cleaned sentences in which no line breaks between a number and its unit."""
    return _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", clean(value, at_most))


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
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return clean(", ".join(scalar_text(item) for item in value[:50]), 400)
    if isinstance(value, Mapping):
        return clean(", ".join(f"{key_text(k)}: {_short(v)}" for k, v in list(value.items())[:50]), 400)
    return clean(str(value), 400)


def key_text(name: object) -> str:
    """Return a mapping's key as text."""
    return clean(str(name), 100)


def _short(value: object) -> str:
    return "…" if isinstance(value, Mapping | list | tuple) else scalar_text(value)
