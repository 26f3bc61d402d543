"""Values out of plain mappings, their types checked: each error says where, what was found, what is expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import shown

# Beyond it a number counts as infinite, nearer to zero than its inverse as zero: no figure is out there, and whatever
# is computed from up to four of them stays finite.
LARGEST = 1e75

Plain = Mapping[str, Any]


def number(plain: Plain, name: str, where: str = "") -> float | None:
    """A finite number or None. Raises UsageError for any other type."""
    value = plain.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(where, name, value, "a number")
    if not abs(value) < LARGEST:  # NaN is not under anything
        return None
    return float(value) if abs(value) > 1 / LARGEST else 0.0


def text(plain: Plain, name: str, where: str = "") -> str:
    """Text, empty where absent. Raises UsageError for any other type."""
    return optional_text(plain, name, where) or ""


def optional_text(plain: Plain, name: str, where: str = "") -> str | None:
    value = plain.get(name)
    if value is not None and not isinstance(value, str):
        raise wrong_type(where, name, value, "text")
    return value


def mapping(plain: Plain, name: str, where: str = "") -> Mapping[str, Any]:
    """A mapping, empty where absent. Raises UsageError for any other type."""
    value = plain.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise wrong_type(where, name, value, "a mapping")
    return value


def sequence(plain: Plain, name: str, where: str = "") -> Sequence[Any]:
    """A list, empty where absent. Raises UsageError for any other type."""
    value = plain.get(name)
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise wrong_type(where, name, value, "a list")
    return value


def mappings(plain: Plain, name: str, where: str = "") -> list[Mapping[str, Any]]:
    """A list of mappings, empty where absent. Raises UsageError for anything else in it."""
    found = sequence(plain, name, where)
    for item in found:
        if not isinstance(item, Mapping):
            raise wrong_type(where, name, item, "mappings only")
    return list(found)


def numbers(plain: Plain, name: str, where: str = "") -> tuple[float, ...]:
    """The finite numbers of a list. Raises UsageError for anything else in it."""
    kept = []
    for value in sequence(plain, name, where):
        # Samples are by far the most values of a document: the usual ones pass without a call.
        known = value if type(value) is float and 1e-30 < value < 1e30 else number({name: value}, name, where)
        if known is not None:
            kept.append(known)
    return tuple(kept)


def wrong_type(where: str, name: str, value: object, expected: str) -> UsageError:
    place = f"{where}.{name}" if where else name
    return UsageError(f"{place} is {shown(value)}, expected {expected}")
