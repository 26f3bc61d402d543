"""Lay out a kernel's variables: shared and local memory of the kernel with all it calls, and module variables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pytest_bandwidth.features.traffic.ptx.decode.operands import element_bytes
from pytest_bandwidth.features.traffic.ptx.program import Parameter, Space, Symbol
from pytest_bandwidth.features.traffic.ptx.syntax import (
    Address,
    Block,
    Function,
    Group,
    Instruction,
    Module,
    Name,
    Operand,
    Variable,
    Vector,
)

# Between two variables of shared or local memory, so that an index just past the end is seen; 128 bytes keep the banks.
RED_ZONE_BYTES = 128
# cudaMalloc's alignment; at least that of any dynamic shared array.
DYNAMIC_ALIGNMENT = 256


@dataclass(frozen=True, slots=True)
class Layout:
    """Place a kernel's variables in shared and local memory; dynamic shared memory begins at `dynamic_offset`."""

    shared: dict[str, Symbol]
    local: dict[str, Symbol]
    dynamic_offset: int
    local_bytes: int


def parameters_of(function: Function) -> tuple[Parameter, ...]:
    """Place parameters in the parameter buffer: each aligned to its own size, or as declared."""
    found: list[Parameter] = []
    end = 0
    for variable in function.parameters:
        element = element_bytes(variable.type)
        align = max(variable.align, 1) if variable.type == "b8" else element
        offset = _aligned(end, align)
        found.append(Parameter(variable.name, variable.type, offset, element * (variable.count or 0)))
        end = offset + found[-1].size
    return tuple(found)


def layout_of(module: Module, kernel: Function) -> Layout:
    functions = {function.name: function for function in module.functions if function.is_defined}
    module_shared = {variable.name: variable for variable in module.variables if variable.space == "shared"}
    met: dict[str, Variable] = {}
    pending, seen = [kernel.name], set()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        for item in _walk(functions[name].body):
            if isinstance(item, Variable):
                met[item.name] = item
            elif item in module_shared:
                met[item] = module_shared[item]
            elif item in functions:
                pending.append(item)
    shared, shared_end = _place("shared", [v for v in met.values() if v.space == "shared" and v.count is not None])
    local, local_end = _place("local", [v for v in met.values() if v.space == "local"])
    dynamic = _aligned(shared_end + (RED_ZONE_BYTES if shared else 0), DYNAMIC_ALIGNMENT)
    for variable in met.values():
        if variable.space == "shared" and variable.count is None:
            shared[variable.name] = Symbol(variable.name, "shared", dynamic, 0)
    return Layout(shared, local, dynamic, local_end)


def _place(space: Space, variables: list[Variable]) -> tuple[dict[str, Symbol], int]:
    placed: dict[str, Symbol] = {}
    end = 0
    for variable in variables:
        element = element_bytes(variable.type)
        start = _aligned(end + (RED_ZONE_BYTES if placed else 0), max(variable.align, element))
        placed[variable.name] = Symbol(variable.name, space, start, element * (variable.count or 0))
        end = start + placed[variable.name].size
    return placed, end


def _walk(block: Block) -> Iterator[Variable | str]:
    """Yield every variable declared and every name used."""
    for statement in block.statements:
        if isinstance(statement, Block):
            yield from _walk(statement)
        elif isinstance(statement, Variable):
            yield statement
        elif isinstance(statement, Instruction):
            for operand in statement.operands:
                yield from _names(operand)


def _names(operand: Operand) -> Iterator[str]:
    if isinstance(operand, Name):
        yield operand.text
    elif isinstance(operand, Address) and isinstance(operand.base, str):
        yield operand.base
    elif isinstance(operand, Vector | Group):
        for item in operand.items:
            yield from _names(item)


def _aligned(offset: int, align: int) -> int:
    return -(-offset // max(align, 1)) * max(align, 1)
