"""Compile CUDA C++ to PTX, and to cubin with ptxas' resource report, through NVRTC. Needs no GPU and no driver."""

from __future__ import annotations

import base64
import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pytest_bandwidth.domain.errors import KernelError, NotOnThisDevice
from pytest_bandwidth.domain.measured.measurement import KernelResources
from pytest_bandwidth.features.traffic.ptx.nvrtc.process import ask

_LINE_INFORMATION = ("-lineinfo", "--generate-line-info")
_NO_NAMES: Mapping[str, str] = MappingProxyType({})
# Stand-ins for headers of the host that kernels include and NVRTC lacks, where that changes nothing they mean. NVRTC
# itself declares what math.h, string.h, assert.h and printf offer to device code.
_INTEGERS = "\n".join(
    f"using ::cuda::std::{sign}int{kind}{bits}_t;"
    for sign in ("", "u")
    for kind in ("", "_least", "_fast")
    for bits in (8, 16, 32, 64)
)
_STDINT = f"""#pragma once
#include <cuda/std/cstdint>
{_INTEGERS}
using ::cuda::std::intptr_t; using ::cuda::std::uintptr_t;
using ::cuda::std::intmax_t; using ::cuda::std::uintmax_t;
"""
_HEADERS: dict[str, str] = {
    "stdint.h": _STDINT,
    "cstdint": f"#pragma once\n#include <stdint.h>\nnamespace std {{\n{_INTEGERS}\n}}\n",
    "stddef.h": "#pragma once\n#include <cuda/std/cstddef>\nusing ::cuda::std::size_t; using ::cuda::std::ptrdiff_t;\n",
    **dict.fromkeys(("stdio.h", "math.h", "string.h", "assert.h"), "#pragma once\n"),
}
# Headers of the standard library that CCCL has for device code, as <cuda/std/NAME>.
_OF_CUDA_STD = frozenset(
    {"algorithm", "array", "atomic", "bit", "bitset", "cassert", "cfloat", "chrono", "climits", "cmath", "complex"}
    | {"concepts", "cstddef", "cstdint", "cstdlib", "cstring", "ctime", "execution", "expected", "functional"}
    | {"initializer_list", "iterator", "limits", "mdspan", "memory", "numbers", "numeric", "optional", "ratio"}
    | {"span", "string_view", "tuple", "type_traits", "utility", "variant", "version"}
)


@dataclass(frozen=True, slots=True)
class PtxModule:
    """Hold what NVRTC made of one source text.

    nvrtc_version: ``13.4``; the PTX text changes with it, so baselines record it.
    lowered: mangled kernel name of each name expression (``scale<float>`` → ``_Z5scaleIfEvPT_``).
    filename: how the source text is called in messages and source lines.
    log: what the compiler said, empty where it said nothing. source: the CUDA text, for the names of parameters.
    """

    ptx: str
    nvrtc_version: str
    arch: str
    lowered: Mapping[str, str] = field(default_factory=lambda: _NO_NAMES)
    log: str = ""
    filename: str = "kernel.cu"
    source: str = ""


@dataclass(frozen=True, slots=True)
class CubinModule:
    """Hold machine code of one source text, an ELF file, and what each kernel takes, by its mangled name."""

    data: bytes
    resources: Mapping[str, KernelResources]


def compile_ptx(
    text: str,
    *,
    arch: str = "sm_90",
    options: Sequence[str] = (),
    name_expressions: Sequence[str] = (),
    filename: str = "kernel.cu",
    max_seconds: float = math.inf,
) -> PtxModule:
    """Compile CUDA C++ `text` for `arch` (``sm_75`` …) with line information, CUDA's own headers on the include path.

    options: further NVRTC options, such as ``-DTILE=32`` or ``--use_fast_math``.
    name_expressions: template kernels to instantiate, such as ``scale<float>``.
    Raises KernelError with the compiler's log or after `max_seconds`, DeviceUnavailable where NVRTC is not installed,
    NotOnThisDevice for headers of tensor cores.
    """
    architecture = arch.replace("sm_", "compute_", 1)
    own = [option for option in options if option not in _LINE_INFORMATION]
    asked = [f"--gpu-architecture={architecture}", "-lineinfo", *own]
    answer = _compile(text, arch, asked, name_expressions, filename, max_seconds, ptx=True)
    lowered = MappingProxyType(dict(answer["lowered"]))
    return PtxModule(answer["ptx"], nvrtc_version(), arch, lowered, answer["log"], filename, text)


