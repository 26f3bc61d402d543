"""Hold plain data from elsewhere to the types that a dataclass declares, before any figure is computed from it."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from math import inf, isfinite
from typing import Any, Literal, TypeGuard, Union, cast, get_args, get_origin, get_type_hints

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import shown

DEEPEST = 32
# No figure is out there, and whatever is computed from up to four figures within stays finite.
LARGEST, SMALLEST = 1e75, 1e-75
# Counts travel to other programs, which keep them in 64 bits.
LARGEST_COUNT = 2**63 - 1
# Fields that may be below zero: a gain, a temperature, facts of a device such as a NUMA node of -1. All others count or
# say how long, how large or how fast it was.
SIGNED = frozenset({"drop", "facts", "temperature_c"})

_CONTAINERS = (dict, list)
_TOO_DEEP = f"found values nested deeper than {DEEPEST}, expected fewer levels"
# Raises _Mismatch unless the value has the form.
Check = Callable[[object], None]


class Unreal(UsageError):
    """Raised by `check_form` for a number that is no figure of something real: what has none may be read without it."""

    def __init__(self, number: float) -> None:
        super().__init__(f"found the number {_size_of(number)}, expected a figure of something real")


class _Mismatch(Exception):
    """Raised where a value has not its form. Its place is put together on the way out, since nearly all have theirs."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        self.place = ""

    def inside(self, place: str) -> _Mismatch:
        """Return it, seen from one level further out."""
        self.place = place + self.place
        return self


def check_plain(value: object) -> None:
    """Raise UsageError for nesting, numbers or text that no document of ours holds, wherever they stand.

    value: of JSON's own types. Depth is the writer's choice, so nothing here recurses; what follows may.
    """
    level: list[object] = [value]
    for _ in range(DEEPEST):
        deeper: list[object] = []
        for one in level:
            if isinstance(one, dict):
                _check_leaves(list(one))
                deeper.extend(one.values())
            elif isinstance(one, list) and not _usual_figures(one):
                deeper.extend(one)
        _check_leaves(deeper)
        level = [one for one in deeper if isinstance(one, _CONTAINERS)]
        if not level:
            return
    raise UsageError(_TOO_DEEP)


def check_figures(value: object, depth: int = 0) -> None:
    """Raise Unreal for a number that is no figure, wherever it stands; UsageError for what is nested too deep."""
    if depth > DEEPEST:
        raise UsageError(_TOO_DEEP)
    if _is_mapping(value) or isinstance(value, list | tuple):
        for one in value.values() if _is_mapping(value) else value:
            check_figures(one, depth + 1)
    elif isinstance(value, (int, float)) and not _is_real(value):
        raise Unreal(value)


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
    """Raise UsageError where a value's type is not the field's, or a field without default is absent.

    A number that is no figure is `Unreal`, which is looked for in the same walk.

    form: a dataclass whose annotations use text, numbers, booleans, literals, enums, mappings, tuples (JSON: lists),
    unions and further dataclasses; `Any` is not looked into. Names that it does not know are ignored.
    """
    try:
        _of_dataclass(form)(plain)
    except _Mismatch as found:
        raise UsageError(f"{where}{found.place} {found.text}") from None


def _is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    """Return whether it is one; nearly all are dicts, and asking for the type first is three times as fast."""
    return type(value) is dict or isinstance(value, Mapping)


def _usual_figures(values: Sequence[object]) -> bool:
    """Return whether all are floats in the usual range, or all booleans: nearly all of a document; quick, in C."""
    kinds = set(map(type, values))
    if kinds != {float}:
        return kinds == {bool}
    figures = cast("list[float]", values)
    if min(figures) >= SMALLEST and sum(figures) <= LARGEST:  # the sum with NaN is none
        return True
    sizes = list(map(abs, figures))
    return isfinite(sum(figures)) and max(sizes) <= LARGEST and min(filter(None, sizes), default=1.0) >= SMALLEST


def _check_leaves(values: list[object]) -> None:
    for value in values:
        if isinstance(value, (int, float)):
            if not _is_real(value):
                raise Unreal(value)
        elif isinstance(value, str) and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise UsageError(f"found the text {value[:20]!a}, expected whole characters") from None


def _is_real(value: object) -> bool:
    """Return whether this is no number, or one that a figure may have; NaN is neither above nor below anything."""
    return not isinstance(value, (int, float)) or value == 0 or SMALLEST <= abs(value) <= LARGEST


def _size_of(number: float) -> str:
    """Return a number of any size in a few digits: Python refuses to write out very long ones."""
    return f"{number:.3g}" if isinstance(number, float) else f"2^{abs(number).bit_length() - 1}"


