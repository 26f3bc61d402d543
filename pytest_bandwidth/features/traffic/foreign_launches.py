"""Redirect launches of Triton and numba-cuda to the traffic device; both can compile without a GPU.

Tested with Triton 3.8 and 3.9, PyTorch's tensors and NumPy's arrays; and with numba-cuda 0.30 and NumPy's arrays.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from math import inf, prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pytest_bandwidth.devices.arguments import MOST_THREADS_PER_BLOCK
from pytest_bandwidth.devices.code.compiled import code_of_ptx, kernels_of_code
from pytest_bandwidth.devices.code.cubin import kernel_code, resources_of
from pytest_bandwidth.domain.code.identity import MeasuredCode
from pytest_bandwidth.domain.errors import KernelError, NotOnThisDevice, UsageError
from pytest_bandwidth.domain.measured.measurement import KernelResources
from pytest_bandwidth.features.traffic.ptx import Program, PtxModule
from pytest_bandwidth.features.traffic.ptx.lanes import WARP
from pytest_bandwidth.features.traffic.ptx.occupancy import most_shared_bytes, number_of
from pytest_bandwidth.frameworks.arrays import framework_of

PROGRAMS_KEPT = 64
# Triton's scalar types as NumPy's.
_SCALARS = {"i1": "i1", "u1": "u1", "fp16": "f2", "fp32": "f4", "f32": "f4", "fp64": "f8"}
_SCALARS |= {f"{letter}{bits}": f"{letter}{bits // 8}" for letter in "iu" for bits in (8, 16, 32, 64)}


@dataclass(frozen=True, slots=True)
class ForeignLaunch:
    """Hold one launch of a kernel of Triton or numba-cuda. args: as `ptx.execute` takes them.

    kernel: its name in the program. name: its name in reports, with its constants, `add[BLOCK=1024]`.
    resources: registers and memory from the compiler; None without machine code.
    """

    program: Program
    code: MeasuredCode
    resources: KernelResources | None
    kernel: str
    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    args: tuple[Any, ...]


def source_text(file: Path) -> str:
    """Return the text of a Python file; "" without a file, as for a notebook."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


# ---- Triton ----------------------------------------------------------------------------------------------------------


class TritonDriver:
    """Be Triton's driver in place of that of a GPU; `launch` is called for each launch.

    A GPU's driver loads the machine code and launches it; this one looks up the PTX that it was made from.
    """

    maker = module = "triton"

    def __init__(self, arch: str, launch: Callable[[ForeignLaunch], None]) -> None:
        self._arch, self._launch = arch, launch
        self.utils = self  # Triton looks up some methods there
        self._before: Any = None
        self._patch = pytest.MonkeyPatch()
        # The arguments of the last autotuner call that found a configuration; each call has a mapping of its own.
        self._tuned_for: object = None
        self._is_tuning = False

    def drive(self) -> None:
        """Replace Triton's driver until `restore`, if this process has imported Triton."""
        chosen = _chosen_driver()
        if chosen is not None and chosen.__dict__.get("_active") is not self:
            self._before = chosen.__dict__.get("_active")
            chosen.set_active(self)
            self._replace_tuning(sys.modules["triton"].runtime.autotuner.Autotuner)

    def _replace_tuning(self, autotuner: Any) -> None:
        """Make autotuners take the first configuration that compiles and fits, without timing.

        They neither read nor write their cache on disk, which holds times of a GPU of the same architecture.
        """
        bench = autotuner._bench

        def first_that_fits(tuner: Any, *args: Any, config: Any, **meta: Any) -> list[float]:
            if self._tuned_for is tuner.nargs:
                return [inf] * 3
            own = {name: tuner.__dict__[name] for name in ("do_bench",) if name in tuner.__dict__}
            tuner.do_bench = self._try
            try:
                times: list[float] = bench(tuner, *args, config=config, **meta)
            finally:
                del tuner.do_bench
                vars(tuner).update(own)
            if times[0] < inf:
                self._tuned_for = tuner.nargs
            return times

        self._patch.setattr(autotuner, "_bench", first_that_fits)
        # It returns whether the disk had an answer.
        self._patch.setattr(autotuner, "check_disk_cache", lambda _tuner, _key, _all, find: bool(find()))

    def _try(self, call: Callable[[], object], **_: object) -> list[float]:
        """Compile one configuration without launching it. Raises Triton's error where it does not fit."""
        self._is_tuning = True
        try:
            call()
        finally:
            self._is_tuning = False
        return [0.0] * 3

    def restore(self) -> None:
        """Restore Triton's own driver."""
        chosen = _chosen_driver()
        if chosen is not None and chosen.__dict__.get("_active") is self:
            chosen._active, self._before = self._before, None
            self._patch.undo()

    def refuse_interpreter(self) -> None:
        """Raise UsageError where TRITON_INTERPRET makes Triton interpret kernels."""
        if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET", "0") not in ("", "0"):
            raise UsageError("TRITON_INTERPRET is set, so that Triton compiles no kernel: unset it")

    def is_active(self) -> bool:
        return True

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", number_of(self._arch), WARP)

    def get_current_device(self) -> int:
        # Triton caches compiled kernels by this number, which has to differ from a GPU's and from other architectures'.
        return -number_of(self._arch)

    def get_current_stream(self, device: int) -> int:
        return device

    def get_active_torch_device(self) -> Any:
        return sys.modules["torch"].device("cpu")

    def get_device_properties(self, _device: int) -> dict[str, int]:
        """Return limits of a block. By them Triton refuses launches that `ptx.execute` would refuse."""
        most = most_shared_bytes(self._arch)
        return {"max_shared_mem": most, "multiprocessor_count": 1, "warpSize": WARP, "max_num_regs": 1 << 16}

    def load_binary(self, _name: str, binary: bytes, _shared: int, _device: int) -> tuple[None, bytes, int, int, int]:
        """Return module, function, registers, spilled registers and the most threads of a block.

        The module is None: else Triton would unload it with the kernel, when this driver may be gone.
        """
        return None, binary, 0, 0, MOST_THREADS_PER_BLOCK

    def unload_module(self, module: object) -> None:
        """Do nothing: a GPU's driver loaded the module."""

    def launcher_cls(self, source: Any, metadata: Any) -> Callable[..., None]:
        """Return a function that launches a kernel. It takes extents, stream, function, metadata, hooks, arguments."""

        def launch(*given: Any) -> None:
            if self._is_tuning:
                return
            x, y, z, _stream, cubin, _packed, launch_metadata, enter, leave, *args = given
            found = _launch_of(source, metadata, cubin, (x, y, z), args)
            if enter is not None:
                enter(launch_metadata)
            self._launch(found)
            if leave is not None:
                leave(launch_metadata)

        return launch


