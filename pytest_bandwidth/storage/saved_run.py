"""Read saved runs: check their JSON document before the plugin renders or compares it. No other module reads them.

``--bandwidth-json`` writes the document, and docs/json.md describes it. The classes below declare its forms, which
`check_form` checks.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any, Literal, NoReturn, Union, cast, get_args, get_origin, get_type_hints

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.code.identity import CodeIdentity
from pytest_bandwidth.domain.device import Conditions, Fact, TimedOn
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.interpreter import gc_disabled
from pytest_bandwidth.domain.measured.measurement import Dropped, Finding, KernelResources
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.domain.units import parse_moment
from pytest_bandwidth.domain.verdict import Numbers, Status
from pytest_bandwidth.outcomes.outcome import Outcome, from_plain

LARGEST_BYTES = 512 * 2**20
# A value takes up to 120 bytes of memory, however short its text is. The plugin's documents have one value in 24 bytes
# of text, and 400 in a result.
LEAST_BYTES_A_VALUE = 12
VALUES_OF_A_SMALL_ONE, MOST_VALUES = 100_000, 20_000_000
SCHEMA = 1
MAX_RENDERED_RESULTS = 50_000
# Fields of a result whose values no form declares.
_UNTYPED = ("tags", "fresh", "detail")


@dataclass(frozen=True, slots=True)
class RunPeak:
    """Hold the peak bandwidth of a run's device in GB/s, and its source."""

    gbps: float
    source: str


@dataclass(frozen=True, slots=True)
class RunDevice:
    """Describe the device of a run; GiB, None where unknown."""

    kind: str
    name: str
    serial: str
    timed_on: TimedOn
    memory_gib: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Fact] = field(default_factory=dict)
    variant: str = ""
    peak: RunPeak | None = None

    @property
    def peak_gbps(self) -> float | None:
        return (self.peak.gbps if self.peak else None) or None

    @property
    def peak_source(self) -> str:
        return self.peak.source if self.peak else ""


# These have no instances, and generating their methods would take longer than all else in this module.
@dataclass(init=False, repr=False, eq=False)
class DocumentForm:
    """Declare the document itself; its results have the form of an `Outcome` and the nested forms below."""

    schema: int
    run_id: str
    device: RunDevice
    results: tuple[Mapping[str, Any], ...]
    environment: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    baseline_path: str | None = None
    findings: tuple[Mapping[str, str], ...] = ()


@dataclass(init=False, repr=False, eq=False, frozen=True)
class DecisionForm(Numbers):
    """Declare a result's `verdict`: the rule, its numbers and facts."""

    status: str = ""
    rule: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    why_not: tuple[str, ...] = ()


@dataclass(init=False, repr=False, eq=False)
class ConditionsForm:
    """Declare a result's `conditions`: before the samples and after them."""

    before: Conditions = field(default_factory=Conditions)
    after: Conditions = field(default_factory=Conditions)


@dataclass(init=False, repr=False, eq=False)
class ProbeForm:
    """Declare a result's `probe`."""

    name: str | None = None
    bytes_moved: int | None = None


# What an `Outcome` declares as plain mappings.
NESTED_FORMS: Mapping[str, type] = {
    "code_identity": CodeIdentity,
    "verdict": DecisionForm,
    "baseline": Entry,
    "conditions": ConditionsForm,
    "probe": ProbeForm,
    "resources": KernelResources,
    "dropped": Dropped,
}


@dataclass(frozen=True, slots=True)
class RunDocument:
    """Hold a whole run as renderers read it. `outcomes` in the order of the document."""

    run_id: str
    environment: Mapping[str, Any]
    device: RunDevice
    strict: bool
    settings: Mapping[str, Any]
    outcomes: tuple[Outcome, ...]
    findings: tuple[Finding, ...]
    baseline_path: str | None

    def fails(self, outcome: Outcome) -> bool:
        """Return whether the outcome fails its test under this run's settings."""
        return outcome.xfail is None and Status[outcome.status].fails(strict=self.strict)


def load_run(path: Path) -> tuple[dict[str, Any], list[Outcome]]:
    """Return the document and its rows. Raises UsageError, one line with the file's name, for anything else."""
    try:
        with path.open("rb") as stream:
            # The limit is for the bytes read: a pipe or a device has no size.
            data = stream.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > LARGEST_BYTES:
        raise UsageError(f"{path}: larger than {LARGEST_BYTES // 2**20} MiB, expected a saved run")
    return checked(parsed(data, str(path)), str(path))


