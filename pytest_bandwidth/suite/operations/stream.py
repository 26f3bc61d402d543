"""Declare streams, reductions, pointwise chains and the intensity sweep: operations on n elements in a row."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np

from pytest_bandwidth.domain.traffic import Traffic, bytes_per_element, tiles
from pytest_bandwidth.suite.operations import references
from pytest_bandwidth.suite.operations.model import (
    ALL,
    ARITHMETIC,
    EXACT,
    FLOATS,
    ROUNDING,
    SUFFIX,
    WIDE_SUFFIX,
    Arrays,
    Case,
    Operation,
    Sizes,
    Tolerance,
    blocks,
    case_of,
    centred,
    launch,
    line,
    one_launch,
    rounding,
    scalar,
    sizes_of,
    vector_shapes,
    versions,
)
from pytest_bandwidth.suite.traffic_models import formula_of

SCALAR = 3.0
SMALL = sizes_of("n", 0, 1, 3, 8, 255, 1000, 4099)


# The bytes that a thread of a wide kernel loads from all inputs before it uses the first; see cuda_src/stream.cu.
WIDE_BYTES_AHEAD = 64


def _kernel_and_threads(kernel: str, version: str, dtype: str, n: int, inputs: int = 1) -> tuple[str, int]:
    """Return the kernel's full name and its threads: one per element, or per WIDE_BYTES_AHEAD for a wide kernel."""
    if version == "wide":
        return f"{kernel}_{WIDE_SUFFIX[dtype]}", tiles(n * bytes_per_element(dtype) * inputs, WIDE_BYTES_AHEAD)
    return f"{kernel}_{SUFFIX[dtype]}", n


# ---- streams ---------------------------------------------------------------------------------------------------------


def _map(
    kernel: str,
    inputs: int,
    reference: Callable[..., Any],
    scalars: tuple[float, ...],
    version: str,
) -> Operation:
    """Compute out = f(inputs…, scalars…), element by element."""
    formula = formula_of(kernel, version)

    def make(arrays: Arrays, dtype: str, n: int) -> Case:
        read, results = tuple(centred(arrays, n, dtype) for _ in range(inputs)), {"out": arrays.empty(n, dtype)}
        name, threads = _kernel_and_threads(kernel, version, dtype, n, max(inputs, 1))
        more = (*(scalar(value, dtype) for value in scalars), n)

        def expected(*hosts: Any) -> Any:
            return np.broadcast_to(reference(*map(references.wide, hosts), *scalars), (n,))

        exact = kernel in ("copy", "write")
        tolerance = EXACT if exact else rounding(dtype, absolute=2 * ROUNDING[ARITHMETIC[dtype]])
        moved = formula.at({"n": n}, dtype)
        return one_launch("stream.cu", name, line(threads), results, read, more, moved, expected, tolerance)

    shapes = vector_shapes(lambda dtype: formula.at({"n": 1}, dtype).bytes_moved)
    return Operation(kernel, version, FLOATS if version == "wide" else ALL, make, shapes, SMALL)


def _read(version: str) -> Operation:
    """Read n elements; the sink keeps its poison, since no sum of finite numbers is the NaN awaited."""

    def make(arrays: Arrays, dtype: str, n: int) -> Case:
        read, sink = centred(arrays, n, dtype), arrays.empty(1, ARITHMETIC[dtype])
        name, threads = _kernel_and_threads("read", version, dtype, n)
        step = launch("stream.cu", name, line(threads), (sink, read, scalar(math.nan, dtype), n), (read,), ())
        moved = formula_of("read", version).at({"n": n}, dtype)
        return case_of((step,), moved, {"sink": sink}, (), lambda: np.full(1, np.nan))

    shapes = vector_shapes(bytes_per_element)
    return Operation("read", version, FLOATS if version == "wide" else ALL, make, shapes, SMALL)


# ---- reductions ------------------------------------------------------------------------------------------------------

REDUCTION_BLOCK = 256
LARGEST_REDUCTION_GRID = 1024
ELEMENTS_PER_REDUCING_THREAD = 8


def _sum_of_products(*hosts: Any) -> Any:
    return np.array([reduce(np.multiply, map(references.wide, hosts)).sum()])


