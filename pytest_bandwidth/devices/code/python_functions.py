"""Identify a function of Python's that works with NumPy, with Numba's functions, and with plain values alone.

What it calls in NumPy is known by NumPy's version, what it calls of the user's by its bytecode, and so on. The arrays
and scalars that it was made with are its arguments. Where anything else takes part (another module, an object, a file,
a name that it sets for others) the code counts as unknown.
"""

from __future__ import annotations

import builtins
import dis
import operator
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Protocol

import numpy as np

from pytest_bandwidth.devices.base import AddressedDevice, BoundLaunch, Launch
from pytest_bandwidth.devices.code.held import arguments_told
from pytest_bandwidth.devices.code.launch import SCALARS
from pytest_bandwidth.devices.code.numba_functions import function_digest, is_dispatcher
from pytest_bandwidth.devices.code.walk import Unknown, Walk
from pytest_bandwidth.domain.code.identity import MeasuredCode, digest

_STANDARD = ("math", "cmath", operator.add.__module__, "operator")
# Nothing that reads what is not seen here, or runs what comes from elsewhere.
_BUILTINS = frozenset(
    {"abs", "all", "any", "bool", "bytes", "complex", "dict", "divmod", "enumerate", "filter", "float", "frozenset"}
    | {"int", "isinstance", "len", "list", "map", "max", "min", "next", "iter", "pow", "range", "reversed", "round"}
    | {"set", "slice", "sorted", "str", "sum", "tuple", "zip"}
)
# What in NumPy and CuPy runs others' code.
_FOREIGN = frozenset({"ctypeslib", "f2py", "testing", "RawKernel", "RawModule", "load_file"})
_SETS = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME", "LOAD_BUILD_CLASS"})


@dataclass(frozen=True, slots=True)
class KnownFunction:
    """Hold what a function is known by, and the arrays and scalars that it was made with.

    machine_code, launches: hashes of the kernels that it launches and of how, in order.
    """

    digest: str
    held: tuple[object, ...]
    machine_code: tuple[str, ...] = ()
    launches: tuple[str, ...] = ()


class CodeDevice(Protocol):
    """Declare what identifies the launches that a function holds."""

    def code(self, launch: Launch) -> MeasuredCode:
        """Identify what the launch runs, as far as that can be told."""


def known_function(
    function: object, arguments: Iterable[object] = (), device: CodeDevice | None = None
) -> KnownFunction | None:
    """Identify a function that is called with such arguments; None where what decides what it does cannot be told.

    device: as in `callables.callable_code`.
    """
    walk = _Called(device)
    try:
        if not all(map(walk.is_argument, arguments)):
            return None
        parts = list(walk.value(function))
    except (Unknown, RecursionError):
        return None
    whole = digest(platform.python_version(), np.__version__, *sorted(walk.used), *parts)
    return KnownFunction(whole, tuple(walk.held), tuple(walk.machine_code), tuple(walk.launches))


class _Called(Walk):
    """Walk through code that Python runs; keep what it was made with."""

    def __init__(self, device: CodeDevice | None) -> None:
        super().__init__()
        self._device = device
        self._libraries: Mapping[str, str] = device.libraries if isinstance(device, AddressedDevice) else {}
        self.used: set[str] = set()
        self.held: list[object] = []
        self.machine_code: list[str] = []
        self.launches: list[str] = []

    def _held(self, value: Any) -> Iterator[str]:
        if isinstance(value, (list, tuple)):
            yield f"{type(value).__name__} {len(value)}"
            for item in value:
                yield from self._held(item)
        elif self.is_argument(value):
            self.held.append(value)
            yield "argument"
        else:
            yield from self.value(value)

    def _object(self, value: Any) -> Iterator[str]:
        if isinstance(value, BoundLaunch):
            yield self._launched(value.launch)
        elif is_dispatcher(value):
            found = function_digest(value)
            if found is None:
                raise Unknown
            yield found
        elif self._is_array(value):
            yield from self._held(value)
        elif isinstance(value, partial):
            yield "partial"
            for part in (value.func, *value.args):
                yield from self._held(part)
            for name, part in value.keywords.items():
                yield name
                yield from self._held(part)
        elif isinstance(value, BuiltinFunctionType) and not isinstance(value.__self__, ModuleType):
            yield f"method {value.__name__}"
            yield from self._held(value.__self__)
        elif isinstance(value, ModuleType):
            if not self._is_of(value.__name__):
                raise Unknown
            yield f"module {value.__name__}"
        elif self._is_known(value):
            yield f"{type(value).__name__} {getattr(value, '__module__', '')}.{_name(value)}"
        elif isinstance(value, FunctionType):
            yield from self.function(value)
        else:
            raise Unknown

    def _launched(self, launch: Launch) -> str:
        """Tell a launch by its kernel's source; keep its machine code and its arguments."""
        found = None if self._device is None else self._device.code(launch).identity
        if found is None or found.launch is None or (found.sass is None and found.function is None):
            raise Unknown
        self.launches.append(found.launch)
        self.held.extend(arguments_told(launch))  # one may write what another reads
        if found.sass is not None:
            self.machine_code.append(found.sass)
        return f"launch {found.ptx or ''} {found.function or ''}"

    def _code(self, code: CodeType, module: Mapping[str, Any]) -> Iterator[str]:
        if any(name in _FOREIGN or (name.startswith("__") and name.endswith("__")) for name in code.co_names):
            raise Unknown
        for instruction in dis.get_instructions(code):
            if instruction.opname in _SETS:
                raise Unknown
            if instruction.opname == "IMPORT_NAME" and not self._is_of(instruction.argval):
                raise Unknown
        yield digest(getattr(code, "co_exceptiontable", b""))
        yield from super()._code(code, module)

    def _is_builtin(self, name: str) -> bool:
        return name in _BUILTINS

    def is_argument(self, value: object) -> bool:
        """Return whether it is a scalar, a text or a library's array: no subclass or element that does as it likes."""
        if isinstance(value, tuple):
            return all(map(self.is_argument, value))
        return isinstance(value, SCALARS) or self._is_array(value)

    def _is_array(self, value: object) -> bool:
        if type(value) is np.ndarray:
            return not value.dtype.hasobject
        return any(type(value) is getattr(sys.modules.get(name), "ndarray", None) for name in self._libraries)

    def _is_known(self, value: Any) -> bool:
        """Return whether it is a function or type of a library's or Python's own, known by its name."""
        if isinstance(value, np.ufunc):
            return getattr(np, value.__name__, None) is value  # others make some of their own
        if isinstance(value, FunctionType):  # functools.wraps copies __module__ from another
            return self._is_of(str(value.__globals__.get("__name__"))) and "<" not in _name(value)
        module = getattr(value, "__module__", None) or ""
        if module == "builtins":
            return _name(value) in _BUILTINS and getattr(builtins, _name(value), None) is value
        return isinstance(value, (BuiltinFunctionType, type, type(np.sum))) and self._is_of(module)

    def _is_of(self, module: str) -> bool:
        top, *inner = module.split(".")
        if top in self._libraries and _FOREIGN.isdisjoint(inner):
            self.used.add(f"{top} {self._libraries[top]}")
            return True
        return (top == "numpy" and _FOREIGN.isdisjoint(inner)) or module in _STANDARD


def _name(value: Any) -> str:
    return str(getattr(value, "__qualname__", getattr(value, "__name__", "")))
