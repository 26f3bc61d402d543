"""Read the cases of an arena: the arguments of each in order, and how to launch a kernel with them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from pytest_bandwidth.baseline.files import read_bytes
from pytest_bandwidth.baseline.parse import MappingNode, Node, Problems, Scalar, SequenceNode, decode, parse
from pytest_bandwidth.devices.arguments import LARGEST_BLOCK, LARGEST_GRID, checked_shape
from pytest_bandwidth.devices.base import Dim
from pytest_bandwidth.devices.numpy_arrays import masks_for, resolve_dtype
from pytest_bandwidth.domain.errors import BaselineError, UsageError
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.fixture.data import Distribution

MOST_FILE_BYTES = 2**20
MOST_CASES, MOST_PARAMETERS, MOST_DIMENSIONS = 256, 64, 8
LONGEST_NAME = 80
# Limits for one array, and for a launch's shared memory: more than any device has.
MOST_ARRAY_BYTES, MOST_SHARED_BYTES = 2**40, 2**20
_WANTED = "a list of cases"
_NAME = re.compile(r"[\w.,=×+ -]+")
_WHOLE = re.compile(r"-?[0-9]{1,20}")

Role = Literal["in", "out", "inout", "scalar"]
ARRAY_ROLES: tuple[Role, ...] = ("in", "out", "inout")
Value = TypeVar("Value")
Word = TypeVar("Word", bound=str)


@dataclass(frozen=True, slots=True)
class Parameter:
    """Describe one argument. dtype: of an array or a number; None for a Python value."""

    name: str
    role: Role
    dtype: str | None
    shape: tuple[int, ...] = ()
    distribution: Distribution = "uniform"
    value: bool | int | float | str | None = None

    def scalar(self) -> Any:
        """Return the value as a scalar of its dtype, as a kernel reads it."""
        return self.value if self.dtype is None else resolve_dtype(self.dtype).type(self.value)


@dataclass(frozen=True, slots=True)
class Case:
    """Hold the arguments of a run, in order. grid, block, shared_bytes: of a kernel's launch; None where not given."""

    name: str
    parameters: tuple[Parameter, ...]
    grid: Dim | None = None
    block: Dim | None = None
    shared_bytes: int = 0


def case_of(plain: Mapping[str, Any]) -> Case:
    """Make a case from a dictionary of its fields, as JSON has it."""
    parameters = tuple(Parameter(**{**one, "shape": tuple(one["shape"])}) for one in plain["parameters"])
    grid, block = (None if plain[name] is None else tuple(plain[name]) for name in ("grid", "block"))
    return Case(plain["name"], parameters, grid, block, plain["shared_bytes"])


def read_cases(path: Path) -> tuple[Case, ...]:
    """Read a file of cases. Raises UsageError, one line, with the file's line where something is wrong."""
    problems = Problems(str(path), _WANTED)
    try:
        source = decode(read_bytes(path, MOST_FILE_BYTES, _WANTED), problems)
        root = parse(source.text, problems)
        problems.raise_all()
        return _Reader(problems).cases(root)
    except FileNotFoundError:
        raise UsageError(f"--inputs {path}: found no such file, expected {_WANTED}") from None
    except BaselineError as error:
        raise UsageError(f"--inputs {error.problems[0]}") from None


