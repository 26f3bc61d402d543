"""Take machine code out of a cubin: instructions, constants, and each kernel's attributes for the driver.

A cubin is an ELF file with a section for each kernel. Parts that differ with the source file (symbols, line tables,
other kernels) are left out. All kernels of a file share constants and a table of addresses: their places for one kernel
may change with the other kernels. AMD's code objects are such files, too, in which the kernels share sections.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from pytest_bandwidth.domain.code.identity import CodeIdentity, MeasuredCode, digest
from pytest_bandwidth.domain.code.ptx_normal_form import (
    NOTHING_PRINTED,
    OnlyPrinted,
    normal_form,
    ptx_digest,
    without_file,
)
from pytest_bandwidth.domain.measured.measurement import KernelResources

# An ELF file is not trusted: nothing is copied, and the file's own size bounds the reading.
MAGIC = b"\x7fELF\x02\x01"
CUDA = 190  # e_machine of a cubin
# Errors of reading a file that is no ELF file, or is cut short.
UNREADABLE = (struct.error, IndexError, OverflowError, ValueError)
_HEADER = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_REL, _RELA = struct.Struct("<QQ"), struct.Struct("<QQq")
NO_BITS = 8  # the kind of a section without bytes in the file
_SYMBOLS, _WITH_ADDENDS, _WITHOUT = 2, 4, 9
# C++ names of templates are long.
_LONGEST_NAME = 2**16
# Compilers let a few sections overlap (sm_100's `.nv.merc…`); files with more overlap are made to cost time.
_MOST_OVERLAP = 4


class Section(NamedTuple):
    """Hold a section. data: empty for a section without bytes in the file (`size` is then that in memory)."""

    name: str
    number: int
    kind: int
    flags: int
    size: int
    data: memoryview
    link: int
    info: int


class ElfSymbol(NamedTuple):
    """Hold a symbol. section: the number of the section that it lies in, 0 where another file has it."""

    name: str
    section: int
    value: int
    size: int


@dataclass(frozen=True)
class Elf:
    """Hold a parsed file: `machine` and `flags` from its header, and its sections."""

    machine: int
    flags: int
    sections: tuple[Section, ...]

    @functools.cached_property
    def _symbols(self) -> tuple[Section, bytes]:
        """Return the table of symbols, and their names."""
        table = next((section for section in self.sections if section.kind == _SYMBOLS), None)
        if table is None:
            raise ValueError("found no table of symbols")
        return table, bytes(self.sections[table.link].data)

    @functools.cached_property
    def relocating(self) -> dict[int, list[Section]]:
        """Return the tables of relocations, by the number of the section that they are for."""
        found: dict[int, list[Section]] = {}
        for section in self.sections:
            if section.kind in (_WITH_ADDENDS, _WITHOUT):
                found.setdefault(section.info, []).append(section)
        return found

    def symbol(self, number: int) -> ElfSymbol:
        """Return a symbol by its number. Raises one of UNREADABLE."""
        table, names = self._symbols
        name, _, _, section, value, size = _SYMBOL.unpack_from(table.data, number * _SYMBOL.size)
        return ElfSymbol(_text(names, name), section, value, size)

    def symbols(self) -> Iterator[ElfSymbol]:
        """Yield all symbols. Raises one of UNREADABLE."""
        return map(self.symbol, range(self._symbols[0].size // _SYMBOL.size))


def read_elf(data: bytes | memoryview) -> Elf:
    """Return what an ELF file holds. Raises one of UNREADABLE."""
    whole = memoryview(data)
    if bytes(whole[: len(MAGIC)]) != MAGIC:
        raise ValueError("found no ELF file of 64 bits")
    (machine,), (start,), (flags,) = (
        struct.unpack_from(form, whole, at) for form, at in (("<H", 0x12), ("<Q", 0x28), ("<I", 0x30))
    )
    size, count, names = struct.unpack_from("<HHH", whole, 0x3A)
    headers = [_HEADER.unpack_from(whole, start + size * number) for number in range(count)]
    if sum(header[5] for header in headers if header[1] != NO_BITS) > _MOST_OVERLAP * len(whole):
        raise ValueError("found sections that are larger than the file")
    text = bytes(_bytes_at(whole, headers[names][4], headers[names][5]))
    found = []
    for number, (name, kind, section_flags, _, offset, length, link, info, *_) in enumerate(headers):
        part = whole[:0] if kind == NO_BITS else _bytes_at(whole, offset, length)
        found.append(Section(_text(text, name), number, kind, section_flags, length, part, link, info))
    return Elf(machine, flags, tuple(found))


def _bytes_at(data: memoryview, offset: int, length: int) -> memoryview:
    if offset + length > len(data):
        raise ValueError("found a section that ends beyond the file")
    return data[offset : offset + length]


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at, at + _LONGEST_NAME)].decode("utf-8", "replace")


# Sections of instructions and constants, AMD's and those of other ELF files with them.
_TEXT, _CONSTANT, _SHARED, _INFO = ".text", ".nv.constant", ".nv.shared", ".nv.info"
_VALUES = ".nv.global.init"
_CODE = (_TEXT, ".rodata", ".data", _CONSTANT, ".nv.global", _SHARED)
# `.nv.info` lists attributes (cuobjdump -elf names them): a form, a number, and two bytes. These are the value, or the
# number of its bytes that follow.
_ATTRIBUTE = struct.Struct("<BBH")
_SIZED = 4
# The places of the parameters, after a symbol's number; the symbols of called functions; the toolkit's version.
_PARAMETERS, _CALLED, _TOOLKIT = 0x0A, 0x0F, 0x37
# Of a function: bytes of its stack, and registers.
_FRAME, _REGISTERS = 0x11, 0x2F
# Shared memory of each block that CUDA keeps for itself, which sections of a kernel hold as well.
_OF_SYSTEM = 1024
_LARGEST_ABI = 15
# A note: the lengths of name and content, its kind, the name; then a version, and the architecture of the cubin's PTX.
_NOTE, _NOTE_HEADER, _NOTE_VERSION = ".note.nv.cuinfo", 12, 2
# In the names that a library registers its kernels by.
_HASH_OF_FILE = re.compile(rb"(\d_(?:INTERNAL_|GLOBAL__N_)?_?)[0-9a-f]{8}(?=_\d)")
# Of a cubin's flags; a higher one marks line numbers.
_ARCHITECTURE = 0xFFFFFF
# An instruction's operation has 12 bits. Its third byte is the output register, its fourth byte is the first input
# register, and the next four bytes are a constant. `__assertfail` takes the line, its third argument, in this register.
_INSTRUCTION, _LINE_REGISTER = 16, 8
# MOV, and IMAD, HFMA2.MMA and HFMA2 with only a constant: compilers use all of them.
_PUTS_CONSTANT = {(0x802, 0x00), (0x424, 0xFF), (0x435, 0xFF), (0x431, 0xFF)}
KERNELS_KEPT = 256


def machine_code(cubin: bytes, kernel: str, only_printed: OnlyPrinted = NOTHING_PRINTED) -> tuple[bytes, ...] | None:
    """Return the parts of a cubin that make a kernel's machine code, in a lasting order; None where it is not there.

    kernel: its name in the PTX. only_printed: texts and lines that the PTX's normal form leaves out. Only these are
    left out here, too: in machine code they are constants like any other.
    """
    try:
        elf = read_elf(cubin)
        suffix = f".{kernel}"
        own = {s.name.removesuffix(suffix): s for s in elf.sections if s.name.endswith(suffix)}
        if _TEXT not in own:
            return None
        names = sorted(name for name in own if name in (_TEXT, _SHARED, _INFO) or name.startswith(_CONSTANT))
        parts = [part for name in names for part in (name.encode(), *_parts(elf, own[name], only_printed))]
        return *parts, *_attributes_of_functions(elf).get(kernel, ())
    except UNREADABLE:
        return None


def kernels_in(cubin: bytes) -> frozenset[str]:
    """Return the symbols of a cubin's kernels; empty where it cannot be read."""
    try:
        names = {section.name for section in read_elf(cubin).sections}
    except UNREADABLE:
        return frozenset()
    # A function of the device has no parameters in constant memory.
    symbols = (name.removeprefix(f"{_TEXT}.") for name in names if name.startswith(f"{_TEXT}."))
    return frozenset(symbol for symbol in symbols if f"{_CONSTANT}0.{symbol}" in names)


