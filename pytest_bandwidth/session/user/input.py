"""Validate what a test hands the fixture: reads=, writes=, flop=, launch geometry, shapes, labels, callables, tags."""

from __future__ import annotations

import ast
import inspect
import operator
import os
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from numbers import Integral, Number
from pathlib import Path
from types import GeneratorType, ModuleType
from typing import Any

from pytest_bandwidth.devices.base import Dim, Launch, Workload
from pytest_bandwidth.devices.code.built import digest_of_code, digest_of_file, library_of
from pytest_bandwidth.devices.code.compiled import is_compiled, machine_code
from pytest_bandwidth.devices.code.makers import held_code
from pytest_bandwidth.devices.datasheets import precisions
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.units import parse_bytes
from pytest_bandwidth.frameworks.arrays import ArrayGroup, grouped, reachable

# No device moves or computes as much in one run: 2⁶⁰ bytes would take an hour at 300 TB/s.
LARGEST_COUNT = 2**60
LONGEST_LABEL = 200
# Iterators that end and cannot be wound back, as a file can.
_CONTAINERS: tuple[Iterable[object], ...] = ([], (), {}, {}.values(), {}.items(), set(), range(0))
_USED_UP: tuple[type, ...] = (
    GeneratorType,
    map,
    zip,
    filter,
    enumerate,
    reversed,
    *(type(iter(one)) for one in _CONTAINERS),
)
_PRECISIONS = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "half": "fp16"}


@dataclass(frozen=True, slots=True)
class Declaration:
    """Hold reads=, writes= and flop= of a measurement, checked and added up.

    reads, writes: the arrays among them. precision: as the peak tables name it, None where nothing tells it.
    flop_declared: whether the traffic's FLOP were said, by number or by a model.
    """

    traffic: Traffic
    reads: tuple[Any, ...]
    writes: tuple[Any, ...]
    precision: str | None
    flop_declared: bool

    def workload(self, call: Callable[[], object], label: str | None) -> Workload:
        """Return `call` as a workload that moves and computes what is declared."""
        return Workload(
            call,
            self.traffic,
            label=label,
            reads=self.reads,
            writes=self.writes,
            precision=self.precision,
            flop_declared=self.flop_declared,
        )


# Of a call that has yet to tell what it moves.
UNDECLARED = Declaration(Traffic(0, 0), (), (), None, False)


def declared(
    reads: Any, writes: Any, flop: int | None, precision: str | None, nbytes: Callable[[Any], int]
) -> Declaration:
    """Return the declaration of one run.

    reads, writes: arrays, bytes as whole numbers or as text with a unit, Traffic models, groups of arrays that a call
    names (`call_arrays`), or tuples and lists of them;
    flop: floating-point operations. nbytes: the size in bytes of one of the device's arrays. Raises UsageError.
    """
    if reads is None and writes is None:
        raise UsageError(
            "neither reads= nor writes= is declared: name the arrays, bytes or Traffic that one run has to move"
        )
    if flop is not None:
        given, flop = flop, _whole(flop)
        if flop is None or flop < 0:
            raise UsageError(f"flop={shown(given)}, expected a whole number that is not negative")
    read_parts, written_parts = (_each_byte_once(_parts(side), nbytes) for side in (reads, writes))
    traffic = _added_up("reads", read_parts, nbytes) + _added_up("writes", written_parts, nbytes)
    if flop is not None:
        traffic = replace(traffic, flop=flop)
    if traffic.bytes_moved == 0:
        raise UsageError("reads= and writes= add up to 0 bytes: a bandwidth needs at least one byte moved")
    if traffic.bytes_moved > LARGEST_COUNT:
        raise UsageError("reads= and writes= add up to more than 2^60 bytes: expected what one run moves")
    if traffic.flop > LARGEST_COUNT:
        raise UsageError("flop= is more than 2^60: expected the floating-point operations of one run")
    read_arrays, written_arrays = _arrays(read_parts), _arrays(written_parts)
    return Declaration(
        traffic,
        read_arrays,
        written_arrays,
        _checked_precision(precision) or precision_of((*read_arrays, *written_arrays)),
        flop is not None or any(isinstance(part, Traffic) for part in (*read_parts, *written_parts)),
    )


