"""List the values that a callable holds or names, without running it."""

from __future__ import annotations

import dis
from contextlib import suppress
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any


def held_by(value: Any) -> list[Any]:
    """Return the values in a callable's closure, arguments and global names; empty for anything else."""
    if isinstance(value, partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, BuiltinFunctionType):
        return [value.__self__]
    if not isinstance(value, FunctionType):
        return []
    held = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    for cell in value.__closure__ or ():
        with suppress(ValueError):  # not assigned yet
            held.append(cell.cell_contents)
    return [*held, *(value.__globals__[name] for name in _names(value.__code__) if name in value.__globals__)]


def _names(code: CodeType) -> list[str]:
    """Return the global names that code uses, with those of the functions inside it, each once."""
    own = [step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")]
    inside = [name for inner in code.co_consts if isinstance(inner, CodeType) for name in _names(inner)]
    return list(dict.fromkeys((*own, *inside)))
