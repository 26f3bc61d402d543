"""Read a module's text: its variables, and one entry decoded, with the project's own parser and decoder.

Special registers that change while a kernel runs (clocks) become loads from addresses that nothing else has, and
variables get addresses that stand for their number, so that the decoder needs to know of neither.
"""

from __future__ import annotations

from dataclasses import replace

from emulated_card.kernels.build import NotSupported, Variable
from pytest_bandwidth.domain.errors import KernelError, NotOnThisDevice
from pytest_bandwidth.features.traffic import ptx
from pytest_bandwidth.features.traffic.ptx.decode import decode
from pytest_bandwidth.features.traffic.ptx.memory import REGION_SHIFT
from pytest_bandwidth.features.traffic.ptx.parsing import (
    Address,
    Block,
    Instruction,
    Name,
    Number,
    Operand,
    Vector,
    parse_ptx,
)
from pytest_bandwidth.features.traffic.ptx.parsing import Module as Syntax
from pytest_bandwidth.features.traffic.ptx.program import Kernel, Symbol

# enum special of c/run.h, by register; SPECIAL_BASE there is the first byte of region 3.
SPECIALS = (
    "globaltimer",
    "globaltimer_lo",
    "globaltimer_hi",
    "clock",
    "clock_hi",
    "clock64",
    "smid",
    "nsmid",
    "gridid",
)
SPECIAL_BASE = 3 << REGION_SHIFT

# Variable n is at n << 33 behind this, with room for offsets to both sides.
VARIABLE_BASE = 0x5EED << 48
_VARIABLE_SHIFT = 33
_MIDDLE = 1 << 32


def declared(ptx_text: str) -> tuple[Variable, ...]:
    """List a module's variables. Raises KernelError for text that is not PTX, NotSupported."""
    syntax = parse_ptx(ptx_text)
    try:
        regions = ptx.Program(ptx.PtxModule(ptx_text, "", "")).variables.values()
    except NotOnThisDevice as error:
        raise _refusal(error) from None
    placed = [v for v in syntax.variables if v.space in ("global", "const")]
    return tuple(
        Variable(v.name, region.nbytes, max(v.align, 1), region.data[0].tobytes())
        for v, region in zip(placed, regions, strict=True)
    )


def decoded(ptx_text: str, entry_name: str) -> Kernel:
    """Decode an entry. Raises KeyError where there is none of that name, NotSupported naming the opcode."""
    syntax = parse_ptx(ptx_text)
    functions = tuple(replace(f, parse=lambda f=f: _rewritten(f.body)) if f.is_defined else f for f in syntax.functions)
    function = next((f for f in functions if f.is_entry and f.is_defined and f.name == entry_name), None)
    if function is None:
        raise KeyError(entry_name)
    placed = [v for v in syntax.variables if v.space in ("global", "const")]
    symbols = {v.name: Symbol(v.name, variable_address(number), 0) for number, v in enumerate(placed)}
    main = next(iter(syntax.files.values()), "kernel.cu").rsplit("/", 1)[-1]
    try:
        return decode(Syntax(functions, syntax.variables, syntax.files), function, symbols, main)
    except (NotOnThisDevice, KernelError) as error:
        raise _refusal(error) from None


def variable_address(number: int) -> int:
    return VARIABLE_BASE + (number << _VARIABLE_SHIFT) + _MIDDLE


def variable_at(address: int) -> tuple[int, int] | None:
    """Return the variable's number and the offset from its start that an address stands for; None for plain numbers."""
    if address >> 48 != VARIABLE_BASE >> 48:
        return None
    number = (address - VARIABLE_BASE) >> _VARIABLE_SHIFT
    return number, address - variable_address(number)


def special_at(address: int) -> int | None:
    """Return which special register an address stands for; None for others."""
    number = (address - SPECIAL_BASE) // 8
    return number if 0 <= number < len(SPECIALS) else None


def _refusal(error: Exception) -> NotSupported:
    return NotSupported(str(error).replace("the traffic device does not model", "the emulated card does not model"))


def _rewritten(block: Block) -> Block:
    statements = []
    for statement in block.statements:
        if isinstance(statement, Block):
            statement = _rewritten(statement)
        elif isinstance(statement, Instruction):
            statement = _special_load(statement)
            for operand in statement.operands:
                _refuse_alike(operand, statement)
        statements.append(statement)
    return Block(tuple(statements))


def _special_load(instruction: Instruction) -> Instruction:
    base, _, kind = instruction.opcode.partition(".")
    source = instruction.operands[-1] if instruction.operands else None
    if base != "mov" or not isinstance(source, Name) or source.text.lstrip("%") not in SPECIALS:
        return instruction
    address = SPECIAL_BASE + 8 * SPECIALS.index(source.text.lstrip("%"))
    return replace(instruction, opcode=f"ld.global.{kind}", operands=(instruction.operands[0], Address(address, 0)))


def _refuse_alike(operand: Operand, instruction: Instruction) -> None:
    """Refuse a number of the text that looks like a variable's address here."""
    if isinstance(operand, Vector):
        for item in operand.items:
            _refuse_alike(item, instruction)
    elif isinstance(operand, Number) and isinstance(operand.value, int) and variable_at(operand.value & (2**64 - 1)):
        raise NotSupported(f"{instruction.opcode} of {operand.value:#x}, which stands for a variable here")
