"""Take the code out of objects that hold it: of cuda.core, numba-cuda, Warp and the CuTe DSL.

None of these libraries is imported here: an object is known by the module and name of its class.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_bandwidth.devices.code.cubin import code_of_file
from pytest_bandwidth.domain.code.identity import digest
from pytest_bandwidth.domain.code.ptx_normal_form import normal_form, ptx_digest
from pytest_bandwidth.domain.errors import UsageError

_ENTRY = re.compile(r"\.entry\s+([%$A-Za-z_][\w$]*)", re.ASCII)
_NOT_YET = "has not compiled a kernel yet: launch it once before it is measured"


def held_code(value: Any) -> Any:
    """Return a hash of the code that an object holds; anything else as it is. Raises UsageError where it holds none."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if name.startswith("cuda.core.") and kind.__name__ == "ObjectCode":
        return code_digest([_bytes_of(value.code)])
    if name.startswith("cuda.core.") and kind.__name__ == "Kernel":
        raise UsageError("code=: a Kernel of cuda.core does not hold its code, expected the ObjectCode that it is of")
    if name.startswith("numba.cuda.") and kind.__name__ == "CUDADispatcher":
        return code_digest(list(_of_numba(value)))
    if name.startswith("warp.") and kind.__name__ in ("Kernel", "Module"):
        return code_digest(list(_of_warp(value if kind.__name__ == "Module" else value.module)))
    if any(one.__module__.startswith("cutlass.") and one.__name__ == "JitCompiledFunction" for one in kind.__mro__):
        return code_digest([_of_cute(value)])
    return value


def launched_as(function: Any) -> Iterator[str]:
    """Yield how a dispatcher of numba-cuda's is launched, where grid and block are given: ``kernel[grid, block]``."""
    kind = type(function)
    if kind.__module__.startswith("numba.cuda.") and kind.__name__ == "_LaunchConfiguration":
        yield repr((function.griddim, function.blockdim, function.sharedmem))


def code_digest(parts: list[bytes]) -> str:
    """Hash machine code or PTX, of each its kernels alone, whichever came first. Raises UsageError for none."""
    if not parts:
        raise UsageError(f"code=: the object {_NOT_YET}")
    return digest(*sorted(map(_digest_of, parts)))


def _digest_of(data: bytes) -> str:
    if (found := code_of_file(data)) is not None:
        return digest(*found)
    text = data.rstrip(b"\0").decode("utf-8", "replace")
    names = sorted(set(_ENTRY.findall(text)))
    modules = [(name, module) for name in names if (module := normal_form(text, name)) is not None]
    # A name is no code: Numba numbers what it compiles.
    hashes = [ptx_digest(module.text.replace(name, "kernel")) for name, module in modules]
    return digest(*hashes) if hashes and len(hashes) == len(names) else digest(data)


def _bytes_of(code: Any) -> bytes:
    """Return an ObjectCode's bytes, or those of the file that it names."""
    return bytes(code) if isinstance(code, (bytes, bytearray, memoryview)) else Path(code).read_bytes()


def _of_numba(dispatcher: Any) -> Iterator[bytes]:
    """Yield what each signature was compiled to for the card that it runs on: cubins, and PTX where none is linked."""
    for overload in dispatcher.overloads.values():
        library = getattr(overload, "_codelibrary", None)  # numba-cuda 0.30 has no other way to a cubin
        cubins = [_bytes_of(cubin.code) for cubin in getattr(library, "_cubin_cache", {}).values()]
        yield from cubins or (text.encode() for text in [dispatcher.inspect_asm(overload.signature.args)])


def _of_cute(compiled: Any) -> bytes:
    """Return the cubin or the PTX that a compiled function keeps where it is told to."""
    if isinstance(compiled.__cubin__, bytes):
        return compiled.__cubin__
    if compiled.__ptx__ is None:
        raise UsageError("code=: a function of the CuTe DSL that kept no cubin: compile it with CUTE_DSL_KEEP_CUBIN=1")
    return str(compiled.__ptx__).encode()


def _of_warp(module: Any) -> Iterator[bytes]:
    """Yield the files that Warp loaded for the module: a cubin or PTX for a card, an object file for the host."""
    for loaded in module.execs.values():
        if loaded is not None and loaded.binary_path is not None:
            yield Path(loaded.binary_path).read_bytes()
