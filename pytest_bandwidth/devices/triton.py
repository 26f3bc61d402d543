"""Launch a kernel of Triton's as one of CUDA's is launched. Nothing of Triton is imported: the test has done that."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from inspect import Parameter, Signature
from typing import Any

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import shown


class TritonLaunch:
    """Launch a kernel, as ``kernel[grid](*args, **constants)`` does.

    compiled: the compiled kernel that Triton returned for the last launch.
    """

    def __init__(self, kernel: Any, grid: Any, constants: Mapping[str, Any]) -> None:
        self.grid, self._launch = grid, kernel[grid]
        self._constants = constants
        self.compiled: Any = None
        # The kernel's parameters, so that they can be named.
        names = (name for name in getattr(kernel, "arg_names", ()) if name not in constants)
        self.__signature__ = Signature([Parameter(name, Parameter.POSITIONAL_ONLY, default=None) for name in names])

    def __call__(self, *args: Any) -> Any:
        """Launch, and return what Triton returns."""
        self.compiled = self._launch(*args, **self._constants)
        return self.compiled


def is_triton(kernel: object) -> bool:
    """Return whether it is a kernel of Triton's, autotuned or not."""
    return type(kernel).__module__.startswith("triton.")


def triton_launch(
    kernel: Any, grid: Any, block: object, constants: Mapping[str, Any], refused: Mapping[str, object]
) -> TritonLaunch:
    """Return what launches the kernel. grid: as Triton takes it, or an int.

    constants: of tl.constexpr parameters, and Triton's options. refused: given keywords that Triton's kernels do not
    take, by name. Raises UsageError.
    """
    if block is not None:
        expected = "None: Triton sets it by num_warps"
        raise UsageError(f"launch of a Triton kernel: found block={shown(block)}, expected {expected}")
    for name, value in refused.items():
        if value:
            raise UsageError(f"launch of a Triton kernel: found {name}=, which Triton's kernels do not take")
    return TritonLaunch(kernel, (grid,) if isinstance(grid, int) else grid, constants)


def as_tensors(args: Sequence[Any]) -> tuple[Any, ...]:
    """Return the arguments, for each array of CuPy a tensor of PyTorch in the same memory: Triton takes no array."""
    cupy = sys.modules.get("cupy")
    if cupy is None or not any(isinstance(one, cupy.ndarray) for one in args):
        return tuple(args)
    torch = import_module("torch")
    return tuple(torch.from_dlpack(one) if isinstance(one, cupy.ndarray) else one for one in args)