@gc_disabled()  # a run's objects stay: repeated scans of a fleet's run would take a fifth of the time
def parsed(data: bytes, name: str) -> object:
    """Parse JSON text. Raises UsageError, one line with the name, for any other text."""
    # Count the characters that separate or open values; some of those inside texts count as well.
    values = sum(map(data.count, (b",", b"[", b"{")))
    most = min(VALUES_OF_A_SMALL_ONE + len(data) // LEAST_BYTES_A_VALUE, MOST_VALUES)
    if values > most:
        raise UsageError(
            f"{name}: found {values:,} values, expected at most {most:,} in {len(data):,} bytes: "
            "a document that --bandwidth-json wrote"
        )
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise UsageError(f"{name}: found no JSON, expected a document that --bandwidth-json wrote") from None


@gc_disabled()
def checked(document: object, name: str) -> tuple[dict[str, Any], list[Outcome]]:
    """Return document and rows of an already parsed mapping; raises UsageError like `load_run`."""
    if not isinstance(document, dict) or not isinstance(document.get("results"), list):
        raise UsageError(f"{name}: found no results, expected a document that --bandwidth-json wrote")
    try:
        check_plain(document)
        return document, _rows(document)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None


def began(environment: Mapping[str, Any]) -> datetime:
    """Return when a run began, by its environment. Raises UsageError where that holds no valid time."""
    value: Any = environment.get("started_at")
    try:
        return parse_moment(value)
    except (TypeError, ValueError):
        found = f"environment.started_at is {shown(value)}"
        raise UsageError(f"{found}, expected a time such as 2026-11-21T04:00:00Z") from None


def read_document(document: Mapping[str, Any]) -> RunDocument:
    """Convert a document, saved or of the current run, for the renderers.

    A number that is no figure counts as absent: a report with a gap is more useful than no report.
    Raises UsageError, which names the place, the value that was found and the expected one.
    """
    if not isinstance(document, Mapping):
        raise UsageError(f"the document is {shown(document)}, expected a mapping")
    results = document.get("results")
    if isinstance(results, list | tuple) and len(results) > MAX_RENDERED_RESULTS:
        raise UsageError(f"the document has {len(results)} results, expected at most {MAX_RENDERED_RESULTS}: split it")
    plain = document
    try:
        outcomes = tuple(_rows(document))
    except Unreal:  # rare; the copy without such numbers takes as long as all else
        plain = without_unreal(document)
        outcomes = tuple(_rows(plain))
    settings, of_device = plain.get("settings") or {}, plain["device"]
    given = {one.name: of_device[one.name] for one in fields(RunDevice) if of_device.get(one.name) is not None}
    peak = of_device.get("peak")
    given["name"] = of_device["name"] or "unnamed device"
    given["peak"] = RunPeak(peak.get("gbps") or 0.0, peak.get("source") or "") if peak else None
    return RunDocument(
        run_id=plain["run_id"],
        environment=plain.get("environment") or {},
        device=RunDevice(**given),
        strict=settings.get("strict") is True,
        settings=settings,
        outcomes=outcomes,
        findings=tuple(Finding(note.get("code", ""), note.get("text", "")) for note in plain.get("findings") or ()),
        baseline_path=plain.get("baseline_path"),
    )


def _rows(document: Mapping[str, Any]) -> list[Outcome]:
    schema = document.get("schema")
    if type(schema) is not int or schema != SCHEMA:
        raise UsageError(f"found schema {shown(schema)}, expected {SCHEMA}: use the version that wrote it, or a newer")
    check_form(document, DocumentForm, "the document")
    check_figures([document.get("environment"), document.get("settings")])
    outcomes = []
    for number, row in enumerate(document["results"]):
        where = f"results[{number}]"
        check_form(row, Outcome, where)
        for name, form in NESTED_FORMS.items():
            value = row.get(name)
            if isinstance(value, (list, tuple)):
                for i, one in enumerate(value):
                    check_form(one, form, f"{where}.{name}[{i}]")
            elif value:
                check_form(value, form, f"{where}.{name}")
        for untyped in (*map(row.get, _UNTYPED), (row.get("verdict") or {}).get("facts")):
            if untyped:
                check_figures(untyped)
        outcomes.append(from_plain(row))
    return outcomes


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"found {name}, which JSON does not have")


# ---- checks plain data from elsewhere against a dataclass's types, before any figure is computed from it -------------

DEEPEST = 32
# No figure is outside of this range, and every product or quotient of up to four figures inside stays finite.
LARGEST, SMALLEST = 1e75, 1e-75
# Counts travel to other programs, which keep them in 64 bits.
LARGEST_COUNT = 2**63 - 1
# Fields that may be below zero: a gain and its interval, a temperature, facts of a device such as a NUMA node of -1.
# All others are counts, durations, sizes or speeds.
SIGNED = frozenset({"drop", "low", "high", "facts", "temperature_c"})

_TOO_DEEP = f"found values nested deeper than {DEEPEST}, expected fewer levels"
# Returns the place and the problem in a value, as `.peak.gbps is -1, expected 0 or more`; None for a valid value.
Check = Callable[[Any], str | None]


