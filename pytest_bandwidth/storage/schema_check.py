"""Hold plain data from elsewhere to the types that a dataclass declares, before any figure is computed from it."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from math import isfinite
from typing import Any, Literal, TypeGuard, Union, cast, get_args, get_origin, get_type_hints

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import shown

DEEPEST = 32
# No figure is out there, and whatever is computed from up to four figures within stays finite.
LARGEST, SMALLEST = 1e75, 1e-75
# Counts travel to other programs, which keep them in 64 bits.
LARGEST_COUNT = 2**63 - 1
# Fields that may be below zero: a gain and its interval, a temperature, facts of a device such as a NUMA node of -1.
# All others count or say how long, how large or how fast it was.
SIGNED = frozenset({"drop", "low", "high", "facts", "temperature_c"})

_TOO_DEEP = f"found values nested deeper than {DEEPEST}, expected fewer levels"
# Returns where in a value what is wrong, as `.peak.gbps is -1, expected 0 or more`; None where nothing is.
Check = Callable[[Any], str | None]


class Unreal(UsageError):
    """Raised for a number that is no figure of something real: what has none may be read without it."""

    def __init__(self, number: float) -> None:
        # Python refuses to write out very long whole numbers.
        size = f"{number:.3g}" if isinstance(number, float) else f"2^{abs(number).bit_length() - 1}"
        super().__init__(f"found the number {size}, expected a figure of something real")


def check_plain(value: object) -> None:
    """Raise UsageError for nesting, numbers or text that no document of ours holds, wherever they stand."""
    for leaf in _leaves(value):
        _check_real(leaf)
        if isinstance(leaf, str) and not leaf.isascii():
            try:
                leaf.encode()
            except UnicodeEncodeError:
                raise UsageError(f"found the text {leaf[:20]!a}, expected whole characters") from None


def check_figures(value: object) -> None:
    """Raise Unreal for a number that is no figure, wherever it stands; UsageError for what is nested too deep."""
    for leaf in _leaves(value):
        _check_real(leaf)


def without_unreal(value: Any, depth: int = 0) -> Any:
    """Return the data with None for each number that is no figure (not finite, too large, too small); lists go without.

    Raises UsageError where it is nested deeper than `DEEPEST`.
    """
    if depth > DEEPEST:
        raise UsageError(_TOO_DEEP)
    if _is_mapping(value):
        return {name: without_unreal(one, depth + 1) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_unreal(one, depth + 1) for one in value if _is_real(one)]
    return value if _is_real(value) else None


def check_form(plain: object, form: type, where: str) -> None:
    """Raise UsageError where a value's type or sign is not the field's, or a field without default is absent.

    A number that is no figure is `Unreal`, which is looked for in the same walk.

    form: a dataclass whose annotations use text, numbers, booleans, literals, enums, mappings, tuples (JSON: lists),
    unions and further dataclasses; `Any` is not looked into. Names that it does not know are ignored.
    """
    if (problem := _of_dataclass(form)(plain)) is not None:
        raise UsageError(f"{where}{problem}")


def _leaves(value: object) -> Iterator[object]:
    """Give keys and values that hold no others, but for lists of usual figures. Depth is the writer's choice, so
    nothing here recurses.
    """
    level: list[object] = [value]
    for _ in range(DEEPEST + 1):
        deeper: list[object] = []
        for one in level:
            kind = type(one)
            if kind is dict or (kind not in _SINGLE and isinstance(one, Mapping)):
                mapping = cast("Mapping[object, object]", one)
                yield from mapping
                deeper.extend(mapping.values())
            elif kind is list or kind is tuple:
                values = cast("Sequence[object]", one)
                deeper.extend(() if _are_usual(values) else values)
            else:
                yield one
        if not deeper:
            return
        level = deeper
    raise UsageError(_TOO_DEEP)


_SINGLE = frozenset({str, int, float, bool, list, tuple, type(None)})


def _are_usual(values: Sequence[object]) -> bool:
    """Return whether all are floats in the usual range, or all booleans: nearly all of a document; quick, in C."""
    kinds = set(map(type, values))
    if kinds != {float}:
        return kinds == {bool}
    figures = cast("list[float]", values)
    if min(figures) >= SMALLEST and sum(figures) <= LARGEST:  # the sum with NaN is none
        return True
    sizes = list(map(abs, figures))
    return isfinite(sum(figures)) and max(sizes) <= LARGEST and min(filter(None, sizes), default=1.0) >= SMALLEST


def _is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    """Return whether it is one; nearly all are dicts, and asking for the type first is three times as fast."""
    return type(value) is dict or isinstance(value, Mapping)


def _check_real(value: object) -> None:
    if not _is_real(value):
        raise Unreal(cast("float", value))


def _is_real(value: object) -> bool:
    """Return whether this is no number, or one that a figure may have; NaN is neither above nor below anything."""
    return not isinstance(value, (int, float)) or value == 0 or SMALLEST <= abs(value) <= LARGEST


@cache
def _of_dataclass(form: type) -> Check:
    hints = get_type_hints(form)
    declared = [f for f in fields(form) if f.init]
    required = [f.name for f in declared if f.default is MISSING and f.default_factory is MISSING]
    checks = {f.name: _of_field(hints[f.name], f.name in SIGNED) for f in declared if hints[f.name] is not Any}

    def check(value: object) -> str | None:
        if not _is_mapping(value):
            return _wrong(value, "a mapping")
        for name in required:
            if name not in value:
                return f" has no {name}, expected one"
        for name, inner in value.items():
            known = checks.get(name)
            kind = type(inner)
            if known is None or kind in known[0] or (kind in known[1] and SMALLEST <= inner <= LARGEST_COUNT):
                continue  # nearly all
            if (problem := known[2](inner)) is not None:
                return f".{name}{problem}"
        return None

    return check


def _wrong(value: object, expected: str) -> str:
    return f" is {shown(value)}, expected {expected}"


def _of_field(hint: Any, signed: bool) -> tuple[Set[type], Set[type], Check]:
    """Return the types whose values need no further look, those whose usual numbers need none, and what looks."""
    members = set(get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,))
    numbers = {int, float} if float in members else members & {int}
    return members & {str, bool, type(None)}, numbers, _of_hint(hint, signed)


@cache
def _of_hint(hint: Any, signed: bool) -> Check:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return lambda _: None
    if origin in (Union, types.UnionType):
        return _of_union(arguments, signed)
    if origin is Literal:
        return _of_choice(arguments)
    if origin is tuple:
        return _of_values(arguments[0], signed, in_list=True)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _of_values(arguments[1], signed, in_list=False)
    if is_dataclass(hint):
        return _of_dataclass(cast("type", hint))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _of_choice(tuple(member.value for member in hint))
    return _of_scalar(hint, signed)


def _of_scalar(kind: Any, signed: bool) -> Check:
    words = {str: "text", int: "a whole number", float: "a number", bool: "true or false", type(None): "null"}[kind]
    # Types are compared: JSON's booleans are Python's, which are instances of its whole numbers.
    accepted = (int, float) if kind is float else (kind,)
    has_sign = kind in (int, float) and not signed

    def check(value: Any) -> str | None:
        if type(value) not in accepted:
            return _wrong(value, words)
        if kind is int and abs(value) > LARGEST_COUNT:
            return _wrong(value, "a whole number of at most 63 bits")
        if has_sign and value < 0:
            return _wrong(value, "0 or more")
        _check_real(value)
        return None

    return check


def _of_choice(choices: tuple[object, ...]) -> Check:
    def check(value: object) -> str | None:
        known = isinstance(value, str) and value in choices
        return None if known else _wrong(value, f"one of {', '.join(map(str, choices))}")

    return check


def _of_values(hint: Any, signed: bool, *, in_list: bool) -> Check:
    plain, _, inner = _of_field(hint, signed)

    def check(value: Any) -> str | None:
        if not (isinstance(value, list | tuple) if in_list else _is_mapping(value)):
            return _wrong(value, "a list" if in_list else "a mapping")
        values = value if in_list else value.values()
        kinds = set(map(type, values))
        if kinds <= plain or hint is Any:
            return None
        if hint is float and kinds == {float} and min(values) >= SMALLEST and sum(values) <= LARGEST:
            return None  # nearly all; quick, in C; the sum with NaN is none
        problems = ((at, inner(one)) for at, one in (enumerate(value) if in_list else value.items()))
        return next((f"[{shown(at)}]{problem}" for at, problem in problems if problem is not None), None)

    return check


def _of_union(members: tuple[Any, ...], signed: bool) -> Check:
    *others, last = [_of_hint(member, signed) for member in members if member is not type(None)]
    optional = type(None) in members

    def check(value: object) -> str | None:
        if (value is None and optional) or any(one(value) is None for one in others):
            return None
        return last(value)

    return check
