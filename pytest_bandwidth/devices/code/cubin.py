"""Take one kernel's machine code out of a cubin: its instructions, its constants, its registers and stack.

A cubin is an ELF file (64 bits, little endian) with a section for each kernel. What differs with the file that a kernel
was compiled from (symbols, line tables, other kernels) is left out. Constants and a table of addresses are shared by
all kernels of a file: where they lie for one that uses any may change with others that do, too. AMD's code objects are
such files, too, in which the kernels share sections.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

_MAGIC = b"\x7fELF\x02\x01"
_HEADER = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMBOLS, _NO_BITS = 2, 8
# Attributes in `.nv.info` (as cuobjdump -elf names them), each a symbol's number and a value.
_FRAME_SIZE, _REGISTER_COUNT = 0x11, 0x2F
_SIZED = 4
# Sections of instructions and constants, AMD's and those of other ELF files with them.
_CODE = (".text", ".rodata", ".data", ".nv.constant", ".nv.global", ".nv.shared")
# What reading raises of what is no ELF file, or is cut short.
_UNREADABLE = (struct.error, IndexError, OverflowError, ValueError)


class _Section(NamedTuple):
    name: str
    kind: int
    size: int
    data: bytes
    link: int


def machine_code(cubin: bytes, kernel: str) -> tuple[bytes, ...] | None:
    """Return the parts of a cubin that make a kernel's machine code, in a lasting order; None where it is not there.

    kernel: its name in the PTX.
    """
    try:
        sections = list(_sections(cubin))
        own = {s.name.removesuffix(f".{kernel}"): s for s in sections if s.name.endswith(f".{kernel}")}
        if ".text" not in own:
            return None
        parts = [own[".text"].data]
        for name in sorted(own):
            section = own[name]
            if name.startswith(".nv.constant"):
                parts += [name.encode(), section.data]
            elif name == ".nv.shared":
                parts += [name.encode(), str(section.size).encode()]
        return *parts, *_attributes(sections, kernel)
    except _UNREADABLE:
        return None


def code_of_file(elf: bytes) -> tuple[bytes, ...] | None:
    """Return the parts of an ELF file that are its code and constants, in a lasting order; None where it has none.

    Triton keeps line numbers in what it compiles: the bytes of the file change with a comment, these do not.
    """
    try:
        sections = list(_sections(elf))
        own = sorted((section for section in sections if section.name.startswith(_CODE)), key=lambda found: found.name)
        if not any(section.name.startswith(".text") for section in own):
            return None
        kernels = [section.name.removeprefix(".text.") for section in own if section.name.startswith(".text.")]
        parts = [str(section.size).encode() if section.kind == _NO_BITS else section.data for section in own]
        return *parts, *(part for kernel in kernels for part in _attributes(sections, kernel))
    except _UNREADABLE:
        return None


def _sections(cubin: bytes) -> Iterator[_Section]:
    if not cubin.startswith(_MAGIC):
        raise ValueError("found no ELF file of 64 bits")
    (start,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [_HEADER.unpack_from(cubin, start + size * number) for number in range(count)]
    of_names = headers[names][4]
    for name, kind, _, _, offset, length, link, *_ in headers:
        data = b"" if kind == _NO_BITS else cubin[offset : offset + length]
        yield _Section(_text(cubin, of_names + name), kind, length, data, link)


def _attributes(sections: list[_Section], kernel: str) -> Iterator[bytes]:
    """Yield what `.nv.info` says of the kernel's registers and stack: they decide how many of its blocks fit."""
    symbols = next((section for section in sections if section.kind == _SYMBOLS), None)
    if symbols is None:
        raise ValueError("found no table of symbols")
    texts = sections[symbols.link].data
    names = [_text(texts, entry[0]) for entry in _SYMBOL.iter_unpack(symbols.data)]
    info = next((section.data for section in sections if section.name == ".nv.info"), b"")
    at = 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form != _SIZED:
            continue
        if attribute in (_FRAME_SIZE, _REGISTER_COUNT) and size == 8:
            symbol, value = struct.unpack_from("<II", info, at)
            if names[symbol] == kernel:
                yield struct.pack("<BI", attribute, value)
        at += size


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode("utf-8", "replace")
