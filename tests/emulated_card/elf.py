"""Read the symbols of a shared library: which functions it holds, and which it asks others for."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SYMTAB, DYNSYM = 2, 11  # kinds of sections: all symbols, and those that the loader needs
_FUNCTION = 2


@dataclass(frozen=True, slots=True)
class Symbol:
    """Name a symbol. offset: from where the library is loaded."""

    name: str
    is_function: bool
    offset: int
    size: int


def symbols(library: Path, kind: int) -> Iterator[Symbol]:
    """Yield the symbols of all sections of a kind, of a 64-bit little-endian ELF library."""
    data = library.read_bytes()
    sections_at = struct.unpack_from("<Q", data, 40)[0]
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, sections_at + size * i) for i in range(count)]
    for section in sections:
        if section[1] != kind:
            continue
        names_at = sections[section[6]][4]
        for name, info, _, _, value, length in struct.iter_unpack("<IBBHQQ", data[section[4] :][: section[5]]):
            end = data.index(b"\0", names_at + name)
            yield Symbol(data[names_at + name : end].decode(), info & 15 == _FUNCTION, value, length)