def _chosen_driver() -> Any:
    """Return the object that holds Triton's driver; None if this process has not imported Triton."""
    return getattr(getattr(sys.modules.get("triton"), "runtime", None), "driver", None)


def _launch_of(source: Any, metadata: Any, cubin: bytes, grid: tuple[int, int, int], args: list[Any]) -> ForeignLaunch:
    """Convert a launch of Triton to a launch of its PTX. Raises UsageError, NotOnThisDevice, KernelError."""
    kernel, function = metadata.name, source.fn
    grid = (grid[0] * getattr(metadata, "num_ctas", 1), *grid[1:])  # a program is a cluster of so many blocks
    passed: dict[str, Any] = {}
    for (parameter, kind), argument in zip(source.signature.items(), args, strict=True):
        if not isinstance(kind, str) or kind.startswith("tensordesc"):
            raise NotOnThisDevice(f"kernel {kernel} takes `{parameter}` of type {kind}, which is not modelled")
        if kind != "constexpr":
            passed[parameter] = _argument(argument, kind, f"argument `{parameter}` of kernel {kernel}")
    for memory in ("global", "profile"):  # memory for the compiler itself comes last
        size = (getattr(metadata, f"{memory}_scratch_size", 0) or 0) * prod(grid)
        passed[f"{memory} scratch memory"] = np.zeros(size, np.uint8) if size else None
    constants = {function.arg_names[place]: source.constants[place,] for place in function.constexprs}
    named = ", ".join(f"{name}={getattr(value, '__name__', value)}" for name, value in constants.items())
    file = Path(function.fn.__code__.co_filename)
    text, arch = _ptx_of(metadata.hash, source.name), f"sm_{metadata.target.arch}"
    program, code, resources = _loaded(text, cubin, arch, kernel, file.name, source_text(file), (*passed,))
    name, block = f"{kernel}[{named}]" if named else kernel, (metadata.num_warps * WARP, 1, 1)
    values = tuple(passed.values())
    return ForeignLaunch(program.reset(), code, resources, kernel, name, grid, block, metadata.shared, values)


