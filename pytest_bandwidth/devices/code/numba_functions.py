"""Identify a Numba function by what its compiler is given: bytecode, constants, what its names stand for, options.

Only what surely decides the machine code is taken for an identity. Where a name stands for something else (an array of
any size, a plain function, which may be overloaded, a module of the user's) the code counts as unknown.
"""

from __future__ import annotations

import builtins
import dis
import sys
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from pytest_bandwidth.domain.code.identity import digest

# Whoever calls into these is identified by their version.
_VERSIONED = ("numba", "llvmlite", "numpy")
_STANDARD = ("math", "cmath", "operator", "builtins")
# Settings of Numba's that change the machine code of every function.
_SETTINGS = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "ENABLE_AVX", "CPU_NAME", "CPU_FEATURES", "BOUNDSCHECK")
# What Python itself puts into a class, the last one when pickle meets it: Numba's cache pickles what it compiled.
_OF_ANY_CLASS = (
    *("__doc__", "__dict__", "__weakref__", "__firstlineno__", "__annotations__", "__annotate_func__"),
    *("__static_attributes__", "__module__", "__abstractmethods__", "_abc_impl", "__slotnames__"),
)
_PLAIN = (bool, int, float, complex, str, bytes, np.generic, np.dtype)
LARGEST_ARRAY_BYTES = 2**20


class _Unknown(Exception):
    """What decides the machine code cannot be told."""


def function_digest(function: object) -> str | None:
    """Hash a Numba function for the host; None where it is none, or what decides its code cannot be told."""
    numba = sys.modules.get("numba")
    if numba is None or not isinstance(function, _dispatcher()):
        return None
    import llvmlite.binding

    try:
        settings = [repr(getattr(numba.config, name, None)) for name in _SETTINGS]
        identified = _Identified()
        parts = list(identified.value(function, jitted=True))
    except _Unknown:
        return None
    return digest(*_versions(), llvmlite.binding.get_host_cpu_name(), *settings, *parts)


def _dispatcher() -> Any:
    from numba.core.registry import CPUDispatcher

    return CPUDispatcher


def _versions() -> Iterator[str]:
    for name in _VERSIONED:
        yield f"{name} {getattr(sys.modules.get(name), '__version__', '')}"


class _Identified:
    """Walks through what one function uses; what was seen before is named by its number."""

    def __init__(self) -> None:
        # The objects as well: an id is only theirs while they live.
        self._seen: dict[int, tuple[int, object]] = {}

    def value(self, value: Any, *, jitted: bool) -> Iterator[str]:
        """Yield texts that identify what a name stands for. jitted: in code that Numba compiles. Raises _Unknown."""
        if value is None or value is ... or isinstance(value, _PLAIN):
            yield f"{type(value).__name__} {value!r}"
        elif isinstance(value, (tuple, frozenset)):
            items = value if isinstance(value, tuple) else sorted(value, key=repr)
            yield f"{type(value).__name__} {len(items)}"
            for item in items:
                yield from self.value(item, jitted=jitted)
        elif isinstance(value, np.ndarray) and value.nbytes <= LARGEST_ARRAY_BYTES and not value.dtype.hasobject:
            yield f"array {value.dtype.str} {value.shape} {digest(value.tobytes())}"
        elif (known := self._seen.get(id(value))) is not None:
            yield f"again {known[0]}"
        else:
            self._seen[id(value)] = len(self._seen), value
            yield from self._object(value, jitted=jitted)

    def _object(self, value: Any, *, jitted: bool) -> Iterator[str]:
        from numba.core.extending import _Intrinsic

        name = f"{getattr(value, '__module__', None)}.{getattr(value, '__qualname__', getattr(value, '__name__', ''))}"
        if isinstance(value, _dispatcher()):
            yield f"numba {sorted((key, _option(option)) for key, option in value.targetoptions.items())}"
            if not value._can_compile:
                yield f"signatures {[str(signature) for signature in value.nopython_signatures]}"
            yield from self._function(value.py_func, jitted=True)
        elif isinstance(value, _Intrinsic):
            yield "intrinsic"
            yield from self._function(value._defn, jitted=False)
        elif isinstance(value, ModuleType):
            if not _is_known(value.__name__):
                raise _Unknown
            yield f"module {value.__name__}"
        elif isinstance(value, (BuiltinFunctionType, np.ufunc, type, FunctionType)) and _is_known(
            getattr(value, "__module__", None) or ("numpy" if isinstance(value, np.ufunc) else "")
        ):
            yield f"{type(value).__name__} {name}"
        elif isinstance(value, FunctionType) and not jitted:
            yield from self._function(value, jitted=False)
        elif isinstance(value, type) and not jitted:
            yield f"class {len(value.__bases__)}"
            for base in value.__bases__:
                yield from self.value(base, jitted=False)
            for attribute, of_class in sorted(vars(value).items()):
                if attribute not in _OF_ANY_CLASS:
                    yield attribute
                    yield from self.value(of_class, jitted=False)
        elif type(value).__module__.startswith(("numba.core.types", "llvmlite.ir.types")):
            yield f"{type(value).__qualname__} {value}"
        else:
            raise _Unknown

    def _function(self, function: FunctionType, *, jitted: bool) -> Iterator[str]:
        try:
            closure = [cell.cell_contents for cell in function.__closure__ or ()]
        except ValueError:  # not assigned yet
            raise _Unknown from None
        for part in (*closure, *(function.__defaults__ or ()), *sorted((function.__kwdefaults__ or {}).items())):
            yield from self.value(part, jitted=jitted)
        yield from self._code(function.__code__, function.__globals__, jitted=jitted)

    def _code(self, code: CodeType, module: Mapping[str, Any], *, jitted: bool) -> Iterator[str]:
        yield f"code {code.co_argcount} {code.co_kwonlyargcount} {code.co_flags} {digest(code.co_code)} {code.co_names}"
        for index, constant in enumerate(code.co_consts):
            if isinstance(constant, CodeType):
                yield from self._code(constant, module, jitted=jitted)
            elif not (index == 0 and isinstance(constant, str)):  # a docstring
                yield from self.value(constant, jitted=jitted)
        for name in sorted({i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}):
            if name in module:
                yield name
                yield from self.value(module[name], jitted=jitted)
            elif not hasattr(builtins, name):
                raise _Unknown


def _is_known(module: str) -> bool:
    top = module.partition(".")[0]
    return top in _VERSIONED or module in _STANDARD


def _option(option: Any) -> str:
    return str(sorted(map(str, option))) if isinstance(option, (set, frozenset)) else str(option)
