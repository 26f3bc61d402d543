"""Tell whether a callable works with what is computed later: by its closure, its arguments, and its names."""

from __future__ import annotations

import dis
from collections.abc import Iterable
from functools import partial
from types import CodeType, FunctionType, MethodType

from pytest_bandwidth.frameworks.arrays import arrays_in
from pytest_bandwidth.frameworks.known import framework_of

# Frameworks whose compiled functions compute later as well, by the module of their types.
_LATER = ("jax", "jaxlib", "tinygrad")
# Functions hold others, and those others again: what lies beyond so many values is not looked at.
MOST_LOOKED_AT = 200


def holds_later(call: object) -> bool:
    """Return whether a callable holds, or names, an array or function of a framework that computes later.

    Functions that it holds are looked into as well; nothing is run.
    """
    pending, seen = [call], set[int]()
    while pending and len(seen) < MOST_LOOKED_AT:
        one = pending.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if _is_later(one):
            return True
        pending += _held(one)
    return False


def _is_later(value: object) -> bool:
    if type(value).__module__.partition(".")[0] in _LATER and callable(value):
        return True
    found = (framework_of(array) for _, array in arrays_in(value, "it", passing_over=True))
    return any(framework is not None and framework.computes_later for framework in found)


def _held(value: object) -> Iterable[object]:
    """Return what a callable was made with, and what its names stand for; of anything else nothing."""
    if isinstance(value, partial):
        return (value.func, *value.args, *value.keywords.values())
    if isinstance(value, MethodType):
        return (value.__self__, value.__func__)
    if not isinstance(value, FunctionType):
        return ()
    held: list[object] = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    for cell in value.__closure__ or ():
        try:
            held.append(cell.cell_contents)
        except ValueError:  # not assigned yet
            continue
    return (*held, *(value.__globals__[name] for name in _names(value.__code__) if name in value.__globals__))


def _names(code: CodeType) -> set[str]:
    """Return the names of its module that code uses, with those of the functions inside it."""
    own = {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return own.union(*(_names(inner) for inner in code.co_consts if isinstance(inner, CodeType)))
