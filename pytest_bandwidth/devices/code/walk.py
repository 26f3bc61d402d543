"""Walk through what a function uses: bytecode, constants, and the values of its names.

Only what surely decides the function's behaviour is part of its identity; anything else is Unknown.
"""

from __future__ import annotations

import builtins
import dis
import os
import sys
import sysconfig
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib.machinery import BuiltinImporter, FrozenImporter
from importlib.metadata import PackageNotFoundError, distribution
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from pytest_bandwidth.domain.code.identity import digest, is_installed

STANDARD = frozenset({"math", "cmath", "operator", "_operator"})
_DISPATCHER = type(np.sum)
_HEAP_TYPE = 1 << 9  # of a type's flags: its class statement was Python's
_STDLIB = tuple({os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib")})
_PLAIN = frozenset({bool, int, float, complex, str, bytes})
_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME")
# Attributes of wrappers, or that pytest sets: the function's code does not read them.
_OF_WRAPPERS = ("__wrapped__", "pytestmark")


def original_module(module: object) -> str | None:
    """Return the name of a module that was loaded from Python's or its library's own files; None for any other."""
    if type(module) is not ModuleType:
        return None
    spec, name = getattr(module, "__spec__", None), module.__name__
    if spec is None or spec.name != name:
        return None
    if name in STANDARD or name == "builtins":
        is_pythons = spec.loader in (BuiltinImporter, FrozenImporter) or _is_standard_file(spec.origin)
        return name if is_pythons else None
    return name if _is_file_of(name, spec.origin) else None


def loaded(name: str) -> ModuleType | None:
    """Return the loaded module of that name, where it is an original."""
    module = sys.modules.get(name)
    return module if original_module(module) == name else None


def original(value: Any) -> str | None:
    """Return the lasting name of a function, ufunc or type that is a library's own; None for anything else."""
    if isinstance(value, np.ufunc):
        made = next((m for name in ("numpy._core", "numpy.core") if (m := loaded(f"{name}._multiarray_umath"))), None)
        return f"ufunc {value.__name__}" if made is not None and _is_reached(made, value) else None
    if type(value) is FunctionType:
        name, file = str(value.__globals__.get("__name__")), value.__code__.co_filename
        of_function = loaded(name)
        if of_function is None or vars(of_function) is not value.__globals__ or "<" in value.__qualname__:
            return None
        is_own = _is_standard_file(file) if name in STANDARD else _is_file_of(name, file)
        return f"function {name}.{value.__qualname__}" if is_own else None
    if type(value) is BuiltinFunctionType:
        module = original_module(value.__self__)
        same = isinstance(value.__self__, ModuleType) and _is_reached(value.__self__, value)
        return f"builtin {module}.{value.__name__}" if module is not None and same else None
    if type(value) is _DISPATCHER:
        made_of = original(getattr(value, "_implementation", None))
        return None if made_of is None else f"dispatched {made_of}"
    return _name_of_type(value) if isinstance(value, type) else _name_of_cython(value)


def is_original_builtin(name: str, value: object) -> bool:
    """Return whether it is Python's own builtin of that name."""
    if type(value) is BuiltinFunctionType:
        return value.__self__ is builtins and value.__name__ == name
    return isinstance(value, type) and not value.__flags__ & _HEAP_TYPE and value.__name__ == name


def is_plain_dtype(dtype: np.dtype[Any]) -> bool:
    """Return whether elements of that type have no user-defined methods."""
    if dtype.subdtype is not None:
        return is_plain_dtype(dtype.subdtype[0])
    fields = () if dtype.fields is None else dtype.fields.values()
    return dtype.type.__module__ == "numpy" and all(is_plain_dtype(field[0]) for field in fields)


def is_replaced(library: str) -> bool:
    """Return whether a library's modules hold a function from outside the library, NumPy, SciPy and Python."""
    folder = _folder_of(library)
    if folder is None:
        return True
    allowed = (folder, *filter(None, map(_folder_of, ("numpy", "scipy"))), *_STDLIB, "<")
    for name, module in list(sys.modules.items()):
        if module is None or not (name == library or name.startswith(f"{library}.")):
            continue
        for value in list(vars(module).values()):
            if type(value) is FunctionType:
                if not value.__code__.co_filename.startswith(allowed):
                    return True
            elif (
                isinstance(value, type)
                and value.__module__.partition(".")[0] == library
                and not _is_pure(value, allowed)
            ):
                return True
    return False


def _name_of_cython(value: Any) -> str | None:
    """Return the lasting name of a CuPy function that Cython compiled, or of a CuPy ufunc; None for anything else."""
    kind = type(value)
    if kind.__name__ == "cython_function_or_method":
        module = loaded(value.__module__)
        return f"function {value.__module__}.{value.__name__}" if module and _is_reached(module, value) else None
    made = loaded("cupy._core._kernel")
    if made is None or kind is not vars(made).get("ufunc"):
        return None
    of_cupy = (module for name in list(sys.modules) if name.startswith("cupy.") and (module := loaded(name)))
    return f"ufunc {value.name}" if any(value is one for module in of_cupy for one in vars(module).values()) else None


def _name_of_type(value: type) -> str | None:
    module = loaded(value.__module__)
    if module is None:
        return None
    name = value.__module__
    if not value.__flags__ & _HEAP_TYPE:  # of C, where another library's type may name this module
        return f"type {name}.{value.__qualname__}" if _is_reached(module, value) else None
    folder = _folder_of(name.partition(".")[0])
    if name in STANDARD or folder is None or not _is_pure(value, (folder, *_STDLIB, "<")):
        return None
    bases = [original(base) for base in value.__bases__ if base is not object]
    return None if None in bases else f"class {name}.{value.__qualname__}"


def _is_pure(value: type, allowed: tuple[str, ...]) -> bool:
    """Return whether all of a class's own functions are from such files."""
    functions = (one for one in list(vars(value).values()) if type(one) is FunctionType)
    return all(one.__code__.co_filename.startswith(allowed) for one in functions)


def _is_reached(module: ModuleType, value: Any) -> bool:
    return vars(module).get(value.__name__) is value


def _is_file_of(module: str, file: str | None) -> bool:
    folder = _folder_of(module.partition(".")[0])
    return folder is not None and file is not None and file.startswith(folder)


def _is_standard_file(file: str | None) -> bool:
    return file is not None and file.startswith(_STDLIB) and not is_installed(file)


@lru_cache(maxsize=64)
def _folder_of(library: str) -> str | None:
    """Return the folder of a library that is installed as its distribution's files; None for a checkout."""
    if library == "cupy":  # its distribution has another name for each version of CUDA
        origin = getattr(getattr(sys.modules.get(library), "__spec__", None), "origin", None) or ""
        return os.path.join(os.path.dirname(origin), "") if is_installed(origin) else None
    if library not in ("numpy", "numba", "llvmlite", "scipy"):
        return None
    try:
        file = distribution(library).locate_file(f"{library}/__init__.py")
    except PackageNotFoundError:
        return None
    return os.path.join(os.path.dirname(str(file)), "") if os.path.exists(str(file)) else None


def is_plain(value: object) -> bool:
    """Return whether the value is a number, a text or a dtype, of exactly such a type and no user's subclass."""
    if isinstance(value, np.dtype):
        return is_plain_dtype(value)
    if isinstance(value, np.generic):
        return type(value) is value.dtype.type and is_plain_dtype(value.dtype)
    return type(value) in _PLAIN


class Unknown(Exception):
    """Raised for a function whose behaviour depends on something that cannot be hashed."""


class Walk(ABC):
    """Yield texts that identify what one function uses; an object that occurs again is named by its number."""

    def __init__(self) -> None:
        # The objects as well: an id is only theirs while they live.
        self._seen: dict[int, tuple[int, object]] = {}
        # Code may reach each of these modules by any variable, and take any of these names from it.
        self._modules: dict[str, ModuleType] = {}
        self._names: set[str] = set()

    def whole(self, value: Any, libraries: Iterable[str]) -> Iterator[str]:
        """Yield texts that identify a callable and all that it takes from modules. Raises Unknown.

        libraries: those that their version identifies, unless a part of them was replaced.
        """
        if any(map(is_replaced, libraries)):
            raise Unknown
        yield from self.value(value)
        # The values in each visited module for all visited names: other code may have replaced them there.
        done: set[str] = set()
        while waiting := sorted(self._modules.keys() - done):
            for of_module in waiting:
                done.add(of_module)
                there = vars(self._modules[of_module])
                for name in sorted(self._names & there.keys()):
                    yield f"{of_module}.{name} {self._attribute(there[name])}"

    def value(self, value: Any) -> Iterator[str]:
        """Yield texts that identify a name's value. Raises Unknown."""
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
        """Yield texts that identify a Python function: its closure, its defaults, its attributes, its code.

        Raises Unknown, also where its globals or builtins are not the usual dictionaries.
        """
        yield from self._made_with(function)
        for name, attribute in sorted(vars(function).items()):
            if name not in _OF_WRAPPERS:
                yield f"attribute {name}"
                yield from self._held(attribute)
        yield from self._code(function.__code__, function.__globals__)

    def _made_with(self, function: FunctionType) -> Iterator[str]:
        """Yield what identifies a function's closure and its defaults. Raises Unknown."""
        if type(function.__globals__) is not dict or getattr(function, "__builtins__", None) is not vars(builtins):
            raise Unknown
        try:
            closure = [cell.cell_contents for cell in function.__closure__ or ()]
        except ValueError:  # not assigned yet
            raise Unknown from None
        for part in (*closure, *(function.__defaults__ or ()), *sorted((function.__kwdefaults__ or {}).items())):
            yield from self._held(part)

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
        """Return a text for an original module. Raises Unknown for any other."""
        name = original_module(module)
        if name is None:
            raise Unknown
        self._modules[name] = module
        return f"module {name}"

    @abstractmethod
    def _object(self, value: Any) -> Iterator[str]:
        """Yield texts that identify anything but plain values and tuples of them."""

    def _held(self, value: Any) -> Iterator[str]:
        """Yield texts that identify a value in a function's closure, defaults or attributes."""
        return self.value(value)

    def _code(self, code: CodeType, module: Mapping[str, Any]) -> Iterator[str]:
        yield f"code {code.co_argcount} {code.co_kwonlyargcount} {code.co_flags} {digest(code.co_code)} {code.co_names}"
        instructions = [one for one in dis.get_instructions(code) if one.opname != "EXTENDED_ARG"]
        self._names.update(code.co_names)
        for at, instruction in enumerate(instructions):
            if instruction.opname == "IMPORT_NAME":  # the instructions before it load the level and the names
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