class _Reader:
    """Parse the nodes of a file into cases; raise the first problem as a BaselineError."""

    def __init__(self, problems: Problems) -> None:
        self._wrong = problems.last

    def cases(self, root: Node | None) -> tuple[Case, ...]:
        items = root.items if isinstance(root, SequenceNode) else []
        if root is None or not 1 <= len(items) <= MOST_CASES:
            line = 1 if root is None else root.line
            raise self._wrong(line, f"found no list of 1 to {MOST_CASES} cases, expected `- name: …` for each")
        found: dict[str, Case] = {}
        for item in items:
            case = self._case(item)
            if case.name in found:
                raise self._wrong(item.line, f"found the name {shown(case.name)} again, expected one of its own")
            found[case.name] = case
        return tuple(found.values())

    def _case(self, node: Node) -> Case:
        fields = self._fields(node, "a case", needed=("name", "args"), others=("grid", "block", "shared_mem"))
        name = self._name(fields["name"])
        args = fields["args"]
        if not isinstance(args, MappingNode) or not 1 <= len(args.items) <= MOST_PARAMETERS:
            wanted = f"expected 1 to {MOST_PARAMETERS} parameters, each as `x: {{shape: 1024}}`"
            raise self._wrong(args.line, f"args: found no such mapping, {wanted}")
        parameters = tuple(self._parameter(key, value) for key, value in args.items)
        if all(one.role == "scalar" for one in parameters):
            raise self._wrong(args.line, "args: found no array, expected at least one parameter with a shape")
        if ("grid" in fields) != ("block" in fields):
            raise self._wrong(node.line, "found one of grid and block, expected both or none")
        grid = self._dim(fields["grid"], "grid", LARGEST_GRID) if "grid" in fields else None
        block = self._dim(fields["block"], "block", LARGEST_BLOCK) if "block" in fields else None
        if grid is not None and block is not None:
            self._checked(node.line, lambda: checked_shape(grid, block))
        shared = self._whole(fields["shared_mem"], "shared_mem", 0, MOST_SHARED_BYTES) if "shared_mem" in fields else 0
        return Case(name, parameters, grid, block, shared)

    def _parameter(self, key: Scalar, node: Node) -> Parameter:
        name = self._name(key)
        if isinstance(node, MappingNode) and "value" in node.lines:
            fields = self._fields(node, name, needed=("value", "dtype"))
            kind = self._dtype(fields["dtype"])
            return Parameter(name, "scalar", kind.name, value=self._value(fields["value"], kind))
        fields = self._fields(node, name, needed=("shape",), others=("dtype", "distribution", "role"))
        shape = self._numbers(fields["shape"], f"{name}.shape", MOST_DIMENSIONS, 0, MOST_ARRAY_BYTES)
        kind = self._dtype(fields["dtype"]) if "dtype" in fields else np.dtype("float32")
        if prod(shape) * kind.itemsize > MOST_ARRAY_BYTES:
            raise self._wrong(node.line, f"{name}: found an array of more than 1 TiB, expected a smaller shape")
        role = self._one_of(fields.get("role"), f"{name}.role", ARRAY_ROLES)
        distribution = self._one_of(fields.get("distribution"), f"{name}.distribution", get_args(Distribution))
        if role == "out" and "distribution" in fields:
            raise self._wrong(node.line, f"{name}: found a distribution of role out, expected none: it is written")
        if distribution not in ("uniform", "sparse") and kind.kind in "iub":
            wanted = "expected uniform or sparse for whole numbers"
            raise self._wrong(node.line, f"{name}.distribution: found {distribution}, {wanted}")
        return Parameter(name, role, kind.name, shape, distribution)

    def _fields(
        self, node: Node, where: str, *, needed: Collection[str], others: Collection[str] = ()
    ) -> dict[str, Node]:
        if not isinstance(node, MappingNode):
            raise self._wrong(node.line, f"{where}: found no mapping, expected {', '.join((*needed, *others))}")
        fields = {key.text: value for key, value in node.items}
        known = (*needed, *others)
        for name in (name for name in fields if name not in known):
            raise self._wrong(node.lines[name], f"{where}: found {shown(name)}, expected one of {', '.join(known)}")
        for name in needed:
            if name not in fields:
                raise self._wrong(node.line, f"{where}: found no {name}, expected one")
        return fields

    def _name(self, node: Node) -> str:
        text = self._text(node, "a name")
        if not _NAME.fullmatch(text) or len(text) > LONGEST_NAME:
            wanted = f"expected a name of letters, digits, blanks and .,=×+-_ of at most {LONGEST_NAME} characters"
            raise self._wrong(node.line, f"found {shown(text)}, {wanted}")
        return text

    def _dtype(self, node: Node) -> np.dtype[Any]:
        text = self._text(node, "dtype")

        def checked() -> np.dtype[Any]:
            kind = resolve_dtype(text)
            masks_for(kind)  # raises for types without random data
            return kind

        return self._checked(node.line, checked)

    def _value(self, node: Node, kind: np.dtype[Any]) -> bool | int | float:
        text = self._text(node, "value")
        if kind.kind == "b" and text in ("true", "false"):
            return text == "true"
        if kind.kind in "iu":
            limits = np.iinfo(kind)
            return self._whole(node, "value", int(limits.min), int(limits.max))
        if kind.kind not in "bc":  # NumPy has no kind for bfloat16
            try:
                number = float(text)
            except ValueError:
                number = math.nan
            if math.isfinite(number):
                return number
        raise self._wrong(node.line, f"value: found {shown(text)}, expected a number of dtype {kind.name}")

    def _dim(self, node: Node, where: str, largest: Dim) -> Dim:
        x, y, z = (*self._numbers(node, where, 3, 1, max(largest)), 1, 1)[:3]
        return x, y, z

    def _numbers(self, node: Node, where: str, many: int, least: int, most: int) -> tuple[int, ...]:
        items: list[Node] = node.items if isinstance(node, SequenceNode) else [node]
        if not 1 <= len(items) <= many:
            raise self._wrong(node.line, f"{where}: found {len(items)} numbers, expected 1 to {many}")
        return tuple(self._whole(item, where, least, most) for item in items)

    def _whole(self, node: Node, where: str, least: int, most: int) -> int:
        text = self._text(node, where)
        if not _WHOLE.fullmatch(text) or not least <= int(text) <= most:
            raise self._wrong(
                node.line, f"{where}: found {shown(text)}, expected a whole number from {least} to {most}"
            )
        return int(text)

    def _one_of(self, node: Node | None, where: str, known: tuple[Word, ...]) -> Word:
        """Return the node's word, which must be a known one; the first known word without a node."""
        if node is None:
            return known[0]
        text = self._text(node, where)
        for word in known:
            if word == text:
                return word
        raise self._wrong(node.line, f"{where}: found {shown(text)}, expected one of {', '.join(known)}")

    def _text(self, node: Node, where: str) -> str:
        if not isinstance(node, Scalar):
            raise self._wrong(node.line, f"{where}: found a list or mapping, expected a single value")
        return node.text

    def _checked(self, line: int, check: Callable[[], Value]) -> Value:
        try:
            return check()
        except UsageError as error:
            raise self._wrong(line, str(error)) from None
