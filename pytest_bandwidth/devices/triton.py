"""Launch a kernel of Triton's as one of CUDA's is launched. Nothing of Triton is imported: the test has done that."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from inspect import Parameter, Signature
from itertools import takewhile
from typing import Any

import numpy as np

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import shown


class Array(np.ndarray[Any, Any]):
    """Be an array that a kernel of Triton's can be given: it asks for what a tensor of PyTorch has."""

    def data_ptr(self) -> int:
        """Return the address of the first element."""
        return int(self.ctypes.data)

    # What an autotuner calls for `reset_to_zero` and `restore_value`.
    def zero_(self) -> None:
        self[...] = 0

    def clone(self) -> Any:
        return self.copy()

    def copy_(self, values: Any) -> None:
        self[...] = values


class TritonLaunch:
    """Launch a kernel, as ``kernel[grid](*args, **constants)`` does; constants may stand between the arguments.

    compiled: the compiled kernel that Triton returned for the last launch.
    """

    def __init__(self, kernel: Any, grid: Any, constants: Mapping[str, Any]) -> None:
        self.grid, self._launch = grid, kernel[grid]
        self._constants = constants
        self.compiled: Any = None
        # The kernel's parameters, so that they can be named.
        self._names = tuple(name for name in kernel.arg_names if name not in constants)
        named = [Parameter(name, Parameter.POSITIONAL_ONLY, default=None) for name in self._names]
        self.__signature__ = Signature(named)
        # Those before a constant are given by place: an autotuner prunes by nothing else.
        pairs = zip(kernel.arg_names, self._names, strict=False)
        self._leading = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    def __call__(self, *args: Any) -> Any:
        """Launch, and return what Triton returns. Raises UsageError for too many arguments."""
        if len(args) > len(self._names):
            known = f"at most {len(self._names)} besides constants ({', '.join(self._names)})"
            raise UsageError(f"launch of a Triton kernel: found {len(args)} arguments, expected {known}")
        after = dict(zip(self._names[self._leading :], args[self._leading :], strict=False))
        self.compiled = self._launch(*args[: self._leading], **after, **self._constants)
        return self.compiled


def is_triton(kernel: object) -> bool:
    """Return whether it is a kernel of Triton's, autotuned or not."""
    return type(kernel).__module__.startswith("triton.")


def triton_launch(
    kernel: Any, grid: Any, block: object, given: Mapping[str, Any], refused: Mapping[str, object]
) -> TritonLaunch:
    """Return what launches the kernel. grid: three extents, or what tells them to Triton.

    given: by name, the constants of tl.constexpr parameters, and Triton's options, None where not given. refused:
    keywords that Triton's kernels do not take. Raises UsageError.
    """
    if not hasattr(kernel, "arg_names"):
        raise UsageError(f"launch: found a {type(kernel).__name__} of Triton, expected a function with @triton.jit")
    if block is not None:
        expected = "None: Triton sets it by num_warps"
        raise UsageError(f"launch of a Triton kernel: found block={shown(block)}, expected {expected}")
    for name, value in refused.items():
        if value:
            raise UsageError(f"launch of a Triton kernel: found {name}=, which Triton's kernels do not take")
    constants = given["constants"]
    if constants is not None and not (isinstance(constants, Mapping) and all(isinstance(n, str) for n in constants)):
        expected = 'values by the names of tl.constexpr parameters, {"BLOCK": 1024}'
        raise UsageError(f"launch of a Triton kernel: found constants={shown(constants)}, expected {expected}")
    options = {name: value for name, value in given.items() if name != "constants" and value is not None}
    return TritonLaunch(kernel, grid, {**(constants or {}), **options})


def as_tensors(args: Sequence[Any], *, on_gpu: bool) -> tuple[Any, ...]:
    """Return the arguments, with arrays that Triton takes in place of those that it does not, in the same memory.

    On a GPU each array of CuPy becomes a tensor of PyTorch. Numbers of NumPy become Python's.
    """
    args = [one.item() if isinstance(one, np.generic) else one for one in args]
    if not on_gpu:
        return tuple(one.view(Array) if type(one) is np.ndarray else one for one in args)
    cupy = sys.modules.get("cupy")
    if cupy is None or not any(isinstance(one, cupy.ndarray) for one in args):
        return tuple(args)
    torch = import_module("torch")
    return tuple(torch.from_dlpack(one) if isinstance(one, cupy.ndarray) else one for one in args)
