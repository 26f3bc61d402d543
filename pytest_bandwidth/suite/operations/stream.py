"""Declare streams, reductions, pointwise chains and the intensity sweep: operations on n elements in a row."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pytest_bandwidth.domain.traffic import Traffic, bytes_per_element
from pytest_bandwidth.suite import traffic_models as traffic
from pytest_bandwidth.suite.operations import references
from pytest_bandwidth.suite.operations.model import (
    ARITHMETIC,
    ROUNDING,
    SUFFIX,
    WIDE_SUFFIX,
    Arrays,
    Case,
    KernelStep,
    Operation,
    Sizes,
    Tolerance,
    ceil_div,
    centred,
    line,
    n64,
    on_host,
    rounding,
    scalar,
    vector_shapes,
)

FLOATS, ALL = ("float32", "float16"), ("float32", "float16", "float64")
SCALAR = 3.0
SMALL: tuple[Sizes, ...] = tuple({"n": n} for n in (0, 1, 3, 8, 255, 1000, 4099))


# What a thread of a wide kernel loads, of all its inputs together, before it uses the first; see cuda_src/stream.cu.
WIDE_BYTES_AHEAD = 64


def _kernel_and_threads(kernel: str, version: str, dtype: str, n: int, inputs: int = 1) -> tuple[str, int]:
    """Return the kernel's full name, and a thread per element; of the wide ones per so many as it loads ahead."""
    if version == "wide":
        return f"{kernel}_{WIDE_SUFFIX[dtype]}", ceil_div(n * bytes_per_element(dtype) * inputs, WIDE_BYTES_AHEAD)
    return f"{kernel}_{SUFFIX[dtype]}", n


# ---- streams ---------------------------------------------------------------------------------------------------------


def _map(
    kernel: str,
    version: str,
    inputs: int,
    model: Callable[[int, Any], Traffic],
    reference: Callable[..., Any],
    scalars: tuple[float, ...] = (),
) -> Operation:
    """Compute out = f(inputs…, scalars…), element by element."""

    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        n = sizes["n"]
        read = tuple(centred(arrays, n, dtype) for _ in range(inputs))
        out = arrays.empty(n, dtype)
        name, threads = _kernel_and_threads(kernel, version, dtype, n, max(inputs, 1))
        args = (out, *read, *(scalar(value, dtype) for value in scalars), n64(n))
        step = KernelStep("stream.cu", name, *line(threads), args, read, (out,))

        def expected() -> dict[str, Any]:
            return {"out": np.broadcast_to(reference(*map(on_host, read), *scalars), (n,))}

        exact = kernel in ("copy", "write")
        tolerance = Tolerance() if exact else rounding(dtype, absolute=2 * ROUNDING[ARITHMETIC[dtype]])
        return Case((step,), model(n, dtype), {"out": out}, expected, tolerance)

    shapes = vector_shapes(lambda dtype: model(1, dtype).bytes_moved)
    return Operation(kernel, version, FLOATS if version == "wide" else ALL, prepare, shapes, SMALL)


def _read(version: str) -> Operation:
    """Read n elements; the sink keeps its poison, since no sum of finite numbers is the NaN awaited."""

    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        n = sizes["n"]
        read, sink = centred(arrays, n, dtype), arrays.empty(1, ARITHMETIC[dtype])
        name, threads = _kernel_and_threads("read", version, dtype, n)
        step = KernelStep("stream.cu", name, *line(threads), (sink, read, scalar(math.nan, dtype), n64(n)), (read,), ())
        return Case((step,), traffic.read(n, dtype), {"sink": sink}, lambda: {"sink": np.full(1, np.nan)})

    shapes = vector_shapes(bytes_per_element)
    return Operation("read", version, FLOATS if version == "wide" else ALL, prepare, shapes, SMALL)


# ---- reductions ------------------------------------------------------------------------------------------------------

REDUCTION_BLOCK = 256
LARGEST_REDUCTION_GRID = 1024
ELEMENTS_PER_REDUCING_THREAD = 8


def _reduction(kernel: str, version: str, inputs: int, model: Callable[..., Traffic]) -> Operation:
    """Return a partial result per block, then one block over those."""

    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        n, arithmetic = sizes["n"], ARITHMETIC[dtype]
        read = tuple(centred(arrays, n, dtype) for _ in range(inputs))
        name, _ = _kernel_and_threads(kernel, version, dtype, n)
        wanted = ceil_div(n, REDUCTION_BLOCK * ELEMENTS_PER_REDUCING_THREAD)
        blocks = min(max(wanted, 1), LARGEST_REDUCTION_GRID)
        partials, total = arrays.empty(blocks, arithmetic), arrays.empty(1, arithmetic)
        block = (REDUCTION_BLOCK, 1, 1)
        first = KernelStep("reductions.cu", name, (blocks, 1, 1), block, (partials, *read, n64(n)), read, (partials,))
        last_args = (total, partials, n64(blocks))
        last_name = f"sum_{SUFFIX[arithmetic]}"
        last = KernelStep("reductions.cu", last_name, (1, 1, 1), block, last_args, (partials,), (total,))
        size = bytes_per_element(arithmetic)
        moved = model(n, dtype, partials=blocks, partial_dtype=arithmetic) + Traffic(blocks * size, size)

        def expected() -> dict[str, Any]:
            terms = references.wide(on_host(read[0]))
            for factor in read[1:]:
                terms = terms * references.wide(on_host(factor))
            return {"total": np.array([terms.sum()])}

        # The terms have both signs: their running sums grow with √n, and so does what rounding them loses.
        lost = ROUNDING[arithmetic] * 16 * max(math.sqrt(n), 1.0)
        return Case((first, last), moved, {"total": total}, expected, Tolerance(absolute=lost))

    shapes = vector_shapes(lambda dtype: inputs * bytes_per_element(dtype))
    return Operation(kernel, version, FLOATS if version == "wide" else ALL, prepare, shapes, SMALL)


