"""Resolve an instruction's names: registers, constants, labels and variables of nested blocks; raise the refusal.

The variables of a kernel and of its callees get their places here, in shared and local memory, as do parameters.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np

from pytest_bandwidth.domain.errors import KernelError, NotOnThisDevice
from pytest_bandwidth.features.traffic.ptx import parsing
from pytest_bandwidth.features.traffic.ptx.lanes import SPECIALS, WARP, Array
from pytest_bandwidth.features.traffic.ptx.memory import GRID_REGISTERS, PARAM_BASE
from pytest_bandwidth.features.traffic.ptx.opcodes.forms import DTYPES, Match
from pytest_bandwidth.features.traffic.ptx.program import Parameter, Read, Site, Symbol, Write

# Bytes between two variables of shared or local memory, to detect an index just past the end; 128 keep the banks.
RED_ZONE_BYTES = 128
# cudaMalloc's alignment; at least that of any dynamic shared array.
DYNAMIC_ALIGNMENT = 256
# Compilers' names of registers. Of the special registers only %pm0 has such a name; other names may be new ones.
_PLAIN_REGISTER = re.compile(r"%(?!pm)[a-z]{1,2}\d+", re.ASCII)


def parameters_of(function: parsing.Function) -> tuple[Parameter, ...]:
    """Place parameters in the parameter buffer, each aligned to its size, or as declared."""
    found: list[Parameter] = []
    end = 0
    for variable in function.parameters:
        element = element_bytes(variable.type)
        align = max(variable.align, 1) if variable.type == "b8" else element
        offset = _aligned(end, align)
        found.append(Parameter(variable.name, variable.type, offset, element * (variable.count or 0)))
        end = offset + found[-1].size
    return tuple(found)


def layout_of(
    module: parsing.Module, kernel: parsing.Function
) -> tuple[dict[str, Symbol], dict[str, Symbol], int, int]:
    """Place a kernel's variables. Return those of shared and of local memory, the offset of dynamic shared memory, and
    the bytes of local memory.
    """
    functions = {function.name: function for function in module.functions if function.is_defined}
    module_shared = {variable.name: variable for variable in module.variables if variable.space == "shared"}
    met: dict[str, parsing.Variable] = {}
    pending, seen = [kernel.name], set()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        for item in _walk(functions[name].body):
            if isinstance(item, parsing.Variable):
                met[item.name] = item
            elif item in module_shared:
                met[item] = module_shared[item]
            elif item in functions:
                pending.append(item)
    shared, shared_end = _place([v for v in met.values() if v.space == "shared" and v.count is not None])
    local, local_end = _place([v for v in met.values() if v.space == "local"])
    dynamic = _aligned(shared_end + (RED_ZONE_BYTES if shared else 0), DYNAMIC_ALIGNMENT)
    for variable in met.values():
        if variable.space == "shared" and variable.count is None:
            shared[variable.name] = Symbol(variable.name, dynamic, 0)
    return shared, local, dynamic, local_end


def _place(variables: list[parsing.Variable]) -> tuple[dict[str, Symbol], int]:
    placed: dict[str, Symbol] = {}
    end = 0
    for variable in variables:
        element = element_bytes(variable.type)
        start = _aligned(end + (RED_ZONE_BYTES if placed else 0), max(variable.align, element))
        placed[variable.name] = Symbol(variable.name, start, element * (variable.count or 0))
        end = start + placed[variable.name].size
    return placed, end


def _walk(block: parsing.Block) -> Iterator[parsing.Variable | str]:
    """Yield every variable declared and every name used."""
    for statement in block.statements:
        if isinstance(statement, parsing.Block):
            yield from _walk(statement)
        elif isinstance(statement, parsing.Variable):
            yield statement
        elif isinstance(statement, parsing.Instruction):
            for operand in statement.operands:
                yield from _names(operand)


def _names(operand: parsing.Operand) -> Iterator[str]:
    if isinstance(operand, parsing.Name):
        yield operand.text
    elif isinstance(operand, parsing.Address) and isinstance(operand.base, str):
        yield operand.base
    elif isinstance(operand, parsing.Vector | parsing.Group):
        for item in operand.items:
            yield from _names(item)


def _aligned(offset: int, align: int) -> int:
    return -(-offset // max(align, 1)) * max(align, 1)


class RegisterFile:
    """Allocate register indexes; equal constants share one."""

    def __init__(self) -> None:
        self.count = 0
        self.constants: dict[int, Array] = {}
        self.specials: dict[int, str] = {}
        self.arguments: dict[int, tuple[int, np.dtype[Any]]] = {}
        self._interned: dict[object, int] = {}

    def new(self) -> int:
        self.count += 1
        return self.count - 1

    def constant(self, value: int | float, dtype: np.dtype[Any]) -> int:
        """Return the register of a constant. Integers wrap to the type's width."""
        if dtype.kind in "iu":
            bits = dtype.itemsize * 8
            unsigned = np.dtype(f"u{dtype.itemsize}")
            array = np.full((1, 1), int(value) & ((1 << bits) - 1), unsigned).view(dtype)
        else:
            array = np.full((1, 1), value, dtype)
        return self._intern(("constant", dtype.str, array.tobytes()), self.constants, array)

    def special(self, name: str) -> int:
        return self._intern(("special", name), self.specials, name)

    def argument(self, offset: int, dtype: np.dtype[Any]) -> int:
        return self._intern(("argument", offset, dtype.str), self.arguments, (offset, dtype))

    def _intern(self, key: object, table: dict[int, Any], value: object) -> int:
        if key not in self._interned:
            index = self.new()
            self._interned[key] = index
            table[index] = value
        return self._interned[key]


