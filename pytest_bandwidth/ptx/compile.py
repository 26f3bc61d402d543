"""Compile CUDA C++ to PTX, and to cubin for ptxas' resource report, through NVRTC. Needs no GPU and no driver."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pytest_bandwidth.domain.errors import DeviceUnavailable, KernelError
from pytest_bandwidth.domain.measurement import KernelResources

INSTALL_HINT = "install it with: pip install 'pytest-bandwidth[traffic]'"
_LINE_INFORMATION = ("-lineinfo", "--generate-line-info")
_NO_NAMES: Mapping[str, str] = MappingProxyType({})


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


def compile_ptx(
    text: str,
    *,
    arch: str = "sm_90",
    options: Sequence[str] = (),
    name_expressions: Sequence[str] = (),
    filename: str = "kernel.cu",
) -> PtxModule:
    """Compile CUDA C++ `text` for `arch` (``sm_75`` …) with line information, CUDA's own headers on the include path.

    options: further NVRTC options, such as ``-DTILE=32`` or ``--use_fast_math``.
    name_expressions: template kernels to instantiate, such as ``scale<float>``.
    Raises KernelError with the compiler's log, DeviceUnavailable where NVRTC is not installed.
    """
    nvrtc = _nvrtc()
    architecture = arch.replace("sm_", "compute_", 1)
    with _Program(nvrtc, text, filename, name_expressions) as program:
        own = [option for option in options if option not in _LINE_INFORMATION]
        program.compile([f"--gpu-architecture={architecture}", "-lineinfo", *own], filename, arch)
        ptx = program.text("nvrtcGetPTXSize", "nvrtcGetPTX")
        lowered = {name: program.lowered_name(name) for name in name_expressions}
        return PtxModule(ptx, nvrtc_version(), arch, MappingProxyType(lowered), program.log(), filename, text)


def kernel_resources(
    text: str,
    *,
    arch: str = "sm_90",
    options: Sequence[str] = (),
    name_expressions: Sequence[str] = (),
    filename: str = "kernel.cu",
) -> Mapping[str, KernelResources]:
    """Read registers, local and static shared memory of each kernel (by its mangled name) from ptxas' report.

    Raises KernelError with the compiler's log, DeviceUnavailable where NVRTC is not installed.
    """
    nvrtc = _nvrtc()
    with _Program(nvrtc, text, filename, name_expressions) as program:
        program.compile([f"--gpu-architecture={arch}", "--ptxas-options=-v", *options], filename, arch)
        return _parse_ptxas(program.log())


@functools.cache
def nvrtc_version() -> str:
    """Return the version of the NVRTC that compiles, ``major.minor``.
    Raises DeviceUnavailable where it is not installed.
    """
    status, major, minor = _nvrtc().nvrtcVersion()
    if int(status) != 0:
        raise DeviceUnavailable(f"NVRTC does not tell its version (status {int(status)}); {INSTALL_HINT}")
    return f"{major}.{minor}"


@functools.cache
def supported_architectures() -> tuple[str, ...]:
    """List the architectures that this NVRTC compiles for, ``sm_75`` first.
    Raises DeviceUnavailable where there is none.
    """
    status, count = _nvrtc().nvrtcGetNumSupportedArchs()
    if int(status) != 0 or not count:
        return ()
    _, numbers = _nvrtc().nvrtcGetSupportedArchs()
    return tuple(f"sm_{number}" for number in numbers)


@functools.cache
def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:  # RuntimeError: the bindings are there, but no libnvrtc
        reason = _one_line(error)
        raise DeviceUnavailable(
            f"NVRTC, which the traffic device needs, cannot be loaded ({reason}); {INSTALL_HINT}"
        ) from None
    return nvrtc


@functools.cache
def _include_options() -> tuple[str, ...]:
    from cuda.pathfinder import find_nvidia_header_directory

    # CUDA's own, and the parts of the standard library that cooperative_groups.h asks for.
    folders = map(find_nvidia_header_directory, ("cudart", "cccl"))
    return tuple(f"--include-path={folder}" for folder in folders if folder is not None)


class _Program:
    """Hold one nvrtcProgram, destroyed on leaving the `with` block."""

    def __init__(self, nvrtc: Any, text: str, filename: str, name_expressions: Sequence[str]) -> None:
        self._nvrtc = nvrtc
        self._handle = self._checked(nvrtc.nvrtcCreateProgram(text.encode(), filename.encode(), 0, [], []))
        for name in name_expressions:
            self._checked(nvrtc.nvrtcAddNameExpression(self._handle, name.encode()))

    def __enter__(self) -> _Program:
        return self

    def __exit__(self, *_: object) -> None:
        self._nvrtc.nvrtcDestroyProgram(self._handle)

    def compile(self, options: Sequence[str], filename: str, arch: str) -> None:
        encoded = [option.encode() for option in (*options, *_include_options())]
        (status,) = self._nvrtc.nvrtcCompileProgram(self._handle, len(encoded), encoded)
        if int(status) == 0:
            return
        known = supported_architectures()
        if arch.rstrip("af") not in known:
            raise KernelError(
                f"{filename}: NVRTC {nvrtc_version()} does not know {arch}; it compiles for {', '.join(known)}"
            )
        reason = self._nvrtc.nvrtcGetErrorString(status)[1].decode()
        raise KernelError(
            f"{filename} does not compile for {arch} ({reason}):\n{self.log() or 'the compiler gave no log'}"
        )

    def text(self, size_call: str, text_call: str) -> str:
        size = self._checked(getattr(self._nvrtc, size_call)(self._handle))
        # Never `bytes`: of one byte, an empty log's length, Python keeps a single object that the whole process shares.
        buffer = bytearray(size)
        self._checked(getattr(self._nvrtc, text_call)(self._handle, buffer))
        return str(buffer.rstrip(b"\0"), "utf-8", "replace")

    def log(self) -> str:
        return self.text("nvrtcGetProgramLogSize", "nvrtcGetProgramLog").strip()

    def lowered_name(self, name: str) -> str:
        return str(self._checked(self._nvrtc.nvrtcGetLoweredName(self._handle, name.encode())), "utf-8")

    def _checked(self, answer: tuple[Any, ...]) -> Any:
        if int(answer[0]) != 0:
            reason = self._nvrtc.nvrtcGetErrorString(answer[0])[1].decode()
            raise KernelError(f"NVRTC refused a request ({reason}); check kernel names and options")
        return answer[1] if len(answer) > 1 else None


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


def _one_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
