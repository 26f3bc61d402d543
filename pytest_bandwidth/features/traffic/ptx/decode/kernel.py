"""Decode a parsed function into steps: look up opcodes, resolve names to registers, inline calls.

Inlining lets calls need no stack, and a call's threads reconverge where any others do. Recursion and calls through
pointers cannot be inlined; they are not modelled.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pytest_bandwidth.domain.errors import KernelError, NotOnThisDevice
from pytest_bandwidth.features.traffic.ptx.decode.actions import ACTIONS
from pytest_bandwidth.features.traffic.ptx.decode.flow import LabelMark, basic_blocks
from pytest_bandwidth.features.traffic.ptx.decode.layout import layout_of, parameters_of
from pytest_bandwidth.features.traffic.ptx.decode.operands import Context, Here, RegisterFile, Scope
from pytest_bandwidth.features.traffic.ptx.opcodes.forms import DTYPES, Match
from pytest_bandwidth.features.traffic.ptx.opcodes.table import TABLE
from pytest_bandwidth.features.traffic.ptx.program import (
    Branch,
    Compute,
    Exit,
    Kernel,
    Nothing,
    Read,
    Step,
    Symbol,
    Write,
)
from pytest_bandwidth.features.traffic.ptx.syntax import (
    Block,
    Function,
    Group,
    Instruction,
    Label,
    Location,
    Module,
    Name,
    Registers,
    Variable,
)

MAX_STEPS = 500_000
_NO_ROW = Match(TABLE.forms[0], {}, (), ())


def decode(module: Module, function: Function, symbols: Mapping[str, Symbol], main_file: str) -> Kernel:
    """Decode a kernel. Raises NotOnThisDevice, naming the opcode and its line, for what the table does not hold."""
    return _Decoder(module, function, symbols, main_file).kernel()


class _Decoder:
    """Walk a kernel's statements, and those of the functions it calls, and collect steps and labels."""

    def __init__(self, module: Module, function: Function, symbols: Mapping[str, Symbol], main_file: str) -> None:
        file = RegisterFile()
        self._layout = layout_of(module, function)
        self._context = Context(
            kernel=function.name,
            file=file,
            symbols={**symbols, **self._layout.shared, **self._layout.local},
            parameters={parameter.name: parameter for parameter in parameters_of(function)},
            location=(main_file, 0),
            carry=file.new(),
        )
        self._function = function
        self._functions = {f.name: f for f in module.functions if f.is_defined}
        self._files = module.files
        self._main_file = main_file
        self._main = next((number for number, path in module.files.items() if path.rsplit("/", 1)[-1] == main_file), 1)
        self._inlined: dict[tuple[int, int], tuple[int, int]] = {}
        self._items: list[Step | LabelMark] = []
        self._instances = 0
        self._calls: list[tuple[str, str | None]] = [(function.name, None)]

    def kernel(self) -> Kernel:
        if not self._function.is_defined:
            raise KernelError(f"kernel {self._function.name} is declared, but its body is not in this module")
        self._block(self._function.body, None)
        self._items.append(Exit(site=self._context.site("exit", 0)))
        limit = self._function.tuning.get("maxntid") or self._function.tuning.get("reqntid")
        file = self._context.file
        return Kernel(
            name=self._function.name,
            parameters=tuple(self._context.parameters.values()),
            sites=tuple(self._context.sites),
            blocks=basic_blocks(self._items),
            register_count=file.count,
            constants=file.constants,
            specials=file.specials,
            arguments=file.arguments,
            shared=tuple(self._layout.shared.values()),
            dynamic_shared_offset=self._layout.dynamic_offset,
            local=tuple(self._layout.local.values()),
            local_bytes=self._layout.local_bytes,
            granule_bytes=self._context.granules,
            max_threads=int(np.prod(limit)) if limit else None,
        )

    def _number(self) -> int:
        self._instances += 1
        return self._instances

    def _block(self, block: Block, parent: Scope | None) -> None:
        scope = Scope(block, parent, f"block{self._number()}")
        for statement in block.statements:
            if isinstance(statement, Instruction):
                self._instruction(statement, scope)
            elif isinstance(statement, Location):
                self._context.location = self._source_line(statement)
            elif isinstance(statement, Label):
                self._items.append(LabelMark(scope.labels[statement.name]))
            elif isinstance(statement, Registers):
                scope.declare(statement, self._context.file)
            elif isinstance(statement, Block):
                self._block(statement, scope)
            elif isinstance(statement, Variable) and statement.space == "param":
                scope.parameters[statement.name] = f"param{self._number()}"

    def _source_line(self, location: Location) -> tuple[str, int]:
        """Return the line of the kernel's own file: where a header's function was inlined, if it was,
        through any depth.
        """
        if location.line == 0:  # NVRTC marks merged code with line 0
            return self._context.location
        here = (location.file, location.line)
        outside = None if location.inlined_file is None else (location.inlined_file, location.inlined_line or 0)
        if location.file != self._main and outside is not None:
            self._inlined[here] = self._inlined.get(outside, outside)
        elif location.file == self._main:
            self._inlined.pop(here, None)
        file, line = self._inlined.get(here, here)
        return self._file_name(file), line

    def _file_name(self, number: int) -> str:
        return self._main_file if number == self._main else self._files.get(number, self._main_file).rsplit("/", 1)[-1]

    def _instruction(self, instruction: Instruction, scope: Scope) -> None:
        if len(self._items) > MAX_STEPS:
            name = self._function.name
            raise NotOnThisDevice(f"kernel {name} has more than {MAX_STEPS} instructions once its calls are inlined")
        match = TABLE.find(instruction.opcode)
        here = Here(self._context, instruction, match or _NO_ROW, scope)
        if match is None:
            here.refuse()
        meaning = match.form.meaning
        try:
            if callable(meaning):
                self._items.append(_computation(here))
            elif meaning == "call":
                self._call(here)
            elif meaning == "return":
                self._return(here)
            else:
                self._items.extend(ACTIONS[meaning](here))
        except (KeyError, IndexError, ValueError):  # operands that the row does not have, or this device does not know
            here.refuse()

    # Calls: the callee's statements take the call's place; its parameters become registers.

    def _call(self, here: Here) -> None:
        groups = [operand for operand in here.operands if isinstance(operand, Group)]
        target = next((operand.text for operand in here.operands if isinstance(operand, Name)), "")
        if target == "__assertfail":  # what assert() calls where its condition does not hold
            self._items.append(Exit(**here.placed(), trap=True))
            return
        callee = self._functions.get(target)
        if callee is None or here.instruction.guard:
            here.refuse(f" of {target}")
        if any(name == target for name, _ in self._calls):
            here.refuse(f" of {target}, which is recursive")
        self._items.append(Nothing(site=here.site()))
        returned = groups[0] if callee.returned else Group(())
        passed = groups[-1] if callee.parameters else Group(())
        end, location = f"return{self._number()}", self._context.location
        outer = Scope(Block(()), None, end)
        for formal, actual in zip(
            (*callee.returned, *callee.parameters), (*returned.items, *passed.items), strict=True
        ):
            slot = here.scope.parameters.get(actual.text) if isinstance(actual, Name) else None
            if slot is None:
                here.refuse(f" of {target}")
            outer.parameters[formal.name] = slot
        self._calls.append((target, end))
        self._block(callee.body, outer)
        self._calls.pop()
        self._context.location = location
        self._items.append(LabelMark(end))

    def _return(self, here: Here) -> None:
        """Jump behind the call in an inlined function, out of the kernel otherwise."""
        label = self._calls[-1][1]
        placed = here.placed()
        self._items.append(Exit(**placed) if label is None else Branch(**placed, labels=(label,)))


def _computation(here: Here) -> Compute:
    match, meaning = here.match, here.match.form.meaning
    assert callable(meaning)
    first, *operands = here.operands
    names = [first]
    if isinstance(first, Name) and first.second is not None:
        names = [Name(first.text), Name(first.second)]
    targets = [here.write(name, kind) for name, kind in zip(names, match.results, strict=False)]
    if "cc" in match.results:
        targets.append(Write(here.context.carry))
    kinds = [kind for kind in match.sources if kind != "cc"]
    if len(operands) > len(kinds) or (len(operands) < len(kinds) and not kinds[len(operands)].endswith("?")):
        here.refuse()
    reads = [here.read(operand, kind.rstrip("?")) for operand, kind in zip(operands, kinds, strict=False)]
    if "cc" in match.sources:
        reads.append(Read(here.context.carry, DTYPES["cc"]))
    choice = {**match.choice, "pair": "q"} if len(names) == 2 else match.choice
    return Compute(**here.placed(), function=meaning(choice), sources=tuple(reads), targets=tuple(targets))
