"""Describe an operation of the suite as data: its launches, its traffic, and its expected results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.traffic import Traffic, tiles
from pytest_bandwidth.suite.traffic_models import Formula

Sizes = Mapping[str, int]
Dim = tuple[int, int, int]
# Grid and block.
Geometry = tuple[Dim, Dim]
# They run kernels: from CUDA source, its PTX, or a twin on the host.
RUN_KERNELS: frozenset[str] = frozenset({"cuda", "cpu", "traffic"})
# Without a twin on the host: what differs on a GPU only, and what arithmetic bounds there.
WITHOUT_TWIN = RUN_KERNELS - {"cpu"}


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

    reads, writes: the arrays that the launch reads and writes, every byte once, for a model of this launch alone.
    """

    file: str
    kernel: str
    grid: Dim
    block: Dim
    args: tuple[Any, ...]
    reads: tuple[Any, ...]
    writes: tuple[Any, ...]


Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Let a result differ from its reference by `absolute` + `relative`·|reference|."""

    relative: float = 0.0
    absolute: float = 0.0


EXACT = Tolerance()


@dataclass(frozen=True, slots=True)
class Case:
    """Hold an operation on arrays that exist: run `steps` in order, then `results` should equal `expected()`.

    steps: launches, or calls of the device's array library. traffic: of all of them together. results: the arrays that
    hold the outcome, by name. expected: computes the reference from host copies of the inputs, so that it is called
    before or after the run alike. between: bytes that a launch leaves for the next one, where `traffic` leaves them
    out: a cache may hold them, and what never reaches memory would look faster than memory is.
    """

    steps: tuple[KernelStep | Call, ...]
    traffic: Traffic
    results: Mapping[str, Any]
    expected: Callable[[], Mapping[str, NDArray[Any]]]
    tolerance: Tolerance = EXACT
    between: int = 0


@dataclass(frozen=True, slots=True)
class Operation:
    """Describe one version of one operation, for the dtypes that it exists in.

    name: the operation ("triad"); versions of one name compute the same ("plain", "wide", "fused" …).
    make: (arrays, dtype, sizes by name) → Case; see `prepare`.
    shapes: (bytes, dtype) → sizes that move about so many bytes; operations with shapes of their own ignore the bytes.
    small: sizes to check the numerics at: 0, 1, odd, and past one block or tile; an interpreter is quick with them.
    devices: kinds of device that can run it.
    computes: by dtype, the precision whose peak rate bounds it, where that is not the usual one (`precision`).
    """

    name: str
    version: str
    dtypes: tuple[str, ...]
    make: Callable[..., Case]
    shapes: Callable[[int, str], tuple[Sizes, ...]]
    small: tuple[Sizes, ...]
    devices: frozenset[str] = RUN_KERNELS
    computes: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.name}-{self.version}"

    def prepare(self, arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        """Make arrays of these sizes, and the case that runs on them. Raises UsageError for sizes that do not fit."""
        return self.make(arrays, dtype, **sizes)

    def precision(self, dtype: str) -> str:
        """Return the precision that it computes a dtype in: halves are mostly a storage format, computed in float."""
        return self.computes.get(dtype) or {"float64": "fp64"}.get(dtype, "fp32")


def with_bfloat16(operation: Operation) -> tuple[Operation, Operation]:
    """Return the operation, and its twin for bfloat16, which no kernel of the host takes."""
    return operation, replace(operation, dtypes=("bfloat16",), devices=operation.devices - {"cpu"})


def versions(make: Callable[..., Operation], best: str, *others: str, **how: Any) -> tuple[Operation, ...]:
    """Return the versions of an operation: the one to copy first, with its twin for bfloat16."""
    return (*with_bfloat16(make(version=best, **how)), *(make(version=version, **how) for version in others))


# Half the distance between neighbouring values, relative to them (IEEE 754).
ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}
# The type in which the kernels compute each type.
ARITHMETIC = {"bfloat16": "float32", "float16": "float32", "float32": "float32", "float64": "float64"}
FLOATS, ALL = ("float32", "float16"), ("float32", "float16", "float64")
# `Operation.computes` of products that use them where the GPU has them.
ON_TENSOR_CORES = {"float16": "fp16-tensor", "bfloat16": "bf16-tensor"}
SUFFIX = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "float64": "f64"}
WIDE_SUFFIX = {"bfloat16": "bf16x8", "float16": "f16x8", "float32": "f32x4"}


def suffix_of(version: str, dtype: str) -> str:
    """Return how the names of kernels with this version's loads and stores end: 16 bytes at a time, or an element."""
    return (WIDE_SUFFIX if version == "wide" else SUFFIX)[dtype]


def centred(arrays: Arrays, shape: int | Sequence[int], dtype: str, spread: int = 1) -> Any:
    """Return random values in [−spread ÷ 2, spread ÷ 2): both signs, so that a wrong sign or a missing relu shows."""
    values = arrays.random(shape, dtype)
    values -= values.dtype.type(1.5)
    if spread != 1:
        values *= values.dtype.type(spread)
    return values


def on_host(array: Any) -> NDArray[Any]:
    """Copy an array of the device into a NumPy array."""
    if not hasattr(array, "get"):
        return np.array(array)
    with on_device_of(array):
        return np.array(array.get())


def line(threads: int, block: int = 256) -> Geometry:
    """Return grid and block of at least `threads` threads in a row, one block at the least."""
    return (max(tiles(threads, block), 1), 1, 1), (block, 1, 1)


def blocks(count: int, threads: int) -> Geometry:
    """Return grid and block of so many blocks in a row, one at the least."""
    return (max(count, 1), 1, 1), (threads, 1, 1)


