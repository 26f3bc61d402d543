"""Hold what PTX text says, as values: declarations, statements, operands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True, slots=True)
class Number:
    """Hold an immediate: an integer, the bits of a float (`bits` 32 or 64), or a decimal float."""

    value: int | float
    bits: int = 0


@dataclass(frozen=True, slots=True)
class Name:
    """Name a register, symbol or label, plus a byte offset; `%r1|%p1` carries its second half."""

    text: str
    offset: int = 0
    second: str | None = None
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Address:
    base: str | int
    offset: int


@dataclass(frozen=True, slots=True)
class Vector:
    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Hold one of the parenthesised lists of a call."""

    items: tuple[Operand, ...]


Operand = Number | Name | Address | Vector | Group


@dataclass(frozen=True, slots=True)
class Variable:
    """Declare a variable of a state space: `count` elements of `type`, or None for `[]`."""

    space: str
    type: str
    name: str
    align: int
    count: int | None
    initial: tuple[int | float | str, ...] = ()


@dataclass(frozen=True, slots=True)
class Registers:
    type: str
    names: tuple[tuple[str, int | None], ...]


@dataclass(frozen=True, slots=True)
class Location:
    """Hold a `.loc`: file and line of the text, and where that text was inlined, if it was."""

    file: int
    line: int
    inlined_file: int | None = None
    inlined_line: int | None = None


@dataclass(frozen=True, slots=True)
class Label:
    name: str


@dataclass(frozen=True, slots=True)
class Targets:
    """Hold the jump table of a `brx.idx`; it follows its label."""

    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Instruction:
    opcode: str
    operands: tuple[Operand, ...]
    guard: Name | None
    line: int


@dataclass(frozen=True, slots=True)
class Block:
    statements: tuple[Statement, ...]


Statement = Block | Registers | Variable | Location | Label | Targets | Instruction


@dataclass(frozen=True)
class Function:
    """Hold a function. parse: gives the body; None for a declaration without one."""

    name: str
    is_entry: bool
    returned: tuple[Variable, ...]
    parameters: tuple[Variable, ...]
    parse: Callable[[], Block] | None
    tuning: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def is_defined(self) -> bool:
        return self.parse is not None

    @cached_property
    def body(self) -> Block:
        """Parse the body. Raises KernelError where it cannot be read."""
        return self.parse() if self.parse is not None else Block(())


@dataclass(frozen=True, slots=True)
class Module:
    functions: tuple[Function, ...]
    variables: tuple[Variable, ...]
    files: dict[int, str]
