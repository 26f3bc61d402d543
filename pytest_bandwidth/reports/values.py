"""Take values out of the nested mappings of a row, whatever a saved run holds there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Plain = Mapping[str, Any]


def number(plain: Plain, name: str) -> float | None:
    """Return a number, None where there is none."""
    value = plain.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def whole(value: object) -> int | None:
    """Return a value that is a whole number, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text(plain: Plain, name: str) -> str:
    """Return a text, empty where there is none."""
    value = plain.get(name)
    return value if isinstance(value, str) else ""


def mapping(plain: Plain, name: str) -> Plain:
    """Return a mapping, empty where there is none."""
    value = plain.get(name)
    return value if isinstance(value, Mapping) else {}


def sequence(plain: Plain, name: str) -> Sequence[Any]:
    """Return a list, empty where there is none."""
    value = plain.get(name)
    return value if isinstance(value, list | tuple) else ()


def mappings(plain: Plain, name: str) -> list[Plain]:
    """Return those of a list's values that are mappings."""
    return [value for value in sequence(plain, name) if isinstance(value, Mapping)]