class Scope:
    """Look names up in one ``{ }``: first its own declarations, then those of the enclosing blocks.

    parameters: the slot of each .param variable of a call. labels: their names in the whole kernel. tables: the labels
    of each jump table.
    """

    def __init__(self, block: parsing.Block, parent: Scope | None, prefix: str) -> None:
        self.parent = parent
        self.registers: dict[str, tuple[int, str]] = {}
        self._ranges: dict[str, tuple[int, str]] = {}
        labels = {s.name: f"{prefix}:{s.name}" for s in block.statements if isinstance(s, parsing.Label)}
        tables = {
            label.name: targets.labels
            for label, targets in pairwise(block.statements)
            if isinstance(label, parsing.Label) and isinstance(targets, parsing.Targets)
        }
        self.parameters: ChainMap[str, str] = parent.parameters.new_child() if parent else ChainMap()
        self.labels: ChainMap[str, str] = parent.labels.new_child(labels) if parent else ChainMap(labels)
        self.tables: ChainMap[str, tuple[str, ...]] = parent.tables.new_child(tables) if parent else ChainMap(tables)

    def declare(self, registers: parsing.Registers, file: RegisterFile) -> None:
        for name, count in registers.names:
            if count is None:
                self.registers[name] = (file.new(), registers.type)
            else:
                self._ranges[name] = (count, registers.type)

    def register(self, name: str, file: RegisterFile) -> tuple[int, str] | None:
        """Return a register's index and PTX type, None where no such register is declared."""
        if name not in self.registers:
            stem = name.rstrip("0123456789")
            count, kind = self._ranges.get(stem, (0, ""))
            if stem == name or int(name[len(stem) :]) >= count:
                return None if self.parent is None else self.parent.register(name, file)
            self.registers[name] = (file.new(), kind)
        return self.registers[name]


def element_bytes(ptx_type: str) -> int:
    """Return the bytes of a PTX type. Raises NotOnThisDevice for unmodelled ones, such as texture references."""
    if ptx_type not in DTYPES:
        raise NotOnThisDevice(
            f"the kernel declares something of type .{ptx_type}, which the traffic device does not model"
        )
    return DTYPES[ptx_type].itemsize


