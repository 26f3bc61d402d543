"""Identify a callable's code: by the test's declaration, or by what the callable uses.

For a Numba function the compiler's input counts: bytecode, constants, the values of its names, options. The code is
unknown where a name's value may not decide the machine code alone. Such values are lists, user's modules, and plain
functions, which may be overloaded.

A Python function may use only NumPy, CuPy, Numba functions and plain values. A library's version identifies the
library's functions; bytecode identifies the user's functions, and so on. Arrays and scalars in its closure and defaults
count as its arguments. The code is unknown where anything else takes part: another module, an object, a file, a name
that it sets for others.
"""

from __future__ import annotations

import builtins
import dis
import platform
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from pytest_bandwidth.devices.base import BoundLaunch, Device, Launch
from pytest_bandwidth.devices.code.launch import (
    NO_ADDRESSES,
    Addresses,
    are_plain,
    argument_text,
    arguments_digest,
    identifying_arguments,
    nowhere,
)
from pytest_bandwidth.devices.code.walk import (
    Unknown,
    Walk,
    is_original_builtin,
    is_plain,
    is_plain_dtype,
    loaded,
    original,
)
from pytest_bandwidth.devices.triton import TritonLaunch
from pytest_bandwidth.domain.code.identity import CodeIdentity, MeasuredCode, digest, is_installed
from pytest_bandwidth.domain.held_values import held_by


def values_used_by(function: object) -> Iterator[object]:
    """Yield the values that a callable uses, each once: a bound launch's arguments, or the values of its names.

    Containers are searched, too; any other value is yielded as it is.
    """
    pending, seen = [function], {id(function): function}
    while pending:
        one: Any = pending.pop()
        if isinstance(one, BoundLaunch):
            inside = list(identifying_arguments(one.launch))
        elif isinstance(one, (list, tuple, set, frozenset, dict)):
            inside = list(one.values() if isinstance(one, dict) else one)
        elif not (inside := held_by(one)):
            yield one
        for inner in inside:
            if id(inner) not in seen:
                seen[id(inner)] = inner  # kept: an id is only its own while it lives
                pending.append(inner)


def code_around(function: Callable[..., Any], addresses: Addresses = NO_ADDRESSES) -> tuple[str, ...]:
    """Return texts for a Python function's own code, and its callees' types; empty for any other callable."""
    try:
        return tuple(_WalkAroundCode(addresses).of(function))
    except (Unknown, RecursionError):
        return ()


class _WalkAroundCode(Walk):
    def __init__(self, addresses: Addresses) -> None:
        super().__init__()
        self._addresses = addresses

    def value(self, value: Any) -> Iterator[str]:
        """Yield texts that identify a value; for a number that is an address, its place in a line."""
        if isinstance(value, (int, np.generic, np.ndarray)):
            yield argument_text(value, self._addresses)
        else:
            yield from super().value(value)

    def function(self, function: FunctionType) -> Iterator[str]:
        """Yield texts that identify a function; for a library's function its name, its closure and its defaults."""
        # The library's version identifies it. Its attributes may hold addresses: `torch.compile` puts one there.
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
            # A dispatcher of numba-cuda with grid and block: ``kernel[grid, block]``.
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
        del name, level  # code around the declared code may import anything

    def _is_builtin(self, name: str) -> bool:
        del name
        return True  # a name without a value yet does not change the code


def call_digest(
    function: Callable[..., Any],
    args: Sequence[Any],
    keywords: Mapping[str, Any],
    device: Device | None = None,
    opaque: Collection[int | str] = (),
) -> str:
    """Hash a call by its arguments and by the function's own code, where files identify the rest of the code.

    device, opaque: as in `callable_code`.
    """
    addresses = _addresses(device, opaque)
    return digest(arguments_digest(args, keywords, addresses), *code_around(function, addresses))


def callable_code(
    function: Callable[..., Any],
    args: Sequence[Any],
    keywords: Mapping[str, Any],
    declared: bytes | str | None,
    device: Device | None = None,
    opaque: Collection[int | str] = (),
) -> MeasuredCode:
    """Identify ``function(*args, **keywords)``; unknown where its behaviour may depend on anything else.

    declared: what identifies its code, such as the hash of a library; the function's own bytecode is added.
    device: identifies the launches that the function holds. opaque: arguments that identify nothing.
    """
    addresses = _addresses(device, opaque)
    if declared is not None:
        identity = digest("said", declared, *code_around(function, addresses))
        return MeasuredCode(CodeIdentity(function=identity, launch=arguments_digest(args, keywords, addresses)))
    positional = (value for place, value in enumerate(args) if place not in opaque)
    given = (*positional, *(value for name, value in keywords.items() if name not in opaque))
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


# Their versions identify the code in these libraries.
_VERSIONED = ("numba", "llvmlite", "numpy")
# Settings of Numba's that change the machine code of every function.
_SETTINGS = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "ENABLE_AVX", "CPU_NAME", "CPU_FEATURES", "BOUNDSCHECK")
# Packages whose version identifies their overloads: Numba and this package.
_EXTENDING = ("numba", __name__.partition(".")[0])
LARGEST_ARRAY_BYTES = 2**20


