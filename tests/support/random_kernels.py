"""Write random programs of nested, divergent control flow, each as CUDA and as Python."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

MASK = 0xFFFFFFFF
VARIABLES = ("a", "b", "c", "d")
THREADS = 48
# Of CUDA and of Python: an expression each, or a block of lines.
Both = tuple[str, str]


class Writer:
    """Write statements that the dice choose."""

    def __init__(self, seed: int) -> None:
        self.dice, self.names = random.Random(seed), 0

    def name(self) -> str:
        self.names += 1
        return f"i{self.names}"

    def expression(self, depth: int = 0) -> Both:
        kind = self.dice.randrange(9 if depth < 3 else 3)
        if kind == 0:
            number = self.dice.choice([0, 1, 2, 3, 5, 7, 31, 255, 0x80000000, MASK, self.dice.randrange(MASK)])
            return f"{number}u", str(number)
        if kind in (1, 2):
            variable = self.dice.choice((*VARIABLES, "t"))
            return variable, variable
        operator = self.dice.choice(["+", "-", "*", "&", "|", "^", "<<", ">>", "/", "%", "<", "==", "?"])
        (a, x), (b, y) = self.expression(depth + 1), self.expression(depth + 1)
        if operator == "?":
            c, z = self.expression(depth + 1)
            return f"(({a}) & 1u ? {b} : {c})", f"({y} if {x} & 1 else {z})"
        if operator in ("/", "%"):
            return f"({a} {operator} ({b} | 1u))", f"({x} {operator.replace('/', '//')} ({y} | 1))"
        if operator in ("<<", ">>"):
            return f"({a} {operator} ({b} & 31u))", f"(({x} {operator} ({y} & 31)) & {MASK})"
        return f"(unsigned)({a} {operator} {b})", f"(({x} {operator} {y}) & {MASK})"

    def block(self, depth: int, in_loop: bool) -> Both:
        made = [self.statement(depth, in_loop) for _ in range(self.dice.randrange(1, 4))]
        return "".join(cuda for cuda, _ in made), "".join(python for _, python in made)

    def statement(self, depth: int, in_loop: bool) -> Both:
        kinds = ["set", "set", "leave", *(["if", "if", "loop", "switch"] if depth < 3 else [])]
        kind, (cuda, python) = self.dice.choice(kinds), self.expression()
        at = " " * (depth + 1)
        if kind == "if":
            (then, do), (otherwise, else_do) = self.block(depth + 1, in_loop), self.block(depth + 1, in_loop)
            return (
                f"{at}if ({cuda} & 1u) {{\n{then}{at}}} else {{\n{otherwise}{at}}}\n",
                f"{at}if {python} & 1:\n{do}{at}else:\n{else_do}",
            )
        if kind == "loop":
            i, (body, do) = self.name(), self.block(depth + 1, True)
            return (
                f"{at}for (unsigned {i} = 0; {i} < ({cuda}) % 7u; {i}++) {{\n{at} a += {i};\n{body}{at}}}\n",
                f"{at}for {i} in range(7):\n{at} if {i} >= {python} % 7: break\n{at} a = a + {i} & {MASK}\n{do}",
            )
        if kind == "switch":
            i, bodies = self.name(), [self.block(depth + 1, False) for _ in range(self.dice.randrange(2, 7))]
            text, lines = "", f"{at}{i} = {python} % {len(bodies) + 1}\n"
            for number, (body, do) in enumerate(bodies):
                falls = number % 3 == 2
                text += f"{at} case {number}: {{\n{body}{at} }}\n" + ("" if falls else f"{at} break;\n")
                lines += f"{at}if {i} == {number}:\n{do}" + (f"{at} {i} += 1\n" if falls else "")
            return f"{at}switch (({cuda}) % {len(bodies) + 1}u) {{\n{text}{at}}}\n", lines
        if kind == "leave" and in_loop:
            how = self.dice.choice(["break", "continue"])
            return f"{at}if ({cuda} & 1u) {how};\n", f"{at}if {python} & 1: {how}\n"
        variable = self.dice.choice(VARIABLES)
        return f"{at}{variable} = {cuda};\n", f"{at}{variable} = {python}\n"


@dataclass(frozen=True)
class RandomKernel:
    """A program as a kernel ``k(out, in)`` of one block: `data` is its input, a row a variable.

    computed: gives a thread's variables at the end, of those at the beginning and its number.
    """

    text: str
    data: np.ndarray[Any, Any]
    arch: str
    computed: Callable[..., list[int]]


def random_kernel(seed: int) -> RandomKernel:
    writer = Writer(seed)
    cuda, python = zip(*(writer.block(0, False) for _ in range(5)), strict=True)
    text = f"""extern "C" __global__ void k(unsigned* out, const unsigned* in) {{
 unsigned t = threadIdx.x, {", ".join(f"{n} = in[{i} * {THREADS} + t]" for i, n in enumerate(VARIABLES))};
{"".join(cuda)}
{"".join(f" out[{i} * {THREADS} + t] = {n};" for i, n in enumerate(VARIABLES))}
}}"""
    made: dict[str, Any] = {}
    exec(f"def computed(a, b, c, d, t):\n{''.join(python)} return [a, b, c, d]", made)
    data = np.random.default_rng(seed).integers(0, 2**32, (len(VARIABLES), THREADS), dtype=np.uint32)
    data[:, ::3] %= 8
    return RandomKernel(text, data, ("sm_75", "sm_80", "sm_90", "sm_120")[seed % 4], made["computed"])