def _parts(side: Any) -> tuple[Any, ...]:
    parts = () if side is None else tuple(side) if isinstance(side, (tuple, list)) else (side,)
    # NumPy's whole numbers are such, as `np.prod(shape) * 4` is; else they would be arrays of 8 bytes.
    return tuple(int(part) if isinstance(part, Integral) and not isinstance(part, bool) else part for part in parts)


def _each_byte_once(parts: tuple[Any, ...], nbytes: Callable[[Any], int]) -> tuple[Any, ...]:
    """Return the parts with several arrays as one group: views of one another's memory hold its bytes once.

    nbytes: raises UsageError for an array that the device cannot reach.
    """
    try:
        found = {place: one for place, part in enumerate(parts) if (one := reachable(part)) is not None}
        if len(found) < 2:
            return parts
        group = grouped(list(found.values()), {})
    except UsageError:  # what is wrong with an array is said where it is counted
        return parts
    for one in found.values():
        nbytes(one.array)
    return (*(part for place, part in enumerate(parts) if place not in found), group)


def _arrays(parts: Sequence[Any]) -> tuple[Any, ...]:
    groups = [part.arrays if isinstance(part, ArrayGroup) else (part,) for part in parts]
    return tuple(one for group in groups for one in group if not isinstance(one, (Traffic, int, str)))


def _added_up(name: str, parts: Sequence[Any], nbytes: Callable[[Any], int]) -> Traffic:
    models = [part if isinstance(part, Traffic) else _traffic_of(name, part, nbytes) for part in parts]
    return models[0] if len(models) == 1 else sum(models, Traffic(0, 0))


def _traffic_of(name: str, part: Any, nbytes: Callable[[Any], int]) -> Traffic:
    if isinstance(part, str):
        with suppress(ValueError):  # it is refused below, with all that is taken
            part = parse_bytes(part)
    if isinstance(part, (bool, str, bytes)) or (isinstance(part, Number) and not isinstance(part, int)):
        raise UsageError(
            f"{name}={shown(part)}, expected arrays, whole numbers of bytes, text such as '64 MiB', or a Traffic model"
        )
    if isinstance(part, int) and part < 0:
        raise UsageError(f"{name}={shown(part)}, expected a number of bytes that is not negative")
    count = part if isinstance(part, int) else part.nbytes if isinstance(part, ArrayGroup) else nbytes(part)
    return Traffic(count, 0) if name == "reads" else Traffic(0, count)


def _checked_precision(precision: str | None) -> str | None:
    """Return a precision by which a peak may be known. Raises UsageError for any other: its ridge would be missing."""
    known = precisions()
    if precision is None or (isinstance(precision, str) and _PRECISIONS.get(precision, precision) in known):
        return precision and _PRECISIONS.get(precision, precision)
    raise UsageError(f"precision={shown(precision)}, expected one of {', '.join(known)}")


def precision_of(arrays: Sequence[Any]) -> str | None:
    """Return the precision of the first array whose dtype is floating point, as the peak tables name it."""
    for array in arrays:
        name = str(getattr(array, "dtype", "")).rsplit(".", 1)[-1]  # torch says torch.float32
        if name in _PRECISIONS:
            return _PRECISIONS[name]
    return None


def checked_launch(
    kernel: Any, grid: int | Sequence[int], block: int | Sequence[int], args: Sequence[Any], shared_mem: int
) -> Launch:
    """Return the launch, its geometry checked."""
    if isinstance(args, (str, bytes)) or not isinstance(args, Sequence):
        raise UsageError(f"launch: args is a {type(args).__name__}, expected a tuple of the kernel's arguments")
    if isinstance(shared_mem, bool) or not isinstance(shared_mem, int) or shared_mem < 0:
        raise UsageError(f"launch: shared_mem={shown(shared_mem)}, expected bytes, 0 or more")
    return Launch(kernel, _dim("grid", grid), _dim("block", block), tuple(args), shared_mem)


