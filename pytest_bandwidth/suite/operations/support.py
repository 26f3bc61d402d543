"""Put operations together (input data, launch geometry, scalars, shapes by size) and check what they give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_bandwidth.suite.operations.model import Arrays, Case, Dim, Sizes, Tolerance

# Half the distance between neighbouring values, relative to them (IEEE 754).
ROUNDING = {"float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}
# What the kernels compute each type in.
ARITHMETIC = {"float16": "float32", "float32": "float32", "float64": "float64"}
SUFFIX = {"float16": "f16", "float32": "f32", "float64": "f64"}
WIDE_SUFFIX = {"float16": "f16x8", "float32": "f32x4"}


def centred(arrays: Arrays, shape: int | Sequence[int], dtype: str) -> Any:
    """Return random values in [−0.5, 0.5): both signs, so that a wrong sign or a missing relu shows."""
    values = arrays.random(shape, dtype)
    values -= values.dtype.type(1.5)
    return values


def on_host(array: Any) -> NDArray[Any]:
    """Copy an array of the device into a NumPy array."""
    if not hasattr(array, "get"):
        return np.array(array)
    with beside(array):
        return np.array(array.get())


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def line(threads: int, block: int = 256) -> tuple[Dim, Dim]:
    """Return grid and block of at least `threads` threads in a row, one block at the least."""
    return (max(ceil_div(threads, block), 1), 1, 1), (block, 1, 1)


# A grid is at most so large along y and z (CUDA C++ Programming Guide, "Technical Specifications per Compute
# Capability"); the kernels stride over what is left.
LARGEST_GRID_YZ = 65535


def tiled(rows: int, cols: int, tile: tuple[int, int], block: tuple[int, int], layers: int = 1) -> tuple[Dim, Dim]:
    """Return grid and block: a block per tile (rows, columns) of rows × cols, x along columns, `layers` deep."""
    grid_y, grid_z = (min(max(size, 1), LARGEST_GRID_YZ) for size in (ceil_div(rows, tile[0]), layers))
    return (max(ceil_div(cols, tile[1]), 1), grid_y, grid_z), (*block, 1)


def scalar(value: float, dtype: str) -> Any:
    """Convert a floating-point argument to the type in which a kernel computes `dtype`."""
    return np.dtype(ARITHMETIC[dtype]).type(value)


def n64(value: int) -> Any:
    """Convert a size argument to the kernels' type."""
    return np.int64(value)


def rounding(dtype: str, *, absolute: float = 0.0, roundings: int = 1) -> Tolerance:
    """Allow for storing a result in dtype, `roundings` times over, plus `absolute` for the arithmetic before it."""
    smallest_step = 2.0**-25 if dtype == "float16" else 0.0
    return Tolerance(1.01 * roundings * ROUNDING[dtype], absolute + smallest_step)


def vector_shapes(bytes_per_n: Callable[[str], float]) -> Callable[[int, str], tuple[Sizes, ...]]:
    """Return shapes of an operation of one size `n`, a multiple of 1024, that moves bytes_per_n(dtype) an element."""

    def shapes(target_bytes: int, dtype: str) -> tuple[Sizes, ...]:
        return ({"n": max(int(target_bytes / bytes_per_n(dtype)) // 1024, 1) * 1024},)

    return shapes


def matrix_shapes(cols: int, bytes_per_element: Callable[[str], float]) -> Callable[[int, str], tuple[Sizes, ...]]:
    """Return shapes of an operation on `rows` × `cols` elements, with as many rows as move the bytes."""

    def shapes(target_bytes: int, dtype: str) -> tuple[Sizes, ...]:
        return ({"rows": max(int(target_bytes / bytes_per_element(dtype) / cols), 1), "cols": cols},)

    return shapes


def poison(case: Case) -> None:
    """Fill the results with NaN, so that whatever a run leaves out shows."""
    for array in case.results.values():
        with beside(array):
            array.fill(np.nan)


def beside(array: Any) -> AbstractContextManager[object]:
    """Make the GPU of an array the current one, inside a with block; CuPy's own work would run on another otherwise."""
    device = getattr(array, "device", None)  # of NumPy's arrays "cpu", or nothing
    return device if isinstance(device, AbstractContextManager) else nullcontext()


def wrong_results(case: Case) -> list[str]:
    """Compare results with their references: one line for each that differs, with its worst element.

    NaN agrees with NaN only, an infinity with itself only.
    """
    lines = []
    for name, reference in case.expected().items():
        result = np.asarray(on_host(case.results[name]), np.float64)
        reference = np.asarray(reference, np.float64)
        if result.shape != reference.shape:
            lines.append(f"{name} has shape {result.shape}, expected {reference.shape}")
            continue
        with np.errstate(invalid="ignore"):
            allowed = case.tolerance.absolute + case.tolerance.relative * np.abs(reference)
            error = np.abs(result - reference)
            same = (result == reference) | (np.isnan(result) & np.isnan(reference))
            agrees = same | (np.isfinite(reference) & (error <= allowed))
            excess = np.where(agrees, -1.0, np.nan_to_num(error - allowed, nan=np.inf))
        if not agrees.all():
            worst = np.unravel_index(int(np.argmax(excess)), result.shape)
            place = "".join(f"[{int(i)}]" for i in worst)
            lines.append(
                f"{name}{place} is {result[worst]:.9g}, expected {reference[worst]:.9g} ± {allowed[worst]:.2g}; "
                f"{int((~agrees).sum())} of {result.size} elements are wrong"
            )
    return lines
