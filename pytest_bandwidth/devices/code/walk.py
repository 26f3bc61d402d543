"""Walk through what a function uses: bytecode, constants, and what its names stand for.

Only what surely decides what is done is taken for an identity; anything else is Unknown.
"""

from __future__ import annotations

import builtins
import dis
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from pytest_bandwidth.domain.code.identity import digest

_PLAIN = (bool, int, float, complex, str, bytes, np.generic, np.dtype)
_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME")


class Unknown(Exception):
    """Raised where what decides what is done cannot be told."""


class Walk(ABC):
    """Yield texts that identify what one function uses; what was seen before is named by its number.

    seen: what another walk saw, of which this one is a part.
    """

    def __init__(self, seen: dict[int, tuple[int, object]] | None = None) -> None:
        # The objects as well: an id is only theirs while they live.
        self._seen: dict[int, tuple[int, object]] = {} if seen is None else seen

    def value(self, value: Any) -> Iterator[str]:
        """Yield texts that identify what a name stands for. Raises Unknown."""
        if value is None or value is ... or isinstance(value, _PLAIN):
            yield f"{type(value).__name__} {value!r}"
        elif isinstance(value, (tuple, frozenset)):
            items = value if isinstance(value, tuple) else sorted(value, key=repr)
            yield f"{type(value).__name__} {len(items)}"
            for item in items:
                yield from self.value(item)
        elif isinstance(value, slice):  # a constant since Python 3.14
            yield "slice"
            yield from self.value((value.start, value.stop, value.step))
        elif (known := self._seen.get(id(value))) is not None:
            yield f"again {known[0]}"
        else:
            self._seen[id(value)] = len(self._seen), value
            yield from self._object(value)

    def function(self, function: FunctionType) -> Iterator[str]:
        """Yield the same of a function of Python's: what it holds, its defaults, its code. Raises Unknown."""
        try:
            closure = [cell.cell_contents for cell in function.__closure__ or ()]
        except ValueError:  # not assigned yet
            raise Unknown from None
        for part in (*closure, *(function.__defaults__ or ()), *sorted((function.__kwdefaults__ or {}).items())):
            yield from self._held(part)
        yield from self._code(function.__code__, function.__globals__)

    @abstractmethod
    def _object(self, value: Any) -> Iterator[str]:
        """Yield the same of anything but plain values and tuples of them."""

    def _held(self, value: Any) -> Iterator[str]:
        """Yield the same of what a function was made with."""
        return self.value(value)

    def _code(self, code: CodeType, module: Mapping[str, Any]) -> Iterator[str]:
        yield f"code {code.co_argcount} {code.co_kwonlyargcount} {code.co_flags} {digest(code.co_code)} {code.co_names}"
        for index, constant in enumerate(code.co_consts):
            if isinstance(constant, CodeType):
                yield from self._code(constant, module)
            elif not (index == 0 and isinstance(constant, str)):  # a docstring
                yield from self.value(constant)
        for name in sorted({i.argval for i in dis.get_instructions(code) if i.opname in _GLOBAL}):
            if name in module:
                yield name
                yield from self.value(module[name])
            elif not self._is_builtin(name):
                raise Unknown

    def _is_builtin(self, name: str) -> bool:
        return hasattr(builtins, name)
