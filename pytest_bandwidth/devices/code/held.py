"""Find what a callable was made with: its launches, its closure, defaults, bound arguments, arrays in its globals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

from pytest_bandwidth.devices.base import BoundLaunch, Launch

# Containers that a callable is looked for in; anything else is handed over as it is.
_CONTAINERS = (list, tuple, set, frozenset)


def held_by(function: object) -> Iterator[object]:
    """Yield what a callable holds, each once: of a bound launch its arguments, of others whatever their names mean."""
    pending, seen = [function], {id(function): function}
    while pending:
        one = pending.pop()
        inside = _inside(one)
        if inside is None:
            yield one
            continue
        for inner in inside:
            if id(inner) not in seen:
                seen[id(inner)] = inner  # kept: an id is only its own while it lives
                pending.append(inner)


def arguments_told(launch: Launch) -> Iterator[object]:
    """Yield the arguments of a launch that are part of what identifies it."""
    return (argument for place, argument in enumerate(launch.args) if place not in launch.opaque)


def _inside(value: Any) -> list[object] | None:
    """Return what a value holds; None for one that holds nothing that is looked for."""
    if isinstance(value, BoundLaunch):
        return list(arguments_told(value.launch))
    if isinstance(value, partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, MethodType):
        return [value.__func__]
    if isinstance(value, BuiltinFunctionType):
        return [value.__self__]
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if _is_set(cell)]
        defaults = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        return [*cells, *defaults, *_globals(value.__code__, value.__globals__)]
    if isinstance(value, _CONTAINERS):
        return list(value)
    return list(value.values()) if isinstance(value, dict) else None


def _is_set(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:  # not assigned yet
        return False
    return True


def _globals(code: CodeType, module: Mapping[str, Any]) -> Iterator[object]:
    """Yield what the names of a function's code, and of functions inside it, stand for in its module."""
    yield from (module[name] for name in code.co_names if name in module)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals(constant, module)
