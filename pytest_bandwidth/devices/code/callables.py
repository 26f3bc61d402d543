"""Identify a callable's code: by what the test says of it, or by itself where it tells what it does."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

from pytest_bandwidth.devices.base import BoundLaunch, Device
from pytest_bandwidth.devices.code.functions import CalledWalk, function_digest
from pytest_bandwidth.devices.code.launch import (
    NO_ADDRESSES,
    Addresses,
    are_plain,
    argument_text,
    arguments_digest,
    identifying_arguments,
    nowhere,
)
from pytest_bandwidth.devices.code.walk import Unknown, Walk
from pytest_bandwidth.devices.triton import TritonLaunch
from pytest_bandwidth.domain.code.identity import CodeIdentity, MeasuredCode, digest, is_installed

# Containers that a callable is looked for in; anything else is handed over as it is.
_CONTAINERS = (list, tuple, set, frozenset)


def values_used_by(function: object) -> Iterator[object]:
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


def _inside(value: Any) -> list[object] | None:
    """Return what a value holds; None for one that holds nothing that is looked for."""
    if isinstance(value, BoundLaunch):
        return list(identifying_arguments(value.launch))
    if isinstance(value, partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, MethodType):
        return [value.__func__]
    if isinstance(value, BuiltinFunctionType):
        return [value.__self__]
    if isinstance(value, FunctionType):
        held: list[object] = []
        for cell in value.__closure__ or ():
            with suppress(ValueError):  # not assigned yet
                held.append(cell.cell_contents)
        held += [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        return [*held, *_globals(value.__code__, value.__globals__)]
    if isinstance(value, _CONTAINERS):
        return list(value)
    return list(value.values()) if isinstance(value, dict) else None


def _globals(code: CodeType, module: Mapping[str, Any]) -> Iterator[object]:
    """Yield what the names of a function's code, and of functions inside it, stand for in its module."""
    yield from (module[name] for name in code.co_names if name in module)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals(constant, module)


def code_around(function: Callable[..., Any], addresses: Addresses = NO_ADDRESSES) -> tuple[str, ...]:
    """Return texts for a Python function's own code, of what it calls the type alone; none for any other callable."""
    try:
        return tuple(_WalkAroundCode(addresses).of(function))
    except (Unknown, RecursionError):
        return ()


class _WalkAroundCode(Walk):
    def __init__(self, addresses: Addresses) -> None:
        super().__init__()
        self._addresses = addresses

    def value(self, value: Any) -> Iterator[str]:
        """Yield the same; of a number that is an address, where in a line it lies."""
        if isinstance(value, (int, np.generic, np.ndarray)):
            yield argument_text(value, self._addresses)
        else:
            yield from super().value(value)

    def function(self, function: FunctionType) -> Iterator[str]:
        """Yield the same; of a library's function its name, and what it was made with."""
        # Its version identifies it, and among its attributes may be addresses: `torch.compile` puts one there.
        if is_installed(function.__code__.co_filename):
            yield f"{function.__module__}.{function.__qualname__}"
            yield from self._made_with(function)
        else:
            yield from super().function(function)

    def of(self, function: Any) -> Iterator[str]:
        if isinstance(function, partial):
            for part in (*function.args, *sorted(function.keywords.items())):
                yield from self.value(part)
            yield from self.of(function.func)
        elif isinstance(function, MethodType):
            yield from self.of(function.__func__)
        elif isinstance(function, FunctionType):
            yield from self.function(function)
        elif type(function).__module__.startswith("numba.cuda.") and type(function).__name__ == "_LaunchConfiguration":
            # How numba-cuda's dispatcher is launched, where grid and block are given: ``kernel[grid, block]``.
            yield repr((function.griddim, function.blockdim, function.sharedmem))
        elif isinstance(function, TritonLaunch):
            yield from self.of(function.grid) if callable(function.grid) else (repr(function.grid),)

    def _object(self, value: Any) -> Iterator[str]:
        if isinstance(value, list):
            yield f"list {len(value)}"
            for item in value:
                yield from self.value(item)
        else:
            yield argument_text(value, self._addresses)

    def _import(self, name: str, level: object) -> None:
        del name, level  # what stands around named code may be anything

    def _is_builtin(self, name: str) -> bool:
        del name
        return True  # a name that stands for nothing yet is no matter of the code


def call_digest(
    function: Callable[..., Any],
    args: Sequence[Any],
    keywords: Mapping[str, Any],
    device: Device | None = None,
    opaque: Collection[int | str] = (),
) -> str:
    """Hash a call by its arguments and by what the function was made with, where files identify its code.

    device, opaque: as in `callable_code`.
    """
    addresses = _addresses(device, opaque)
    return digest(arguments_digest(args, keywords, addresses), *code_around(function, addresses))


def callable_code(
    function: Callable[..., Any],
    args: Sequence[Any],
    keywords: Mapping[str, Any],
    said: bytes | str | None,
    device: Device | None = None,
    opaque: Collection[int | str] = (),
) -> MeasuredCode:
    """Identify ``function(*args, **keywords)``; unknown where nothing tells for sure what it does.

    said: what identifies its code, such as the hash of a library; the function's own bytecode goes with it.
    device: identifies the launches that the function holds. opaque: arguments that identify nothing.
    """
    addresses = _addresses(device, opaque)
    if said is not None:
        identity = digest("said", said, *code_around(function, addresses))
        return MeasuredCode(CodeIdentity(function=identity, launch=arguments_digest(args, keywords, addresses)))
    told = {place: value for place, value in enumerate(args) if place not in opaque}
    given = (*told.values(), *(value for name, value in keywords.items() if name not in opaque))
    found = function_digest(function) if are_plain(given) else None
    if found is not None:
        return MeasuredCode(CodeIdentity(function=found, launch=arguments_digest(args, keywords, addresses)))
    walk = CalledWalk(device)
    found = walk.digest_of(function, given)
    if found is None:
        return MeasuredCode()
    launch = digest(arguments_digest((*args, *walk.held), keywords, addresses), *walk.launches)
    machine_code = digest(*walk.machine_code) if walk.machine_code else None
    return MeasuredCode(CodeIdentity(function=found, sass=machine_code, launch=launch))


def _addresses(device: Device | None, opaque: Collection[int | str]) -> Addresses:
    return Addresses(nowhere if device is None else device.is_memory, opaque)
