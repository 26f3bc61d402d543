"""Identify a function of Python's that works with NumPy, CuPy, Numba's functions and plain values alone.

What it calls in a library is known by the library's version, what it calls of the user's by its bytecode, and so on.
The arrays and scalars that it was made with are its arguments. Where anything else takes part (another module, an
object, a file, a name that it sets for others) the code counts as unknown.
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

from pytest_bandwidth.devices.base import BoundLaunch, Device, Launch
from pytest_bandwidth.devices.code.launch import identifying_arguments
from pytest_bandwidth.devices.code.numba_functions import function_digest, is_dispatcher
from pytest_bandwidth.devices.code.walk import (
    Unknown,
    Walk,
    is_original_builtin,
    is_plain,
    is_plain_dtype,
    loaded,
    original,
)
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
    | {"fromregex", "memmap", "open_memmap", "DataSource", "read_array", "RawKernel", "RawModule", "load_file"}
)
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


def known_function(
    function: object, arguments: Iterable[object] = (), device: Device | None = None
) -> KnownFunction | None:
    """Identify a function that is called with such arguments; None where what decides what it does cannot be told.

    device: as in `callables.callable_code`.
    """
    walk = _CalledWalk(device)
    try:
        if not all(map(walk.is_argument, arguments)):
            return None
        parts = list(walk.whole(function, walk.known))
    except (Unknown, RecursionError):
        return None
    of_numpy = f"{np.__version__} {np.getbufsize()} {sorted(np.geterr().items())}"
    whole = digest(platform.python_version(), of_numpy, *walk.versions, *parts)
    return KnownFunction(whole, tuple(walk.held), tuple(walk.machine_code), tuple(walk.launches))


class _CalledWalk(Walk):
    """Walk through code that Python runs; keep what it was made with."""

    def __init__(self, device: Device | None) -> None:
        super().__init__()
        self._device = device
        self._libraries: Mapping[str, str] = device.libraries if device is not None else {}
        self.known = ("numpy", *self._libraries)
        self.versions = [f"{name} {version}" for name, version in sorted(self._libraries.items())]
        self.held: list[object] = []
        self.machine_code: list[str] = []
        self.launches: list[str] = []

    def _held(self, value: Any) -> Iterator[str]:
        if type(value) in (list, tuple):
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

    def _launched(self, launch: Launch) -> str:
        """Tell a launch by its kernel's source; keep its machine code and its arguments."""
        found = None if self._device is None else self._device.code(launch).identity
        if found is None or found.launch is None or (found.sass is None and found.function is None):
            raise Unknown
        self.launches.append(found.launch)
        self.held.extend(identifying_arguments(launch))  # one may write what another reads
        if found.sass is not None:
            self.machine_code.append(found.sass)
        return f"launch {found.ptx or ''} {found.function or ''}"

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

    def is_argument(self, value: object) -> bool:
        """Return whether it is a scalar, a text or a library's array: no subclass or element that does as it likes."""
        if type(value) is tuple:
            return all(map(self.is_argument, value))
        return value is None or is_plain(value) or self._is_array(value)

    def _is_array(self, value: object) -> bool:
        if type(value) is np.ndarray:
            return not value.dtype.hasobject and is_plain_dtype(value.dtype)
        return any(type(value) is getattr(loaded(name), "ndarray", None) for name in self._libraries)


def _known(value: Any) -> str | None:
    """Return the lasting name of what is a library's or Python's own; None where it is not, or may run others' code."""
    name = original(value)
    of_python = getattr(value, "__module__", None) == "builtins" and value.__name__ not in _BUILTINS
    return None if of_python or not _FOREIGN.isdisjoint((name or "").split(".")) else name
