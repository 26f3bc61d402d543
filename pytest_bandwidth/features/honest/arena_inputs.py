"""Read the cases of an arena: the arguments of each in order, and how to launch a kernel with them."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from pytest_bandwidth.baseline.files import read_bytes
from pytest_bandwidth.baseline.parse import MappingNode, Node, Problems, Scalar, SequenceNode, decode, parse
from pytest_bandwidth.devices.numpy_arrays import resolve_dtype
from pytest_bandwidth.domain.errors import BaselineError, UsageError
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.fixture.data import Distribution

MOST_FILE_BYTES = 2**20
MOST_CASES, MOST_PARAMETERS, MOST_DIMENSIONS = 256, 64, 8
LONGEST_NAME = 80
# More than any size of an array, a grid or shared memory.
MOST = 2**40
_WANTED = "a list of cases"
_NAME = re.compile(r"[\w.,=×+ -]+")
_WHOLE = re.compile(r"-?[0-9]{1,20}")

Role = Literal["in", "out", "inout", "scalar"]
ARRAY_ROLES: tuple[Role, ...] = ("in", "out", "inout")
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
    grid: tuple[int, ...] | None = None
    block: tuple[int, ...] | None = None
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
        grid, block = (self._numbers(fields[of], of, 3, 1) if of in fields else None for of in ("grid", "block"))
        shared = self._whole(fields["shared_mem"], "shared_mem", 0, MOST) if "shared_mem" in fields else 0
        return Case(name, parameters, grid, block, shared)

    def _parameter(self, key: Scalar, node: Node) -> Parameter:
        name = self._name(key)
        if isinstance(node, MappingNode) and "value" in node.lines:
            fields = self._fields(node, name, needed=("value", "dtype"))
            kind = self._dtype(fields["dtype"])
            return Parameter(name, "scalar", kind.name, value=self._value(fields["value"], kind))
        fields = self._fields(node, name, needed=("shape",), others=("dtype", "distribution", "role"))
        shape = self._numbers(fields["shape"], f"{name}.shape", MOST_DIMENSIONS, 0)
        kind = self._dtype(fields["dtype"]) if "dtype" in fields else np.dtype("float32")
        role = self._one_of(fields.get("role"), f"{name}.role", ARRAY_ROLES)
        distribution = self._one_of(fields.get("distribution"), f"{name}.distribution", get_args(Distribution))
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
        try:
            return resolve_dtype(self._text(node, "dtype"))
        except UsageError as error:
            raise self._wrong(node.line, str(error)) from None

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

    def _numbers(self, node: Node, where: str, many: int, least: int) -> tuple[int, ...]:
        items: list[Node] = node.items if isinstance(node, SequenceNode) else [node]
        if not 1 <= len(items) <= many:
            raise self._wrong(node.line, f"{where}: found {len(items)} numbers, expected 1 to {many}")
        return tuple(self._whole(item, where, least, MOST) for item in items)

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
