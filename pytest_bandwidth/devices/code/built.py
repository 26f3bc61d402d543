"""Identify what a compiler left in a file: a library with kernels in it, a cubin, a container of them, PTX."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from stat import S_ISREG
from types import ModuleType

from pytest_bandwidth.devices.code.cubin import code_of_file
from pytest_bandwidth.devices.code.elf import CUDA, MAGIC, read_elf
from pytest_bandwidth.devices.code.fatbin import CONTAINER, SECTIONS, kernels_of
from pytest_bandwidth.domain.code.identity import digest
from pytest_bandwidth.domain.code.ptx_normal_form import normal_form_of_all, ptx_digest
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import shown

# Larger files are known by their bytes, line numbers included.
LARGEST_READ = 2**28
LARGEST_PTX = 2**22
FILES_KEPT = 64


def digest_of_code(data: bytes) -> str | None:
    """Hash the code in what a compiler wrote; None where it is of no format that is known here.

    Line numbers and debug information are left out. A library is known by its kernels, and by its own instructions
    and constants.
    """
    if data.startswith(CONTAINER):
        return digest(*kernels_of(memoryview(data)))
    code = code_of_file(data)
    if code is None:
        return _digest_of_ptx(data)
    elf = read_elf(data)
    kernels = () if elf.machine == CUDA else (s for s in elf.sections if s.name in SECTIONS)
    return digest(*code, *(part for section in kernels for part in kernels_of(section.data)))


def _digest_of_ptx(data: bytes) -> str | None:
    if b".version" not in data or len(data) > LARGEST_PTX:
        return None
    module = normal_form_of_all(data.decode("utf-8", "surrogateescape"))
    return None if module is None else ptx_digest(module.text)


def digest_of_file(path: Path) -> str:
    """Hash the code in a file as it is now, or its bytes, where their format is not known. Raises UsageError."""
    try:
        found = path.stat()
        if not S_ISREG(found.st_mode) or not found.st_size:
            raise UsageError(f"code={shown(str(path))}: no file, or an empty one, expected one with compiled code")
        return _digest_of(path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    except OSError as error:
        raise UsageError(f"code={shown(str(path))}: {error.strerror}, expected a file with compiled code") from None


@functools.lru_cache(FILES_KEPT)
def _digest_of(path: Path, *state: int) -> str:
    """Hash a file in that state, once: most tests of a process share a library."""
    del state
    with path.open("rb") as file:
        data = file.read(LARGEST_READ + 1)
        if len(data) <= LARGEST_READ:
            return digest_of_code(data) or digest(data)
        whole = hashlib.sha256(data)
        while data:
            data = file.read(LARGEST_READ)
            whole.update(data)
    return digest(whole.digest())


def library_of(module: ModuleType) -> Path | None:
    """Return the library that a module of Python's was loaded from; None where it was from no such file."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return None
    try:
        with Path(file).open("rb") as opened:
            return Path(file) if opened.read(len(MAGIC)) == MAGIC else None
    except OSError:
        return None