def refuse_setup_beside_graph(graph: Any, setup: object) -> None:
    """Raise UsageError for what a graph of a callable's run would not see."""
    if checked_switch("graph", graph) and setup is not None:
        raise UsageError("graph=True and setup=: a graph keeps the arrays of its capture, and would not see setup's")


def refuse_beside_graph(graph: Any, setup: object, doubled: object) -> None:
    """Raise UsageError for what a graph of several launches has no place for."""
    if not checked_switch("graph", graph):
        return
    for name, given in (("setup", setup), ("doubled", doubled)):
        if given is not None:
            raise UsageError(f"launch: graph=True and {name}=: a graph has several launches and no place for it")


def refuse_near_misses(keywords: Mapping[str, Any], reads: Any, writes: Any) -> None:
    """Raise UsageError for `read=` or `write=` where the declaration that it resembles is missing.

    keywords: those that go on to the measured callable, which may have one of that name beside the declaration.
    """
    for given, meant, declaration in (("read", "reads", reads), ("write", "writes", writes)):
        if given in keywords and declaration is None:
            raise UsageError(f"found {given}=, expected {meant}=: it would go to the measured callable")


def refuse_used_up(args: Sequence[Any], keywords: Mapping[str, Any]) -> None:
    """Raise UsageError for an argument that the first of many runs uses up: the others would have nothing to do."""
    given = {**{f"argument {place}": value for place, value in enumerate(args, 1)}, **keywords}
    for name, value in given.items():
        if isinstance(value, _USED_UP):
            raise UsageError(
                f"{name} is a {type(value).__name__}, which the first run would leave empty, so that later ones had "
                "nothing to do: expected a list or a tuple (one without an end can be bound by a lambda)"
            )


