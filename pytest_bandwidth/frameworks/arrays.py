"""Find arrays in nested containers, and tell which framework they belong to and where in memory they lie."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set, ValuesView
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
_NO_CONTAINERS = (str, bytes, bytearray, memoryview, range)


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


def arrays_in(value: object, path: str, *, passing_over: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield the arrays in a value, containers in it included, with their paths; scalars and all else are passed over.

    Containers are tuples, lists and other sequences, mappings' values, sets, dataclasses, PyTorch's lists of parameters
    and what JAX knows as a pytree. Raises UsageError for a generator, whose arrays cannot be seen without using it up,
    and for what is too large or nested too deep; passing_over: passes over those instead.
    """
    pending: list[tuple[int, str, object]] = [(0, path, value)]
    visited = 0
    while pending:
        depth, where, one = pending.pop()
        visited += 1
        if visited > MOST_VISITED or depth > DEEPEST:
            if passing_over:
                return
            raise UsageError(f"{path} holds too much, or is nested too deep, to find its arrays: declare bytes")
        if framework_of(one) is not None:
            yield where, one
        else:
            try:
                inside = list(_inside(one, where))
            except UsageError:
                if not passing_over:
                    raise
                continue
            pending += [(depth + 1, *inner) for inner in reversed(inside)]


def _inside(value: object, path: str) -> Iterable[tuple[str, object]]:
    if isinstance(value, (GeneratorType, Iterator)):
        raise UsageError(
            f"{path} is a {type(value).__name__}, whose arrays cannot be seen without using it up, and which one run "
            "would leave empty: expected a list or a tuple"
        )
    if isinstance(value, Mapping):
        return ((f"{path}[{shown(key)}]", inner) for key, inner in value.items())
    if isinstance(value, (Sequence, _parameter_list())) and not isinstance(value, _NO_CONTAINERS):
        return ((f"{path}[{place}]", inner) for place, inner in enumerate(value))
    if isinstance(value, (Set, ValuesView)):
        return ((f"{path}{{…}}", inner) for inner in value)
    if is_dataclass(value) and not isinstance(value, type):
        return ((f"{path}.{field.name}", getattr(value, field.name)) for field in fields(value))
    jax = sys.modules.get("jax")
    leaves = [] if jax is None else jax.tree_util.tree_leaves(value)
    return () if any(leaf is value for leaf in leaves) else ((f"{path}<{n}>", leaf) for n, leaf in enumerate(leaves))


def _parameter_list() -> Any:
    """Return PyTorch's type of lists that are modules, and so no sequences; no type where it is not loaded."""
    return getattr(sys.modules.get("torch.nn"), "ParameterList", ())


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


def reachable(part: Any) -> FoundArray | None:
    """Return an array that a device can reach with its place; None for anything else. Raises UsageError."""
    if framework_of(part) is None:
        return None
    found = located("an array in the declaration", part)
    return found if found.known_to_devices else None


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
