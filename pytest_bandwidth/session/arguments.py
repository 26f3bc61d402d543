"""Checks of what a test hands the fixture: shapes, launch geometry, labels, callables, tags."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_bandwidth.devices.base import Dim, Launch
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import shown

LONGEST_LABEL = 200


def checked_launch(
    kernel: Any, grid: int | Sequence[int], block: int | Sequence[int], args: Sequence[Any], shared_mem: int
) -> Launch:
    """The launch, its geometry checked."""
    if isinstance(args, (str, bytes)) or not isinstance(args, Sequence):
        raise UsageError(f"launch: args is a {type(args).__name__}, expected a tuple of the kernel's arguments")
    if isinstance(shared_mem, bool) or not isinstance(shared_mem, int) or shared_mem < 0:
        raise UsageError(f"launch: shared_mem={shown(shared_mem)}, expected bytes, 0 or more")
    return Launch(kernel, _dim("grid", grid), _dim("block", block), tuple(args), shared_mem)


def checked_shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    sizes = _sizes(shape, least=0)
    if sizes is None:
        raise UsageError(f"shape={shown(shape)}, expected a whole number or a sequence of them, not negative")
    return sizes


def checked_label(label: str | None) -> str | None:
    if label is None:
        return None
    if not isinstance(label, str) or not label.strip() or len(label) > LONGEST_LABEL or not label.isprintable():
        raise UsageError(f"label={shown(label)}, expected printable text of 1 to {LONGEST_LABEL} characters")
    return label


def checked_callable(name: str, value: Any) -> Any:
    if value is not None and not callable(value):
        raise UsageError(f"{name}={shown(value)}, expected a callable without arguments")
    return value


def checked_tags(tags: Mapping[str, Any]) -> Mapping[str, Any]:
    """The tags, which travel as JSON: between processes, and into the document."""
    for name, value in tags.items():
        if not isinstance(name, str) or not (value is None or isinstance(value, (str, int, float))):
            raise UsageError(
                f"tags: found {shown(name)}: {shown(value)}, expected text as name, text or a number as value"
            )
    return tags


def _dim(name: str, dim: int | Sequence[int]) -> Dim:
    sizes = _sizes(dim, least=1)
    if sizes is None or not 1 <= len(sizes) <= 3:
        raise UsageError(f"launch: {name}={shown(dim)}, expected one to three whole numbers, each at least 1")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _sizes(value: object, *, least: int) -> tuple[int, ...] | None:
    """A whole number, or several, as ints (NumPy's are some, too); None for anything else or less than `least`."""
    one = _whole(value)
    found = (one,) if one is not None else tuple(map(_whole, value)) if isinstance(value, Iterable) else (None,)
    sizes = tuple(size for size in found if size is not None and size >= least)
    return sizes if len(sizes) == len(found) else None


def _whole(value: Any) -> int | None:
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None
