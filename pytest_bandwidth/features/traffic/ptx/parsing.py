"""Parse PTX text into values, declarations, statements and operands, by the grammar in ``ptx.lark``.

Lark's LALR parser takes about 0.15 s for 5,000 lines, half as long as NVRTC takes to compile them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import LarkError, UnexpectedInput, UnexpectedToken

from pytest_bandwidth.domain.errors import KernelError

# ---- the syntax tree -------------------------------------------------------------------------------------------------


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

    @property
    def each(self) -> tuple[Name, ...]:
        """Return both names of a pair."""
        return (Name(self.text),) if self.second is None else (Name(self.text), Name(self.second))


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


def items_of(operand: Operand | None) -> tuple[Operand, ...]:
    """Return a vector's elements, or another operand itself."""
    return operand.items if isinstance(operand, Vector) else () if operand is None else (operand,)


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
    """Hold a `.loc`: file and line, and the place where they were inlined, if they were."""

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
    """Hold a function. parse: returns the body; None for a declaration without body."""

    name: str
    is_entry: bool
    returned: tuple[Variable, ...]
    parameters: tuple[Variable, ...]
    parse: Callable[[], Block] | None
    tuning: dict[str, tuple[int, ...]] = field(default_factory=dict)
    line: int = 0

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


# ---- parsing ---------------------------------------------------------------------------------------------------------

MAX_PTX_BYTES = 64 * 2**20
MAX_ELEMENTS = 2**32


def parse_ptx(ptx: str) -> Module:
    """Return a module. Functions' bodies are parsed at first use, since most kernels of a file are not run.

    Raises KernelError, with the line, for text outside the grammar; so does the parsing of bodies.
    """
    if len(ptx) > MAX_PTX_BYTES:
        raise KernelError(f"the PTX is {len(ptx)} bytes long, expected at most {MAX_PTX_BYTES}; split the module")
    skeleton, bodies = _cut_bodies(_INLINE_ASM.sub(_of_one_line, ptx))
    module: Module = _parse(skeleton, "start")
    texts = iter(bodies)
    functions = []
    for function in module.functions:
        text = next(texts, None) if function.is_defined else None
        functions.append(function if text is None else replace(function, parse=partial(_parse_body, *text)))
    return replace(module, functions=tuple(functions))


def _parse_body(line: int, text: str) -> Block:
    """Parse a body. line: how many lines come before it."""
    body: Block = _parse("\n" * line + text, "body")
    return body


_INLINE_ASM = re.compile(r"(?<=// begin inline asm\n)(?:.*\n)*?(?=.*// end inline asm)")
_LOC = re.compile(r"\.loc\b.*")
_ARCHITECTURE = re.compile(r"sm_\d+[af]?", re.ASCII)


def _of_one_line(asm: re.Match[str]) -> str:
    """Give all lines of inline assembly the source line of its beginning: LLVM would count further, line by line."""
    first, newline, rest = asm[0].partition("\n")
    return first + newline + _LOC.sub("", rest)


def _parse(text: str, start: str) -> Any:
    try:
        return _parser().parse(text, start=start)
    except UnexpectedInput as error:
        lines = text.splitlines()
        found = lines[error.line - 1].strip()[:80] if 0 < error.line <= len(lines) else "the end of the text"
        ends = isinstance(error, UnexpectedToken) and error.token.type == "$END"
        why = "where the text ends, expected the rest or }" if ends else "which is not PTX that this device reads"
        raise KernelError(f"PTX line {error.line}: found {found!r}, {why}") from None
    except (LarkError, ValueError, RecursionError) as error:
        raise KernelError(f"the PTX cannot be read: {str(error).splitlines()[0][:120]}") from None


@cache
def _parser() -> Lark:
    grammar = Path(__file__).with_name("ptx.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", start=["start", "body"], transformer=_Builder(), maybe_placeholders=True)


_BRACES = re.compile(r"//[^\n]*|/\*[\s\S]*?\*/|\"(?:[^\"\\\n]|\\[^\n])*\"|[{};]")
_FUNCTION = re.compile(r"\.(entry|func)\b")