def function_digest(function: object) -> str | None:
    """Hash a Numba function for the host; None for others, or if it depends on something that cannot be hashed."""
    if not is_dispatcher(function) or (compiler := numba_compiler()) is None:
        return None
    try:
        return digest(*compiler, *_CompiledWalk().whole(function, _VERSIONED))
    except (Unknown, RecursionError):
        return None


def numba_compiler() -> tuple[str, ...] | None:
    """Return what identifies Numba, its settings and its target; None where a package added overloads to it.

    It may have registered them for any library's name.
    """
    import llvmlite.binding
    import numba
    from numba.core.typing.templates import builtin_registry

    for template in (*builtin_registry.functions, *builtin_registry.attributes):
        implementation = getattr(template, "_overload_func", None)
        if implementation is not None:
            module = str(implementation.__globals__.get("__name__"))
            if module.partition(".")[0] not in _EXTENDING:
                return None
    versions = [f"{name} {getattr(sys.modules.get(name), '__version__', '')}" for name in _VERSIONED]
    settings = [repr(getattr(numba.config, name, None)) for name in _SETTINGS]
    return (*versions, llvmlite.binding.get_host_cpu_name(), *settings)


def is_dispatcher(function: object) -> bool:
    """Return whether the object is a Numba function for the host."""
    if "numba" not in sys.modules:
        return False
    from numba.core.registry import CPUDispatcher

    return isinstance(function, CPUDispatcher)


class _CompiledWalk(Walk):
    """Walk through code that Numba compiles, which must not depend on a user's value."""

    def value(self, value: Any) -> Iterator[str]:
        if isinstance(value, np.ndarray) and value.nbytes <= LARGEST_ARRAY_BYTES and not value.dtype.hasobject:
            yield f"array {value.dtype.str} {value.shape} {digest(value.tobytes())}"
        else:
            yield from super().value(value)

    def _object(self, value: Any) -> Iterator[str]:
        if is_dispatcher(value):
            options = []
            for key, option in value.targetoptions.items():
                of_set = isinstance(option, (set, frozenset))
                options.append((key, str(sorted(map(str, option)) if of_set else option)))
            yield f"numba {sorted(options)}"
            if not value._can_compile:
                yield f"signatures {[str(signature) for signature in value.nopython_signatures]}"
            yield from self.function(value.py_func)
        elif isinstance(value, ModuleType):
            yield self._module(value)
        elif (name := original(value)) is not None:
            yield name
        elif _is_type(value):
            yield f"{type(value).__qualname__} {value}"
        else:
            raise Unknown(value)

    def _attribute(self, value: Any) -> str:
        return f"{type(value).__qualname__} {value}" if _is_type(value) else super()._attribute(value)


def _is_type(value: object) -> bool:
    """Return whether the value is one of Numba's or llvmlite's types."""
    of_types = type(value).__module__.startswith(("numba.core.types", "llvmlite.ir.types"))
    return of_types and original(type(value)) is not None


# Only builtins that neither read hidden state nor run code from elsewhere.
_BUILTINS = frozenset(
    {"abs", "all", "any", "bool", "bytes", "complex", "dict", "divmod", "enumerate", "filter", "float", "frozenset"}
    | {"int", "isinstance", "len", "list", "map", "max", "min", "next", "iter", "pow", "range", "reversed", "round"}
    | {"set", "slice", "sorted", "str", "sum", "tuple", "zip"}
)
# Names that run others' code, read files, or get attributes by text.
_FOREIGN = frozenset(
    {"ctypeslib", "f2py", "testing", "attrgetter", "methodcaller", "load", "loadtxt", "genfromtxt", "fromfile"}
    | {"fromregex", "memmap", "open_memmap", "DataSource", "read_array", "RawKernel", "RawModule", "load_file"}
)
_SETS = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME", "LOAD_BUILD_CLASS"})


class CalledWalk(Walk):
    """Walk through code that Python runs.

    device: as in `callable_code`. held: the arrays and scalars in closures and defaults. machine_code,
    launches: hashes of the kernels that it launches and of their launches, in order.
    """

    def __init__(self, device: Device | None) -> None:
        super().__init__()
        self._device = device
        self._libraries: Mapping[str, str] = device.libraries if device is not None else {}
        self.held: list[object] = []
        self.machine_code: list[str] = []
        self.launches: list[str] = []

    def digest_of(self, function: object, arguments: Iterable[object]) -> str | None:
        """Hash a function for such arguments; None where its behaviour depends on something that cannot be hashed."""
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
        """Return a text for a launch's kernel source; keep its machine code and its arguments."""
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
        """Return whether the value is a scalar, a text or a library's array, without user-defined types."""
        if type(value) is tuple:
            return all(map(self._is_argument, value))
        return value is None or is_plain(value) or self._is_array(value)

    def _is_array(self, value: object) -> bool:
        if type(value) is np.ndarray:
            return not value.dtype.hasobject and is_plain_dtype(value.dtype)
        return any(type(value) is getattr(loaded(name), "ndarray", None) for name in self._libraries)


def _known(value: Any) -> str | None:
    """Return the lasting name of a library's or Python's own object; None for others, or if it may run others' code."""
    name = original(value)
    of_python = getattr(value, "__module__", None) == "builtins" and value.__name__ not in _BUILTINS
    return None if of_python or not _FOREIGN.isdisjoint((name or "").split(".")) else name
