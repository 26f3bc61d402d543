"""Identify a Numba function by what its compiler is given: bytecode, constants, what its names stand for, options.

Where a name stands for something that may not decide the machine code alone (a list, a plain function, which may be
overloaded, a module of the user's) the code counts as unknown.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from pytest_bandwidth.devices.code.walk import Unknown, Walk, original
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
    """Hash a Numba function for the host; None where it is none, or what decides its code cannot be told."""
    if not is_dispatcher(function):
        return None
    import llvmlite.binding
    import numba

    if _is_extended():
        return None
    try:
        settings = [repr(getattr(numba.config, name, None)) for name in _SETTINGS]
        parts = list(_CompiledWalk().whole(function, _VERSIONED))
    except (Unknown, RecursionError):
        return None
    return digest(*_versions(), llvmlite.binding.get_host_cpu_name(), *settings, *parts)


def is_dispatcher(function: object) -> bool:
    """Return whether it is what Numba made of a function, to be compiled for the host."""
    return "numba" in sys.modules and isinstance(function, _dispatcher())


def _dispatcher() -> Any:
    from numba.core.registry import CPUDispatcher

    return CPUDispatcher


def _versions() -> Iterator[str]:
    for name in _VERSIONED:
        yield f"{name} {getattr(sys.modules.get(name), '__version__', '')}"


class _CompiledWalk(Walk):
    """Walk through code that Numba compiles."""

    def value(self, value: Any) -> Iterator[str]:
        if isinstance(value, np.ndarray) and value.nbytes <= LARGEST_ARRAY_BYTES and not value.dtype.hasobject:
            yield f"array {value.dtype.str} {value.shape} {digest(value.tobytes())}"
        else:
            yield from super().value(value)

    def _object(self, value: Any) -> Iterator[str]:
        from numba.core.extending import _Intrinsic

        if isinstance(value, _dispatcher()):
            yield f"numba {sorted((key, _option(option)) for key, option in value.targetoptions.items())}"
            if not value._can_compile:
                yield f"signatures {[str(signature) for signature in value.nopython_signatures]}"
            yield from _CompiledWalk(self).function(value.py_func)
        elif isinstance(value, _Intrinsic):
            yield "intrinsic"
            yield from _GeneratingWalk(self).function(value._defn)
        elif isinstance(value, ModuleType):
            yield self._module(value)
        elif (name := original(value)) is not None:
            yield name
        elif _is_type(value):
            yield f"{type(value).__qualname__} {value}"
        else:
            yield from self._own(value)

    def _attribute(self, value: Any) -> str:
        return f"{type(value).__qualname__} {value}" if _is_type(value) else super()._attribute(value)

    def _own(self, value: Any) -> Iterator[str]:
        """Yield the same of what is the user's."""
        raise Unknown(value)


class _GeneratingWalk(_CompiledWalk):
    """Walk through code that generates code for Numba, whose functions and classes may be anybody's."""

    def _own(self, value: Any) -> Iterator[str]:
        if isinstance(value, FunctionType):
            yield from self.function(value)
        elif isinstance(value, type):
            yield f"class {len(value.__bases__)}"
            for base in value.__bases__:
                yield from self.value(base)
            for attribute, of_class in sorted(vars(value).items()):
                if attribute not in _OF_ANY_CLASS:
                    yield attribute
                    yield from self.value(of_class)
        else:
            raise Unknown


def _is_extended() -> bool:
    """Return whether somebody taught Numba other code for names, which may be names of any library's."""
    from numba.core.typing.templates import builtin_registry

    for template in (*builtin_registry.functions, *builtin_registry.attributes):
        implementation = getattr(template, "_overload_func", None)
        if implementation is not None:
            module = str(implementation.__globals__.get("__name__"))
            if module.partition(".")[0] not in _EXTENDING:
                return True
    return False


def _is_type(value: object) -> bool:
    """Return whether it is one of Numba's or llvmlite's types of values."""
    of_types = type(value).__module__.startswith(("numba.core.types", "llvmlite.ir.types"))
    return of_types and original(type(value)) is not None


def _option(option: Any) -> str:
    return str(sorted(map(str, option))) if isinstance(option, (set, frozenset)) else str(option)
