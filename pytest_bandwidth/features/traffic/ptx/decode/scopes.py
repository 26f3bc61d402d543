"""Resolve names while decoding: registers, labels and variables of nested blocks, and the registers of constants."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable
from typing import Any

import numpy as np

from pytest_bandwidth.domain.errors import NotOnThisDevice
from pytest_bandwidth.features.traffic.ptx.lanes import Array
from pytest_bandwidth.features.traffic.ptx.opcodes.forms import DTYPES
from pytest_bandwidth.features.traffic.ptx.syntax import Block, Label, Registers, Statement, Targets

_AXES = ("x", "y", "z")
SPECIALS: dict[str, str] = {
    **{f"%{name}.{axis}": "u32" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in _AXES},
    **dict.fromkeys(("%laneid", "%warpid", "%nwarpid", "%dynamic_smem_size", "%total_smem_size"), "u32"),
    **{f"%lanemask_{name}": "u32" for name in ("eq", "le", "lt", "ge", "gt")},
}


class RegisterFile:
    """Hand out register indexes; equal constants share one."""

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
    """Look names up in one ``{ }``: what it declares, then what its surroundings declare.

    parameters: the slot that each .param variable of a call stands for. labels: their names in the whole kernel.
    tables: the labels of each jump table.
    """

    def __init__(self, block: Block, parent: Scope | None, prefix: str) -> None:
        self.parent = parent
        self.registers: dict[str, tuple[int, str]] = {}
        self._ranges: dict[str, tuple[int, str]] = {}
        labels = {s.name: f"{prefix}:{s.name}" for s in block.statements if isinstance(s, Label)}
        tables = dict(_jump_tables(block.statements))
        self.parameters: ChainMap[str, str] = parent.parameters.new_child() if parent else ChainMap()
        self.labels: ChainMap[str, str] = parent.labels.new_child(labels) if parent else ChainMap(labels)
        self.tables: ChainMap[str, tuple[str, ...]] = parent.tables.new_child(tables) if parent else ChainMap(tables)

    def declare(self, registers: Registers, file: RegisterFile) -> None:
        for name, count in registers.names:
            if count is None:
                self.registers[name] = (file.new(), registers.type)
            else:
                self._ranges[name] = (count, registers.type)

    def register(self, name: str, file: RegisterFile) -> tuple[int, str] | None:
        """Return a register's index and PTX type, None where no such register is declared."""
        scope: Scope | None = self
        stem = name.rstrip("0123456789")
        while scope is not None:
            if name in scope.registers:
                return scope.registers[name]
            if stem != name and stem in scope._ranges and int(name[len(stem) :]) < scope._ranges[stem][0]:
                scope.registers[name] = (file.new(), scope._ranges[stem][1])
                return scope.registers[name]
            scope = scope.parent
        return None


def _jump_tables(statements: Iterable[Statement]) -> Iterable[tuple[str, tuple[str, ...]]]:
    previous: Statement | None = None
    for statement in statements:
        if isinstance(statement, Targets) and isinstance(previous, Label):
            yield previous.name, statement.labels
        previous = statement


def element_bytes(ptx_type: str) -> int:
    """Return the bytes of a PTX type. Raises NotOnThisDevice for unmodelled ones, such as texture references."""
    if ptx_type not in DTYPES:
        raise NotOnThisDevice(
            f"the kernel declares something of type .{ptx_type}, which the traffic device does not model"
        )
    return DTYPES[ptx_type].itemsize
