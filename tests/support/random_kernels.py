"""Write random programs of nested, divergent control flow as CUDA, and interpret their syntax tree."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

MASK = 0xFFFFFFFF
VARIABLES = ("a", "b", "c", "d")
THREADS = 48


@dataclass
class Program:
    """A statement tree: tuples of a kind and its parts; `text` is its CUDA."""

    dice: random.Random
    loops: int = 0
    lines: list[str] = field(default_factory=list)

    def expression(self, depth: int = 0) -> tuple[Any, ...]:
        kind = self.dice.randrange(9 if depth < 3 else 3)
        if kind == 0:
            return (
                "constant",
                self.dice.choice([0, 1, 2, 3, 5, 7, 31, 255, 0x80000000, MASK, self.dice.randrange(MASK)]),
            )
        if kind in (1, 2):
            return ("variable", self.dice.choice((*VARIABLES, "t")))
        operator = self.dice.choice(["+", "-", "*", "&", "|", "^", "<<", ">>", "/", "%", "<", "==", "?"])
        parts = [self.expression(depth + 1) for _ in range(3 if operator == "?" else 2)]
        return (operator, *parts)

    def block(self, depth: int, in_loop: bool) -> list[tuple[Any, ...]]:
        return [self.statement(depth, in_loop) for _ in range(self.dice.randrange(1, 4))]

    def statement(self, depth: int, in_loop: bool) -> tuple[Any, ...]:
        kind = self.dice.choice(
            ["set", "set", "if", "if", "loop", "switch", "leave"] if depth < 3 else ["set", "set", "leave"]
        )
        if kind == "if":
            return ("if", self.expression(), self.block(depth + 1, in_loop), self.block(depth + 1, in_loop))
        if kind == "loop":
            self.loops += 1
            return ("loop", f"i{self.loops}", self.expression(), self.block(depth + 1, True))
        if kind == "switch":
            return (
                "switch",
                self.expression(),
                [self.block(depth + 1, False) for _ in range(self.dice.randrange(2, 7))],
            )
        if kind == "leave" and in_loop:
            return (self.dice.choice(["break", "continue"]), self.expression())
        return ("set", self.dice.choice(VARIABLES), self.expression())


def text_of(e: tuple[Any, ...]) -> str:
    if e[0] == "constant":
        return f"{e[1]}u"
    if e[0] == "variable":
        return str(e[1])
    parts = [text_of(part) for part in e[1:]]
    if e[0] == "?":
        return f"(({parts[0]}) & 1u ? {parts[1]} : {parts[2]})"
    if e[0] in ("/", "%"):
        return f"({parts[0]} {e[0]} ({parts[1]} | 1u))"
    if e[0] in ("<<", ">>"):
        return f"({parts[0]} {e[0]} ({parts[1]} & 31u))"
    return f"(unsigned)({parts[0]} {e[0]} {parts[1]})"


def write(statements: list[tuple[Any, ...]], indent: str) -> str:
    out = ""
    for s in statements:
        if s[0] == "set":
            out += f"{indent}{s[1]} = {text_of(s[2])};\n"
        elif s[0] == "if":
            out += f"{indent}if ({text_of(s[1])} & 1u) {{\n{write(s[2], indent + ' ')}{indent}}} else {{\n"
            out += f"{write(s[3], indent + ' ')}{indent}}}\n"
        elif s[0] == "loop":
            out += f"{indent}for (unsigned {s[1]} = 0; {s[1]} < ({text_of(s[2])}) % 7u; {s[1]}++) {{\n"
            out += f"{indent} a += {s[1]};\n{write(s[3], indent + ' ')}{indent}}}\n"
        elif s[0] == "switch":
            out += f"{indent}switch (({text_of(s[1])}) % {len(s[2]) + 1}u) {{\n"
            for number, body in enumerate(s[2]):
                ending = "" if number % 3 == 2 else f"{indent} break;\n"
                out += f"{indent} case {number}: {{\n{write(body, indent + '  ')}{indent} }}\n{ending}"
            out += f"{indent}}}\n"
        else:
            out += f"{indent}if ({text_of(s[1])} & 1u) {s[0]};\n"
    return out


def value(e: tuple[Any, ...], v: dict[str, int]) -> int:
    if e[0] == "constant":
        return int(e[1])
    if e[0] == "variable":
        return v[e[1]]
    a, b, *rest = [value(part, v) for part in e[1:]]
    if e[0] == "?":
        return b if a & 1 else rest[0]
    results = {
        "+": lambda: a + b,
        "-": lambda: a - b,
        "*": lambda: a * b,
        "&": lambda: a & b,
        "|": lambda: a | b,
        "^": lambda: a ^ b,
        "<<": lambda: a << (b & 31),
        ">>": lambda: a >> (b & 31),
        "/": lambda: a // (b | 1),
        "%": lambda: a % (b | 1),
        "<": lambda: int(a < b),
        "==": lambda: int(a == b),
    }
    return results[e[0]]() & MASK


def interpret(statements: list[tuple[Any, ...]], v: dict[str, int]) -> str | None:
    """Runs for one thread; gives "break" or "continue" where that is on its way out."""
    for s in statements:
        leaving = None
        if s[0] == "set":
            v[s[1]] = value(s[2], v)
        elif s[0] == "if":
            leaving = interpret(s[2] if value(s[1], v) & 1 else s[3], v)
        elif s[0] == "loop":
            i = 0
            while i < value(s[2], v) % 7:
                v["a"] = (v["a"] + i) & MASK
                if interpret(s[3], v) == "break":
                    break
                i += 1
        elif s[0] == "switch":
            for number in range(value(s[1], v) % (len(s[2]) + 1), len(s[2])):
                interpret(s[2][number], v)
                if number % 3 != 2:
                    break
        elif value(s[1], v) & 1:
            leaving = s[0]
        if leaving:
            return leaving
    return None


@dataclass(frozen=True)
class RandomKernel:
    """A program as a kernel ``k(out, in)`` of one block: `data` is its input, a row a variable."""

    body: list[tuple[Any, ...]]
    text: str
    data: np.ndarray[Any, Any]
    arch: str


def random_kernel(seed: int) -> RandomKernel:
    program = Program(random.Random(seed))
    body = [statement for _ in range(5) for statement in program.block(0, False)]
    text = f"""extern "C" __global__ void k(unsigned* out, const unsigned* in) {{
 unsigned t = threadIdx.x, {", ".join(f"{n} = in[{i} * {THREADS} + t]" for i, n in enumerate(VARIABLES))};
{write(body, " ")}
{"".join(f" out[{i} * {THREADS} + t] = {n};" for i, n in enumerate(VARIABLES))}
}}"""
    data = np.random.default_rng(seed).integers(0, 2**32, (len(VARIABLES), THREADS), dtype=np.uint32)
    data[:, ::3] %= 8
    return RandomKernel(body, text, data, ("sm_75", "sm_80", "sm_90", "sm_120")[seed % 4])