def _reduction(kernel: str, inputs: int, version: str) -> Operation:
    """Return a partial result per block, then one block over those."""

    def make(arrays: Arrays, dtype: str, n: int) -> Case:
        arithmetic = ARITHMETIC[dtype]
        read = tuple(centred(arrays, n, dtype) for _ in range(inputs))
        name, _ = _kernel_and_threads(kernel, version, dtype, n)
        wanted = tiles(n, REDUCTION_BLOCK * ELEMENTS_PER_REDUCING_THREAD)
        count = min(max(wanted, 1), LARGEST_REDUCTION_GRID)
        partials, total = arrays.empty(count, arithmetic), arrays.empty(1, arithmetic)
        many, one = blocks(count, REDUCTION_BLOCK), blocks(1, REDUCTION_BLOCK)
        last_name = f"sum_{SUFFIX[arithmetic]}"
        steps = (
            launch("reductions.cu", name, many, (partials, *read, n), read, (partials,)),
            launch("reductions.cu", last_name, one, (total, partials, count), (partials,), (total,)),
        )
        size = bytes_per_element(arithmetic)
        moved = formula_of(kernel, version).at({"n": n}, dtype) + Traffic(count * size, (count + 1) * size)
        # The terms have both signs: their running sums grow with √n, and so does the rounding error.
        tolerance = Tolerance(absolute=ROUNDING[arithmetic] * 16 * max(math.sqrt(n), 1.0))
        return case_of(steps, moved, {"total": total}, read, _sum_of_products, tolerance)

    shapes = vector_shapes(lambda dtype: inputs * bytes_per_element(dtype))
    return Operation(kernel, version, FLOATS if version == "wide" else ALL, make, shapes, SMALL)


# ---- pointwise chains ------------------------------------------------------------------------------------------------

BIAS, PROBABILITY, SEED = 0.125, 0.25, 0x5EED


def _chain(
    name: str, stages: tuple[tuple[str, tuple[Any, ...]], ...], reference: Callable[..., Any], version: str
) -> Operation:
    """Return a chain of pointwise operations, one launch each or one for all. `stages`: kernel and scalars of each."""
    fused, formula = version != "unfused", formula_of(name, version)

    def make(arrays: Arrays, dtype: str, n: int) -> Case:
        source = before = centred(arrays, n, dtype)
        every_scalar = tuple(value for _, scalars in stages for value in scalars)
        steps = []
        for kernel, scalars in [(name, every_scalar)] if fused else stages:
            after, (full_name, threads) = arrays.empty(n, dtype), _kernel_and_threads(kernel, version, dtype, n)
            args = (after, before, *scalars, n)
            steps.append(launch("pointwise.cu", full_name, line(threads), args, (before,), (after,)))
            before = after
        # The hardware's cosine is good to 2^-20.9; a half that is stored between two stages costs a rounding of 1.
        between = 0.0 if fused else ROUNDING[dtype]
        # Dropout rounds its factor and its product.
        tolerance = rounding(dtype, absolute=2.0**-20 + between, roundings=len(steps) + 2)
        return case_of(steps, formula.at({"n": n}, dtype), {"out": before}, (source,), reference, tolerance)

    # The same n fused or not, so that their times compare. Each intermediate result of the unfused chain is half of the
    # fused chain's bytes, too large for any cache.
    shapes = vector_shapes(lambda dtype: 2 * bytes_per_element(dtype))
    return Operation(name, version, FLOATS, make, shapes, SMALL)


_THREE = (
    ("bias", (np.float32(BIAS),)),
    ("relu", ()),
    ("dropout", (np.float32(PROBABILITY), np.uint32(SEED))),
)
_TWO: tuple[tuple[str, tuple[Any, ...]], ...] = (("cos", ()), ("cos", ()))
_of_three = partial(references.bias_relu_dropout, bias=BIAS, probability=PROBABILITY, seed=SEED)
_of_three_wide = partial(_of_three, numbers=references.uniform_of_four)
# Gates in [−8, 8): where silu bends, and where it is nearly nothing and nearly the gate.
GATE_SPREAD = 16


