"""Identify a function of Python's that works with NumPy, with Numba's functions, and with plain values alone.

What it calls in NumPy is known by NumPy's version, what it calls of the user's by its bytecode, and so on. The arrays
and scalars that it was made with are its arguments. Where anything else takes part (another module, an object, a file,
a name that it sets for others) the code counts as unknown.
"""

from __future__ import annotations

import builtins
import dis
import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from pytest_bandwidth.devices.code.numba_functions import function_digest, is_dispatcher
from pytest_bandwidth.devices.code.originals import is_original_builtin, is_plain_dtype, loaded, original
from pytest_bandwidth.devices.code.walk import Unknown, Walk, is_plain
from pytest_bandwidth.domain.code.identity import digest

# Nothing that reads what is not seen here, or runs what comes from elsewhere.
_BUILTINS = frozenset(
    {"abs", "all", "any", "bool", "bytes", "complex", "dict", "divmod", "enumerate", "filter", "float", "frozenset"}
    | {"int", "isinstance", "len", "list", "map", "max", "min", "next", "iter", "pow", "range", "reversed", "round"}
    | {"set", "slice", "sorted", "str", "sum", "tuple", "zip"}
)
# What runs others' code, reads files, or takes attributes by texts.
_FOREIGN = frozenset(
    {"ctypeslib", "f2py", "testing", "attrgetter", "methodcaller", "load", "loadtxt", "genfromtxt", "fromfile"}
    | {"fromregex", "memmap", "open_memmap", "DataSource", "read_array"}
)
_SETS = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME", "LOAD_BUILD_CLASS"})


@dataclass(frozen=True, slots=True)
class KnownFunction:
    """Hold what a function is known by, and the arrays and scalars that it was made with."""

    digest: str
    held: tuple[object, ...]


def known_function(function: object, arguments: Iterable[object] = ()) -> KnownFunction | None:
    """Identify a function that is called with such arguments; None where what decides what it does cannot be told."""
    walk = _Called()
    try:
        if not all(map(_is_argument, arguments)):
            return None
        parts = list(walk.whole(function, ("numpy",)))
    except (Unknown, RecursionError):
        return None
    of_numpy = f"{np.__version__} {np.getbufsize()} {sorted(np.geterr().items())}"
    return KnownFunction(digest(platform.python_version(), of_numpy, *parts), tuple(walk.held))


class _Called(Walk):
    """Walk through code that Python runs; keep what it was made with."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[object] = []

    def _held(self, value: Any) -> Iterator[str]:
        if type(value) in (list, tuple):
            yield f"{type(value).__name__} {len(value)}"
            for item in value:
                yield from self._held(item)
        elif _is_argument(value):
            self.held.append(value)
            yield "argument"
        else:
            yield from self.value(value)

    def _object(self, value: Any) -> Iterator[str]:
        if is_dispatcher(value):
            found = function_digest(value)
            if found is None:
                raise Unknown
            yield found
        elif _is_array(value):
            yield from self._held(value)
        elif type(value) is partial:
            yield "partial"
            for part in (value.func, *value.args):
                yield from self._held(part)
            for name, part in value.keywords.items():
                yield name
                yield from self._held(part)
        elif isinstance(value, ModuleType):
            yield self._module(value)
        elif type(value) is BuiltinFunctionType and not isinstance(value.__self__, (ModuleType, type(None))):
            yield f"method {value.__name__}"
            yield from self._held(value.__self__)
        elif (known := _known(value)) is not None:
            yield known
        elif type(value) is FunctionType:
            yield from self.function(value)
        else:
            raise Unknown

    def _code(self, code: CodeType, module: Mapping[str, Any]) -> Iterator[str]:
        if any(name in _FOREIGN or (name.startswith("__") and name.endswith("__")) for name in code.co_names):
            raise Unknown
        if any(instruction.opname in _SETS for instruction in dis.get_instructions(code)):
            raise Unknown
        yield digest(getattr(code, "co_exceptiontable", b""))
        yield from super()._code(code, module)

    def _import(self, name: str, level: object) -> None:
        module, of_package = loaded(name), loaded(name.partition(".")[0])
        imports = vars(builtins).get("__import__")
        if level != 0 or module is None or of_package is None or not is_original_builtin("__import__", imports):
            raise Unknown
        self._module(module)
        self._module(of_package)

    def _is_builtin(self, name: str) -> bool:
        return name in _BUILTINS and super()._is_builtin(name)


def _is_argument(value: object) -> bool:
    """Return whether it is a scalar, a text or an array of NumPy's: no subclass or element that does as it likes."""
    if type(value) is tuple:
        return all(map(_is_argument, value))
    return value is None or is_plain(value) or _is_array(value)


def _is_array(value: object) -> bool:
    return type(value) is np.ndarray and not value.dtype.hasobject and is_plain_dtype(value.dtype)


def _known(value: Any) -> str | None:
    """Return the lasting name of what is NumPy's or Python's own; None where it is not, or may run others' code."""
    name = original(value)
    of_python = getattr(value, "__module__", None) == "builtins" and value.__name__ not in _BUILTINS
    return None if of_python or not _FOREIGN.isdisjoint((name or "").split(".")) else name
