"""Resolve reads= and writes= that name what a call is given and returns: "args", "result", or parameters of its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.domain.units import counted, format_bytes
from pytest_bandwidth.frameworks.arrays import FoundArray, arrays_in, grouped, located, reachable, refuse_mixed
from pytest_bandwidth.frameworks.extents import Extent

ARGUMENTS, RESULT = "args", "result"
Nbytes = Callable[[Any], int]
# So many arrays of a call are named in a message.
MOST_NAMED = 3


class CallArrays:
    """Know the arrays of ``function(*args, **keywords)`` by name. nbytes: of an array that the device can reach."""

    def __init__(
        self, function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any], nbytes: Nbytes
    ) -> None:
        self._function = function
        self._args = args
        self._keywords = keywords
        self._nbytes = nbytes

    def declared(self, reads: Any, writes: Any, result: Callable[[], object]) -> tuple[Any, Any]:
        """Return both sides with names replaced by the arrays they stand for, each storage once.

        result: runs the call once and returns its value; called where a side names it. Raises UsageError, also where
        arrays of two frameworks come together.
        """
        if reads is None and writes is None:
            raise UsageError(
                "neither reads= nor writes= is declared: name the arrays, bytes or Traffic that one run has to move; "
                f"here {self._offer()}"
            )
        found: dict[str, list[FoundArray]] = {}
        names = {"reads": _names(reads), "writes": _names(writes)}
        for side, asked in names.items():
            # The result last: what is wrong with the arguments is said before anything runs.
            for name in sorted(asked, key=lambda one: one == RESULT):
                found.setdefault(side, []).extend(self._found(side, name, result))
        refuse_mixed([one for ones in found.values() for one in ones])
        views: dict[Extent, Any] = {}
        return _replaced(reads, found.get("reads"), views), _replaced(writes, found.get("writes"), views)

    def _found(self, side: str, name: str, result: Callable[[], object]) -> list[FoundArray]:
        if name == RESULT and side == "reads":
            raise UsageError("reads='result': what a call returns is written, expected writes='result'")
        where, value = (RESULT, result()) if name == RESULT else self._argument(side, name)
        found = self._located(where, value)
        if not found:
            what = "the call returned" if name == RESULT else f"{where} holds"
            raise UsageError(f"{side}={shown(name)}: {what} no array (a {type(value).__name__}): name arrays or bytes")
        return found

    def _located(self, where: str, value: object) -> list[FoundArray]:
        if where == ARGUMENTS:
            inside = [one for path, inner in self.arguments.items() for one in arrays_in(inner, path)]
        else:
            inside = list(arrays_in(value, where))
        found = [located(path, array) for path, array in inside]
        for one in found:
            self._check(one)
        return found

    def _check(self, found: FoundArray) -> None:
        """Raise UsageError, with the array's name, where the device cannot reach it."""
        if not found.known_to_devices:
            return
        try:
            self._nbytes(found.array)
        except UsageError as error:
            raise UsageError(f"{found.path}: {error}") from None

    def _argument(self, side: str, name: str) -> tuple[str, object]:
        if name == ARGUMENTS:
            return ARGUMENTS, self._args
        parameters = self._parameters
        if parameters is None or name not in parameters:
            known = "whose parameters cannot be told" if parameters is None else _listed(parameters)
            raise UsageError(
                f"{side}={shown(name)}, expected arrays, whole numbers of bytes, text such as '64 MiB', a Traffic "
                f"model, 'args', 'result' or a parameter of the measured callable ({known})"
            )
        return name, parameters[name]

    @cached_property
    def arguments(self) -> Mapping[str, object]:
        """Return all that the call is given, by a name for each."""
        if self._parameters is not None:
            return self._parameters
        return {**{f"args[{place}]": value for place, value in enumerate(self._args)}, **self._keywords}

    @property
    def given(self) -> Mapping[int | str, object]:
        """Return all that the call is given, by place or keyword."""
        given: dict[int | str, object] = dict(enumerate(self._args))
        given.update(self._keywords)
        return given

    @property
    def places(self) -> Mapping[str, int | str]:
        """Return the place, or the keyword, of each parameter that the call is given, by its name."""
        names = [] if self._parameters is None else list(inspect.signature(self._function).parameters)
        by_place = {name: place for place, name in enumerate(names[: len(self._args)])}
        return {**by_place, **{name: name for name in self._keywords}}

    @cached_property
    def _parameters(self) -> dict[str, object] | None:
        """Return the values of the callable's parameters, defaults included; None where it does not tell them."""
        try:
            bound = inspect.signature(self._function).bind(*self._args, **self._keywords)
        except (TypeError, ValueError):  # no signature, as of NumPy's functions; or the call itself is wrong
            return None
        bound.apply_defaults()
        return dict(bound.arguments)

    def _offer(self) -> str:
        """Tell what the names would declare; nothing runs for it."""
        try:
            found = self._located(ARGUMENTS, self._args)
            refuse_mixed(found)
            group = grouped(found, {})
        except UsageError as error:
            return f"reads='args' would not do: {error}"
        if not found:
            return "no array is among the arguments, so that only writes='result' could tell any"
        named = _listed([one.path for one in found])
        return (
            f"reads='args' would declare {counted(len(found), 'array')} ({named}), {format_bytes(group.nbytes)}, and "
            "writes='result' those that it returns"
        )


def _names(side: Any) -> list[str]:
    """Return the names on one side: text that is no number of bytes."""
    parts = side if isinstance(side, (tuple, list)) else (side,)
    return [part for part in parts if _is_name(part)]


def _is_name(part: object) -> bool:
    return isinstance(part, str) and part.isidentifier()


def _replaced(side: Any, found: Sequence[FoundArray] | None, views: dict[Extent, Any]) -> Any:
    """Return a side with one group of arrays in place of its names; arrays beside them join it, each byte once."""
    if found is None:
        return side
    parts = [part for part in (side if isinstance(side, (tuple, list)) else (side,)) if not _is_name(part)]
    beside = {place: one for place, part in enumerate(parts) if (one := reachable(part)) is not None}
    others = (part for place, part in enumerate(parts) if place not in beside)
    return (*others, grouped([*found, *beside.values()], views))


def _listed(names: Sequence[str] | Mapping[str, object]) -> str:
    first = list(names)[:MOST_NAMED]
    more = len(names) - len(first)
    return ", ".join(first) + (f" and {more} more" if more else "") if first else "it has none"
