"""Register programs: a source, how it is launched, and what NumPy says that it computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np

Arrays = Sequence[tuple[Any, Any]]
Made = tuple[tuple[Any, ...], Arrays]
DTYPES: Mapping[str, str] = {
    "float": "f4",
    "double": "f8",
    "int": "i4",
    "unsigned": "u4",
    "long long": "i8",
    "__half": "f2",
}


class Random:
    """Make input data. dtype: of the instance, as NumPy writes it."""

    def __init__(self, dtype: str) -> None:
        self.dtype, self._generator = dtype, np.random.default_rng(0)

    def values(self, *shape: int, dtype: str = "") -> Any:
        """Make floats in [-1, 1), or whole numbers from -50 to 49 (unsigned: 0 to 99)."""
        kind = np.dtype(dtype or self.dtype)
        if kind.kind == "f":
            return (2 * self._generator.random(shape) - 1).astype(kind)
        low = 0 if kind.kind == "u" else -50
        return self._generator.integers(low, low + 100, shape).astype(kind)

    def below(self, limit: int, *shape: int, dtype: str = "i4") -> Any:
        return self._generator.integers(0, limit, shape).astype(dtype)

    def zeros(self, *shape: int, dtype: str = "") -> Any:
        return np.zeros(shape, dtype or self.dtype)


class Sorted:
    """Look at an array's values without their order, once the kernel has run."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __array__(self, dtype: object = None, copy: object = None) -> Any:
        return np.sort(self._array)


@dataclass(frozen=True)
class Program:
    """Hold one instance. of: what it is shaped after. make: gives arguments, and each result with what is expected.

    skips: the opcode that is not modelled.
    """

    of: str
    source: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    dtype: str
    make: Callable[[Random], Made]
    shared_bytes: int = 0
    skips: str = ""


PROGRAMS: dict[str, Program] = {}


def program(
    of: str,
    source: str,
    grid: int | tuple[int, ...],
    block: int | tuple[int, ...],
    *types: str,
    ways: Mapping[str, str] = MappingProxyType({"": ""}),
    shared_bytes: int = 0,
    skips: str = "",
) -> Callable[[Callable[[Random], Made]], Callable[[Random], Made]]:
    """Register a kernel `k` for each type, which T is, and for each way by its name, which replaces WAY."""

    def register(make: Callable[[Random], Made]) -> Callable[[Random], Made]:
        for (way, code), of_type in product(ways.items(), types or ("float",)):
            name = " ".join(filter(None, (make.__name__.replace("_", " "), way)))
            name += f" of {of_type.strip('_')}" if len(types) > 1 else ""
            assert name not in PROGRAMS, name
            text = ("#include <cuda_fp16.h>\n" if of_type == "__half" else "") + f"using T = {of_type};\n"
            text += source.replace("WAY", code)
            sizes = [(one,) if isinstance(one, int) else one for one in (grid, block)]
            PROGRAMS[name] = Program(of, text, *sizes, DTYPES[of_type], make, shared_bytes, skips)
        return make

    return register
