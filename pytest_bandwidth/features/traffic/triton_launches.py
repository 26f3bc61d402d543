"""Hand what Triton launches to the traffic device, by a driver of Triton's for the architecture that is modelled.

Triton compiles without a GPU as with one. Its driver loads the machine code and launches it; this one looks up the
PTX that the machine code was made of. Tried with Triton 3.8 and 3.9, with PyTorch's tensors and with NumPy's arrays.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from pytest_bandwidth.devices.code.cubin import kernel_code, resources_of
from pytest_bandwidth.domain.code.identity import MeasuredCode
from pytest_bandwidth.domain.errors import KernelError, NotOnThisDevice, UsageError
from pytest_bandwidth.domain.measured.measurement import KernelResources
from pytest_bandwidth.features.traffic.ptx import Program, PtxModule
from pytest_bandwidth.features.traffic.ptx.lanes import WARP
from pytest_bandwidth.features.traffic.ptx.launch import MAX_THREADS
from pytest_bandwidth.features.traffic.ptx.occupancy import most_shared_bytes, number_of
from pytest_bandwidth.frameworks.arrays import framework_of

PROGRAMS_KEPT = 64
# NumPy's type of each of Triton's.
_SCALARS = {"i1": "i1", "u1": "u1", "fp16": "f2", "fp32": "f4", "f32": "f4", "fp64": "f8"}
_SCALARS |= {f"{letter}{bits}": f"{letter}{bits // 8}" for letter in "iu" for bits in (8, 16, 32, 64)}


@dataclass(frozen=True, slots=True)
class ForeignLaunch:
    """Hold one launch of another maker's kernel. args: as `ptx.execute` takes them.

    kernel: its name in the program. name: what reports call it, with its constants, `add[BLOCK=1024]`.
    resources: what the compiler gave it; None where there is no machine code.
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


class TritonDriver:
    """Answer what Triton asks the driver of a GPU; `launch` is called for each launch."""

    maker = "triton"

    def __init__(self, arch: str, launch: Callable[[ForeignLaunch], None]) -> None:
        self._arch, self._launch = arch, launch
        self.utils = self  # Triton asks some of it there
        self._before: Any = None

    @property
    def version(self) -> str:
        """Return Triton's."""
        return str(getattr(sys.modules.get("triton"), "__version__", ""))

    def drive(self) -> None:
        """Take over, until `restore`, where this process has imported Triton."""
        chosen = _chosen_driver()
        if chosen is not None and chosen.__dict__.get("_active") is not self:
            self._before = chosen.__dict__.get("_active")
            chosen.set_active(self)

    def restore(self) -> None:
        """Give Triton back the driver that it had."""
        chosen = _chosen_driver()
        if chosen is not None and chosen.__dict__.get("_active") is self:
            chosen._active, self._before = self._before, None

    def refuse_interpreter(self) -> None:
        """Raise UsageError where Triton was told to interpret kernels."""
        if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET", "0") not in ("", "0"):
            raise UsageError("TRITON_INTERPRET is set, so that Triton compiles no kernel: unset it")

    def is_active(self) -> bool:
        return True

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", number_of(self._arch), WARP)

    def get_current_device(self) -> int:
        # Triton keeps compiled kernels by this number: those of a GPU and of other architectures are others.
        return -number_of(self._arch)

    def get_current_stream(self, device: int) -> int:
        return device

    def get_active_torch_device(self) -> Any:
        return sys.modules["torch"].device("cpu")

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """Return what tells an autotuner how long a configuration takes: all alike, so that it takes the first."""
        return lambda *_, **__: [0.0, 0.0, 0.0]

    def get_device_properties(self, _device: int) -> dict[str, int]:
        """Return limits of a block. Triton refuses by them what `ptx.execute` would refuse."""
        most = most_shared_bytes(self._arch)
        return {"max_shared_mem": most, "multiprocessor_count": 1, "warpSize": WARP, "max_num_regs": 1 << 16}

    def load_binary(self, _name: str, binary: bytes, _shared: int, _device: int) -> tuple[None, bytes, int, int, int]:
        """Return module, function, registers, spilled registers and the most threads of a block.

        No module, which Triton would have a driver unload, when the kernel goes and this one may have gone.
        """
        return None, binary, 0, 0, MAX_THREADS

    def unload_module(self, module: object) -> None:
        """Leave what a GPU's driver loaded before."""

    def launcher_cls(self, source: Any, metadata: Any) -> Callable[..., None]:
        """Return what launches a kernel. It is given extents, stream, function, metadata and hooks, then arguments."""

        def launch(*given: Any) -> None:
            x, y, z, _stream, cubin, _packed, told, enter, leave, *args = given
            found = _launch_of(source, metadata, cubin, (x, y, z), args)
            if enter is not None:
                enter(told)
            self._launch(found)
            if leave is not None:
                leave(told)

        return launch