def _argument(value: Any, kind: str, label: str) -> Any:
    """Return an argument as `ptx.execute` takes it: an array, or a number of the parameter's type."""
    if not kind.startswith("*"):
        if kind == "bf16":
            return np.uint16(np.float32(value).view(np.uint32) >> 16)
        if kind not in _SCALARS:
            raise NotOnThisDevice(f"{label} is of type {kind}, which is not modelled")
        return np.dtype(_SCALARS[kind]).type(value)
    # triton.reinterpret returns an object with the tensor as its base; an array's base has another meaning.
    tensor = value if isinstance(value, np.ndarray) else getattr(value, "base", value)
    if isinstance(tensor, np.ndarray):
        return tensor
    framework = framework_of(tensor)
    is_held = framework is not None and framework.is_made(tensor) and hasattr(tensor, "untyped_storage")
    if not is_held or tensor.device.type != "cpu":
        where = f" on {tensor.device}" if hasattr(tensor, "device") else ""
        raise UsageError(
            f"{label}: found a {type(value).__name__}{where}, expected an array of bandwidth.random or "
            "bandwidth.empty, or a tensor of PyTorch on the CPU"
        )
    # As bytes of any dtype, since NumPy has no bfloat16. They keep the tensor's memory alive.
    storage = tensor.untyped_storage()
    held = tensor.detach().new_empty(0, dtype=sys.modules["torch"].uint8).set_(storage).numpy()
    begin = tensor.data_ptr() - storage.data_ptr()
    steps = sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True))
    size = (steps + 1) * tensor.element_size() if tensor.numel() else 0
    return held[begin : begin + size]


def _ptx_of(key: str, kernel: str) -> str:
    """Return the PTX of a compiled kernel from Triton's cache. Raises KernelError if the cache has none."""
    from triton.runtime.cache import get_cache_manager

    group = get_cache_manager(key).get_group(f"{kernel[:150]}.json") or {}
    path = next((Path(path) for name, path in group.items() if name.endswith(".ptx")), None)
    if path is None:
        raise KernelError(f"Triton's cache holds no PTX of kernel {kernel}: leave TRITON_STORE_BINARY_ONLY unset")
    return path.read_text(encoding="utf-8")


@functools.lru_cache(PROGRAMS_KEPT)
def _loaded(
    ptx: str, cubin: bytes, arch: str, kernel: str, filename: str, python: str, parameters: tuple[str, ...]
) -> tuple[Program, MeasuredCode, KernelResources | None]:
    triton = str(Path(sys.modules["triton"].__file__ or "").parent)
    module = PtxModule(
        ptx, "", arch, filename=filename, source=python, parameters=parameters, foreign_folder=triton, for_blocks=True
    )
    return Program(module), kernel_code(ptx, cubin, kernel), resources_of(cubin).get(f"{kernel} {arch}")


# ---- numba-cuda ------------------------------------------------------------------------------------------------------


def is_dispatcher(kernel: object) -> bool:
    """Return whether an object is a kernel of numba-cuda, without grid and block."""
    kind = type(kernel)
    return kind.__module__.startswith("numba.cuda.") and kind.__name__ == "CUDADispatcher"


class NumbaDriver:
    """Replace the launch of numba-cuda's kernels, ``kernel[grid, block](…)``.

    `launch` is called for each launch.
    """

    maker, module = "numba-cuda", "numba_cuda"

    def __init__(self, arch: str, launch: Callable[[ForeignLaunch], None]) -> None:
        self._arch, self._launch = arch, launch
        self._patch, self._drives = pytest.MonkeyPatch(), False

    def drive(self) -> None:
        """Replace numba-cuda's launches until `restore`, if this process has imported numba-cuda."""
        module: Any = sys.modules.get("numba.cuda.dispatcher") if "numba_cuda" in sys.modules else None
        if module is None or self._drives:
            return
        self._drives = True
        modelled = SimpleNamespace(compute_capability=divmod(number_of(self._arch), 10))

        def call(dispatcher: Any, args: Sequence[Any], launch: Any) -> None:
            self._launch(_launch_of_numba(dispatcher, args, launch, self._arch))

        self._patch.setattr(module.CUDADispatcher, "call", call)
        # Else numba-cuda warns that a small grid leaves the GPU idle.
        self._patch.setattr(sys.modules["numba"].config, "CUDA_LOW_OCCUPANCY_WARNINGS", 0)
        # Functions that a kernel calls are compiled for the current device.
        self._patch.setattr(module, "get_current_device", lambda: modelled)

    def restore(self) -> None:
        """Restore numba-cuda's own launches."""
        self._patch.undo()
        self._drives = False