class Unreal(UsageError):
    """Raised for a number that is no figure of something real; a document may be read without it."""

    def __init__(self, number: float) -> None:
        # Python refuses to write out very long whole numbers.
        size = f"{number:.3g}" if isinstance(number, float) else f"2^{abs(number).bit_length() - 1}"
        super().__init__(f"found the number {size}, expected a realistic figure")


def check_plain(value: object) -> None:
    """Raise UsageError for nesting, numbers or text, at any place, that no document of the plugin holds."""
    for leaf in _leaves(value):
        _check_real(leaf)
        if isinstance(leaf, str) and not leaf.isascii():
            try:
                leaf.encode()
            except UnicodeEncodeError:
                raise UsageError(f"found the text {leaf[:20]!a}, expected no half of a surrogate pair") from None


def check_figures(value: object) -> None:
    """Raise Unreal for a number, at any place, that is no figure; UsageError for values that are nested too deep."""
    for leaf in _leaves(value):
        _check_real(leaf)


def without_unreal(value: Any, depth: int = 0) -> Any:
    """Return the data with None for each number that is no figure (not finite, too large, too small); lists omit it.

    Raises UsageError where it is nested deeper than `DEEPEST`.
    """
    if depth > DEEPEST:
        raise UsageError(_TOO_DEEP)
    if isinstance(value, Mapping):
        return {name: without_unreal(one, depth + 1) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_unreal(one, depth + 1) for one in value if _is_real(one)]
    return value if _is_real(value) else None


def check_form(plain: object, form: type, where: str) -> None:
    """Raise UsageError where a value's type or sign is not the field's, or a field without default is absent.

    Raises Unreal for a number that is no figure.

    form: a dataclass whose annotations use text, numbers, booleans, literals, enums, mappings, tuples (JSON: lists),
    unions and further dataclasses; `Any` is not checked. Names that it does not declare are ignored.
    """
    if (problem := _of_dataclass(form)(plain)) is not None:
        raise UsageError(f"{where}{problem}")


def _leaves(value: object) -> Iterator[object]:
    """Yield keys and values that hold no others, except lists of usual figures. Not recursive: data may be deep."""
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
    """Return whether all are floats in the usual range, or all booleans, as nearly all lists are; fast, in C."""
    kinds = set(map(type, values))
    if kinds != {float}:
        return kinds == {bool}
    figures = cast("list[float]", values)
    if min(figures) >= SMALLEST and sum(figures) <= LARGEST:  # false for a sum with NaN
        return True
    sizes = list(map(abs, figures))
    return isfinite(sum(figures)) and max(sizes) <= LARGEST and min(filter(None, sizes), default=1.0) >= SMALLEST


def _check_real(value: object) -> None:
    if not _is_real(value):
        raise Unreal(cast("float", value))


def _is_real(value: object) -> bool:
    """Return whether this is no number, or one that a figure may have; every comparison with NaN is false."""
    return not isinstance(value, (int, float)) or value == 0 or SMALLEST <= abs(value) <= LARGEST


@cache
def _of_dataclass(form: type) -> Check:
    hints = get_type_hints(form)
    declared = [f for f in fields(form) if f.init]
    required = [f.name for f in declared if f.default is MISSING and f.default_factory is MISSING]
    checks = {f.name: _of_field(hints[f.name], f.name in SIGNED) for f in declared if hints[f.name] is not Any}

    def check(value: object) -> str | None:
        if not isinstance(value, Mapping):
            return _wrong(value, "a mapping")
        for name in required:
            if name not in value:
                return f" has no {name}, expected one"
        for name, inner in value.items():
            known = checks.get(name)
            kind = type(inner)
            if known is None or kind in known[0] or (kind in known[1] and SMALLEST <= inner <= LARGEST_COUNT):
                continue  # nearly all values
            if (problem := known[2](inner)) is not None:
                return f".{name}{problem}"
        return None

    return check


def _wrong(value: object, expected: str) -> str:
    return f" is {shown(value)}, expected {expected}"


def _of_field(hint: Any, signed: bool) -> tuple[Set[type], Set[type], Check]:
    """Return the types that need no check, the types whose usual numbers need no check, and the check."""
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
    # Types are compared: JSON's booleans are Python's, whose type is a subclass of int.
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
        if not (isinstance(value, list | tuple) if in_list else isinstance(value, Mapping)):
            return _wrong(value, "a list" if in_list else "a mapping")
        values = value if in_list else value.values()
        kinds = set(map(type, values))
        if kinds <= plain or hint is Any:
            return None
        if hint is float and kinds == {float} and min(values) >= SMALLEST and sum(values) <= LARGEST:
            return None  # nearly all; fast, in C; false for a sum with NaN
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