@cache
def _of_dataclass(form: type) -> Check:
    hints = get_type_hints(form)
    declared = [f for f in fields(form) if f.init]
    required = [f.name for f in declared if f.default is MISSING and f.default_factory is MISSING]
    checks = {f.name: _of_field(hints[f.name], f.name in SIGNED) for f in declared if hints[f.name] is not Any}

    def check(value: object) -> None:
        if not _is_mapping(value):
            raise _wrong(value, "a mapping")
        for name in required:
            if name not in value:
                raise _Mismatch(f"has no {name}, expected one")
        name = ""
        try:
            for name, inner in value.items():
                known = checks.get(name)
                if known is None:
                    continue
                kind = type(inner)
                if kind in known.plain or (
                    kind in known.numbers and (known.least <= inner <= LARGEST_COUNT or inner == 0)
                ):
                    continue  # nearly all
                known.check(inner)
        except _Mismatch as found:
            raise found.inside(f".{name}") from None

    return check


@dataclass(frozen=True, slots=True)
class _Field:
    """Hold what a field's values are held to.

    plain: types that need no further look; numbers: those of which values from `least` to `LARGEST_COUNT` need none.
    """

    plain: frozenset[type]
    numbers: frozenset[type]
    least: float
    check: Check


def _of_field(hint: Any, signed: bool) -> _Field:
    members = set(get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,))
    plain = members & {str, bool, type(None)}
    numbers = {int, float} if float in members else members & {int}
    return _Field(frozenset(plain), frozenset(numbers), inf if signed else SMALLEST, _of_hint(hint, signed))


@cache
def _of_hint(hint: Any, signed: bool) -> Check:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return _anything
    if origin in (Union, types.UnionType):
        return _of_union(arguments, signed)
    if origin is Literal:
        return _of_choice(arguments)
    if origin is tuple:
        return _of_list(_of_hint(arguments[0], signed), arguments[0])
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _of_mapping(_of_field(arguments[1], signed))
    if is_dataclass(hint):
        return _of_dataclass(cast("type", hint))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _of_choice(tuple(member.value for member in hint))
    return _of_scalar(hint, signed)


def _anything(value: object) -> None:
    del value


def _of_scalar(kind: Any, signed: bool) -> Check:
    words = {str: "text", int: "a whole number", float: "a number", bool: "true or false", type(None): "null"}[kind]
    accepted = (int, float) if kind is float else (kind,)
    is_number = kind in (int, float)

    def check(value: Any) -> None:
        if type(value) is kind and (not is_number or SMALLEST <= value <= LARGEST_COUNT or value == 0):  # nearly all
            return
        # JSON's booleans are Python's, which count as whole numbers.
        if type(value) not in accepted:
            raise _wrong(value, words)
        if kind is int and isinstance(value, int) and abs(value) > LARGEST_COUNT:
            raise _wrong(value, "a whole number of at most 63 bits")
        if not signed and isinstance(value, (int, float)) and value < 0:
            raise _wrong(value, "0 or more")
        if not _is_real(value):
            raise Unreal(value)

    return check


def _of_choice(choices: tuple[object, ...]) -> Check:
    def check(value: object) -> None:
        if not isinstance(value, str) or value not in choices:
            raise _wrong(value, f"one of {', '.join(map(str, choices))}")

    return check


def _of_list(inner: Check, hint: Any) -> Check:
    def check(value: object) -> None:
        if not isinstance(value, list | tuple):
            raise _wrong(value, "a list")
        if not value or (hint in (float, bool) and set(map(type, value)) == {hint} and _usual(value)):
            return
        for i, one in enumerate(value):
            try:
                inner(one)
            except _Mismatch as found:
                raise found.inside(f"[{i}]") from None

    return check


def _usual(values: Sequence[Any]) -> bool:
    """Return whether booleans, or floats, are in the usual range; quick, in C. The sum with NaN is no figure."""
    return type(values[0]) is bool or (min(values) >= SMALLEST and sum(values) <= LARGEST)


def _of_mapping(inner: _Field) -> Check:
    def check(value: object) -> None:
        if not _is_mapping(value):
            raise _wrong(value, "a mapping")
        if inner.check is _anything or set(map(type, value.values())) <= inner.plain:
            return
        for name, one in value.items():
            try:
                inner.check(one)
            except _Mismatch as found:
                raise found.inside(f"[{shown(name)}]") from None

    return check


def _of_union(members: tuple[Any, ...], signed: bool) -> Check:
    checks = [_of_hint(member, signed) for member in members if member is not type(None)]
    optional = len(checks) < len(members)

    def check(value: object) -> None:
        if value is None and optional:
            return
        for one in checks[:-1]:
            try:
                one(value)
            except _Mismatch:
                continue
            return
        checks[-1](value)

    return check


def _wrong(value: object, expected: str) -> _Mismatch:
    return _Mismatch(f"is {shown(value)}, expected {expected}")
