"""Check what code of others brings: a hook's implementations, or a reporter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import shown

Kind = TypeVar("Kind")


def brought(name: str, found: Iterable[object], kind: type[Kind], called: str | None = None) -> list[Kind]:
    """Check that user code returned lists of `kind`, and return all their items.

    Raises UsageError that names the first value of another type.

    name: of the code that returned them. called: what the items are, where the type does not say it.
    """
    items: list[Kind] = []
    expected = f"expected a list of {called or kind.__name__}"
    for one in found:
        if not isinstance(one, (list, tuple)):
            raise UsageError(f"{name}: found {shown(one)}, {expected}: return one")
        for item in one:
            if not isinstance(item, kind):
                raise UsageError(f"{name}: found {shown(item)} in its list, {expected}: return that")
            items.append(item)
    return items
