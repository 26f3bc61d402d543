"""Hand what numba-cuda launches to the traffic device: its compiler needs no GPU, and its call is replaced.

Tried with numba-cuda 0.30 and arrays of NumPy.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from pytest_bandwidth.devices.code.compiled import code_of_ptx, kernels_of_code
from pytest_bandwidth.devices.code.cubin import kernel_code
from pytest_bandwidth.domain.code.identity import MeasuredCode
from pytest_bandwidth.domain.errors import NotOnThisDevice, UsageError
from pytest_bandwidth.features.traffic.ptx import Program, PtxModule
from pytest_bandwidth.features.traffic.ptx.occupancy import number_of
from pytest_bandwidth.features.traffic.triton_launches import PROGRAMS_KEPT, ForeignLaunch, source_text
from pytest_bandwidth.frameworks.arrays import framework_of


def is_dispatcher(kernel: object) -> bool:
    """Return whether it is a kernel of numba-cuda's, without grid and block."""
    kind = type(kernel)
    return kind.__module__.startswith("numba.cuda.") and kind.__name__ == "CUDADispatcher"


class NumbaDriver:
    """Take the launches of numba-cuda's kernels, ``kernel[grid, block](…)``; `launch` is called for each."""

    maker = "numba-cuda"

    def __init__(self, arch: str, launch: Callable[[ForeignLaunch], None]) -> None:
        self._arch, self._launch = arch, launch
        self._before: list[tuple[Any, str, Any]] = []

    @property
    def version(self) -> str:
        """Return numba-cuda's."""
        return str(getattr(sys.modules.get("numba_cuda"), "__version__", ""))

    def drive(self) -> None:
        """Take over, until `restore`, where this process has imported numba-cuda."""
        module: Any = sys.modules.get("numba.cuda.dispatcher") if "numba_cuda" in sys.modules else None
        if module is None or self._before:
            return
        modelled = SimpleNamespace(compute_capability=divmod(number_of(self._arch), 10))

        def call(dispatcher: Any, args: Sequence[Any], launch: Any) -> None:
            self._launch(_launch_of(dispatcher, args, launch, self._arch))

        for owner, name, value in (
            (module.CUDADispatcher, "call", call),
            # It warns of a GPU that a small grid leaves idle.
            (sys.modules["numba"].config, "CUDA_LOW_OCCUPANCY_WARNINGS", 0),
            # A function that a kernel calls is compiled for the device that there is.
            (module, "get_current_device", lambda: modelled),
        ):
            self._before.append((owner, name, getattr(owner, name)))
            setattr(owner, name, value)

    def restore(self) -> None:
        """Let numba-cuda launch by itself again."""
        while self._before:
            setattr(*self._before.pop())


def _launch_of(dispatcher: Any, args: Sequence[Any], config: Any, arch: str) -> ForeignLaunch:
    """Put a launch of numba-cuda's as PTX has it. Raises UsageError, NotOnThisDevice."""
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
    program, code = _compiled(dispatcher, types, arch, tuple(name for name, _ in passed))
    grid, (x, y, z) = tuple(config.griddim), config.blockdim
    values = tuple(value for _, value in passed)
    return ForeignLaunch(program.renewed(), code, None, kernel, kernel, grid, (x, y, z), config.sharedmem, values)


def _parts(kernel: str, name: str, value: Any, kind: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parameters of an argument, named, as numba-cuda's calling convention has them."""
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
    """Number the versions of functions anew: numba-cuda's depend on what the process compiled before."""
    numbers: dict[str, int] = {}

    def renumbered(found: re.Match[str]) -> str:
        tag = f"v{numbers.setdefault(found[0], len(numbers))}"
        return f"B{len(tag)}{tag}B"

    return re.sub(r"B\d+v\d+B", renumbered, ptx)


@functools.lru_cache(PROGRAMS_KEPT)
def _compiled(
    dispatcher: Any, types: tuple[Any, ...], arch: str, parameters: tuple[str, ...]
) -> tuple[Program, MeasuredCode]:
    """Compile for the architecture, under the function's own name."""
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
