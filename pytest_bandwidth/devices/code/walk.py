"""Walk through what a function uses: bytecode, constants, and what its names stand for.

Only what surely decides what is done is taken for an identity; anything else is Unknown.
"""

from __future__ import annotations

import builtins
import dis
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from pytest_bandwidth.devices.code.originals import (
    is_original_builtin,
    is_plain_dtype,
    is_replaced,
    original,
    original_module,
)
from pytest_bandwidth.domain.code.identity import digest

_PLAIN = frozenset({bool, int, float, complex, str, bytes})
_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME")
# Attributes that say where a function comes from, or that pytest sets: its code does not read them.
_OF_WRAPPERS = ("__wrapped__", "pytestmark")


def is_plain(value: object) -> bool:
    """Return whether it is a number, a text or a type of elements: of exactly such a type, not of a user's subclass."""
    if isinstance(value, np.dtype):
        return is_plain_dtype(value)
    if isinstance(value, np.generic):
        return type(value) is value.dtype.type and is_plain_dtype(value.dtype)
    return type(value) in _PLAIN


class Unknown(Exception):
    """Raised where what decides what is done cannot be told."""


class Walk(ABC):
    """Yield texts that identify what one function uses; what was seen before is named by its number.

    part_of: the walk that this one continues with other rules.
    """

    def __init__(self, part_of: Walk | None = None) -> None:
        # The objects as well: an id is only theirs while they live.
        self._seen: dict[int, tuple[int, object]] = {} if part_of is None else part_of._seen
        # Code may reach each of these modules by any variable, and take any of these names from it.
        self._modules: dict[str, ModuleType] = {} if part_of is None else part_of._modules
        self._names: set[str] = set() if part_of is None else part_of._names

    def whole(self, value: Any, libraries: Iterable[str]) -> Iterator[str]:
        """Yield texts that identify a callable and all that it takes from modules. Raises Unknown.

        libraries: those that are known by their version, unless somebody replaced a part of them.
        """
        if any(map(is_replaced, libraries)):
            raise Unknown
        yield from self.value(value)
        yield from self._attributes()

    def value(self, value: Any) -> Iterator[str]:
        """Yield texts that identify what a name stands for. Raises Unknown."""
        if value is None or value is ... or is_plain(value):
            yield f"{type(value).__name__} {value!r}"
        elif type(value) in (tuple, frozenset):
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
        """Yield the same of a function of Python's: what it holds, its defaults, its attributes, its code.

        Raises Unknown, also where names may mean what their dictionaries do not show.
        """
        names = function.__globals__
        if type(names) is not dict or getattr(function, "__builtins__", None) is not vars(builtins):
            raise Unknown
        try:
            closure = [cell.cell_contents for cell in function.__closure__ or ()]
        except ValueError:  # not assigned yet
            raise Unknown from None
        for part in (*closure, *(function.__defaults__ or ()), *sorted((function.__kwdefaults__ or {}).items())):
            yield from self._held(part)
        for name, attribute in sorted(vars(function).items()):
            if name not in _OF_WRAPPERS:
                yield f"attribute {name}"
                yield from self._held(attribute)
        yield from self._code(function.__code__, names)

    def _attributes(self) -> Iterator[str]:
        """Yield what each module that was met has by the names that were: somebody may have replaced it there."""
        done: set[str] = set()
        while waiting := sorted(self._modules.keys() - done):
            for of_module in waiting:
                done.add(of_module)
                there = vars(self._modules[of_module])
                for name in sorted(self._names & there.keys()):
                    yield f"{of_module}.{name} {self._attribute(there[name])}"

    def _attribute(self, value: Any) -> str:
        if isinstance(value, ModuleType):
            return self._module(value)
        if is_plain(value) or value is None:
            return repr(value)
        known = original(value)
        if known is None and type(value) is BuiltinFunctionType:  # a method, such as those of NumPy's random state
            known = original(type(value.__self__))
        if known is None and not callable(value):
            known = original(type(value))
        if known is None:
            raise Unknown
        return known

    def _module(self, module: ModuleType) -> str:
        """Return what names a module that is an original. Raises Unknown."""
        name = original_module(module)
        if name is None:
            raise Unknown
        self._modules[name] = module
        return f"module {name}"

    @abstractmethod
    def _object(self, value: Any) -> Iterator[str]:
        """Yield the same of anything but plain values and tuples of them."""

    def _held(self, value: Any) -> Iterator[str]:
        """Yield the same of what a function was made with."""
        return self.value(value)

    def _code(self, code: CodeType, module: Mapping[str, Any]) -> Iterator[str]:
        yield f"code {code.co_argcount} {code.co_kwonlyargcount} {code.co_flags} {digest(code.co_code)} {code.co_names}"
        instructions = [one for one in dis.get_instructions(code) if one.opname != "EXTENDED_ARG"]
        self._names.update(code.co_names)
        for at, instruction in enumerate(instructions):
            if instruction.opname == "IMPORT_NAME":  # what comes before it loads the level and the names
                self._import(instruction.argval, instructions[at - 2].argval)
        for index in sorted({i.arg for i in instructions if i.opcode in dis.hasconst and i.arg is not None}):
            constant = code.co_consts[index]  # no instruction loads a docstring
            if isinstance(constant, CodeType):
                yield from self._code(constant, module)
            else:
                yield from self.value(constant)
        for name in sorted({i.argval for i in instructions if i.opname in _GLOBAL}):
            if name in module:
                yield name
                yield from self.value(module[name])
            elif not self._is_builtin(name):
                raise Unknown

    def _import(self, name: str, level: object) -> None:
        """Note what a function imports when it runs. Raises Unknown."""
        raise Unknown(name, level)

    def _is_builtin(self, name: str) -> bool:
        return is_original_builtin(name, vars(builtins).get(name))