@dataclass
class Context:
    """Hold the state of decoding that a kernel's instructions share.

    slots: registers that hold the parameters of inlined calls, by parameter variable and byte offset, with their PTX
    type. granules: narrowest access of each space so far, in bytes. location: file and line of the source.
    waits_for_grid: whether the kernel has a grid barrier.
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
    waits_for_grid: bool = False

    def site(self, opcode: str, ptx_line: int) -> int:
        self.sites.append(Site(opcode, ptx_line, *self.location))
        return len(self.sites) - 1


@dataclass(frozen=True)
class Here:
    """Hold an instruction, its row of the opcode table, and the scope of its names."""

    context: Context
    instruction: parsing.Instruction
    match: Match
    scope: Scope

    @property
    def operands(self) -> tuple[parsing.Operand, ...]:
        return self.instruction.operands

    @property
    def choice(self) -> Mapping[str, str]:
        return self.match.choice

    def placed(self) -> dict[str, Any]:
        """Return `site` and `guard` of this instruction's step."""
        return {"site": self.site(), "guard": self.guard()}

    def site(self) -> int:
        return self.context.site(self.instruction.opcode, self.instruction.line)

    def guard(self) -> Read | None:
        guard = self.instruction.guard
        if guard is None:
            return None
        index, kind = self.register(guard.text)
        if kind != "pred":
            self.refuse(f" under {guard.text}, which is not a predicate")
        return Read(index, DTYPES["pred"], negated=guard.negated)

    def refuse(self, detail: str = "") -> NoReturn:
        """Raise NotOnThisDevice, naming kernel, opcode and line."""
        file, line = self.context.location
        place = f"{file} line {line}" if line else f"PTX line {self.instruction.line}"
        what = f"{self.instruction.opcode}{detail}"
        raise NotOnThisDevice(
            f"kernel {self.context.kernel} uses {what}, which the traffic device does not model ({place})"
        )

    def refuse_undeclared(self, what: str, name: str) -> NoReturn:
        raise KernelError(
            f"PTX line {self.instruction.line}: found no {what} {name} in kernel {self.context.kernel}, "
            "expected its declaration; no assembler takes this PTX"
        )

    def register(self, name: str) -> tuple[int, str]:
        """Return a register's index and PTX type."""
        found = self.scope.register(name, self.context.file)
        if found is None:
            self.refuse_undeclared("register", name)
        return found

    def label(self, name: str) -> str:
        """Return a label's name in the whole kernel."""
        if name not in self.scope.labels:
            self.refuse_undeclared("label", name)
        return self.scope.labels[name]

    def write(self, operand: parsing.Operand | None, kind: str) -> Write | None:
        """Return the destination register for a result of PTX type `kind`; None for the sink ``_``."""
        if not isinstance(operand, parsing.Name):
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

    def read(self, operand: parsing.Operand | None, kind: str) -> Read:
        """Return a source of PTX type `kind`: register, special register, immediate or the address of a variable."""
        dtype, file = DTYPES[kind], self.context.file
        if isinstance(operand, parsing.Number):
            return Read(self.immediate(operand, kind), dtype)
        if not isinstance(operand, parsing.Name):
            self.refuse()
        found = self.scope.register(operand.text, file)
        if found is not None:
            index, own = found
            if (dtype.kind == "b") != (own == "pred") or dtype.itemsize > element_bytes(own):
                self.refuse(f" of {operand.text}, a .{own} register")
            return Read(index, dtype, element_bytes(own) > dtype.itemsize, operand.negated)
        if operand.text == "WARP_SZ":
            return self.constant(WARP, kind)
        if operand.text in GRID_REGISTERS:
            self.context.waits_for_grid = True
            return self.constant(GRID_REGISTERS[operand.text], kind)
        if operand.text in SPECIALS:
            if dtype.itemsize > 4:
                self.refuse(f" of {operand.text}, a .u32 register")
            return Read(file.special(operand.text), dtype, dtype.itemsize < 4)
        return self.constant(self.address(operand.text) + operand.offset, kind)

    def address(self, name: str) -> int:
        """Return a variable's address as in `mov`: the place in its window for shared and local variables."""
        context = self.context
        if name in context.symbols:
            return context.symbols[name].address
        if name in context.parameters:
            return PARAM_BASE + context.parameters[name].offset
        if _PLAIN_REGISTER.fullmatch(name):
            self.refuse_undeclared("register", name)
        return self.refuse(f" of {name}")

    def constant(self, value: int, kind: str = "u32") -> Read:
        """Return a source that has the same value in all threads."""
        return Read(self.context.file.constant(value, DTYPES[kind]), DTYPES[kind])

    def immediate(self, number: parsing.Number, kind: str) -> int:
        """Return the register of a constant: float bits unchanged, integers wrapped to the type."""
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