def code_of_file(data: bytes | memoryview, only_printed: OnlyPrinted = NOTHING_PRINTED) -> tuple[bytes, ...] | None:
    """Return the parts of an ELF file that are its code and constants, in a lasting order; None where it has none.

    Compilers keep line numbers in the file: its bytes change with a comment, these parts do not. The name of a cubin's
    only kernel does not change them, either. only_printed: as in `machine_code`, for all of the file's PTX.
    """
    try:
        elf = read_elf(data)
        known = (*_CODE, _INFO) if elf.machine == CUDA else _CODE
        own = [(without_file(s.name), s) for s in elf.sections if s.name.startswith(known) and s.name != _INFO]
        kernels = [name.removeprefix(_TEXT) for name, _ in own if name.startswith(f"{_TEXT}.")]
        if elf.machine == CUDA and len(kernels) == 1:
            own = [(name.removesuffix(kernels[0]), section) for name, section in own]
        if not any(name.startswith(_TEXT) for name, _ in own):
            return None
        own.sort(key=lambda named: named[0])
        parts = [part for name, section in own for part in (name.encode(), *_parts(elf, section, only_printed))]
        if elf.machine != CUDA:
            return tuple(parts)
        for name, values in sorted((without_file(name), one) for name, one in _attributes_of_functions(elf).items()):
            parts += [b"" if [f".{name}"] == kernels else name.encode(), *values]
        return b"%x" % (elf.flags & _ARCHITECTURE), *parts
    except UNREADABLE:
        return None