def _chosen_driver() -> Any:
    """Return what holds Triton's driver; None where this process has not imported Triton."""
    return getattr(getattr(sys.modules.get("triton"), "runtime", None), "driver", None)


def _launch_of(source: Any, metadata: Any, cubin: bytes, grid: tuple[int, int, int], args: list[Any]) -> ForeignLaunch:
    """Put a launch of Triton's as PTX has it. Raises UsageError, NotOnThisDevice, KernelError."""
    kernel, function = metadata.name, source.fn
    grid = (grid[0] * getattr(metadata, "num_ctas", 1), *grid[1:])  # a program is a cluster of so many blocks
    passed: dict[str, Any] = {}
    for (parameter, kind), argument in zip(source.signature.items(), args, strict=True):
        if not isinstance(kind, str) or kind.startswith("tensordesc"):
            raise NotOnThisDevice(f"kernel {kernel} takes `{parameter}` of type {kind}, which is not modelled")
        if kind != "constexpr":
            passed[parameter] = _argument(argument, kind, f"argument `{parameter}` of kernel {kernel}")
    for memory in ("global", "profile"):  # what the compiler needs itself comes last
        size = (getattr(metadata, f"{memory}_scratch_size", 0) or 0) * prod(grid)
        passed[f"{memory} scratch memory"] = np.zeros(size, np.uint8) if size else None
    constants = {function.arg_names[place]: source.constants[place,] for place in function.constexprs}
    named = ", ".join(f"{name}={getattr(value, '__name__', value)}" for name, value in constants.items())
    file = Path(function.fn.__code__.co_filename)
    text, arch = _ptx_of(metadata.hash, source.name), f"sm_{metadata.target.arch}"
    program, code, resources = _loaded(text, cubin, arch, kernel, file.name, source_text(file), (*passed,))
    name, block = f"{kernel}[{named}]" if named else kernel, (metadata.num_warps * WARP, 1, 1)
    values = tuple(passed.values())
    return ForeignLaunch(program.renewed(), code, resources, kernel, name, grid, block, metadata.shared, values)


def source_text(file: Path) -> str:
    """Return the text of a Python file; "" where there is none, as for a notebook."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _argument(value: Any, kind: str, label: str) -> Any:
    """Return an argument as `ptx.execute` takes it: an array, or a number of the parameter's type."""
    if not kind.startswith("*"):
        if kind == "bf16":
            return np.uint16(np.float32(value).view(np.uint32) >> 16)
        if kind not in _SCALARS:
            raise NotOnThisDevice(f"{label} is of type {kind}, which is not modelled")
        return np.dtype(_SCALARS[kind]).type(value)
    if isinstance(value, np.ndarray):
        return value
    tensor = getattr(value, "base", value)  # of what triton.reinterpret returned
    framework = framework_of(tensor)
    is_held = framework is not None and framework.is_made(tensor) and hasattr(tensor, "untyped_storage")
    if not is_held or tensor.device.type != "cpu":
        where = f" on {tensor.device}" if hasattr(tensor, "device") else ""
        raise UsageError(
            f"{label}: found a {type(value).__name__}{where}, expected an array of bandwidth.random or "
            "bandwidth.empty, or a tensor of PyTorch on the CPU"
        )
    # Its bytes, whatever its dtype: NumPy has no bfloat16. They keep the tensor's memory alive.
    storage = tensor.untyped_storage()
    held = tensor.detach().new_empty(0, dtype=sys.modules["torch"].uint8).set_(storage).numpy()
    begin = tensor.data_ptr() - storage.data_ptr()
    steps = sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True))
    size = (steps + 1) * tensor.element_size() if tensor.numel() else 0
    return held[begin : begin + size]


def _ptx_of(key: str, kernel: str) -> str:
    """Return the PTX of a compiled kernel, out of Triton's cache. Raises KernelError where it is not there."""
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
