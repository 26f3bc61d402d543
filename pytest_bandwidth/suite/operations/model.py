"""Describe an operation of the suite as data: what to launch, what it moves, and what it should give."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pytest_bandwidth.domain.traffic import Traffic

Sizes = Mapping[str, int]
Dim = tuple[int, int, int]
# They run kernels: from CUDA source, its PTX, or a twin on the host.
RUN_KERNELS: frozenset[str] = frozenset({"cuda", "cpu", "traffic"})


class Arrays(Protocol):
    """Make arrays: the `bandwidth` fixture, or anything like it."""

    @property
    def xp(self) -> Any: ...
    def random(self, shape: int | Sequence[int], dtype: Any) -> Any:
        """Make floats in [1, 2) with random mantissas, integers with all bits random."""

    def empty(self, shape: int | Sequence[int], dtype: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class KernelStep:
    """Describe one launch of a kernel of cuda_src/. `args` in the kernel's order, scalars already of its types.

    reads, writes: the arrays of which the launch reads and writes every byte once, for a model of this launch alone.
    """

    file: str
    kernel: str
    grid: Dim
    block: Dim
    args: tuple[Any, ...]
    reads: tuple[Any, ...]
    writes: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class CallStep:
    """Describe one call of the device's array library instead of a kernel; `reads` and `writes` as for a launch."""

    call: Callable[[], object]
    reads: tuple[Any, ...]
    writes: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Let a result differ from its reference by `absolute` + `relative`·|reference|."""

    relative: float = 0.0
    absolute: float = 0.0


@dataclass(frozen=True, slots=True)
class Case:
    """Hold an operation on arrays that exist: run `steps` in order, then `results` should equal `expected()`.

    traffic: of all steps together. results: the arrays that hold the outcome, by name. expected: computes the reference
    from host copies of the inputs, so that it is called before or after the run alike.
    """

    steps: tuple[KernelStep | CallStep, ...]
    traffic: Traffic
    results: Mapping[str, Any]
    expected: Callable[[], Mapping[str, NDArray[Any]]]
    tolerance: Tolerance = Tolerance()


@dataclass(frozen=True, slots=True)
class Operation:
    """Describe one version of one operation, for the dtypes that it exists in.

    name: the operation ("triad"); versions of one name compute the same ("plain", "wide", "fused" …).
    prepare: (arrays, dtype, sizes) → Case. Raises UsageError for sizes that it does not take.
    shapes: (bytes, dtype) → sizes that move about so many bytes; operations with shapes of their own ignore the bytes.
    small: sizes to check the numerics at: 0, 1, odd, and past one block or tile; an interpreter is quick with them.
    devices: kinds of device that can run it. A kernel without a twin on the host skips there by itself.
    computes: by dtype, the precision whose peak rate bounds it, where that is not the usual one (`precision`).
    """

    name: str
    version: str
    dtypes: tuple[str, ...]
    prepare: Callable[[Arrays, str, Sizes], Case]
    shapes: Callable[[int, str], tuple[Sizes, ...]]
    small: tuple[Sizes, ...]
    devices: frozenset[str] = RUN_KERNELS
    computes: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.name}-{self.version}"

    def precision(self, dtype: str) -> str:
        """Return the precision that it computes a dtype in: halves are mostly a storage format, computed in float."""
        return self.computes.get(dtype) or {"float64": "fp64", "float32": "fp32", "float16": "fp32"}[dtype]


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