@lru_cache(maxsize=1024)
def refuse_unlabelled(function: Callable[..., object]) -> None:
    """Raise UsageError where a test surely measures twice without a label, before it measures once.

    Only calls of the fixture that stand in the test's own body, outside every branch and loop, are sure to run.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return
    body = tree.body[0].body if isinstance(tree.body[0], ast.FunctionDef) else []
    calls = [call for statement in body if (call := _own_call(statement)) is not None]
    unlabelled = [call.lineno for call in calls if not any(k.arg in (None, "label") for k in call.keywords)]
    if len(unlabelled) > 1:
        first = function.__code__.co_firstlineno - 1
        lines = " and ".join(str(first + line) for line in unlabelled[:2])
        raise UsageError(f"two measurements without a label in one test (lines {lines}): give each a label= of its own")


def _own_call(statement: ast.stmt) -> ast.Call | None:
    """Return the call ``bandwidth(…)`` or ``bandwidth.launch(…)`` that the statement is, or assigns."""
    call = statement.value if isinstance(statement, (ast.Expr, ast.Assign)) else None
    if not isinstance(call, ast.Call):
        return None
    name = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "launch" else call.func
    return call if isinstance(name, ast.Name) and name.id == "bandwidth" else None


def checked_shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    sizes = _sizes(shape, least=0)
    if sizes is None:
        raise UsageError(f"shape={shown(shape)}, expected a whole number or a sequence of them, not negative")
    return sizes


def checked_label(label: str | None) -> str | None:
    if label is None:
        return None
    if not isinstance(label, str) or not label.strip() or len(label) > LONGEST_LABEL or not label.isprintable():
        raise UsageError(f"label={shown(label)}, expected printable text of 1 to {LONGEST_LABEL} characters")
    return label


def checked_callable(name: str, value: Any) -> Any:
    if value is not None and not callable(value):
        raise UsageError(f"{name}={shown(value)}, expected a callable without arguments")
    return value


def checked_switch(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{name}={shown(value)}, expected True or False")
    return value


def checked_code(code: Any) -> bytes | str | None:
    """Return what identifies a callable's code; a compiled kernel's is its machine code. Raises UsageError.

    Of a file, an extension module, or bytes that a compiler wrote: a hash of the code in it, without line numbers.
    """
    if isinstance(code, os.PathLike):
        return digest_of_file(Path(code))
    if isinstance(code, ModuleType):
        library = library_of(code)
        if library is None:
            raise UsageError(f"code=: the module {code.__name__} is no compiled library, expected one, or its path")
        return digest_of_file(library)
    found = machine_code(code) if is_compiled(code) else held_code(code)
    if found is None and code is not None:
        raise UsageError(
            f"code=: a {type(code).__name__} with {', '.join(map(str, code.asm)) or 'nothing'} in its asm, expected a "
            "cubin or hsaco there"
        )
    if isinstance(found, bytes) and found:
        return digest_of_code(found) or found
    if found is None or (isinstance(found, str) and found):
        return found
    raise UsageError(
        f"code={shown(code)}, expected bytes or text that identify the machine code, such as a cubin, the Path of a "
        "library, an extension module, or a kernel that Triton compiled"
    )


def checked_opaque(
    opaque: Any, args: Sequence[Any], keywords: Mapping[str, Any], places: Mapping[str, int | str]
) -> frozenset[int | str]:
    """Return the places and keywords of arguments, and the names of fields, that identify nothing. Raises UsageError.

    places: of arguments, by the name of their parameter.
    """
    if opaque is None:
        return frozenset()
    asked = (opaque,) if isinstance(opaque, (str, int)) else opaque
    fields = {
        name for argument in (*args, *keywords.values()) for name in _field_names(getattr(argument, "dtype", None))
    }
    found: set[int | str] = set()
    for one in asked if isinstance(asked, Iterable) else (asked,):
        place = _whole(one)
        if place is not None and 0 <= place < len(args):
            found.add(place)
        elif isinstance(one, str) and (one in places or one in fields):
            found.add(places.get(one, one))
        else:
            known = ", ".join([*places, *sorted(fields)]) or "no names are known"
            raise UsageError(
                f"opaque={shown(one)}, expected places of arguments from 0 to {len(args) - 1}, or names of parameters "
                f"or fields ({known})"
            )
    return frozenset(found)


def _field_names(dtype: Any) -> Iterator[str]:
    """Yield the names of a struct's fields, and of structs in it."""
    base = getattr(dtype, "base", dtype)
    for name in getattr(base, "names", None) or ():
        yield name
        yield from _field_names(base.fields[name][0])


def checked_tags(tags: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the tags, which travel as JSON: between processes, and into the document."""
    for name, value in tags.items():
        if not isinstance(name, str) or not (value is None or isinstance(value, (str, int, float))):
            raise UsageError(
                f"tags: found {shown(name)}: {shown(value)}, expected text as name, text or a number as value"
            )
    return tags


def _dim(name: str, dim: int | Sequence[int]) -> Dim:
    sizes = _sizes(dim, least=1)
    if sizes is None or not 1 <= len(sizes) <= 3:
        raise UsageError(f"launch: {name}={shown(dim)}, expected one to three whole numbers, each at least 1")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _sizes(value: object, *, least: int) -> tuple[int, ...] | None:
    """Return a whole number, or several, as ints (NumPy's are some, too).

    None for anything else or less than `least`.
    """
    one = _whole(value)
    found = (one,) if one is not None else tuple(map(_whole, value)) if isinstance(value, Iterable) else (None,)
    sizes = tuple(size for size in found if size is not None and size >= least)
    return sizes if len(sizes) == len(found) else None


def _whole(value: Any) -> int | None:
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None
