"""Detect that a test replaced the clock or a part of the plugin, so that no figure is reliable."""

from __future__ import annotations

import os
import sys
import sysconfig
from functools import cache, cached_property
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from pytest_bandwidth.domain.interpreter import Clock, clock
from pytest_bandwidth.features.honest import CONSTANTS_AT_START, FUNCTIONS_AT_START

_PACKAGE = "pytest_bandwidth"
# The members of the package's modules and classes at the last check, by `id`.
_SEEN: dict[str, list[int]] = {}
# The attribute that holds the function.
_INSIDE = {staticmethod: "__func__", classmethod: "__func__", property: "fget", cached_property: "func"}


def replaced(device: object) -> str | None:
    """Return the name of something replaced: a clock, CuPy's events, or a part of the plugin; None if nothing is.

    device: an instance, since a test may replace methods of the instance alone.
    """
    for label, owner, name, function in FUNCTIONS_AT_START:
        if getattr(owner, name) is not function:
            return f"{label}.{name}"
    for (module, name), value in CONSTANTS_AT_START.items():
        if getattr(sys.modules.get(module), name, value) is not value:
            return f"{module}.{name}"
    # Such functions are called at each call of a function of the plugin, so also just before the clock starts.
    if is_foreign(sys.getprofile()) or is_foreign(sys.gettrace()):
        return "the function of sys.setprofile or sys.settrace"
    if (cupy := sys.modules.get("cupy")) is not None:
        event = cupy.cuda.Event
        members = {f"cupy.cuda.Event.{name}": _inner(value) for name, value in vars(event).items()}
        timing = {"cupy.cuda.Event": event, "cupy.cuda.get_elapsed_time": cupy.cuda.get_elapsed_time, **members}
        if name := next((name for name, value in timing.items() if is_foreign(value)), ""):
            return name
    if (within := _replaced_in_package()) is not None:
        return within
    own = getattr(device, "__dict__", {})
    return next((f"{type(device).__name__}.{name}" for name, value in own.items() if is_foreign(value)), None)


def _replaced_in_package() -> str | None:
    """Return the first name in the package's loaded modules, or in their classes, that was replaced."""
    for module_name, module in list(sys.modules.items()):
        if module is None or not f"{module_name}.".startswith(f"{_PACKAGE}."):
            continue
        spaces = [(module_name, vars(module))]
        own = (one for one in list(vars(module).values()) if isinstance(one, type) and one.__module__ == module_name)
        spaces += [(f"{module_name}.{one.__qualname__}", dict(vars(one))) for one in own if one is not Clock]
        for space, members in spaces:
            found = members.values()
            seen = [id(value.__code__) if type(value) is FunctionType else id(value) for value in found]
            if _SEEN.get(space) == seen:
                continue  # no member has changed since the last check
            values = list(map(_inner, found))
            for name, value in zip(list(members), values, strict=True):
                if name == "__loader__":  # set by tools that hook imports, such as coverage; not used in measuring
                    continue
                is_clock = space == module_name and name == "clock" and not isinstance(value, ModuleType)
                if is_foreign(value) or (is_clock and value is not clock):
                    return f"{space}.{name}"
            _SEEN[space] = seen
    return None


def _inner(value: Any) -> Any:
    """Return the function in a static method, a class method or a property."""
    kind = type(value)
    if kind is FunctionType:  # the most frequent kind
        return value
    name = _INSIDE.get(kind)
    return value if name is None else getattr(value, name)


def is_foreign(value: object) -> bool:
    """Return whether a function, or an object's class, is from a file of neither the package nor an installed one."""
    inner = value if isinstance(value, type) else getattr(value, "__wrapped__", value)
    if isinstance(inner, FunctionType):
        file = inner.__code__.co_filename
        made = inner.__name__.startswith("__") and file == "<string>"  # made by dataclasses
        return not (made or _is_known(file))
    kind = type(value)
    if kind.__module__ == "unittest.mock":
        return True
    module = sys.modules.get(kind.__module__)
    return module is not None and kind is not type and not _is_known(getattr(module, "__file__", None) or "<")


@cache
def _is_known(file: str) -> bool:
    """Return whether a file belongs to Python, to an installed distribution or to this package; <…> is no file."""
    if file.startswith("<"):
        return file != "<string>"
    return file.startswith(_folders()) or os.path.realpath(file).startswith(_folders())


@cache
def _folders() -> tuple[str, ...]:
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    paths |= {str(Path(__file__).parents[2]), *(one for one in sys.path if one.endswith("-packages"))}
    return tuple(f"{folder}{os.sep}" for path in paths for folder in (path, os.path.realpath(path)))