def _swiglu(version: str) -> Operation:
    def make(arrays: Arrays, dtype: str, n: int) -> Case:
        results = {"out": arrays.empty(n, dtype)}
        given = centred(arrays, n, dtype, GATE_SPREAD), centred(arrays, n, dtype)
        name, threads = _kernel_and_threads("swiglu", version, dtype, n, inputs=2)
        # exp of a float at −8 has a relative error of 16 roundings; the approximate division has two, the product one.
        tolerance = rounding(dtype, absolute=2.0**-24, roundings=24 if dtype == "float32" else 2)
        geometry, reference, moved = line(threads), references.swiglu, formula_of("swiglu", version).at({"n": n}, dtype)
        return one_launch("pointwise.cu", name, geometry, results, given, (n,), moved, reference, tolerance)

    shapes = vector_shapes(lambda dtype: 3 * bytes_per_element(dtype))
    return Operation("swiglu", version, FLOATS, make, shapes, SMALL)


# ---- intensity sweep -------------------------------------------------------------------------------------------------

FACTOR, ADDEND = 0.9375, 0.0625
SWEEP = (1, 4, 16, 64, 256, 1024)


def _sweep(kernel: str, version: str) -> Operation:
    fma = version != "add"

    def make(arrays: Arrays, dtype: str, n: int, repeats: int) -> Case:
        source, results = centred(arrays, n, dtype), {"out": arrays.empty(n, dtype)}
        coefficients = (scalar(FACTOR, dtype), scalar(ADDEND, dtype)) if fma else (scalar(ADDEND, dtype),)
        geometry, name = line(tiles(n, 2) if dtype == "float16" else n), f"{kernel}_{SUFFIX[dtype]}"
        if version == "wide":
            name, threads = _kernel_and_threads(kernel, version, dtype, n)
            geometry = line(threads)

        def reference(host: Any) -> Any:
            return references.fma_chain(host, FACTOR if fma else 1.0, ADDEND, repeats)

        # The reference rounds as the kernel does, but twice (to double first), which sometimes differs.
        tolerance = Tolerance(4 * ROUNDING[dtype], 4 * ROUNDING[dtype])
        moved = formula_of(kernel, version).at({"n": n, "repeats": repeats}, dtype)
        given = (results, (source,), (*coefficients, np.int32(repeats), n))
        return one_launch("intensity.cu", name, geometry, *given, moved, reference, tolerance)

    def shapes(target_bytes: int, dtype: str) -> tuple[Sizes, ...]:
        (size,) = vector_shapes(lambda d: 2 * bytes_per_element(d))(target_bytes, dtype)
        return tuple({**size, "repeats": repeats} for repeats in SWEEP)

    small = sizes_of("n repeats", (0, 1), (1, 3), (255, 0), (257, 16), (1001, 37))
    dtypes = FLOATS if version == "wide" else ALL
    return Operation(kernel, version, dtypes, make, shapes, small, computes={"float16": "fp16"})


OPERATIONS: tuple[Operation, ...] = (
    *versions(_read, "wide", "plain"),
    *(
        operation
        for kernel, inputs, reference, scalars in (
            ("write", 0, lambda value: value, (SCALAR,)),
            ("copy", 1, lambda a: a, ()),
            ("scale", 1, np.multiply, (SCALAR,)),
            ("add", 2, np.add, ()),
            ("triad", 2, lambda b, c, factor: b + factor * c, (SCALAR,)),
        )
        for operation in versions(partial(_map, kernel, inputs, reference, scalars), "wide", "plain")
        # A copy moves bfloat16 as it moves halves.
        if (kernel, operation.dtypes) != ("copy", ("bfloat16",))
    ),
    *versions(partial(_reduction, "sum", 1), "wide", "plain"),
    *versions(partial(_reduction, "dot", 2), "wide", "plain"),
    *versions(partial(_chain, "bias_relu_dropout", _THREE, _of_three_wide), "wide"),
    *(_chain("bias_relu_dropout", _THREE, _of_three, version) for version in ("fused", "unfused")),
    *versions(
        partial(_chain, "cos_cos", _TWO, lambda a: np.cos(np.cos(references.wide(a)))), "wide", "fused", "unfused"
    ),
    *versions(_swiglu, "wide", "plain"),
    *(_sweep("intensity_fma", version) for version in ("wide", "fma")),
    _sweep("intensity_add", "add"),
)