def _launch_of_numba(dispatcher: Any, args: Sequence[Any], config: Any, arch: str) -> ForeignLaunch:
    """Convert a launch of numba-cuda to a launch of its PTX. Raises UsageError, NotOnThisDevice."""
    kernel, options = dispatcher.py_func.__name__, dispatcher.targetoptions
    if options.get("link"):
        raise NotOnThisDevice(f"kernel {kernel} is linked with other files, which is not modelled")
    names = dispatcher.py_func.__code__.co_varnames[: dispatcher.py_func.__code__.co_argcount]
    if len(args) != len(names):
        raise UsageError(f"kernel {kernel} takes {len(names)} arguments ({', '.join(names)}), found {len(args)}")
    for name, arg in zip(names, args, strict=True):
        framework = framework_of(arg)
        if framework is not None and not framework.is_made(arg):
            found = f"found a {type(arg).__name__} without memory"
            raise UsageError(f"argument `{name}` of kernel {kernel}: {found}, expected an array that holds numbers")
    given = [np.asarray(arg) if hasattr(arg, "__array__") and not isinstance(arg, np.generic) else arg for arg in args]
    types = tuple(dispatcher.typeof_pyval(arg) for arg in given)
    passed = [part for each in zip(names, given, types, strict=True) for part in _parts(kernel, *each)]
    program, code = _compiled_by_numba(dispatcher, types, arch, tuple(name for name, _ in passed))
    grid, (x, y, z) = tuple(config.griddim), config.blockdim
    values = tuple(value for _, value in passed)
    return ForeignLaunch(program.reset(), code, None, kernel, kernel, grid, (x, y, z), config.sharedmem, values)


def _parts(kernel: str, name: str, value: Any, kind: Any) -> Iterator[tuple[str, Any]]:
    """Yield the PTX parameters of an argument, with names, by numba-cuda's calling convention."""
    if isinstance(value, np.ndarray):
        yield from ((f"{name}.meminfo", None), (f"{name}.parent", None), (f"{name}.size", np.int64(value.size)))
        yield from ((f"{name}.itemsize", np.int64(value.itemsize)), (name, value))
        yield from ((f"{name}.shape", np.int64(length)) for length in value.shape)
        yield from ((f"{name}.strides", np.int64(stride)) for stride in value.strides)
        return
    dtype = "int8" if str(kind) in ("bool", "boolean") else str(kind)
    try:
        scalar = np.dtype(dtype).type(value)
    except (TypeError, ValueError):
        if isinstance(value, str | bytes | list | dict | set):
            raise UsageError(
                f"argument `{name}` of kernel {kernel}: found a {type(value).__name__}, expected a number or an array"
            ) from None
        raise NotOnThisDevice(f"kernel {kernel} takes `{name}` of type {kind}, which is not modelled") from None
    if scalar.dtype.kind == "c":
        yield from ((f"{name}.real", scalar.real), (f"{name}.imag", scalar.imag))
    else:
        yield name, scalar


def _with_stable_names(ptx: str) -> str:
    """Renumber the versions of functions: numba-cuda's numbers depend on earlier compilations of the process."""
    numbers: dict[str, int] = {}

    def renumbered(found: re.Match[str]) -> str:
        tag = f"v{numbers.setdefault(found[0], len(numbers))}"
        return f"B{len(tag)}{tag}B"

    return re.sub(r"B\d+v\d+B", renumbered, ptx)


@functools.lru_cache(PROGRAMS_KEPT)
def _compiled_by_numba(
    dispatcher: Any, types: tuple[Any, ...], arch: str, parameters: tuple[str, ...]
) -> tuple[Program, MeasuredCode]:
    """Compile a kernel for the architecture, under the name of its Python function."""
    compile_ptx = import_module("numba.cuda").compile_ptx
    options = dispatcher.targetoptions
    bounds = {"launch_bounds": bounds} if (bounds := options.get("launch_bounds")) else {}
    given = {"fastmath": bool(options.get("fastmath")), "opt": options.get("opt", True), **bounds}
    ptx, _ = compile_ptx(dispatcher.py_func, types, cc=divmod(number_of(arch), 10), lineinfo=True, **given)
    kernel, (entry,) = dispatcher.py_func.__name__, kernels_of_code(code_of_ptx(ptx))
    ptx = _with_stable_names(ptx.replace(entry, kernel))
    file = Path(dispatcher.py_func.__code__.co_filename)
    package = str(Path(sys.modules["numba_cuda"].__file__ or "").parent)
    module = PtxModule(
        ptx, "", arch, filename=file.name, source=source_text(file), parameters=parameters, foreign_folder=package
    )
    return Program(module), kernel_code(ptx, b"", kernel)
