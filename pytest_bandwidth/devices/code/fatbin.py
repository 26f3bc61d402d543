"""Take kernels out of the containers that nvcc puts into a library: PTX and machine code, often packed.

The format is not documented. What is no such container, as hipcc's bundles, counts as its bytes. So does an element
of unknown kind, compression or size, and so do packed elements past a limit for the unpacked size of all of them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

from pytest_bandwidth.devices.code.cubin import code_of_file, virtual_architecture
from pytest_bandwidth.domain.code.ptx_normal_form import NOTHING_PRINTED, PtxNormalForm, normal_form_of_all, ptx_digest

_ZSTD_MODULES = ("compression.zstd", "backports.zstd")  # Python 3.14 has it
_MORE, _SHORTEST_MATCH = 15, 4
# Sections of a library: nvcc's, those that are to be linked again, hipcc's.
SECTIONS = (".nv_fatbin", "__nv_relfatbin", ".hip_fatbin")
CONTAINER = b"\x50\xed\x55\xba"
_CONTAINER = struct.Struct("<IHHQ")
# Kind, version, own size, size of the data, size of that packed, place of its options, version, architecture, place and
# length of its name, flags, nothing, size unpacked.
_ELEMENT = struct.Struct("<HHIQIIIIIIQQQ")
_OPTIONS = struct.Struct("<II")
PTX, MACHINE_CODE = 1, 2
_LZ4, _ZSTD = 0x2000, 0x8000
# For all packed elements of a library; plain Python unpacks LZ4, at some MB a second.
LARGEST_UNPACKED = {_ZSTD: 2**28, _LZ4: 2**24}
LARGEST_PTX = 2**22
# Sections of debug information; the search for each may run to the end of the text.
_MOST_PTX_SECTIONS = 100


def unpacked_lz4(data: memoryview, size: int) -> bytes:
    """Return the `size` bytes of a block in LZ4's format. Raises ValueError, IndexError."""
    found, at = bytearray(), 0
    while at < len(data):
        token = data[at]
        length, at = _length(data, at + 1, token >> 4)
        found += data[at : at + length]
        at += length
        if at >= len(data):
            break
        back = data[at] | data[at + 1] << 8
        length, at = _length(data, at + 2, token & _MORE)
        length += _SHORTEST_MATCH
        if not 0 < back <= len(found) or len(found) + length > size:
            raise ValueError("found a match that points outside the unpacked data")
        run = found[-back:] if back < length else found[len(found) - back : len(found) - back + length]
        found += (run * (length // len(run) + 1))[:length]
    return _whole(bytes(found), size)


def _length(data: memoryview, at: int, length: int) -> tuple[int, int]:
    """Return a length that further bytes may add to, and where it ends."""
    if length < _MORE:
        return length, at
    while True:
        length += data[at]
        at += 1
        if data[at - 1] != 0xFF:
            return length, at


def unpacked_zstd(data: memoryview, size: int) -> bytes:
    """Return the `size` bytes of a frame in Zstandard's format. Raises ValueError, also without a library."""
    zstd: Any = None
    for name in _ZSTD_MODULES:
        with suppress(ImportError):
            zstd = zstd or import_module(name)
    if zstd is None:
        raise ValueError("found no zstd")
    try:
        return _whole(zstd.ZstdDecompressor().decompress(data, max_length=size + 1), size)
    except zstd.ZstdError as error:
        raise ValueError(str(error)) from None


def _whole(found: bytes, size: int) -> bytes:
    if len(found) != size:
        raise ValueError(f"found {len(found)} bytes, expected {size}")
    return found


class Element(NamedTuple):
    """Hold an element of a container. data: unpacked, or the whole element's bytes where `is_known` is False."""

    kind: int
    arch: int
    options: bytes
    data: bytes
    is_known: bool


def kernels_of(section: memoryview) -> Iterator[bytes]:
    """Yield what identifies the kernels of such a section, or of a file that is a container, in its order."""
    for found in _containers(section):
        if isinstance(found, bytes):
            yield b"bytes"
            yield found
        else:
            yield from _identified(found)


def _identified(elements: list[Element]) -> Iterator[bytes]:
    """Yield what identifies the code in a container."""
    modules = [(one, _module(one)) for one in elements]
    left_out = {one.arch: module.only_printed for one, module in modules if module is not None}
    for one, module in modules:
        yield f"{one.kind} {one.arch}".encode()
        yield one.options
        if module is not None:
            yield ptx_digest(module.text).encode()
            continue
        # The parts that the PTX's normal form left out may be left out of machine code that was made of it.
        of_ptx = (
            left_out.get(one.arch, NOTHING_PRINTED) if virtual_architecture(one.data) == one.arch else NOTHING_PRINTED
        )
        code = code_of_file(one.data, of_ptx) if one.is_known else None
        yield from (one.data,) if code is None else code


def elements_of(section: memoryview) -> Iterator[Element]:
    """Yield the elements of the NVIDIA fatbin containers in such a section, up to the first other bytes."""
    for found in _containers(section):
        yield from () if isinstance(found, bytes) else found


def _containers(section: memoryview) -> Iterator[list[Element] | bytes]:
    """Yield the elements of each NVIDIA fatbin container, then all bytes from the first one on that is of none."""
    at, left = 0, dict(LARGEST_UNPACKED)  # how many bytes may still be unpacked, by compression
    while at < len(section):
        if section[at] == 0:  # between containers
            at += 1
            continue
        is_one = bytes(section[at : at + 4]) == CONTAINER and len(section) >= at + _CONTAINER.size
        _, _, header, size = _CONTAINER.unpack_from(section, at) if is_one else (0, 0, 0, 0)
        start, end = at + header, at + header + size
        if header < _CONTAINER.size or end > len(section):
            yield bytes(section[at:])
            return
        yield list(_elements(section[start:end], left))
        at = end


def _elements(data: memoryview, left: dict[int, int]) -> Iterator[Element]:
    at = 0
    while at < len(data):
        element = None
        if len(data) - at >= _ELEMENT.size:
            kind, _, header, size, packed, options, _, arch, _, _, flags, _, unpacked = _ELEMENT.unpack_from(data, at)
            end = at + header + size
            if header >= _ELEMENT.size and end <= len(data):
                element = data[at:end]
        if element is None:
            yield Element(0, 0, b"", bytes(data[at:]), is_known=False)
            return
        content, compression, own_options = element[header:], flags & (_LZ4 | _ZSTD), b""
        try:
            if options:  # further options for its compiler
                start, length = _OPTIONS.unpack_from(element[:header], options)
                if start + length > header:
                    raise ValueError("found options beyond the element's header")
                own_options = bytes(element[start : start + length])
            most = left.get(compression, -1) if compression else unpacked
            if packed > size or (packed and not compression) or unpacked > most:
                raise ValueError("found a compression that is not known, or more than may be unpacked")
            if compression:
                left[compression] -= unpacked
                unpack = unpacked_zstd if compression == _ZSTD else unpacked_lz4
                plain = unpack(content[:packed], unpacked)
            else:
                plain = bytes(content)
            yield Element(kind, arch, own_options, plain, is_known=True)
        except (ValueError, IndexError, struct.error):
            yield Element(kind, arch, b"", bytes(element), is_known=False)
        at = end


def _module(element: Element) -> PtxNormalForm | None:
    if element.kind != PTX or not element.is_known or len(element.data) > LARGEST_PTX:
        return None
    text = element.data.partition(b"\0")[0].decode("utf-8", "surrogateescape")
    return None if text.count(".section") > _MOST_PTX_SECTIONS else normal_form_of_all(text)
