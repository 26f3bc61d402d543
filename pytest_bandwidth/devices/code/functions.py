"""Identify a function by what it uses: Numba's by what its compiler is given, Python's by what it calls.

Of Numba's count bytecode, constants, what its names stand for, options. Where a name stands for something that may not
decide the machine code alone (a list, a plain function, which may be overloaded, a module of the user's) the code
counts as unknown.

A function of Python's works with NumPy, CuPy, Numba's functions and plain values alone. What it calls in a library is
known by the library's version, what it calls of the user's by its bytecode, and so on. The arrays and scalars that it
was made with are its arguments. Where anything else takes part (another module, an object, a file, a name that it sets
for others) the code counts as unknown.
"""

from __future__ import annotations

import builtins
import dis
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from pytest_bandwidth.devices.base import BoundLaunch, Device, Launch
from pytest_bandwidth.devices.code.launch import identifying_arguments
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

# Whoever calls into these is identified by their version.
_VERSIONED = ("numba", "llvmlite", "numpy")
# Settings of Numba's that change the machine code of every function.
_SETTINGS = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "ENABLE_AVX", "CPU_NAME", "CPU_FEATURES", "BOUNDSCHECK")
# What Python itself puts into a class, the last one when pickle meets it: Numba's cache pickles what it compiled.
_OF_ANY_CLASS = (
    *("__doc__", "__dict__", "__weakref__", "__firstlineno__", "__annotations__", "__annotate_func__"),
    *("__static_attributes__", "__module__", "__abstractmethods__", "_abc_impl", "__slotnames__"),
)
# Whose overloads are known by a version: Numba's, and this package's.
_EXTENDING = ("numba", __name__.partition(".")[0])
LARGEST_ARRAY_BYTES = 2**20


def function_digest(function: object) -> str | None:
    """Hash a Numba function for the host; None for anything else, or if it depends on what cannot be hashed."""
    if not is_dispatcher(function):
        return None
    import llvmlite.binding
    import numba
    from numba.core.typing.templates import builtin_registry

    # Somebody may have taught Numba other code for names, which may be names of any library's.
    for template in (*builtin_registry.functions, *builtin_registry.attributes):
        implementation = getattr(template, "_overload_func", None)
        if implementation is not None:
            module = str(implementation.__globals__.get("__name__"))
            if module.partition(".")[0] not in _EXTENDING:
                return None
    try:
        settings = [repr(getattr(numba.config, name, None)) for name in _SETTINGS]
        parts = list(_CompiledWalk().whole(function, _VERSIONED))
    except (Unknown, RecursionError):
        return None
    versions = [f"{name} {getattr(sys.modules.get(name), '__version__', '')}" for name in _VERSIONED]
    return digest(*versions, llvmlite.binding.get_host_cpu_name(), *settings, *parts)


def is_dispatcher(function: object) -> bool:
    """Return whether it is what Numba made of a function, to be compiled for the host."""
    if "numba" not in sys.modules:
        return False
    from numba.core.registry import CPUDispatcher

    return isinstance(function, CPUDispatcher)


class _CompiledWalk(Walk):
    """Walk through code that Numba compiles, or that generates code for it (`_generates`).

    Functions and classes of the latter may be anybody's; compiled code must not depend on a value of the user's.
    """

    _generates = False

    def value(self, value: Any) -> Iterator[str]:
        if isinstance(value, np.ndarray) and value.nbytes <= LARGEST_ARRAY_BYTES and not value.dtype.hasobject:
            yield f"array {value.dtype.str} {value.shape} {digest(value.tobytes())}"
        else:
            yield from super().value(value)

    def _object(self, value: Any) -> Iterator[str]:
        from numba.core.extending import _Intrinsic

        if is_dispatcher(value):
            options = []
            for key, option in value.targetoptions.items():
                of_set = isinstance(option, (set, frozenset))
                options.append((key, str(sorted(map(str, option)) if of_set else option)))
            yield f"numba {sorted(options)}"
            if not value._can_compile:
                yield f"signatures {[str(signature) for signature in value.nopython_signatures]}"
            yield from self._part(value.py_func, generates=False)
        elif isinstance(value, _Intrinsic):
            yield "intrinsic"
            yield from self._part(value._defn, generates=True)
        elif isinstance(value, ModuleType):
            yield self._module(value)
        elif (name := original(value)) is not None:
            yield name
        elif _is_type(value):
            yield f"{type(value).__qualname__} {value}"
        elif self._generates and isinstance(value, FunctionType):
            yield from self.function(value)
        elif self._generates and isinstance(value, type):
            yield f"class {len(value.__bases__)}"
            for base in value.__bases__:
                yield from self.value(base)
            for attribute, of_class in sorted(vars(value).items()):
                if attribute not in _OF_ANY_CLASS:
                    yield attribute
                    yield from self.value(of_class)
        else:
            raise Unknown(value)

    def _part(self, function: FunctionType, *, generates: bool) -> Iterator[str]:
        before, self._generates = self._generates, generates
        yield from self.function(function)
        self._generates = before

    def _attribute(self, value: Any) -> str:
        return f"{type(value).__qualname__} {value}" if _is_type(value) else super()._attribute(value)


def _is_type(value: object) -> bool:
    """Return whether it is one of Numba's or llvmlite's types of values."""
    of_types = type(value).__module__.startswith(("numba.core.types", "llvmlite.ir.types"))
    return of_types and original(type(value)) is not None


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


class CalledWalk(Walk):
    """Walk through code that Python runs.

    device: as in `callables.callable_code`. held: the arrays and scalars that the code was made with. machine_code,
    launches: hashes of the kernels that it launches and of how, in order.
    """

    def __init__(self, device: Device | None) -> None:
        super().__init__()
        self._device = device
        self._libraries: Mapping[str, str] = device.libraries if device is not None else {}
        self.held: list[object] = []
        self.machine_code: list[str] = []
        self.launches: list[str] = []

    def digest_of(self, function: object, arguments: Iterable[object]) -> str | None:
        """Hash a function that is called with such arguments; None where what decides what it does cannot be told."""
        try:
            if not all(map(self._is_argument, arguments)):
                return None
            parts = list(self.whole(function, ("numpy", *self._libraries)))
        except (Unknown, RecursionError):
            return None
        of_numpy = f"{np.__version__} {np.getbufsize()} {sorted(np.geterr().items())}"
        versions = [f"{name} {version}" for name, version in sorted(self._libraries.items())]
        return digest(platform.python_version(), of_numpy, *versions, *parts)

    def _held(self, value: Any) -> Iterator[str]:
        if type(value) in (list, tuple):
            yield f"{type(value).__name__} {len(value)}"
            for item in value:
                yield from self._held(item)
        elif self._is_argument(value):
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

    def _is_argument(self, value: object) -> bool:
        """Return whether it is a scalar, a text or a library's array: no subclass or element that does as it likes."""
        if type(value) is tuple:
            return all(map(self._is_argument, value))
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