# A grid is at most so large along y and z (CUDA C++ Programming Guide, "Technical Specifications per Compute
# Capability"); the kernels stride over what is left.
LARGEST_GRID_YZ = 65535


def tiled(rows: int, cols: int, tile: tuple[int, int], block: tuple[int, int], layers: int = 1) -> Geometry:
    """Return grid and block: a block per tile (rows, columns) of rows × cols, x along columns, `layers` deep."""
    grid_y, grid_z = (min(max(size, 1), LARGEST_GRID_YZ) for size in (tiles(rows, tile[0]), layers))
    return (max(tiles(cols, tile[1]), 1), grid_y, grid_z), (*block, 1)


# Where there is no GPU a launch is that of an H200, so that its counts are the same on every host.
USUAL_PROCESSORS = 132


def processors(arrays: Arrays) -> int:
    """Return how many multiprocessors the GPU of the arrays has."""
    identity: DeviceIdentity | None = getattr(arrays, "identity", None)  # the fixture has one
    found = None if identity is None else identity.facts.get("sm_count")
    return found if isinstance(found, int) else USUAL_PROCESSORS


def scalar(value: float, dtype: str) -> Any:
    """Convert a floating-point argument to the type in which a kernel computes `dtype`."""
    return np.dtype(ARITHMETIC[dtype]).type(value)


def rounding(dtype: str, *, absolute: float = 0.0, roundings: int = 1) -> Tolerance:
    """Allow for storing a result in dtype, `roundings` times over, plus `absolute` for the arithmetic before it."""
    smallest_step = 2.0**-25 if dtype == "float16" else 0.0
    return Tolerance(1.01 * roundings * ROUNDING[dtype], absolute + smallest_step)


def sizes_of(names: str, *rows: int | Sequence[int]) -> tuple[Sizes, ...]:
    """Return sizes by their names, a row for each."""
    every = ([row] if isinstance(row, int) else row for row in rows)
    return tuple(dict(zip(names.split(), row, strict=True)) for row in every)


def shapes_by(name: str, bytes_per: Callable[[str], float], **others: int) -> Callable[[int, str], tuple[Sizes, ...]]:
    """Return shapes of an operation that moves bytes_per(dtype) for each of the size of that name; the others stay."""
    return lambda target_bytes, dtype: ({name: max(int(target_bytes / bytes_per(dtype)), 1), **others},)


def shapes_of(formula: Formula, name: str, **others: int) -> Callable[[int, str], tuple[Sizes, ...]]:
    """Return the same shapes, by the bytes that the formula says."""
    return shapes_by(name, lambda dtype: formula.at({name: 1, **others}, dtype).bytes_moved, **others)


def vector_shapes(bytes_per_n: Callable[[str], float]) -> Callable[[int, str], tuple[Sizes, ...]]:
    """Return shapes of an operation of one size `n`, a multiple of 1024, that moves bytes_per_n(dtype) an element."""
    return lambda target_bytes, dtype: ({"n": max(int(target_bytes / bytes_per_n(dtype)) // 1024, 1) * 1024},)


def launch(
    file: str, kernel: str, geometry: Geometry, args: Sequence[Any], reads: Sequence[Any], writes: Sequence[Any]
) -> KernelStep:
    """Return a launch; whole numbers among its arguments as the kernels take sizes, in 64 bits."""
    typed = tuple(np.int64(value) if type(value) is int else value for value in args)
    return KernelStep(file, kernel, *geometry, typed, tuple(reads), tuple(writes))


def case_of(
    steps: Sequence[KernelStep | Call],
    moved: Traffic,
    results: Mapping[str, Any],
    inputs: Sequence[Any],
    reference: Callable[..., Any],
    tolerance: Tolerance = EXACT,
) -> Case:
    """Return a case. reference: returns the expected result for the inputs; a tuple for several results."""

    def expected() -> dict[str, NDArray[Any]]:
        found = reference(*map(on_host, inputs))
        return dict(zip(results, found if isinstance(found, tuple) else (found,), strict=True))

    return Case(tuple(steps), moved, results, expected, tolerance)


def one_launch(
    file: str,
    kernel: str,
    geometry: Geometry,
    results: Mapping[str, Any],
    inputs: Sequence[Any],
    scalars: Sequence[Any],
    moved: Traffic,
    reference: Callable[..., Any],
    tolerance: Tolerance = EXACT,
    *,
    reads: Sequence[Any] | None = None,
    writes: Sequence[Any] | None = None,
) -> Case:
    """Return the case of one launch, which takes results, inputs and scalars in this order.

    reads, writes: as of `KernelStep`, where they are others than the inputs and the results.
    """
    args, outputs = (*results.values(), *inputs, *scalars), tuple(results.values())
    step = launch(
        file, kernel, geometry, args, inputs if reads is None else reads, outputs if writes is None else writes
    )
    return case_of((step,), moved, results, inputs, reference, tolerance)


# The poison of integers, which no kernel stores: int8 codes keep to both signs, 255 is a NaN of FP8, columns are −1 at
# the least.
_POISON = {"int8": -128, "uint8": 255, "int32": -(2**31)}


def poison(case: Case) -> None:
    """Fill the results with NaN or its substitute, so that elements are found which a run does not write."""
    for array in case.results.values():
        with on_device_of(array):
            array.fill(_POISON.get(str(array.dtype), np.nan))


def poisoned(xp: Any, array: Any) -> Any:
    """Return which elements of an array of xp are poison, or NaN."""
    value = _POISON.get(str(array.dtype))
    return xp.isnan(array) if value is None else array == value


def on_device_of(array: Any) -> AbstractContextManager[object]:
    """Make an array's GPU the current one inside a with block; otherwise CuPy's own work may run on another GPU."""
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
