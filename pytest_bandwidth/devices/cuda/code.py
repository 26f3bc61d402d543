"""Identify CuPy's raw kernels: compile their source once more, by CuPy's own NVRTC with CuPy's own options.

CuPy hands out neither the PTX nor the machine code of a kernel that it loaded. NVRTC compiles the same source and
options to the same code on every machine. A CuPy release may stop exposing its options: then code is unknown.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from ctypes.util import find_library
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pytest_bandwidth.devices.base import Launch
from pytest_bandwidth.devices.code.cubin import kernel_code, machine_code
from pytest_bandwidth.devices.code.variables import variable_sizes
from pytest_bandwidth.devices.cuda.kernels import HEADERS_MACRO
from pytest_bandwidth.devices.cuda.runtime import one_line
from pytest_bandwidth.devices.host import installed_version
from pytest_bandwidth.domain.code.identity import CodeIdentity, MeasuredCode, digest
from pytest_bandwidth.domain.code.kernel_signature import source_parameters
from pytest_bandwidth.domain.code.ptx_normal_form import normal_form, ptx_digest
from pytest_bandwidth.domain.code.stored_kernel import entry_of

# NVRTC also looks for quoted includes in the source's folder; CuPy compiles in a new folder, which is empty.
_NOWHERE = "/dev/null/kernel.cu"
# CuPy adds these (cupy/cuda/compiler.py); the first for a denormal-flushing default, the other for CCCL.
_ALWAYS = ("-ftz=true", "--device-as-default-execution-space")
_DEBUG_VARIABLE = "CUPY_CUDA_COMPILE_WITH_DEBUG"
_DEBUG = ("--device-debug", "--generate-line-info")
_LINKED = ("--device-c", "-dc", "-rdc=true", "--relocatable-device-code=true")
_CARVEOUT_BY_DRIVER = -1
# C++'s 64-bit integer types, except those that are made to hold an address.
NUMBERS_64 = frozenset(
    {"long", "unsigned long", "long int", "unsigned long int", "long long", "unsigned long long", "long long int"}
    | {"unsigned long long int", "int64_t", "uint64_t", "std::int64_t", "std::uint64_t", "size_t", "std::size_t"}
    | {"ptrdiff_t", "std::ptrdiff_t"}
)
_INCLUDING = ("-I", "--include-path", "-include", "--pre-include")


# What NVRTC compiles: the text, the options, the name expressions.
_Source = tuple[str, tuple[str, ...], tuple[str, ...]]
# What NVRTC returned: the PTX, and the machine code, which is empty where the driver compiles the PTX.
_Compiled = tuple[str, bytes]


class RawKernelCodes:
    """Identify the raw kernels of one GPU, the current one; a source is compiled once for all its kernels.

    driver: its exact version; None where it is unknown.
    """

    def __init__(self, cupy: Any, driver: str | None) -> None:
        self._cupy, self._driver = cupy, driver
        self._compiled: dict[_Source, _Compiled] = {}

    def code(self, kernel: Any) -> MeasuredCode:
        """Identify a kernel without its launch, or return the reason why that is impossible."""
        if not isinstance(kernel, self._cupy.RawKernel):
            return MeasuredCode(unknown=f"the source of a {type(kernel).__name__} is not available")
        try:
            made = kernel.__getstate__()  # its pickled state: some of it is no attribute
            why = self._why_unknown(made)
            if why is not None:
                return MeasuredCode(unknown=why)
            if made["code"] is None:
                data = _module_of(kernel)
                if (machine := machine_code(data, kernel.name)) is not None:
                    return MeasuredCode(CodeIdentity(sass=digest(*machine)))
                module = normal_form(data.decode("utf-8", "replace"), kernel.name)
                if module is None:
                    return MeasuredCode(unknown=f"its file holds no kernel {kernel.name}, in PTX or a cubin")
                return self._by_driver(MeasuredCode(CodeIdentity(ptx=ptx_digest(module.text)), module.text))
            ptx, cubin = self._compiled_of(made)
        # RuntimeError: errors of NVRTC and the driver. The next three: another release of CuPy differs inside.
        except (RuntimeError, AttributeError, LookupError, TypeError, ValueError, OSError) as error:
            return MeasuredCode(unknown=f"compiling it again to identify its code failed ({one_line(error)})")
        found = kernel_code(ptx, cubin, kernel.name)
        if found.identity.ptx is None:
            return MeasuredCode(unknown=f"compiled again, its source has no kernel {kernel.name}")
        if not cubin:
            return self._by_driver(found)
        # The normal form may rename a kernel; machine code has only the original name.
        entry = entry_of(found.ptx or "")
        return replace(found, cubin=cubin) if entry is not None and entry.name == kernel.name else found

    def variable_sizes(self, kernel: Any) -> dict[str, int]:
        """Return the bytes of each variable in a raw kernel's module."""
        made = kernel.__getstate__()
        if made["code"] is None:
            return variable_sizes(_module_of(kernel))
        ptx, cubin = self._compiled_of(made)
        return variable_sizes(cubin or ptx.encode())

    @property
    def loads_machine_code(self) -> bool:
        """Return whether CuPy loads NVRTC's machine code; else the driver compiles NVRTC's PTX."""
        return bool(self._cupy.cuda.compiler._get_arch_for_options_for_nvrtc()[1] == "cubin")

    def _why_unknown(self, made: Mapping[str, Any]) -> str | None:
        """Return why a kernel with this state cannot be identified; None where no reason is known."""
        if self._cupy.cuda.runtime.is_hip:
            return "HIP's compiler makes no PTX"
        if made["code"] is None:
            return None
        if made["backend"] != "nvrtc":
            return f"{made['backend']} compiled it"
        if made["jitify"]:
            return "Jitify prepares its source"
        if made["translate_cucomplex"]:
            return "CuPy translates its cuComplex.h"
        if any(option in _LINKED for option in made["options"]):
            return "it is linked with the device runtime"
        # CuPy's cache finds a kernel by source and options; the plugin's options include a hash of the headers.
        folders = any(option.startswith(_INCLUDING) for option in made["options"])
        if folders and not any(HEADERS_MACRO in option for option in made["options"]):
            return "CuPy's cache ignores changes of files that it includes: use bandwidth.kernel"
        return None

    def _compiled_of(self, made: Mapping[str, Any]) -> _Compiled:
        source = text, given, name_expressions = made["code"], made["options"], made["name_expressions"] or ()
        if source in self._compiled:
            return self._compiled[source]
        nvrtc, compiler = self._cupy.cuda.nvrtc, self._cupy.cuda.compiler
        arch, kind = compiler._get_arch_for_options_for_nvrtc()
        options = (*self._cupy._core.core.assemble_cupy_compiler_options(given), *_ALWAYS, arch)
        if compiler._get_bool_env_variable(_DEBUG_VARIABLE, False):
            options = (*options, *_DEBUG)
        program = nvrtc.createProgram(text, _NOWHERE, (), ())
        try:
            for name in name_expressions:
                nvrtc.addNameExpression(program, name)
            nvrtc.compileProgram(program, options)
            ptx = nvrtc.getPTX(program).rstrip(b"\0").decode("utf-8", "replace")
            # CuPy cuts off the last byte; the driver reads the zero byte that ends Python's bytes.
            compiled = ptx, nvrtc.getCUBIN(program) + b"\0" if kind == "cubin" else b""
        finally:
            nvrtc.destroyProgram(program)
        self._compiled[source] = compiled
        return compiled

    def _by_driver(self, code: MeasuredCode) -> MeasuredCode:
        """Identify the driver's machine code by PTX and driver version; omit it where the version is unknown."""
        if self._driver is None or code.identity.ptx is None:
            return code
        return replace(code, identity=replace(code.identity, sass=digest("driver", self._driver, code.identity.ptx)))