def _cut_bodies(ptx: str) -> tuple[str, list[tuple[int, str]]]:
    """Return the module with empty function bodies, which keeps the line numbers, and the bodies.

    Each body comes with the number of lines before it.
    """
    pieces, bodies, kept, since, depth, start, line = [], [], 0, 0, 0, -1, 0
    for match in _BRACES.finditer(ptx):
        token = match[0]
        if token == "{":
            if depth == 0:
                before = ptx[since : match.start()]
                start = match.start() if _FUNCTION.search(before) and "=" not in before else -1
            depth += 1
        elif token == "}" and depth:
            depth -= 1
            if depth == 0 and start >= 0:
                body = ptx[start : match.end()]
                pieces += [ptx[kept:start], "{", "\n" * body.count("\n"), "}"]
                line += ptx.count("\n", kept, start)
                bodies.append((line, body))
                line += body.count("\n")
                kept = match.end()
        if depth == 0 and token in (";", "}"):
            since = match.end()
    return "".join([*pieces, ptx[kept:]]), bodies


# C's escapes in a string: a backslash and three octal digits, or a letter.
_ESCAPE = re.compile(rb"\\(?:([0-7]{3})|(.))", re.DOTALL)
_ESCAPED = {b"n": b"\n", b"t": b"\t", b"r": b"\r"}


def _integer(token: str) -> int:
    return int(token.rstrip("U"), 0) if "x" in token.lower() else int(token.rstrip("U"))


def _number(text: str) -> Number:
    sign, digits = text.startswith("-"), text.lstrip("-")
    if digits[1:2] not in "fFdD" or not digits[1:]:
        return Number(float(text)) if "." in text else Number(_integer(text))
    width = (len(digits) - 2) * 4
    return Number(int(digits[2:], 16) ^ sign << (width - 1), width)


# The operands of a `plain` instruction.
_PARTS = re.compile(r"[\[{][^\]}]*|[^\s,\]}]+")


def _operand(text: str) -> Operand:
    if text[0] == "[":
        base, _, offset = text[1:].partition("+")
        return Address(base, _integer(offset) if offset else 0)
    if text[0] == "{":
        return Vector(tuple(map(_operand, re.split(r"\s*,\s*", text[1:].strip()))))
    return _number(text) if text[0] in "-0123456789" else Name(text)


def _variable(space: str, children: Sequence[Any], initial: tuple[int | float | str, ...] = ()) -> Variable:
    """Return a variable from its type, its name, and numbers that are named ``align`` or ``dimension``."""
    words = {child.type: str(child) for child in children if isinstance(child, Token)}
    aligns, dimensions = (
        [child[1] for child in children if isinstance(child, tuple) and child[0] == name]
        for name in ("align", "dimension")
    )
    count = None if None in dimensions else math.prod(dimensions)
    return Variable(space, words.get("WORD", ".b8")[1:], words["NAME"], max(aligns, default=0), count, initial)


