"""Read the code that a test hands over by `code=`: a file, a library, bytes, or an object that holds a kernel."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from stat import S_ISREG
from types import ModuleType
from typing import Any

from pytest_bandwidth.devices.code.compiled import ENTRY
from pytest_bandwidth.devices.code.cubin import CUDA, MAGIC, code_of_file, read_elf
from pytest_bandwidth.devices.code.fatbin import CONTAINER, LARGEST_PTX, SECTIONS, kernels_of
from pytest_bandwidth.domain.code.identity import digest
from pytest_bandwidth.domain.code.ptx_normal_form import normal_form, normal_form_of_all, ptx_digest
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.measured.measurement import KernelResources
from pytest_bandwidth.domain.text import shown

# Larger files are known by their bytes, line numbers included.
LARGEST_READ = 2**28
FILES_KEPT = 64
# Machine code, by the name of its format: NVIDIA's, AMD's.
_MACHINE_CODE = ("cubin", "hsaco")
# Triton counts spilled registers, of four bytes each.
REGISTER_BYTES = 4
_NOT_YET = "has not compiled a kernel yet: launch it once before it is measured"


def digest_of_code(data: bytes) -> str | None:
    """Hash the code in what a compiler wrote; None where it is of no format that is known here.

    Line numbers and debug information are left out. A library is known by its kernels, and by its own instructions
    and constants.
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
    """Return the library that a module of Python's was loaded from; None where it was from no such file."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return None
    try:
        with Path(file).open("rb") as opened:
            return Path(file) if opened.read(len(MAGIC)) == MAGIC else None
    except OSError:
        return None


def is_compiled(kernel: object) -> bool:
    """Return whether it tells its code by format in ``asm``, as a compiled kernel of Triton does."""
    return isinstance(getattr(kernel, "asm", None), Mapping)


def machine_code(kernel: Any) -> bytes | None:
    """Return a compiled kernel's machine code; None where it has none."""
    found = next((kernel.asm[name] for name in _MACHINE_CODE if kernel.asm.get(name)), None)
    return bytes(found) if isinstance(found, (bytes, bytearray)) else None


def compiled_resources(kernel: Any) -> KernelResources | None:
    """Return a compiled kernel's registers, spilled bytes and shared memory.

    None for anything else, and where it does not tell before it has been launched.
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
        raise UsageError("code=: a Kernel of cuda.core does not hold its code, expected the ObjectCode that it is of")
    if name.startswith("numba.cuda.") and kind.__name__ == "CUDADispatcher":
        # What each signature was compiled to for the card that it runs on: cubins, and PTX where none is linked.
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
        # The cubin or the PTX that a compiled function keeps where it is told to.
        if isinstance(value.__cubin__, bytes):
            return code_digest([value.__cubin__])
        if value.__ptx__ is None:
            kept = "compile it with CUTE_DSL_KEEP_CUBIN=1"
            raise UsageError(f"code=: a function of the CuTe DSL that kept no cubin: {kept}")
        return code_digest([str(value.__ptx__).encode()])
    return value


def code_digest(parts: list[bytes]) -> str:
    """Hash machine code or PTX, of each its kernels alone, whichever came first. Raises UsageError for none."""
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
        # A name is no code: Numba numbers what it compiles.
        hashes = [ptx_digest(module.text.replace(name, "kernel")) for name, module in modules]
        found.append(digest(*hashes) if hashes and len(hashes) == len(names) else digest(data))
    return digest(*sorted(found))


def _bytes_of(code: Any) -> bytes:
    """Return an ObjectCode's bytes, or those of the file that it names."""
    return bytes(code) if isinstance(code, (bytes, bytearray, memoryview)) else Path(code).read_bytes()
