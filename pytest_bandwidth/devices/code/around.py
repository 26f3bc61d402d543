"""Tell what stands around code that a test names: the measured function's own bytecode, and what it was made with.

A kernel's machine code does not tell how often a function launches it, and in which grid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from pytest_bandwidth.devices.code.launch import NO_ADDRESSES, Addresses, argument_text
from pytest_bandwidth.devices.code.makers import launched_as
from pytest_bandwidth.devices.code.walk import Unknown, Walk


def code_around(function: Callable[..., Any], addresses: Addresses = NO_ADDRESSES) -> tuple[str, ...]:
    """Return texts for a Python function's own code, of what it calls the type alone; none for any other callable."""
    try:
        return tuple(_Around(addresses).of(function))
    except (Unknown, RecursionError):
        return ()


class _Around(Walk):
    def __init__(self, addresses: Addresses) -> None:
        super().__init__()
        self._addresses = addresses

    def value(self, value: Any) -> Iterator[str]:
        """Yield the same; of a number that is an address, where in a line it lies."""
        if isinstance(value, (int, np.generic, np.ndarray)):
            yield argument_text(value, self._addresses)
        else:
            yield from super().value(value)

    def of(self, function: Any) -> Iterator[str]:
        if isinstance(function, partial):
            for part in (*function.args, *sorted(function.keywords.items())):
                yield from self.value(part)
            yield from self.of(function.func)
        elif isinstance(function, MethodType):
            yield from self.of(function.__func__)
        elif isinstance(function, FunctionType):
            yield from self.function(function)
        else:
            yield from launched_as(function)

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
