"""Take values out of the nested mappings of a row, whose types `storage.saved_run` has checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Plain = Mapping[str, Any]


def number(plain: Plain, name: str) -> float | None:
    """Return a number, None where absent."""
    value = plain.get(name)
    return None if value is None else float(value)


def text(plain: Plain, name: str) -> str:
    """Return a text, empty where absent."""
    return plain.get(name) or ""


def mapping(plain: Plain, name: str) -> Mapping[str, Any]:
    """Return a mapping, empty where absent."""
    return plain.get(name) or {}


def sequence(plain: Plain, name: str) -> Sequence[Any]:
    """Return a list, empty where absent."""
    return plain.get(name) or ()
