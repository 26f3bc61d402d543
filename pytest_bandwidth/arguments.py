"""Checks of what a test hands the fixture: shapes, launch geometry, labels, callables, tags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_bandwidth.devices.base import Dim, Launch
from pytest_bandwidth.domain.errors import UsageError, shown

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


def checked_shape(shape: int | Sequence[int]) -> int | tuple[int, ...]:
    dims = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(isinstance(d, bool) or not hasattr(d, "__index__") or int(d) < 0 for d in dims):
        raise UsageError(f"shape={shown(shape)}, expected a whole number or a sequence of them, not negative")
    return tuple(int(d) for d in dims)


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
    dims = (dim,) if hasattr(dim, "__index__") else tuple(dim) if isinstance(dim, Sequence) else ()
    if not 1 <= len(dims) <= 3 or any(isinstance(d, bool) or not hasattr(d, "__index__") or int(d) < 1 for d in dims):
        raise UsageError(f"launch: {name}={shown(dim)}, expected one to three whole numbers, each at least 1")
    x, y, z = (*(int(d) for d in dims), 1, 1)[:3]
    return x, y, z