def compile_cubin(
    text: str,
    *,
    arch: str = "sm_90",
    options: Sequence[str] = (),
    name_expressions: Sequence[str] = (),
    filename: str = "kernel.cu",
    max_seconds: float = math.inf,
) -> CubinModule:
    """Compile to machine code; registers, local and static shared memory of each kernel are from ptxas' report.

    Raises KernelError with the compiler's log or after `max_seconds`, DeviceUnavailable where NVRTC is not installed,
    NotOnThisDevice for headers of tensor cores.
    """
    asked = [f"--gpu-architecture={arch}", "--ptxas-options=-v", *options]
    answer = _compile(text, arch, asked, name_expressions, filename, max_seconds, ptx=False)
    return CubinModule(base64.b64decode(answer["cubin"]), _parse_ptxas(answer["log"]))


def nvrtc_version() -> str:
    """Return the version of the NVRTC that compiles, ``major.minor``. Raises DeviceUnavailable where there is none."""
    return str(_about()["version"])


def supported_architectures() -> tuple[str, ...]:
    """List the architectures that this NVRTC compiles for, ``sm_75`` first. Raises DeviceUnavailable without NVRTC."""
    return tuple(_about()["architectures"])


@functools.cache
def _about() -> dict[str, Any]:
    return ask({})


def _compile(
    text: str,
    arch: str,
    options: Sequence[str],
    name_expressions: Sequence[str],
    filename: str,
    max_seconds: float,
    *,
    ptx: bool,
) -> dict[str, Any]:
    request = {
        "text": text,
        "filename": filename,
        "names": list(name_expressions),
        "options": [*options, *(f"--include-path={folder}" for folder in _about()["folders"])],
        "headers": _HEADERS,
        "ptx": ptx,
    }
    answer = ask(request, max_seconds)
    if "failed" in answer:
        known, log = supported_architectures(), str(answer["log"])
        if arch.rstrip("af") not in known:
            raise KernelError(
                f"{filename}: NVRTC {nvrtc_version()} does not know {arch}; it compiles for {', '.join(known)}"
            )
        _explain_missing_header(filename, log, text)
        raise KernelError(
            f"{filename} does not compile for {arch} ({answer['failed']}):\n{log or 'the compiler gave no log'}"
        )
    return answer


_MISSING = re.compile(r'cannot open source file "([^"]+)"')


def _explain_missing_header(filename: str, log: str, text: str) -> None:
    """Raise what helps, where the compiler found no header: NVRTC has none of the host's. text: what was compiled."""
    found = _MISSING.search(log)
    if found is None:
        return
    header = found[1]
    if header in ("mma.h", "crt/mma.h"):
        raise NotOnThisDevice(f"{filename} uses tensor cores ({header}), which the traffic device does not model")
    if re.search(rf'#\s*include\s*"{re.escape(header)}"', text):
        raise KernelError(
            f'{filename} includes "{header}", and found it neither beside it nor in a folder that options=("-I…",) '
            f"names, which begins at the folder where pytest was started\n{log}"
        )
    name = header.removesuffix(".h")
    standard = header if header in _OF_CUDA_STD else f"c{name}" if f"c{name}" in _OF_CUDA_STD else None
    remedy = f"include <cuda/std/{standard}> and say cuda::std::" if standard else "copy what the kernel needs of it"
    raise KernelError(
        f"{filename} includes <{header}>, and NVRTC, which compiles for the device alone, has no headers of the host; "
        f"{remedy}, or keep it from NVRTC with #ifndef __CUDACC_RTC__\n{log}"
    )


# The lines of `ptxas -v`, CUDA 13: "Compiling entry function 'k' for 'sm_90'", then a line with the stack frame, then
# "Used 12 registers, used 1 barriers, 1024 bytes smem, ...".
_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_STACK = re.compile(r"(\d+) bytes stack frame")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def _parse_ptxas(log: str) -> dict[str, KernelResources]:
    found: dict[str, KernelResources] = {}
    name, stack = None, 0
    for line in log.splitlines():
        if entry := _ENTRY.search(line):
            name, stack = entry[1], 0
        elif frame := _STACK.search(line):
            stack = int(frame[1])
        elif name and (registers := _REGISTERS.search(line)):
            shared = _SHARED.search(line)
            found[name] = KernelResources(int(registers[1]), stack, int(shared[1]) if shared else 0)
            name = None
    return found