def _module_of(kernel: Any) -> bytes:
    """Return the compiled module of a raw kernel: the code that the plugin loaded, or the user's file."""
    loaded = getattr(kernel, "loaded", None)
    return Path(kernel.file_path).read_bytes() if loaded is None else loaded


def settings_of(cupy: Any, kernel: Any) -> tuple[str, ...]:
    """Return the user's launch setting of a raw kernel: the share of the cache that is shared memory."""
    if not isinstance(kernel, cupy.RawKernel) or cupy.cuda.runtime.is_hip:
        return ()
    carveout = getattr(kernel, "preferred_shared_memory_carveout", _CARVEOUT_BY_DRIVER)
    return () if carveout == _CARVEOUT_BY_DRIVER else (f"carveout {carveout}",)


def numbers_of(cupy: Any, launch: Launch) -> frozenset[int]:
    """Return the indices of the parameters that a raw kernel's source declares as 64-bit integers, not addresses."""
    kernel = launch.kernel
    if not isinstance(kernel, cupy.RawKernel) or not kernel.code:
        return frozenset()
    found = source_parameters(kernel.code, kernel.name, len(launch.args))
    return frozenset(place for place, one in enumerate(found) if one.held in NUMBERS_64)


THREADS, BLOCKS_PER_SM = 256, 8
_WORD_BYTES = 8