def resources_of(cubin: bytes) -> dict[str, KernelResources]:
    """Return each kernel's registers and memory, by name and architecture: ``scale sm_90``. Raises one of UNREADABLE.

    local_bytes: its stack, with spilled registers, as in `ptxas -v`.
    """
    elf = read_elf(cubin)
    # Before CUDA 13 the architecture is the lowest byte, from CUDA 13 on the next byte.
    arch = elf.flags & 0xFF if elf.flags & 0xFF > _LARGEST_ABI else elf.flags >> 8 & 0xFF
    sections = {section.name: section for section in elf.sections}
    reserved = _OF_SYSTEM if f"{_SHARED}.reserved.0" in sections else 0
    found = {}
    for name, attributes in _attributes_of_functions(elf).items():
        values = {one[0]: int.from_bytes(one[1:5], "little") for one in attributes}
        if f"{_CONSTANT}0.{name}" in sections and _REGISTERS in values:  # others are functions that kernels call
            shared = sections.get(f"{_SHARED}.{name}")
            static = 0 if shared is None else max(0, shared.size - reserved)
            found[f"{name} sm_{arch}"] = KernelResources(values[_REGISTERS], values.get(_FRAME, 0), static)
    return found


def resources_in(cubin: bytes, kernel: str) -> KernelResources | None:
    """Return a kernel's registers and memory, by its symbol; None where the cubin lacks it or cannot be read."""
    try:
        found = resources_of(cubin)
    except UNREADABLE:
        return None
    return next((one for name, one in found.items() if name.startswith(f"{kernel} ")), None)


