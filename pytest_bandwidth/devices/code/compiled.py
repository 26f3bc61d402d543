"""Read code that is compiled already: PTX, a cubin, a fatbin container, a library, an object file.

It is searched for a kernel, and hashed where a test passes it by `code=`.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from stat import S_ISREG
from types import ModuleType
from typing import Any

from pytest_bandwidth.devices.base import CompiledCode
from pytest_bandwidth.devices.code.cubin import CUDA, MAGIC, UNREADABLE, code_of_file, kernels_in, read_elf
from pytest_bandwidth.devices.code.fatbin import (
    CONTAINER,
    LARGEST_PTX,
    MACHINE_CODE,
    PTX,
    SECTIONS,
    elements_of,
    kernels_of,
)
from pytest_bandwidth.domain.code.identity import digest
from pytest_bandwidth.domain.code.kernel_signature import without_comments
from pytest_bandwidth.domain.code.ptx_normal_form import normal_form, normal_form_of_all, ptx_digest
from pytest_bandwidth.domain.errors import KernelError, UsageError
from pytest_bandwidth.domain.measured.measurement import KernelResources
from pytest_bandwidth.domain.text import listed, shown

# PTX names its version first, after comments.
_VERSION = re.compile(r"\s*\.version\s+\d", re.ASCII)
_TARGET = re.compile(r"^\s*\.target\s+sm_(\d{1,4})(a?)", re.MULTILINE | re.ASCII)
ENTRY = re.compile(r"\.entry\s+([%$A-Za-z_][\w$]*)", re.ASCII)
MOST_NAMES = 5
_LONGEST_NAME = 200


def is_ptx(text: str) -> bool:
    return ".version" in text and _VERSION.match(without_comments(text)) is not None


def code_of_ptx(text: str) -> CompiledCode:
    target = _TARGET.search(text)
    arch, is_exact = (0, False) if target is None else (int(target[1]), bool(target[2]))
    return CompiledCode(text.encode(), arch, is_ptx=True, is_exact=is_exact)


def kernel_in(data: bytes | str, place: str, name: str | None) -> tuple[str, tuple[CompiledCode, ...]]:
    """Return a kernel's symbol, and all code that holds it. data: PTX's text, or a binary file; place: its name.

    name: the kernel's symbol; None for the only one. Raises KernelError, listing kernels that exist.
    """
    given = [code_of_ptx(data)] if isinstance(data, str) else codes_in(data)
    found = [(code, kernels_of_code(code)) for code in given]
    if not found:
        raise KernelError(f"{place} holds no CUDA kernels, expected PTX or machine code for NVIDIA's GPUs")
    names = sorted(set().union(*(names for _, names in found)))
    if name is None and len(names) == 1:
        name = names[0]
    codes = tuple(code for code, names in found if name in names)
    if name is not None and codes:
        return name, codes
    # Names that contain the given one come first, such as its mangled one.
    names.sort(key=lambda one: name is not None and name not in one)
    symbols = listed([one if len(one) <= _LONGEST_NAME else f"{one[:_LONGEST_NAME]}…" for one in names], MOST_NAMES)
    has = f"it has {symbols}" if names else "it has none"
    unread = any(code.arch < 0 for code, _ in found)
    hint = "; some of it cannot be unpacked: pip install backports.zstd" if unread else ""
    if name is None:
        raise KernelError(f"{place}: {has}{hint}: name the kernel that is meant")
    raise KernelError(f"{place} has no kernel {shown(name, _LONGEST_NAME)}, {has}{hint}")


def kernels_of_code(code: CompiledCode) -> frozenset[str]:
    """Return the symbols of the kernels in it."""
    if code.is_ptx:
        return frozenset(ENTRY.findall(without_comments(code.data.decode("utf-8", "replace"))))
    return kernels_in(code.data)


def for_architecture(codes: Sequence[CompiledCode], arch: int) -> list[CompiledCode]:
    """Return the codes that a GPU of that architecture runs, the driver's choice first: machine code, then PTX."""

    def runs(code: CompiledCode) -> bool:
        if code.is_exact:
            return code.arch == arch
        return code.arch <= arch and (code.is_ptx or code.arch == 0 or code.arch // 10 == arch // 10)

    return sorted(filter(runs, codes), key=lambda code: (code.is_ptx, -code.arch))


def codes_in(data: bytes) -> Iterator[CompiledCode]:
    """Yield the code in a binary file; what cannot be unpacked has an architecture below 0."""
    sections = [memoryview(data)]
    if not data.startswith(CONTAINER):
        try:
            elf = read_elf(data)
        except UNREADABLE:
            return
        if elf.machine == CUDA:
            yield CompiledCode(data, 0, is_ptx=False)
            return
        sections = [section.data for section in elf.sections if section.name in SECTIONS]
    for section in sections:
        for element in elements_of(section):
            if not element.is_known:
                yield CompiledCode(b"", -1, is_ptx=False)
            elif element.kind == PTX:
                text = element.data.partition(b"\0")[0].decode("utf-8", "replace")
                yield replace(code_of_ptx(text), arch=element.arch)
            elif element.kind == MACHINE_CODE:
                yield CompiledCode(element.data, element.arch, is_ptx=False)


# Larger files are identified by their bytes, line numbers included.
LARGEST_READ = 2**28
FILES_KEPT = 64
# Machine code, by the name of its format: NVIDIA's, AMD's.
_MACHINE_CODE = ("cubin", "hsaco")
# Triton counts spilled registers, of four bytes each.
REGISTER_BYTES = 4
_NOT_YET = "has not compiled a kernel yet: launch it once before it is measured"


def digest_of_code(data: bytes) -> str | None:
    """Hash the code in a compiler's output; None for an unknown format.

    Line numbers and debug information are left out. A library's kernels, and its own instructions and constants,
    identify it.
    """
    if data.startswith(CONTAINER):
        return digest(*kernels_of(memoryview(data)))
    code = code_of_file(data)
    if code is None:
        if b".version" not in data or len(data) > LARGEST_PTX:
            return None
        module = normal_form_of_all(data.decode("utf-8", "surrogateescape"))
        return None if module is None else ptx_digest(module.text)
    elf = read_elf(data)
    kernels = () if elf.machine == CUDA else (s for s in elf.sections if s.name in SECTIONS)
    return digest(*code, *(part for section in kernels for part in kernels_of(section.data)))


def digest_of_file(path: Path) -> str:
    """Hash the code in a file as it is now, or its bytes, where their format is not known. Raises UsageError."""
    try:
        found = path.stat()
        if not S_ISREG(found.st_mode) or not found.st_size:
            raise UsageError(f"code={shown(str(path))}: no file, or an empty one, expected one with compiled code")
        return _digest_of_state(path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    except OSError as error:
        raise UsageError(f"code={shown(str(path))}: {error.strerror}, expected a file with compiled code") from None


@functools.lru_cache(FILES_KEPT)
def _digest_of_state(path: Path, *state: int) -> str:
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
    """Return the library that a Python module was loaded from; None for any other module."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return None
    try:
        with Path(file).open("rb") as opened:
            return Path(file) if opened.read(len(MAGIC)) == MAGIC else None
    except OSError:
        return None


def is_compiled(kernel: object) -> bool:
    """Return whether the object has its code by format in ``asm``, as a compiled Triton kernel does."""
    return isinstance(getattr(kernel, "asm", None), Mapping)


def machine_code(kernel: Any) -> bytes | None:
    """Return a compiled kernel's machine code; None where it has none."""
    found = next((kernel.asm[name] for name in _MACHINE_CODE if kernel.asm.get(name)), None)
    return bytes(found) if isinstance(found, (bytes, bytearray)) else None


def compiled_resources(kernel: Any) -> KernelResources | None:
    """Return a compiled kernel's registers, spilled bytes and shared memory.

    None for anything else, and where they are unknown before its first launch.
    """
    if not is_compiled(kernel):
        return None
    registers, spilled = (getattr(kernel, name, None) for name in ("n_regs", "n_spills"))
    if not isinstance(registers, int) or not isinstance(spilled, int):
        return None
    shared = getattr(getattr(kernel, "metadata", None), "shared", 0)
    return KernelResources(registers, spilled * REGISTER_BYTES, shared if isinstance(shared, int) else 0)


def held_code(value: Any) -> Any:
    """Return a hash of the code that an object holds; anything else as it is. Raises UsageError where it holds none."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if name.startswith("cuda.core.") and kind.__name__ == "ObjectCode":
        return code_digest([_bytes_of(value.code)])
    if name.startswith("cuda.core.") and kind.__name__ == "Kernel":
        raise UsageError(
            "code=: a Kernel of cuda.core gives no access to its code, expected the ObjectCode that it came from"
        )
    if name.startswith("numba.cuda.") and kind.__name__ == "CUDADispatcher":
        # The code of each signature for the card that it runs on: cubins, and PTX without a linked cubin.
        parts: list[bytes] = []
        for overload in value.overloads.values():
            library = getattr(overload, "_codelibrary", None)  # numba-cuda 0.30 has no other way to a cubin
            cubins = [_bytes_of(cubin.code) for cubin in getattr(library, "_cubin_cache", {}).values()]
            parts += cubins or [value.inspect_asm(overload.signature.args).encode()]
        return code_digest(parts)
    if name.startswith("warp.") and kind.__name__ in ("Kernel", "Module"):
        # The files that Warp loaded for the module: a cubin or PTX for a card, an object file for the host.
        of_module = (value if kind.__name__ == "Module" else value.module).execs.values()
        files = [one.binary_path for one in of_module if one is not None]
        return code_digest([Path(file).read_bytes() for file in files if file is not None])
    if any(one.__module__.startswith("cutlass.") and one.__name__ == "JitCompiledFunction" for one in kind.__mro__):
        # The cubin or the PTX that a compiled function keeps on request.
        if isinstance(value.__cubin__, bytes):
            return code_digest([value.__cubin__])
        if value.__ptx__ is None:
            kept = "compile it with CUTE_DSL_KEEP_CUBIN=1"
            raise UsageError(f"code=: a function of the CuTe DSL that kept no cubin: {kept}")
        return code_digest([str(value.__ptx__).encode()])
    return value


def code_digest(parts: list[bytes]) -> str:
    """Hash the kernels in machine code or PTX, in any order. Raises UsageError for an empty list."""
    if not parts:
        raise UsageError(f"code=: the object {_NOT_YET}")
    found: list[str] = []
    for data in parts:
        if (code := code_of_file(data)) is not None:
            found.append(digest(*code))
            continue
        text = data.rstrip(b"\0").decode("utf-8", "replace")
        names = sorted(set(ENTRY.findall(text)))
        modules = [(name, module) for name in names if (module := normal_form(text, name)) is not None]
        # A name is no code: Numba numbers its functions.
        hashes = [ptx_digest(module.text.replace(name, "kernel")) for name, module in modules]
        found.append(digest(*hashes) if hashes and len(hashes) == len(names) else digest(data))
    return digest(*sorted(found))


def _bytes_of(code: Any) -> bytes:
    """Return an ObjectCode's bytes, or those of the file that it names."""
    return bytes(code) if isinstance(code, (bytes, bytearray, memoryview)) else Path(code).read_bytes()
