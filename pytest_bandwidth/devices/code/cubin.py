"""Take machine code out of a cubin: instructions, constants, and what the driver is told of each kernel.

A cubin is an ELF file with a section for each kernel. What differs with the file that a kernel was compiled from
(symbols, line tables, other kernels) is left out. Constants and a table of addresses are shared by all kernels of a
file: where they lie for one that uses any may change with others that do, too. AMD's code objects are such files,
too, in which the kernels share sections.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator

from pytest_bandwidth.devices.code.elf import CUDA, NO_BITS, UNREADABLE, Elf, Section, read_elf
from pytest_bandwidth.domain.code.ptx_normal_form import without_file

# Sections of instructions and constants, AMD's and those of other ELF files with them.
_TEXT, _CONSTANT, _SHARED, _INFO = ".text", ".nv.constant", ".nv.shared", ".nv.info"
_CODE = (_TEXT, ".rodata", ".data", _CONSTANT, ".nv.global", _SHARED)
# `.nv.info` lists attributes (cuobjdump -elf names them): a form, a number, and two bytes, which are the value, or how
# many bytes of it follow.
_ATTRIBUTE = struct.Struct("<BBH")
_SIZED = 4
# Where the parameters lie, after a symbol's number; the symbols of what is called; the toolkit's version.
_PARAMETERS, _CALLED, _TOOLKIT = 0x0A, 0x0F, 0x37
# Of a cubin's flags; above them the file says whether it holds line numbers.
_ARCHITECTURE = 0xFFFFFF
# An instruction names the register that it writes in its third byte, and holds a constant in its fifth to eighth. The
# line that `__assertfail` is told, its third argument, is in this register.
_INSTRUCTION, _LINE_REGISTER = 16, 8


def machine_code(cubin: bytes, kernel: str, lines: Collection[int] = ()) -> tuple[bytes, ...] | None:
    """Return the parts of a cubin that make a kernel's machine code, in a lasting order; None where it is not there.

    kernel: its name in the PTX. lines: what its PTX hands to `__assertfail` as the line, and its normal form leaves
    out. Only beside that normal form may they be left out of machine code, in which they look like any constant.
    """
    try:
        elf = read_elf(cubin)
        suffix = f".{kernel}"
        own = {s.name.removesuffix(suffix): s for s in elf.sections if s.name.endswith(suffix)}
        if _TEXT not in own:
            return None
        names = sorted(name for name in own if name in (_TEXT, _SHARED, _INFO) or name.startswith(_CONSTANT))
        parts = [part for name in names for part in (name.encode(), *_parts(elf, own[name], lines))]
        return *parts, *_of_functions(elf).get(kernel, ())
    except UNREADABLE:
        return None


def code_of_file(data: bytes | memoryview, lines: Collection[int] = ()) -> tuple[bytes, ...] | None:
    """Return the parts of an ELF file that are its code and constants, in a lasting order; None where it has none.

    Compilers keep line numbers in it: the bytes of the file change with a comment, these do not. lines: as in
    `machine_code`, of all kernels.
    """
    try:
        elf = read_elf(data)
        known = (*_CODE, _INFO) if elf.machine == CUDA else _CODE
        own = [(without_file(s.name), s) for s in elf.sections if s.name.startswith(known) and s.name != _INFO]
        if not any(name.startswith(_TEXT) for name, _ in own):
            return None
        own.sort(key=lambda named: named[0])
        parts = [part for name, section in own for part in (name.encode(), *_parts(elf, section, lines))]
        if elf.machine != CUDA:
            return tuple(parts)
        for name, told in sorted((without_file(name), told) for name, told in _of_functions(elf).items()):
            parts += [name.encode(), *told]
        return b"%x" % (elf.flags & _ARCHITECTURE), *parts
    except UNREADABLE:
        return None


def _parts(elf: Elf, section: Section, lines: Collection[int]) -> Iterator[bytes]:
    """Yield what a section says of how its code runs."""
    if section.kind == NO_BITS:
        yield b"%d" % section.size
    elif section.name.startswith(_INFO):
        for attribute, value in _attributes(section):
            if attribute == _CALLED:
                called = (elf.symbol(number).name for (number,) in struct.iter_unpack("<I", value))
                yield "\n".join(called).encode()
            elif attribute != _TOOLKIT:
                yield bytes([attribute]) + value[4 if attribute == _PARAMETERS else 0 :]
    elif elf.machine != CUDA:
        yield bytes(section.data)
    else:
        yield _without_lines(section.data, lines) if section.name.startswith(_TEXT) else bytes(section.data)
        yield b"%x" % section.flags
        yield from sorted(_relocations(elf, section))


def _relocations(elf: Elf, section: Section) -> Iterator[bytes]:
    """Yield which addresses are put into a section: of what lies where, whatever its name."""
    for at in elf.relocations(section):
        symbol = elf.symbol(at.symbol)
        where = elf.by_number.get(symbol.section)
        target = symbol.name if where is None else f"{without_file(where.name)} {symbol.value} {symbol.size}"
        yield f"{at.offset} {at.kind} {at.addend} {target}".encode()


def _of_functions(elf: Elf) -> dict[str, list[bytes]]:
    """Return what `.nv.info` says of each function's registers and stack: they decide how many of its blocks fit."""
    info = next((section for section in elf.sections if section.name == _INFO), None)
    found: dict[str, list[bytes]] = {}
    for attribute, value in () if info is None else _attributes(info):
        if len(value) < 4:
            continue
        (number,) = struct.unpack_from("<I", value)
        found.setdefault(elf.symbol(number).name, []).append(bytes([attribute]) + value[4:])
    return {name: sorted(told) for name, told in found.items()}


def _attributes(section: Section) -> Iterator[tuple[int, bytes]]:
    """Yield the number and value of each attribute."""
    at = 0
    while at + _ATTRIBUTE.size <= section.size:
        form, attribute, value = _ATTRIBUTE.unpack_from(section.data, at)
        at += _ATTRIBUTE.size
        if form != _SIZED:
            yield attribute, b"%d %d" % (form, value)
            continue
        if at + value > section.size:
            raise ValueError("found an attribute that ends beyond its section")
        yield attribute, bytes(section.data[at : at + value])
        at += value


def _without_lines(code: memoryview, lines: Collection[int]) -> bytes:
    if not lines:
        return bytes(code)
    found = bytearray(code)
    told = {struct.pack("<I", line) for line in lines if 0 <= line < 2**32}
    for at in range(0, len(found) - _INSTRUCTION + 1, _INSTRUCTION):
        if found[at + 2] == _LINE_REGISTER and found[at + 4 : at + 8] in told:
            found[at + 4 : at + 8] = bytes(4)
    return bytes(found)