def virtual_architecture(cubin: bytes) -> int | None:
    """Return the architecture of the PTX that a cubin was made of, such as 90; None where unknown."""
    try:
        note = next(section.data for section in read_elf(cubin).sections if section.name == _NOTE)
        name, size, _ = struct.unpack_from("<III", note)
        version, arch = struct.unpack_from("<HH", note, _NOTE_HEADER + -(-name // 4) * 4)
        return int(arch) if version == _NOTE_VERSION and size >= 4 else None
    except (*UNREADABLE, StopIteration):
        return None


def _parts(elf: Elf, section: Section, only_printed: OnlyPrinted) -> Iterator[bytes]:
    """Yield the parts of a section that decide how its code runs."""
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
        yield _HASH_OF_FILE.sub(rb"\1", bytes(section.data))
    else:
        if only_printed.lines and section.name.startswith(_TEXT):
            # Its instructions, with 0 for each constant that is put into the register of `__assertfail`'s line.
            code = bytearray(section.data)
            for at in range(0, len(code) - _INSTRUCTION + 1, _INSTRUCTION):
                operation, register, source = struct.unpack_from("<HBB", code, at)
                if register == _LINE_REGISTER and (operation & 0xFFF, source) in _PUTS_CONSTANT:
                    code[at + 4 : at + 8] = bytes(4)
            yield bytes(code)
        elif only_printed.texts and section.name == _VALUES:
            # The values of variables that are no texts.
            own = [symbol for symbol in elf.symbols() if symbol.section == section.number and symbol.size]
            for symbol in sorted(own, key=lambda one: one.value):
                yield b"text" if symbol.name in only_printed.texts else _value(section, symbol)
        else:
            yield bytes(section.data)
        yield b"%x" % section.flags
        yield from sorted(_relocations(elf, section, only_printed))


def _relocations(elf: Elf, section: Section, only_printed: OnlyPrinted) -> Iterator[bytes]:
    """Yield the addresses that are put into a section, by their targets' places instead of names where possible."""
    for table in elf.relocating.get(section.number, ()):
        form = _RELA if table.kind == _WITH_ADDENDS else _REL
        for offset, info, *addend in form.iter_unpack(table.data):
            symbol = elf.symbol(info >> 32)
            where = elf.sections[symbol.section] if 0 < symbol.section < len(elf.sections) else None
            if where is None:  # another file has it
                target = symbol.name
            elif only_printed.texts and where.name == _VALUES:  # where it lies changes with the texts before it
                target = "text" if symbol.name in only_printed.texts else digest(_value(where, symbol))
            else:
                target = f"{without_file(where.name)} {symbol.value} {symbol.size}"
            yield f"{offset} {info & 0xFFFFFFFF} {addend[0] if addend else 0} {target}".encode()


def _value(section: Section, symbol: ElfSymbol) -> bytes:
    return bytes(section.data[symbol.value : symbol.value + symbol.size])


def _attributes_of_functions(elf: Elf) -> dict[str, list[bytes]]:
    """Return each function's registers and stack from `.nv.info`: they decide how many of its blocks fit."""
    info = next((section for section in elf.sections if section.name == _INFO), None)
    found: dict[str, list[bytes]] = {}
    for attribute, value in () if info is None else _attributes(info):
        if len(value) < 4:
            continue
        (number,) = struct.unpack_from("<I", value)
        found.setdefault(elf.symbol(number).name, []).append(bytes([attribute]) + value[4:])
    return {name: sorted(values) for name, values in found.items()}


def _attributes(section: Section) -> Iterator[tuple[int, bytes]]:
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


@functools.lru_cache(KERNELS_KEPT)
def kernel_code(ptx: str, cubin: bytes, kernel: str) -> MeasuredCode:
    """Identify a kernel, by its name in the PTX, without a launch; unknown where the compiler's output cannot be read.

    cubin: empty where the driver compiles the PTX itself.
    """
    module = normal_form(ptx, kernel)
    if module is None:
        return MeasuredCode()
    code = machine_code(cubin, kernel, module.only_printed)
    # The values of variables count as code, too. A cubin does not show which kernel reads them; the PTX does.
    sass = None if code is None else digest(*code, *module.data)
    return MeasuredCode(CodeIdentity(ptx_digest(module.text), sass), module.text)
