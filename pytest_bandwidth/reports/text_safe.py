"""Text from anywhere made fit for a page: bounded, and without marks that hide or reorder what stands beside them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from pytest_bandwidth.domain.text import escaped

TEXT_AT_MOST = 4_000
_BEFORE_UNIT = re.compile(r"(?<=[0-9]) (?=(?:%|[kMGT]?B(?:/s)?|[nµm]?s|MHz|FLOP/byte)(?![A-Za-z]))")


def clean(value: str, at_most: int = TEXT_AT_MOST) -> str:
    """Text fit for any page: bounded, and with marks that hide or reorder text shown as escapes."""
    cut = value if len(value) <= at_most else f"{value[:at_most]} … ({len(value) - at_most} more characters)"
    return escaped(cut)


def prose(value: str, at_most: int = TEXT_AT_MOST) -> str:
    """Cleaned sentences in which no line breaks between a number and its unit."""
    return _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", clean(value, at_most))


@lru_cache(maxsize=1024)  # commits, statuses and devices stand in thousands of rows
def one_line(value: str, at_most: int) -> str:
    """Cleaned text on one line; where too long, its middle gives way to an ellipsis, for the ends tell tests apart."""
    flat = " ".join(value.split())
    if len(flat) > at_most:
        tail = at_most // 3
        flat = f"{flat[: at_most - tail - 1]}…{flat[-tail:]}"
    return clean(flat, at_most + 1)


def scalar_text(value: object) -> str:
    """A setting's or fact's value as text; nested values as they would be typed, bounded."""
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
    """A mapping's key as text."""
    return clean(str(name), 100)


def _short(value: object) -> str:
    return "…" if isinstance(value, Mapping | list | tuple) else scalar_text(value)
