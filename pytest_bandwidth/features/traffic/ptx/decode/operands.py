"""Decode one instruction's operands: look them up, note the place, word the refusal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from pytest_bandwidth.domain.errors import NotOnThisDevice
from pytest_bandwidth.features.traffic.ptx.decode.scopes import SPECIALS, RegisterFile, Scope, element_bytes
from pytest_bandwidth.features.traffic.ptx.memory import PARAM_BASE
from pytest_bandwidth.features.traffic.ptx.opcodes.forms import DTYPES, Match
from pytest_bandwidth.features.traffic.ptx.program import Guard, Parameter, Read, Site, Symbol, Write
from pytest_bandwidth.features.traffic.ptx.syntax import Instruction, Name, Number, Operand


@dataclass
class Context:
    """Hold what a kernel's instructions share while they are decoded.

    slots: registers that hold the parameters of inlined calls, by parameter variable and byte offset, with their PTX
    type. granules: narrowest access of each space so far, in bytes. location: file and line of the source.
    """

    kernel: str
    file: RegisterFile
    symbols: Mapping[str, Symbol]
    parameters: Mapping[str, Parameter]
    location: tuple[str, int]
    carry: int
    sites: list[Site] = field(default_factory=list)
    slots: dict[tuple[str, int], tuple[int, str]] = field(default_factory=dict)
    granules: dict[str, int] = field(default_factory=dict)

    def site(self, opcode: str, ptx_line: int) -> int:
        self.sites.append(Site(opcode, ptx_line, *self.location))
        return len(self.sites) - 1


@dataclass(frozen=True)
class Here:
    """Hold an instruction with the row of the opcode table it matched, and the names it can see."""

    context: Context
    instruction: Instruction
    match: Match
    scope: Scope

    @property
    def operands(self) -> tuple[Operand, ...]:
        return self.instruction.operands

    @property
    def choice(self) -> Mapping[str, str]:
        return self.match.choice

    def placed(self) -> dict[str, Any]:
        """Return `site` and `guard` of the step that this instruction becomes."""
        return {"site": self.site(), "guard": self.guard()}

    def site(self) -> int:
        return self.context.site(self.instruction.opcode, self.instruction.line)

    def guard(self) -> Guard | None:
        guard = self.instruction.guard
        if guard is None:
            return None
        index, kind = self.register(guard.text)
        if kind != "pred":
            self.refuse(f" under {guard.text}, which is no predicate")
        return Guard(index, guard.negated)

    def refuse(self, detail: str = "") -> NoReturn:
        """Raise NotOnThisDevice, naming kernel, opcode and line."""
        file, line = self.context.location
        place = f"{file} line {line}" if line else f"PTX line {self.instruction.line}"
        what = f"{self.instruction.opcode}{detail}"
        raise NotOnThisDevice(
            f"kernel {self.context.kernel} uses {what}, which the traffic device does not model ({place})"
        )

    def register(self, name: str) -> tuple[int, str]:
        """Return a register's index and PTX type."""
        found = self.scope.register(name, self.context.file)
        if found is None:
            self.refuse(f" of {name}")
        return found

    def write(self, operand: Operand | None, kind: str) -> Write | None:
        """Return the destination register for a result of PTX type `kind`; None for the sink ``_``."""
        if not isinstance(operand, Name):
            self.refuse()
        if operand.text == "_":
            return None
        index, own = self.register(operand.text)
        dtype, own_bytes = DTYPES[kind.rstrip("?")], element_bytes(own)
        if (dtype.kind == "b") != (own == "pred") or dtype.itemsize > own_bytes:
            self.refuse(f" into {operand.text}, a .{own} register")
        if own_bytes == dtype.itemsize:
            return Write(index)
        return Write(index, np.dtype(f"{'i' if dtype.kind == 'i' else 'u'}{own_bytes}"))

    def read(self, operand: Operand | None, kind: str) -> Read:
        """Return a source of PTX type `kind`: register, special register, immediate or the address of a variable."""
        dtype, file = DTYPES[kind], self.context.file
        if isinstance(operand, Number):
            return Read(self.immediate(operand, kind), dtype)
        if not isinstance(operand, Name):
            self.refuse()
        found = self.scope.register(operand.text, file)
        if found is not None:
            index, own = found
            if (dtype.kind == "b") != (own == "pred") or dtype.itemsize > element_bytes(own):
                self.refuse(f" of {operand.text}, a .{own} register")
            return Read(index, dtype, element_bytes(own) > dtype.itemsize, operand.negated)
        if operand.text in SPECIALS:
            return Read(file.special(operand.text), dtype, DTYPES[SPECIALS[operand.text]].itemsize > dtype.itemsize)
        return Read(file.constant(self.address(operand.text) + operand.offset, dtype), dtype)

    def address(self, name: str) -> int:
        """Return a variable's address as `mov` gives it: the place in its window for shared and local ones."""
        context = self.context
        if name in context.symbols:
            return context.symbols[name].address
        if name in context.parameters:
            return PARAM_BASE + context.parameters[name].offset
        hint = " (a grid-wide barrier, such as grid.sync())" if name.startswith("%envreg") else ""
        return self.refuse(f" of {name}{hint}")

    def immediate(self, number: Number, kind: str) -> int:
        """Return the register of a constant: float bits as they are, integers wrapped to the type."""
        dtype = DTYPES[kind]
        value: Any = number.value
        if number.bits and dtype.kind == "f" and number.bits == dtype.itemsize * 8:
            value = np.array(value, f"u{dtype.itemsize}").view(dtype)[()]
        elif number.bits == 32 and dtype == np.float64:
            value = np.array(value, np.uint32).view(np.float32)[()]
        elif dtype == np.float16:
            value = np.array(int(value) & 0xFFFF, np.uint16).view(np.float16)[()]
        return self.context.file.constant(value, dtype)

    def slot(self, variable: str, offset: int, kind: str) -> int:
        """Return the register that holds a call's parameter at a byte offset; both sides have to use the same width."""
        slots = self.context.slots
        if (variable, offset) not in slots:
            slots[variable, offset] = self.context.file.new(), kind
        index, own = slots[variable, offset]
        if element_bytes(own) != element_bytes(kind):
            self.refuse(" of a call's parameter in two widths")
        return index
