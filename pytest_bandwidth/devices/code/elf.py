"""Read sections, symbols and relocations of an ELF file of 64 bits, little endian.

The bytes may be anybody's: nothing is copied, and what is looked at is bounded by the file's own size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

MAGIC = b"\x7fELF\x02\x01"
CUDA = 190  # e_machine of a cubin
# What reading raises for what is no ELF file, or is cut short.
UNREADABLE = (struct.error, IndexError, OverflowError, ValueError)
_HEADER = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_REL, _RELA = struct.Struct("<QQ"), struct.Struct("<QQq")
NO_BITS = 8  # the kind of a section that the file holds no bytes of
_SYMBOLS, _WITH_ADDENDS, _WITHOUT = 2, 4, 9
# C++ names of templates are long.
_LONGEST_NAME = 2**16
# Compilers let a few sections lie in one another (sm_100's `.nv.merc…`); more of that is made to cost time.
_MOST_OVERLAP = 4


class Section(NamedTuple):
    """Hold a section. data: empty where the file has none of it (`size` then is that of the memory)."""

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


class Relocation(NamedTuple):
    """Hold a place in a section that a symbol's address is put into."""

    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(frozen=True)
class Elf:
    """Hold a file that was read: `machine` and `flags` as its header has them."""

    machine: int
    flags: int
    sections: tuple[Section, ...]

    def section_of(self, symbol: ElfSymbol) -> Section | None:
        """Return the section that a symbol lies in; None where another file has it."""
        return self.sections[symbol.section] if 0 < symbol.section < len(self.sections) else None

    @cached_property
    def _symbols(self) -> tuple[Section, bytes]:
        """Return the table of symbols, and their names."""
        table = next((section for section in self.sections if section.kind == _SYMBOLS), None)
        if table is None:
            raise ValueError("found no table of symbols")
        return table, bytes(self.sections[table.link].data)

    @cached_property
    def _relocating(self) -> dict[int, list[Section]]:
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

    def relocations(self, section: Section) -> Iterator[Relocation]:
        """Yield what is put into a section. Raises one of UNREADABLE."""
        for one in self._relocating.get(section.number, ()):
            form = _RELA if one.kind == _WITH_ADDENDS else _REL
            for offset, info, *addend in form.iter_unpack(one.data):
                yield Relocation(offset, info & 0xFFFFFFFF, info >> 32, *(addend or (0,)))


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
    text = bytes(_part(whole, headers[names][4], headers[names][5]))
    found = []
    for number, (name, kind, section_flags, _, offset, length, link, info, *_) in enumerate(headers):
        part = whole[:0] if kind == NO_BITS else _part(whole, offset, length)
        found.append(Section(_text(text, name), number, kind, section_flags, length, part, link, info))
    return Elf(machine, flags, tuple(found))


def _part(data: memoryview, offset: int, length: int) -> memoryview:
    if offset + length > len(data):
        raise ValueError("found a section that ends beyond the file")
    return data[offset : offset + length]


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at, at + _LONGEST_NAME)].decode("utf-8", "replace")
