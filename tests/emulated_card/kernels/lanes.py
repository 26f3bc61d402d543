"""Write the steps of one basic block: computation as loops over the 32 lanes, between calls for everything else.

A register that dies in its block is a scalar of its loop, or an array of the block where several loops use it; others
are arrays of the warp, of which lanes outside the mask keep their values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from emulated_card.kernels.registers import Registers, c_type, results_of, storage, stored
from emulated_card.kernels.rules import expressions_of
from pytest_bandwidth.features.traffic.ptx.program import (
    BasicBlock,
    Compute,
    Fence,
    Nothing,
    Read,
    Step,
    WarpBarrier,
    Write,
)

# Longer loops make gcc's analysis of dependences slow, and spill anyway.
MOST_STEPS_A_LOOP = 64


class BlockWriter:
    """Write one basic block. `lines` is the code so far; the loop being written is not yet in it."""

    def __init__(self, registers: Registers, block: BasicBlock) -> None:
        self.registers = registers
        self.kernel = registers.kernel
        self.lines: list[str] = []
        self.lines_of_loop: list[str] = []
        self._cuts = _loops_of(block)
        self._arrays = self._used_by_several_loops(block)
        self._values: dict[int, str] = {}
        self._written: dict[int, str] = {}
        self._names = 0
        for register in sorted(self._arrays):
            self.lines.append(f"{registers.storage[register]} b{register}[32];")

    def _used_by_several_loops(self, block: BasicBlock) -> set[int]:
        """Find the block's own registers that outlive a loop."""
        first: dict[int, int] = {}
        found = set[int]()
        for loop, step in zip(self._cuts, block.all_steps, strict=True):
            targets = [target.register for target, _ in results_of(self.kernel, step) if target is not None]
            guard = [] if step.guard is None else [step.guard.register]
            call = is_call(step) and step is not block.end
            uses = [(loop, r) for r in (*(read.register for read in step.sources), *guard)]
            uses += [(loop + call, r) for r in (*targets, *guard)]  # a call's results are taken after it
            for place, register in uses:
                if self.registers.dies(register) and first.setdefault(register, place) != place:
                    found.add(register)
        return found

    def steps(self, block: BasicBlock) -> Sequence[tuple[Step, bool]]:
        """Return the block's steps, each with whether a new loop begins before it for length alone."""
        ends = [is_call(step) for step in block.steps]
        return [
            (step, n > 0 and self._cuts[n] != self._cuts[n - 1] and not ends[n - 1])
            for n, step in enumerate(block.steps)
        ]

    def new_name(self) -> str:
        self._names += 1
        return f"t{self._names}"

    def scalar(self, kind: str, expression: str) -> str:
        """Name the value of an expression, in the loop."""
        name = self.new_name()
        self.lines_of_loop.append(f"const {kind} {name} = {expression};")
        return name

    def array(self, kind: str, expression: str) -> str:
        """Keep an expression's value of every lane, as an array that lasts to the end of the block."""
        name = self.new_name()
        self.lines.append(f"_Alignas(64) {kind} {name}[32];")
        self.lines_of_loop.append(f"{name}[l] = {expression};")
        return name

    def compute(self, step: Compute) -> None:
        guard = None if step.guard is None else self.guard(step.guard)
        x = [self.value(read) for read in step.sources]
        self._assign_all(step, expressions_of(self.kernel, step, x), guard)

    def results(self, step: Step, sources: Sequence[str]) -> None:
        """Give a call's targets what it left in arrays, for the lanes that took part."""
        guard = None if step.guard is None else self.guard(step.guard)
        self._assign_all(
            step,
            [f"({c_type(d)}){s}" for (_, d), s in zip(results_of(self.kernel, step), sources, strict=False)],
            guard,
        )

    def _assign_all(self, step: Step, expressions: Sequence[str], guard: str | None) -> None:
        found = []
        for (target, dtype), expression in zip(results_of(self.kernel, step), expressions, strict=False):
            if target is not None:
                found.append((target.register, self._stored(target, dtype, expression)))
        for register, bits in found:  # after all are computed: a result may replace an operand
            if guard is not None:
                bits = self.scalar(self.registers.storage[register], f"{guard} ? {bits} : {self.bits(register)}")
            self._values[register] = self._written[register] = bits

    def _stored(self, target: Write, dtype: np.dtype[Any], expression: str) -> str:
        return self.scalar(storage(dtype if target.widen is None else target.widen), stored(expression, dtype, target))

    def bits(self, register: int) -> str:
        """Return a register's bits, in the loop that is being written."""
        outside = self.registers.outside(register)
        if outside is not None:
            return outside
        if register in self._values:
            return self._values[register]
        if register in self.registers.shared:
            return f"w->r{register}[l]"
        return f"b{register}[l]" if register in self._arrays else "0u"

    def value(self, read: Read) -> str:
        return self.registers.typed(self.bits(read.register), read)

    def guard(self, guard: Read) -> str:
        bits = self.bits(guard.register)
        return f"!{bits}" if guard.negated else bits

    def close_loop(self) -> None:
        """End the loop, if one is begun: what it wrote goes to where others read it."""
        body = self.lines_of_loop
        for register, name in self._written.items():
            if register in self.registers.shared:
                body.append(f"w->r{register}[l] = lane[l] ? {name} : w->r{register}[l];")
            elif register in self._arrays:
                body.append(f"b{register}[l] = {name};")
        if body:
            self.lines += ["LANES {", *(f"  {line}" for line in body), "}"]
        self._values, self._written, self.lines_of_loop = {}, {}, []

    def mask(self, guard: Read | None) -> str:
        """Return the mask of the lanes for which a guard holds; to be used after the loop."""
        return (
            "mask"
            if guard is None
            else f"(mask & mask_of({self.array('uint32_t', f'(uint32_t)({self.guard(guard)})')}))"
        )


def is_call(step: Step) -> bool:
    """Tell whether a step ends a loop over lanes."""
    return not isinstance(step, Compute | WarpBarrier | Fence | Nothing)


def _loops_of(block: BasicBlock) -> list[int]:
    """Number the loop that each step is in; that of a call is the one before it, its results belong to the next."""
    found, loop, length = [], 0, 0
    for step in block.all_steps:
        if length >= MOST_STEPS_A_LOOP:
            loop, length = loop + 1, 0
        found.append(loop)
        length += 1
        if is_call(step):
            loop, length = loop + 1, 0
    return found
