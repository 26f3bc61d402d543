"""Declare what a host kernel takes: parameters as in CUDA, and the least size of each array.

A kernel with too small an array reads or overwrites other memory. On the host that is this process's memory, so every
launch is checked before it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from pytest_bandwidth.devices.arguments import refuse_gaps
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.user_code import hooked

Arguments = tuple[Any, ...]

# The codes of parameter types, as CUDA C++ spells them in cuda_src/.
CUDA_TYPES: Mapping[str, tuple[str, type[np.generic]]] = {
    "f16": ("__half", np.float16),
    "f32": ("float", np.float32),
    "f64": ("double", np.float64),
    "i8": ("signed char", np.int8),
    "u8": ("unsigned char", np.uint8),
    "i32": ("int", np.int32),
    "u32": ("unsigned int", np.uint32),
    "i64": ("long long", np.int64),
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """Describe one parameter; `code` is a key of CUDA_TYPES."""

    name: str
    code: str
    is_array: bool

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(CUDA_TYPES[self.code][1])

    @property
    def cuda(self) -> str:
        """Return the type as in a CUDA declaration: ``float*``, ``long long``."""
        return CUDA_TYPES[self.code][0] + ("*" if self.is_array else "")


@cache
def parameters(text: str) -> tuple[Parameter, ...]:
    """Return parameters from text such as ``a:f32* b:f32* scalar:f32 n:i64``."""
    found = []
    for word in text.split():
        name, _, code = word.partition(":")
        found.append(Parameter(name, code.rstrip("*"), code.endswith("*")))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class HostKernel:
    """Describe what the device `cpu` runs in place of a CUDA kernel: its twin, a function compiled by Numba.

    name, file: the CUDA kernel's name and its source file's; "" = a file of cuda_src/. signature: the CUDA kernel's
    parameters, such as ``a:f32* b:f32* scalar:f32 n:i64``.
    function: takes the number of threads, then the arguments in the CUDA kernel's order; with `takes_blocks` the number
    of blocks comes before the last argument.
    extents: takes the sizes (the integer parameters by name; `blocks` with `takes_blocks`), returns the elements that
    each array parameter needs, in order. Raises UsageError for sizes that have no meaning.
    bits: whether halves are only moved, without arithmetic.
    """

    name: str
    function: Callable[..., Any]
    signature: str
    extents: Callable[..., Sequence[int]]
    takes_blocks: bool = False
    bits: bool = False
    file: str = ""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return parameters(self.signature)

    def bound(self, args: Arguments, blocks: int, threads: int) -> Callable[[], object]:
        """Return a call without arguments. Raises UsageError for arguments that the kernel would misread.

        The function gets 1-d arrays (halves as 16-bit integers) and NumPy scalars.
        """
        if len(args) != len(self.parameters):
            expected = ", ".join(f"{p.cuda} {p.name}" for p in self.parameters)
            raise UsageError(f"{self.name} got {len(args)} arguments, expected {len(self.parameters)}: {expected}")
        values = []
        for n, (p, argument) in enumerate(zip(self.parameters, args, strict=True), start=1):
            where = f"argument {n} ({p.cuda} {p.name})"
            values.append(_array(p, argument, where, self.bits) if p.is_array else _scalar(p, argument, where))
        sizes = {
            p.name: value
            for p, value in zip(self.parameters, values, strict=True)
            if not p.is_array and p.code in ("i32", "i64")
        }
        for name, size in sizes.items():
            if size < 0:
                raise UsageError(f"{self.name}: {name} is {size}, expected 0 or more")
        if self.takes_blocks:
            sizes["blocks"] = blocks
        arrays = [(p, value) for p, value in zip(self.parameters, values, strict=True) if p.is_array]
        for (parameter, array), needed in zip(arrays, self.extents(**sizes), strict=True):
            if array.size < needed:
                given = ", ".join(f"{name} = {size}" for name, size in sizes.items())
                raise UsageError(
                    f"{self.name}: {parameter.name} has {array.size} elements, expected at least {needed} for {given}"
                )
        if self.takes_blocks:
            values.insert(-1, blocks)
        function = self.function
        return lambda: function(threads, *values)


def host_kernels() -> list[HostKernel]:
    """Return the twins of the package and of hooks. This loads Numba."""
    return hooked("pytest_bandwidth_host_kernels", HostKernel)


def _array(parameter: Parameter, argument: Any, where: str, bits: bool) -> Any:
    array = np.asarray(argument) if hasattr(argument, "__array_interface__") else argument
    if not isinstance(array, np.ndarray):
        raise UsageError(f"{where} is a {type(argument).__name__}, expected a NumPy array")
    if array.dtype != parameter.dtype:
        raise UsageError(f"{where} is an array of {array.dtype}, expected {parameter.dtype}")
    refuse_gaps(array, where)
    if not array.flags.aligned:
        raise UsageError(f"{where} is not aligned to its elements, as a GPU's arrays have to be: copy it first")
    flat = array.reshape(-1, order="A")  # in the order of memory: a kernel has no axes
    return flat.view(np.int16 if bits else np.uint16) if parameter.code == "f16" else flat


def _scalar(parameter: Parameter, argument: Any, where: str) -> Any:
    if type(argument) is float:
        raise UsageError(
            f"{where} is the bare Python float {argument!r}, which CuPy passes as a double: "
            f"write np.{parameter.dtype.name}({argument!r})"
        )
    if parameter.dtype.kind == "f":
        if not isinstance(argument, np.generic) or argument.dtype != parameter.dtype:
            kind = argument.dtype.name if isinstance(argument, np.generic) else type(argument).__name__
            raise UsageError(
                f"{where} is a {kind}, expected np.{parameter.dtype.name}: the kernel would misread its bits"
            )
        return argument
    if isinstance(argument, (bool, np.bool_)) or not isinstance(argument, (int, np.integer)):
        raise UsageError(f"{where} is a {type(argument).__name__}, expected a whole number")
    limits = np.iinfo(parameter.dtype)
    if not limits.min <= int(argument) <= limits.max:
        raise UsageError(f"{where} is {int(argument)}, which does not fit {parameter.cuda}")
    # One type of integer for Numba, so that one compilation serves; only hashing needs its 32 bits unsigned.
    return np.uint32(argument) if parameter.code == "u32" else int(argument)
