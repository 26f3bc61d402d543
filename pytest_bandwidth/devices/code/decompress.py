"""Unpack what compilers pack into a library, up to a size that is known before."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_ZSTD = ("compression.zstd", "backports.zstd")  # Python 3.14 has it
_MORE, _SHORTEST_MATCH = 15, 4


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
            raise ValueError("found a match outside of what is unpacked")
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
    zstd = _zstd()
    if zstd is None:
        raise ValueError("found no zstd")
    try:
        return _whole(zstd.ZstdDecompressor().decompress(data, max_length=size + 1), size)
    except zstd.ZstdError as error:
        raise ValueError(str(error)) from None


def _zstd() -> Any:
    for name in _ZSTD:
        try:
            return import_module(name)
        except ImportError:
            continue
    return None


def _whole(found: bytes, size: int) -> bytes:
    if len(found) != size:
        raise ValueError(f"found {len(found)} bytes, expected {size}")
    return found
