"""A parsed function → steps: opcodes looked up, names resolved to registers, device functions inlined at their calls.

Inlining lets calls need no stack, and a call's threads reconverge where any others do. Recursion and calls through pointers
cannot be inlined; they are not modelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from pytest_bandwidth.domain.errors import KernelError, NotOnThisDevice
from pytest_bandwidth.ptx import actions
from pytest_bandwidth.ptx.flow import LabelMark, basic_blocks
from pytest_bandwidth.ptx.layout import Layout, layout_of, parameters_of
from pytest_bandwidth.ptx.opcodes.forms import DTYPES, Match
from pytest_bandwidth.ptx.opcodes.table import TABLE
from pytest_bandwidth.ptx.program import Compute, Exit, Guard, Kernel, Read, Site, Step, Symbol, Write
from pytest_bandwidth.ptx.scopes import SPECIALS, RegisterFile, Scope, element_bytes
from pytest_bandwidth.ptx.syntax import (
    Block,
    Function,
    Group,
    Instruction,
    Label,
    Location,
    Module,
    Name,
    Number,
    Operand,
    Registers,
    Variable,
)

MAX_STEPS = 500_000


def decode(module: Module, function: Function, symbols: Mapping[str, Symbol], main_file: str) -> Kernel:
    """Raises NotOnThisDevice, naming the opcode and its line, for what the table does not hold."""
    return Decoder(module, function, symbols, main_file).kernel()


class Decoder:
    """Turns statements into steps, one after the other. `actions` holds what is done for opcodes that are no computation."""

    def __init__(self, module: Module, function: Function, symbols: Mapping[str, Symbol], main_file: str) -> None:
        self.parameters = {parameter.name: parameter for parameter in parameters_of(function)}
        self.layout: Layout = layout_of(module, function)
        self.file = RegisterFile()
        self.granules: dict[str, int] = {}
        self._function = function
        self._functions = {f.name: f for f in module.functions if f.body is not None}
        self._symbols = {**symbols, **self.layout.shared, **self.layout.local}
        self._files = module.files
        self._main = next((n for n, path in module.files.items() if path.endswith(main_file)), 1)
        self._main_file = main_file
        self._location = (main_file, 0)
        self._carry = self.file.new()
        self._items: list[Step | LabelMark] = []
        self._sites: list[Site] = []
        self._slots: dict[tuple[str, int], tuple[int, str]] = {}
        self._instances = 0
        self._calls: list[tuple[str, str | None]] = []

    def kernel(self) -> Kernel:
        if self._function.body is None:
            raise KernelError(f"kernel {self._function.name} is declared, but its body is not in this module")
        self._calls.append((self._function.name, None))
        self._block(self._function.body, None, "")
        self._items.append(Exit(site=self._site("exit", 0)))
        limit = self._function.tuning.get("maxntid") or self._function.tuning.get("reqntid")
        return Kernel(
            name=self._function.name,
            parameters=tuple(self.parameters.values()),
            sites=tuple(self._sites),
            blocks=basic_blocks(self._items),
            register_count=self.file.count,
            constants=self.file.constants,
            specials=self.file.specials,
            arguments=self.file.arguments,
            shared=tuple(self.layout.shared.values()),
            dynamic_shared_offset=self.layout.dynamic_offset,
            local=tuple(self.layout.local.values()),
            local_bytes=self.layout.local_bytes,
            granule_bytes=self.granules,
            max_threads=int(np.prod(limit)) if limit else None,
        )

    # Statements

    def _block(self, block: Block, parent: Scope | None, prefix: str) -> None:
        self._instances += 1
        scope = Scope(block, parent, prefix or f"b{self._instances}")
        for statement in block.statements:
            if isinstance(statement, Instruction):
                self._instruction(statement, scope)
            elif isinstance(statement, Location):
                self._location = self._source_line(statement)
            elif isinstance(statement, Label):
                self._items.append(LabelMark(scope.labels[statement.name]))
            elif isinstance(statement, Registers):
                scope.declare(statement, self.file)
            elif isinstance(statement, Block):
                self._block(statement, scope, "")
            elif isinstance(statement, Variable) and statement.space == "param":
                self._instances += 1
                scope.parameters[statement.name] = f"p{self._instances}"

    def _source_line(self, location: Location) -> tuple[str, int]:
        """The user's own line: where a header's function was inlined, if it was."""
        if location.file != self._main and location.inlined_file is not None and location.inlined_line:
            return self._file_name(location.inlined_file), location.inlined_line
        if location.line == 0:  # NVRTC marks merged code with line 0
            return self._location
        return self._file_name(location.file), location.line

    def _file_name(self, number: int) -> str:
        return self._main_file if number == self._main else self._files.get(number, self._main_file).rsplit("/", 1)[-1]

    def _instruction(self, instruction: Instruction, scope: Scope) -> None:
        if len(self._items) > MAX_STEPS:
            raise NotOnThisDevice(f"kernel {self._function.name} has more than {MAX_STEPS} instructions once calls are inlined")
        match = TABLE.find(instruction.opcode)
        if match is None:
            self.refuse(instruction)
        try:
            if callable(match.form.meaning):
                self.emit(self._compute(instruction, match, scope))
            else:
                actions.ACTIONS[match.form.meaning](self, instruction, match, scope)
        except (KeyError, IndexError):  # a type or operand that the row allows for, but this device does not
            self.refuse(instruction)

    def _compute(self, instruction: Instruction, match: Match, scope: Scope) -> Step:
        meaning = match.form.meaning
        assert callable(meaning)
        operands = list(instruction.operands)
        first = operands.pop(0)
        names = [first] if not isinstance(first, Name) or first.second is None else [Name(first.text), Name(first.second)]
        targets: list[Write | None] = [self.write(n, t, scope, instruction) for n, t in zip(names, match.results, strict=False)]
        if "cc" in match.results:
            targets.append(Write(self._carry))
        sources = [t for t in match.sources if t != "cc"]
        reads = [self.read(o, t.rstrip("?"), scope, instruction) for o, t in zip(operands, sources, strict=False)]
        if len(operands) > len(sources) or (len(operands) < len(sources) and not sources[len(operands)].endswith("?")):
            self.refuse(instruction)
        if "cc" in match.sources:
            reads.append(Read(self._carry, DTYPES["cc"]))
        choice = {**match.choice, "pair": "q"} if len(names) == 2 else match.choice
        return Compute(
            site=self.site(instruction),
            guard=self.guard(instruction, scope),
            function=meaning(choice),
            sources=tuple(reads),
            targets=tuple(targets),
        )

    # What actions use

    def emit(self, step: Step) -> None:
        self._items.append(step)

    def mark(self, label: str) -> None:
        self._items.append(LabelMark(label))

    def site(self, instruction: Instruction) -> int:
        return self._site(instruction.opcode, instruction.line)

    def _site(self, opcode: str, ptx_line: int) -> int:
        self._sites.append(Site(opcode, ptx_line, *self._location))
        return len(self._sites) - 1

    def guard(self, instruction: Instruction, scope: Scope) -> Guard | None:
        if instruction.guard is None:
            return None
        return Guard(self.register(instruction.guard.text, scope, instruction)[0], instruction.guard.negated)

    def refuse(self, instruction: Instruction) -> NoReturn:
        file, line = self._location
        place = f"{file} line {line}" if line else f"PTX line {instruction.line}"
        raise NotOnThisDevice(
            f"kernel {self._function.name} uses {instruction.opcode}, which the traffic device does not model ({place})"
        )

    def register(self, name: str, scope: Scope, instruction: Instruction) -> tuple[int, str]:
        found = scope.register(name, self.file)
        if found is None:
            self.refuse(instruction)
        return found

    def write(self, operand: Operand, kind: str, scope: Scope, instruction: Instruction) -> Write | None:
        """A destination register for a result of PTX type `kind`; None for the sink ``_``."""
        if not isinstance(operand, Name):
            self.refuse(instruction)
        if operand.text == "_":
            return None
        index, own = self.register(operand.text, scope, instruction)
        dtype = DTYPES[kind.rstrip("?")]
        own_bytes = element_bytes(own)
        if dtype.kind == "b" or own_bytes == dtype.itemsize:
            return Write(index)
        if dtype.itemsize > own_bytes:
            self.refuse(instruction)
        return Write(index, np.dtype(f"{'i' if dtype.kind == 'i' else 'u'}{own_bytes}"))

    def read(self, operand: Operand, kind: str, scope: Scope, instruction: Instruction) -> Read:
        """A source of PTX type `kind`: register, special register, immediate or the address of a variable."""
        dtype = DTYPES[kind]
        if isinstance(operand, Number):
            return Read(self.immediate(operand, kind), dtype)
        if not isinstance(operand, Name):
            self.refuse(instruction)
        found = scope.register(operand.text, self.file)
        if found is not None:
            index, own = found
            return Read(index, dtype, dtype.kind != "b" and element_bytes(own) > dtype.itemsize, operand.negated)
        if operand.text in SPECIALS:
            return Read(self.file.special(operand.text), dtype, DTYPES[SPECIALS[operand.text]].itemsize > dtype.itemsize)
        return Read(self.file.constant(self.address(operand.text, instruction) + operand.offset, dtype), dtype)

    def address(self, name: str, instruction: Instruction) -> int:
        """A variable's address as `mov` gives it: the place in its window for shared and local ones."""
        if name in self._symbols:
            return self._symbols[name].address
        if name in self.parameters:
            from pytest_bandwidth.ptx.addresses import PARAM_BASE

            return PARAM_BASE + self.parameters[name].offset
        self.refuse(instruction)

    def immediate(self, number: Number, kind: str) -> int:
        dtype = DTYPES[kind]
        value: Any = number.value
        if number.bits and dtype.kind == "f" and number.bits == dtype.itemsize * 8:
            value = np.array(value, f"u{dtype.itemsize}").view(dtype)[()]
        elif number.bits == 32 and dtype == np.float64:
            value = np.array(value, np.uint32).view(np.float32)[()]
        elif dtype == np.float16:
            value = np.array(int(value) & 0xFFFF, np.uint16).view(np.float16)[()]
        return self.file.constant(value, dtype)

    # Calls: the callee's statements take the call's place; parameters are registers named by slot and byte offset.

    def call(self, instruction: Instruction, scope: Scope) -> None:
        groups = [operand for operand in instruction.operands if isinstance(operand, Group)]
        target = next((operand.text for operand in instruction.operands if isinstance(operand, Name)), "")
        callee = self._functions.get(target)
        if callee is None or callee.body is None or instruction.guard or any(name == target for name, _ in self._calls):
            self.refuse(instruction)
        returned = groups[0] if callee.returned else Group(())
        passed = groups[-1] if callee.parameters else Group(())
        self._instances += 1
        outer, outer_location = Scope(Block(()), None, f"call{self._instances}"), self._location
        for formal, actual in zip((*callee.returned, *callee.parameters), (*returned.items, *passed.items), strict=True):
            if not isinstance(actual, Name):
                self.refuse(instruction)
            slot = scope.parameter(actual.text)
            if slot is None:
                self.refuse(instruction)
            outer.parameters[formal.name] = slot
        end = f"return{self._instances}"
        self._calls.append((target, end))
        self._block(callee.body, outer, "")
        self._calls.pop()
        self._location = outer_location
        self.mark(end)

    @property
    def return_label(self) -> str | None:
        """Where `ret` leads inside an inlined function; None in the kernel itself."""
        return self._calls[-1][1]

    def slot(self, slot: str, offset: int, kind: str, instruction: Instruction) -> int:
        """The register that holds a call's parameter at a byte offset; both sides have to use the same width."""
        index, own = self._slots.setdefault((slot, offset), (self.file.new(), kind))
        if element_bytes(own) != element_bytes(kind):
            self.refuse(instruction)
        return index