@v_args(inline=True)
class _Builder(Transformer[Token, Module]):
    """Convert the parser's matches, bottom up, to the classes above. One method per rule of the grammar."""

    def start(self, *items: Any) -> Module:
        if not any(isinstance(item, Token) for item in items):
            raise KernelError("the PTX has no .target, expected an architecture such as .target sm_90")
        functions = tuple(item for item in items if isinstance(item, Function))
        defined: set[str] = set()
        for function in (one for one in functions if one.is_defined):
            if function.name in defined:
                raise KernelError(f"PTX line {function.line}: found {function.name} again, expected one definition")
            defined.add(function.name)
        return Module(
            functions,
            tuple(item for item in items if isinstance(item, Variable)),
            dict(item for item in items if isinstance(item, tuple)),
        )

    def file(self, number: str, name: str, *_: Any) -> tuple[int, str]:
        """Return a file's number, and its path without escapes."""
        path = _ESCAPE.sub(
            lambda match: bytes([int(match[1], 8) & 0xFF]) if match[1] else _ESCAPED.get(match[2], match[2]),
            name[1:-1].encode(),
        )
        return _integer(number), path.decode("utf-8", "replace")

    def target(self, *names: Token) -> Token:
        """Return the architecture, which may be newer than the device's."""
        for name in names:
            if _ARCHITECTURE.fullmatch(name):
                return name
        found = ", ".join(names)
        raise KernelError(f"PTX line {names[0].line}: found .target {found}, expected an architecture such as sm_90")

    def version(self, *_: Any) -> None: ...

    address_size = alias = pragma = linkage = attribute = version

    def align(self, count: str) -> tuple[str, int]:
        return "align", _integer(count)

    def dimension(self, count: str | None = None) -> tuple[str, int | None]:
        number = None if count is None else _integer(count)
        if number is not None and not 0 <= number <= MAX_ELEMENTS:
            raise KernelError(f"the PTX declares an array of {number} elements, expected 0 to {MAX_ELEMENTS}")
        return "dimension", number

    def initial(self, *items: Any) -> tuple[Any, ...]:
        flat: list[Any] = []
        for item in items:
            if isinstance(item, tuple):
                flat.extend(item)
            elif item is not None:
                flat.append(item if isinstance(item, Number) else str(item))
        return tuple(flat)

    def variable(self, *children: Any) -> Variable:
        *rest, initial = children
        space = next(str(child)[1:] for child in rest if isinstance(child, Token) and child.type == "SPACE")
        return _variable(space, rest, initial or ())

    def parameter_variable(self, *children: Any) -> Variable:
        return _variable("param", children)

    parameter = parameter_variable

    def returned(self, *parameters: Any) -> tuple[Variable, ...]:
        return tuple(filter(None, parameters))

    parameters = returned

    def tuning(self, name: str, *numbers: str | None) -> tuple[str, tuple[int, ...]]:
        return str(name)[1:], tuple(_integer(number) for number in numbers if number is not None)

    def function(self, *children: Any) -> Function:
        start = next(i for i, child in enumerate(children) if isinstance(child, Token) and child.type == "KIND")
        kind, returned, name, parameters, *rest = children[start:]
        body = next((item for item in rest if isinstance(item, Block)), None)
        parse = None if body is None else lambda: body
        tuning: dict[str, tuple[int, ...]] = dict(item for item in rest if isinstance(item, tuple))
        return Function(str(name), kind == ".entry", returned or (), parameters or (), parse, tuning, name.line or 0)

    def body(self, *statements: Any) -> Block:
        return Block(tuple(statement for statement in statements if statement is not None))

    def register(self, name: str, count: str | None) -> tuple[str, int | None]:
        return str(name), None if count is None else _integer(count)

    def registers(self, kind: str, *names: tuple[str, int | None]) -> Registers:
        return Registers(str(kind)[1:], names)

    def location(self, text: str) -> Location:
        (_, file, line, *_), inlined, at = (part.split() for part in text.partition("inlined_at"))
        found = [file, line, *at[:2]] if inlined else [file, line]
        return Location(*map(_integer, found))

    def label(self, name: str) -> Label:
        return Label(str(name))

    def targets(self, *labels: str) -> Targets:
        return Targets(tuple(map(str, labels)))

    def guard(self, *parts: str) -> Name:
        return Name(str(parts[-1]), negated=len(parts) > 1)

    def instruction(self, guard: Name | None, opcode: Token, *operands: Any) -> Instruction:
        return Instruction(str(opcode), tuple(o for o in operands if o is not None), guard, opcode.line or 0)

    def plain(self, token: Token) -> Instruction:
        guard, text = None, str(token)[:-1]
        if text.startswith("@"):
            name, text = text.split(maxsplit=1)
            guard = Name(name.lstrip("@!"), negated=name.startswith("@!"))
        opcode, *rest = text.split(maxsplit=1)
        operands = tuple(map(_operand, _PARTS.findall(rest[0]) if rest else ()))
        return Instruction(opcode, operands, guard, token.line or 0)

    def number(self, token: Token) -> Number:
        return _number(str(token))

    def name(self, text: str, offset: str | None) -> Name:
        return Name(str(text), 0 if offset is None else _integer(offset))

    def pair(self, first: str, second: str) -> Name:
        return Name(str(first), second=str(second))

    def negated(self, text: str) -> Name:
        return Name(str(text), negated=True)

    def address(self, base: Any, offset: str | None) -> Address:
        return Address(
            int(base.value) if isinstance(base, Number) else str(base), 0 if offset is None else _integer(offset)
        )

    def vector(self, *items: Any) -> Vector:
        return Vector(items)

    def texture(self, name: Any, *coordinates: Any) -> Group:
        return Group((Name(str(name)), *coordinates))

    def tuple(self, *items: Any) -> Group:
        return Group(tuple(item for item in items if item is not None))
