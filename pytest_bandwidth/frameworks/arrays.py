"""Find arrays in nested containers, and tell which framework they belong to and where in memory they lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, fields, is_dataclass
from types import GeneratorType
from typing import Any

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.frameworks.extents import Extent, distinct_bytes
from pytest_bandwidth.frameworks.known import framework_of

# A container that is larger, or nested deeper, is no list of arrays; one that holds itself is as deep as one likes.
MOST_VISITED = 100_000
DEEPEST = 100


@dataclass(frozen=True, slots=True)
class FoundArray:
    """Hold an array that was found: how the caller would write it (``x``, ``batch['w'][0]``), and where it lies.

    known_to_devices: whether a device can size it.
    """

    path: str
    framework: str
    array: Any
    extent: Extent
    known_to_devices: bool = True


@dataclass(frozen=True, slots=True)
class ArrayGroup:
    """Hold arrays that one side of a declaration names, and their distinct bytes."""

    nbytes: int
    arrays: tuple[Any, ...]


def arrays_in(value: object, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the arrays in a value, containers in it included, with their paths; scalars and all else are passed over.

    Containers are tuples, lists, mappings' values, sets and dataclasses. Raises UsageError for a generator, whose
    arrays cannot be seen without using it up, and for what is too large or nested too deep.
    """
    pending: list[tuple[int, str, object]] = [(0, path, value)]
    visited = 0
    while pending:
        depth, where, one = pending.pop()
        visited += 1
        if visited > MOST_VISITED or depth > DEEPEST:
            raise UsageError(f"{path} holds too much, or is nested too deep, to find its arrays: declare bytes")
        if framework_of(one) is not None:
            yield where, one
        else:
            pending += [(depth + 1, *inner) for inner in reversed(list(_inside(one, where)))]


def _inside(value: object, path: str) -> Iterable[tuple[str, object]]:
    if isinstance(value, (GeneratorType, Iterator)):
        raise UsageError(
            f"{path} is a {type(value).__name__}, whose arrays cannot be seen without using it up, and which one run "
            "would leave empty: expected a list or a tuple"
        )
    if isinstance(value, Mapping):
        return ((f"{path}[{shown(key)}]", inner) for key, inner in value.items())
    if isinstance(value, (tuple, list)):
        return ((f"{path}[{place}]", inner) for place, inner in enumerate(value))
    if isinstance(value, Set):
        return ((f"{path}{{…}}", inner) for inner in value)
    if is_dataclass(value) and not isinstance(value, type):
        return ((f"{path}.{field.name}", getattr(value, field.name)) for field in fields(value))
    return ()


def located(path: str, array: Any) -> FoundArray:
    """Return an array with its place in memory. Raises UsageError where it has none, or cannot be measured as it is."""
    framework = framework_of(array)
    if framework is None:
        raise UsageError(f"{path} is a {type(array).__name__}, expected an array")
    return FoundArray(path, framework.name, array, framework.extent(array, path), framework.known_to_devices)


def grouped(found: Sequence[FoundArray], views: dict[Extent, Any]) -> ArrayGroup:
    """Return the arrays as one part of a declaration: each byte once. Raises UsageError (see `distinct_bytes`).

    views: NumPy's views of host arrays, by place, of the whole declaration: what is read and written is one object.
    """
    for one in found:
        if one.extent not in views and one.known_to_devices:
            views[one.extent] = _as_numpy(one.array)
    extents = dict.fromkeys(one.extent for one in found)
    return ArrayGroup(distinct_bytes(extents), tuple(views[extent] for extent in extents if extent in views))


def refuse_mixed(found: Iterable[FoundArray]) -> None:
    """Raise UsageError where arrays of one call belong to two frameworks: they are not waited for in the same way."""
    firsts: dict[str, str] = {}
    for one in found:
        firsts.setdefault(one.framework, one.path)
    if len(firsts) > 1:
        (name, path), (other, elsewhere) = list(firsts.items())[:2]
        raise UsageError(
            f"arrays of two frameworks in one call: {path} is {name}'s, {elsewhere} is {other}'s; "
            "expected those of one, or the arrays and bytes that it moves by name"
        )


def _as_numpy(array: Any) -> Any:
    """Return a view of a host array as NumPy's, over the same memory; the array itself where there is none."""
    framework = framework_of(array)
    view = None if framework is None else framework.as_numpy(array)
    return array if view is None else view