def device_sums(cupy: Any, kernel: Any, sm_count: int, array: Any) -> tuple[int, int]:
    """Add up a CuPy array's words, each mixed with its place i: s₁ = Σ mᵢ and s₂ = Σ (2 i + 1) mᵢ, modulo 2⁶⁴.

    So a GPU hashes an array at the speed of its memory; work on it must be complete. kernel: ``sum_words`` of
    cuda_src/probe.cu. A view with gaps is copied, and so is one off a word's boundary or with a part of a last word.
    """
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        array = cupy.ascontiguousarray(array)
    data = (array.T if not array.flags.c_contiguous else array).reshape(-1).view(np.uint8)
    count = -(-data.size // _WORD_BYTES)
    if data.data.ptr % _WORD_BYTES or data.size % _WORD_BYTES:
        padded = cupy.zeros(count * _WORD_BYTES, np.uint8)
        padded[: data.size] = data
        data = padded
    blocks = max(1, min(-(-count // THREADS), BLOCKS_PER_SM * sm_count))
    sums = cupy.zeros((blocks, 2), np.uint64)
    if count:
        kernel((blocks,), (THREADS,), (data.view(np.uint64), sums, np.int64(count)))
    first, second = (int(total) for total in sums.get().sum(axis=0, dtype=np.uint64))
    return first, second


# cuBLAS reports its version only after it has started, which takes long. So every installed version is listed.
_PACKAGES = ("nvidia-cublas", "nvidia-cublas-cu12", "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")
_FILES = "libcublas*.so.*"


def library_versions(cupy: Any, driver: str | None) -> dict[str, str]:
    """Return the text that identifies CuPy's functions, by module name; empty where it is unknown.

    driver: its exact version.
    """
    if driver is None or cupy.cuda.runtime.is_hip:
        return {}
    versions = (cupy.__version__, cupy.cuda.runtime.runtimeGetVersion(), cupy.cuda.nvrtc.getVersion(), driver)
    packages = [f"{name} {found}" for name in _PACKAGES if (found := installed_version(name)) is not None]
    return {"cupy": f"{versions} {sorted(packages)} {sorted(_files())}"}


def _files() -> Iterator[str]:
    """Yield the names of a toolkit's libraries, which end in their full version."""
    for variable in ("CUDA_PATH", "CUDA_HOME"):
        if (root := os.environ.get(variable)) is not None:
            yield from (path.resolve().name for path in (Path(root) / "lib64").glob(_FILES))
    if (found := find_library("cublas")) is not None:
        yield found
