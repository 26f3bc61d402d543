"""Launch Triton kernels in the way of CUDA kernels. This module does not import Triton: the test has done so."""

from __future__ import annotations

import operator
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from inspect import Parameter, Signature
from itertools import takewhile
from typing import Any

import numpy as np

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.domain.units import whole

OPTIONS = ("num_warps", "num_stages", "num_ctas")


class Array(np.ndarray[Any, Any]):
    """Give a NumPy array the methods of a PyTorch tensor that Triton calls, so that its kernels accept the array."""

    def data_ptr(self) -> int:
        """Return the address of the first element."""
        return int(self.ctypes.data)

    # An autotuner calls these for `reset_to_zero` and `restore_value`.
    def zero_(self) -> None:
        self[...] = 0

    def clone(self) -> Any:
        return self.copy()

    def copy_(self, values: Any) -> None:
        self[...] = values


class TritonLaunch:
    """Launch a kernel, as ``kernel[grid](*args, **constants)`` does; constants may be between the arguments.

    compiled: the compiled kernel that Triton returned for the last launch.
    """

    def __init__(self, kernel: Any, grid: Any, constants: Mapping[str, Any]) -> None:
        self.grid = grid
        self._launch = kernel[(lambda named: _extents(grid(named))) if callable(grid) else grid]
        self._constants = constants
        self.compiled: Any = None
        function, tuned, perhaps = _function_of(kernel, constants)
        # The kernel's parameters, so that they can be named.
        self._names = tuple(name for name in kernel.arg_names if name not in constants and name not in tuned)
        required = (one for one in getattr(function, "params", ()) if not one.has_default and one.name not in perhaps)
        self._required = {one.name: one.is_constexpr for one in required}
        self._unknown = [name for name in constants if name not in kernel.arg_names and name not in OPTIONS]
        named = [Parameter(name, Parameter.POSITIONAL_ONLY, default=None) for name in self._names]
        self.__signature__ = Signature(named)
        # Arguments before a constant are passed by position: an autotuner prunes by these alone.
        pairs = zip(kernel.arg_names, self._names, strict=False)
        self._leading = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    def __call__(self, *args: Any) -> Any:
        """Launch, and return what Triton returns. Raises UsageError for too many arguments, and for too few."""
        if len(args) > len(self._names):
            known = f"at most {len(self._names)} besides constants ({', '.join(self._names)})"
            raise UsageError(f"launch of a Triton kernel: found {len(args)} arguments, expected {known}")
        if missing := [name for name in self._names[len(args) :] if name in self._required]:
            self._refuse(len(args), missing)
        after = dict(zip(self._names[self._leading :], args[self._leading :], strict=False))
        self.compiled = self._launch(*args[: self._leading], **after, **self._constants)
        return self.compiled

    def _refuse(self, count: int, missing: Sequence[str]) -> None:
        text = f"found {count} arguments and no value for {', '.join(missing)}"
        if self._unknown:
            text += f"; constants= has {', '.join(self._unknown)}, which the kernel does not take"
        constants = ", ".join(f'"{name}": …' for name in missing if self._required[name])
        where = f", those of tl.constexpr in constants={{{constants}}}" if constants else ""
        raise UsageError(f"launch of a Triton kernel: {text}: expected a value for each parameter{where}")


def _extents(found: Any) -> Any:
    """Return a grid function's result in Triton's form, a sequence of numbers."""
    return found if hasattr(found, "__len__") else (operator.index(found),)


def _function_of(kernel: Any, constants: Mapping[str, Any]) -> tuple[Any, set[str], set[str]]:
    """Return the function below autotuners and heuristics, what these set always, and what they may set.

    Raises UsageError for a constant that an autotuner always sets. One that only some of its configurations set is left
    to Triton: they may be pruned.
    """
    always: set[str] = set()
    perhaps: set[str] = set()
    while not hasattr(kernel, "params") and hasattr(kernel, "fn"):  # Triton's interpreter has neither
        configs = [set(config.all_kwargs()) for config in getattr(kernel, "configs", ())]
        by_all = set.intersection(*configs) if configs else set()
        if twice := [name for name in constants if name in by_all]:
            found = ", ".join(twice)
            raise UsageError(f"launch of a Triton kernel: found {found}, which the autotuner sets: leave it out")
        always |= by_all.union(getattr(kernel, "values", ()))
        perhaps |= always.union(*configs)
        kernel = kernel.fn
    return kernel, always, perhaps


def is_triton(kernel: object) -> bool:
    """Return whether the object is a Triton kernel, autotuned or not."""
    return any(kind.__module__.startswith("triton.") for kind in type(kernel).__mro__)


def triton_launch(
    kernel: Any, grid: Any, block: object, given: Mapping[str, Any], refused: Mapping[str, object]
) -> TritonLaunch:
    """Return a callable that launches the kernel. grid: three extents, or a function that returns them to Triton.

    given: by name, the constants of tl.constexpr parameters, and Triton's options, None where not given. refused:
    keywords that Triton kernels do not take. Raises UsageError.
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
    every = {**(constants or {}), **options}
    for name in (name for name in OPTIONS if name in every):
        value, warps = whole(every[name]), name == "num_warps"
        if value is None or value < 0 or (warps and value.bit_count() != 1):
            expected = "a power of two" if warps else "a whole number"
            raise UsageError(f"launch of a Triton kernel: found {name}={shown(every[name])}, expected {expected}")
    return TritonLaunch(kernel, grid, every)


def as_tensors(args: Sequence[Any], *, on_gpu: bool) -> tuple[Any, ...]:
    """Return the arguments, with each array in a form that Triton accepts, in the same memory.

    On a GPU each array of CuPy becomes a tensor of PyTorch. Numbers of NumPy become Python's. Raises UsageError for
    arrays of a dtype that Triton does not have.
    """
    args = [one.item() if isinstance(one, np.generic) else one for one in args]
    if not on_gpu:
        for number, one in enumerate(args, start=1):
            if type(one) is np.ndarray and (one.dtype.kind not in "biufV" or not one.dtype.isnative):
                expected = "whole or floating-point numbers in this machine's byte order"
                raise UsageError(f"launch of a Triton kernel: argument {number} holds {one.dtype}, expected {expected}")
        return tuple(one.view(Array) if type(one) is np.ndarray else one for one in args)
    cupy = sys.modules.get("cupy")
    if cupy is None or not any(isinstance(one, cupy.ndarray) for one in args):
        return tuple(args)
    torch = import_module("torch")
    return tuple(torch.from_dlpack(one) if isinstance(one, cupy.ndarray) else one for one in args)
