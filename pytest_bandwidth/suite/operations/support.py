"""What the operations are put together with: input data, launch geometry, scalars of the right type, shapes by size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_bandwidth.suite.operations.model import Arrays, Dim, Sizes, Tolerance

# Half the distance between neighbouring values, relative to them (IEEE 754).
ROUNDING = {"float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}
# What the kernels compute each type in.
ARITHMETIC = {"float16": "float32", "float32": "float32", "float64": "float64"}
SUFFIX = {"float16": "f16", "float32": "f32", "float64": "f64"}
WIDE_SUFFIX = {"float16": "f16x8", "float32": "f32x4"}


def centred(arrays: Arrays, shape: int | Sequence[int], dtype: str) -> Any:
    """Values in [−0.5, 0.5): both signs, so that a wrong sign or a missing relu shows."""
    values = arrays.random(shape, dtype)
    values -= values.dtype.type(1.5)
    return values


def on_host(array: Any) -> NDArray[Any]:
    """A NumPy copy of an array of the device."""
    return np.array(array.get() if hasattr(array, "get") else array)


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def line(threads: int, block: int = 256) -> tuple[Dim, Dim]:
    """Grid and block of at least `threads` threads in a row, one block at the least."""
    return (max(ceil_div(threads, block), 1), 1, 1), (block, 1, 1)


# A grid is at most so large along y and z (CUDA C++ Programming Guide, "Technical Specifications per Compute
# Capability"); the kernels stride over what is left.
LARGEST_GRID_YZ = 65535


def tiled(rows: int, cols: int, tile: tuple[int, int], block: tuple[int, int], layers: int = 1) -> tuple[Dim, Dim]:
    """Grid with a block per tile (rows, columns) of a rows × cols matrix, x along columns, `layers` deep; and block."""
    grid_y, grid_z = (min(max(size, 1), LARGEST_GRID_YZ) for size in (ceil_div(rows, tile[0]), layers))
    return (max(ceil_div(cols, tile[1]), 1), grid_y, grid_z), (*block, 1)


def scalar(value: float, dtype: str) -> Any:
    """A floating-point argument of a kernel: in the type that the kernel computes `dtype` in."""
    return np.dtype(ARITHMETIC[dtype]).type(value)


def n64(value: int) -> Any:
    """A size argument."""
    return np.int64(value)


def rounding(dtype: str, *, absolute: float = 0.0, roundings: int = 1) -> Tolerance:
    """What storing a result in dtype may cost, `roundings` times over, plus `absolute` for the arithmetic before it."""
    smallest_step = 2.0**-25 if dtype == "float16" else 0.0
    return Tolerance(1.01 * roundings * ROUNDING[dtype], absolute + smallest_step)


def vector_shapes(bytes_per_n: Callable[[str], float]) -> Callable[[int, str], tuple[Sizes, ...]]:
    """Shapes of an operation of one size `n` that moves bytes_per_n(dtype) bytes an element; a multiple of 1024."""

    def shapes(target_bytes: int, dtype: str) -> tuple[Sizes, ...]:
        return ({"n": max(int(target_bytes / bytes_per_n(dtype)) // 1024, 1) * 1024},)

    return shapes


def matrix_shapes(cols: int, bytes_per_element: Callable[[str], float]) -> Callable[[int, str], tuple[Sizes, ...]]:
    """Shapes of an operation on `rows` × `cols` elements, with as many rows as move the bytes."""

    def shapes(target_bytes: int, dtype: str) -> tuple[Sizes, ...]:
        return ({"rows": max(int(target_bytes / bytes_per_element(dtype) / cols), 1), "cols": cols},)

    return shapes
