"""Make the runtime that is linked into CuPy jump into the card, at import: its entries are overwritten one by one.

CuPy's wheels hold cudart whole, but not stripped, so that each entry's name and place are known. What the card lacks
returns cudaErrorNotSupported and names itself once.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from emulated_card.importing import Watched

MODULE = "cupy_backends.cuda.api.runtime"
# What has been tried: another may call entries, or lay out structures, that the card does not know.
KNOWN_CUPY = ("14.2",)
_JUMP = struct.Struct("<2sQ2s")  # movabs rax, target; jmp rax
_NAMED_JUMP = struct.Struct("<2sQ2sQ2s")  # movabs rdi, name; movabs rax, target; jmp rax
_PAGE = mmap.PAGESIZE


def install(cuda: ctypes.CDLL) -> None:
    """Watch for the import of CuPy's runtime module: it has to be known, and is redirected before its code runs."""
    Watched(MODULE, loaded=lambda library: redirect(library, cuda))


def check_version() -> None:
    """Raise ImportError where CuPy is another than the card knows."""
    found = metadata.version("cupy-cuda13x")
    if ".".join(found.split(".")[:2]) not in KNOWN_CUPY:
        raise ImportError(f"the emulated card knows CuPy {' and '.join(KNOWN_CUPY)}, found {found}: see its README")


def redirect(library: Path, cuda: ctypes.CDLL) -> None:
    """Overwrite every entry of cudart in a loaded library. Raises ImportError where it has none, or is not known."""
    from pytest_bandwidth.devices.code.cubin import read_elf

    check_version()
    symbols = [one for one in read_elf(library.read_bytes()).symbols() if one.section and one.size >= _JUMP.size]
    entries = {symbol.name: symbol.value for symbol in symbols if symbol.name.startswith("cuda")}
    if not entries:
        raise ImportError(f"{library} has no symbols of cudart: the emulated card needs CuPy's own wheel")
    base = _base_of(library)
    missing = [name for name in entries if not hasattr(cuda, name)]
    targets = {name: ctypes.cast(getattr(cuda, name), ctypes.c_void_p).value for name in entries if name not in missing}
    targets |= _stubs(missing, ctypes.cast(cuda.card_not_done, ctypes.c_void_p).value or 0)
    first = base + min(entries.values())
    _protect(first, base + max(entries.values()) + _JUMP.size, mmap.PROT_READ | mmap.PROT_WRITE)
    for name, offset in entries.items():
        ctypes.memmove(base + offset, _JUMP.pack(b"\x48\xb8", targets[name], b"\xff\xe0"), _JUMP.size)
    _protect(first, base + max(entries.values()) + _JUMP.size, mmap.PROT_READ | mmap.PROT_EXEC)


def _stubs(names: Sequence[str], target: int) -> dict[str, int]:
    """Write code that hands its own name to a function, for each name; returns its addresses."""
    texts = [ctypes.create_string_buffer(name.encode()) for name in names]
    code = mmap.mmap(-1, max(1, len(names)) * 32, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(code))
    for i, text in enumerate(texts):
        jump = _NAMED_JUMP.pack(b"\x48\xbf", ctypes.addressof(text), b"\x48\xb8", target, b"\xff\xe0")
        code[32 * i : 32 * i + len(jump)] = jump
    _protect(start, start + len(code), mmap.PROT_READ | mmap.PROT_EXEC)
    _kept.append((code, texts))
    return {name: start + 32 * i for i, name in enumerate(names)}


_kept: list[object] = []  # the processor runs it


def _protect(first: int, end: int, rights: int) -> None:
    start = first // _PAGE * _PAGE
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(end - start), rights):
        raise OSError(ctypes.get_errno(), "mprotect")


def _base_of(library: Path) -> int:
    real = str(library.resolve())
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5] == real and int(fields[2], 16) == 0:
            return int(fields[0].partition("-")[0], 16)
    raise ImportError(f"{library} is not loaded")