# ---- pointwise chains ------------------------------------------------------------------------------------------------

BIAS, PROBABILITY, SEED = 0.125, 0.25, 0x5EED


def _chain(name: str, stages: tuple[tuple[str, tuple[Any, ...]], ...], fused: bool) -> Operation:
    """Return a chain of pointwise operations, one launch each or one for all. `stages`: kernel and scalars of each."""

    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        n, suffix = sizes["n"], SUFFIX[dtype]
        source = centred(arrays, n, dtype)
        every_scalar = tuple(value for _, scalars in stages for value in scalars)
        launches = [(name, every_scalar)] if fused else list(stages)
        steps, before = [], source
        for kernel, scalars in launches:
            after = arrays.empty(n, dtype)
            args = (after, before, *scalars, n64(n))
            steps.append(KernelStep("pointwise.cu", f"{kernel}_{suffix}", *line(n), args, (before,), (after,)))
            before = after

        def expected() -> dict[str, Any]:
            host = on_host(source)
            if name == "cos_cos":
                return {"out": references.cos_cos(host)}
            return {"out": references.bias_relu_dropout(host, BIAS, PROBABILITY, SEED)}

        # The hardware's cosine is good to 2^-20.9; a half that is stored between two stages costs a rounding of 1.
        between = 0.0 if fused else ROUNDING[dtype]
        # Dropout rounds its factor and its product.
        tolerance = rounding(dtype, absolute=2.0**-20 + between, roundings=len(launches) + 2)
        moved = traffic.pointwise_chain(n, len(stages), dtype, fused=fused)
        return Case(tuple(steps), moved, {"out": before}, expected, tolerance)

    # The same n fused or not: then what they take can be compared, and each of the unfused chain's intermediate results
    # is half of what the fused one moves, which no cache keeps.
    shapes = vector_shapes(lambda dtype: traffic.pointwise_chain(1, len(stages), dtype, fused=True).bytes_moved)
    return Operation(name, "fused" if fused else "unfused", FLOATS, prepare, shapes, SMALL)


_BIAS_RELU_DROPOUT = (
    ("bias", (np.float32(BIAS),)),
    ("relu", ()),
    ("dropout", (np.float32(PROBABILITY), np.uint32(SEED))),
)
_COS_COS: tuple[tuple[str, tuple[Any, ...]], ...] = (("cos", ()), ("cos", ()))

# ---- intensity sweep -------------------------------------------------------------------------------------------------

FACTOR, ADDEND = 0.9375, 0.0625
SWEEP = (1, 4, 16, 64, 256, 1024)


def _sweep(kernel: str, *, fma: bool) -> Operation:
    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        n, repeats = sizes["n"], sizes["repeats"]
        source, out = centred(arrays, n, dtype), arrays.empty(n, dtype)
        coefficients = (scalar(FACTOR, dtype), scalar(ADDEND, dtype)) if fma else (scalar(ADDEND, dtype),)
        threads = ceil_div(n, 2) if dtype == "float16" else n
        args = (out, source, *coefficients, np.int32(repeats), n64(n))
        step = KernelStep("intensity.cu", f"{kernel}_{SUFFIX[dtype]}", *line(threads), args, (source,), (out,))

        def expected() -> dict[str, Any]:
            host = on_host(source)
            if fma:
                return {"out": references.fma_chain(host, FACTOR, ADDEND, repeats)}
            return {"out": references.add_chain(host, ADDEND, repeats)}

        # The reference rounds as the kernel does, but twice (to double first), which now and then goes another way.
        tolerance = Tolerance(4 * ROUNDING[dtype], 4 * ROUNDING[dtype])
        return Case((step,), traffic.intensity_sweep(n, repeats, dtype, fma=fma), {"out": out}, expected, tolerance)

    def shapes(target_bytes: int, dtype: str) -> tuple[Sizes, ...]:
        (size,) = vector_shapes(lambda d: 2 * bytes_per_element(d))(target_bytes, dtype)
        return tuple({**size, "repeats": repeats} for repeats in SWEEP)

    small = tuple({"n": n, "repeats": repeats} for n, repeats in ((0, 1), (1, 3), (255, 0), (257, 16), (1001, 37)))
    return Operation(kernel, "fma" if fma else "add", ALL, prepare, shapes, small, computes={"float16": "fp16"})


OPERATIONS: tuple[Operation, ...] = (
    *(_read(version) for version in ("plain", "wide")),
    *(
        _map(kernel, version, inputs, model, reference, scalars)
        for kernel, inputs, model, reference, scalars in (
            ("write", 0, traffic.write, lambda value: value, (SCALAR,)),
            ("copy", 1, traffic.copy, lambda a: a, ()),
            ("scale", 1, traffic.scale, references.scale, (SCALAR,)),
            ("add", 2, traffic.add, references.add, ()),
            ("triad", 2, traffic.triad, references.triad, (SCALAR,)),
        )
        for version in ("plain", "wide")
    ),
    *(_reduction("sum", version, 1, traffic.reduce_sum) for version in ("plain", "wide")),
    *(_reduction("dot", version, 2, traffic.dot) for version in ("plain", "wide")),
    *(_chain("bias_relu_dropout", _BIAS_RELU_DROPOUT, fused) for fused in (False, True)),
    *(_chain("cos_cos", _COS_COS, fused) for fused in (False, True)),
    _sweep("intensity_fma", fma=True),
    _sweep("intensity_add", fma=False),
)
