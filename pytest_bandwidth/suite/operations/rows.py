"""Declare softmax, layer normalisation and log-sum-exp: operations on each row of a matrix."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pytest_bandwidth.domain.traffic import Traffic, bytes_per_element
from pytest_bandwidth.suite import traffic_models as traffic
from pytest_bandwidth.suite.operations import references
from pytest_bandwidth.suite.operations.model import (
    ROUNDING,
    SUFFIX,
    Arrays,
    Case,
    Dim,
    KernelStep,
    Operation,
    Sizes,
    centred,
    matrix_shapes,
    n64,
    on_host,
    rounding,
)

FLOATS = ("float32", "float16")
BLOCK: Dim = (256, 1, 1)
COLS = 4096
EPSILON = 1e-5
# The range of the inputs to exp: exp(−8 … 8) differ by a factor of nine million, so that a wrong maximum shows.
SPREAD = 16
SMALL: tuple[Sizes, ...] = tuple(
    {"rows": rows, "cols": cols} for rows, cols in ((0, 7), (3, 0), (1, 1), (3, 33), (2, 257), (5, 1000))
)
STAGED_SMALL: tuple[Sizes, ...] = (*SMALL, {"rows": 2, "cols": 8195})
STAGED_COLS = 8192
LOADS_OF_EACH_ELEMENT = {"naive": 3, "online": 2, "staged": 1}


def _grid(rows: int) -> Dim:
    return max(rows, 1), 1, 1


def _softmax(version: str) -> Operation:
    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        rows, cols = sizes["rows"], sizes["cols"]
        source, out = _spread(arrays, rows, cols, dtype), arrays.empty((rows, cols), dtype)
        name = f"softmax_{version}_{SUFFIX[dtype]}"
        args = (out, source, n64(rows), n64(cols))
        step = KernelStep("softmax.cu", name, _grid(rows), BLOCK, args, (source,), (out,))
        moved = traffic.softmax(rows, cols, dtype, row_reads=LOADS_OF_EACH_ELEMENT[version])
        if version == "staged":
            moved = _read_again(moved, rows, cols, dtype, times=1)
        # exp of a float at −16 has a relative error of 16 roundings, and the sum about as many again.
        tolerance = rounding(dtype, absolute=1e-7, roundings=64 if dtype == "float32" else 2)
        return Case((step,), moved, {"out": out}, lambda: {"out": references.softmax(on_host(source))}, tolerance)

    return Operation("softmax", version, FLOATS, prepare, _two_passes(), STAGED_SMALL if version == "staged" else SMALL)


def _layer_norm(version: str) -> Operation:
    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        rows, cols = sizes["rows"], sizes["cols"]
        source, out = centred(arrays, (rows, cols), dtype), arrays.empty((rows, cols), dtype)
        gamma, beta = arrays.random(cols, dtype), centred(arrays, cols, dtype)
        name = f"layer_norm_{version}_{SUFFIX[dtype]}"
        args = (out, source, gamma, beta, np.float32(EPSILON), n64(rows), n64(cols))
        step = KernelStep("layernorm.cu", name, _grid(rows), BLOCK, args, (source, gamma, beta), (out,))
        moved = traffic.layer_norm(rows, cols, dtype, row_reads=LOADS_OF_EACH_ELEMENT[version])
        if version == "staged":
            moved = _read_again(moved, rows, cols, dtype, times=2)

        def expected() -> dict[str, Any]:
            return {"out": references.layer_norm(on_host(source), on_host(gamma), on_host(beta), EPSILON)}

        return Case((step,), moved, {"out": out}, expected, rounding(dtype, absolute=1e-5))

    small = STAGED_SMALL if version == "staged" else SMALL
    return Operation("layer_norm", version, FLOATS, prepare, _two_passes(), small)


def _logsumexp(*, fused: bool) -> Operation:
    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        rows, cols, suffix = sizes["rows"], sizes["cols"], SUFFIX[dtype]
        source, out = _spread(arrays, rows, cols, dtype), arrays.empty(rows, dtype)
        shape = (n64(rows), n64(cols))

        def launch(kernel: str, args: tuple[Any, ...], reads: tuple[Any, ...], write: Any) -> KernelStep:
            return KernelStep(
                "logsumexp.cu", f"{kernel}_{suffix}", _grid(rows), BLOCK, (write, *args, *shape), reads, (write,)
            )

        if fused:
            steps: tuple[KernelStep, ...] = (launch("logsumexp_fused", (source,), (source,), out),)
        else:
            top, exps = arrays.empty(rows, dtype), arrays.empty((rows, cols), dtype)
            steps = (
                launch("row_max", (source,), (source,), top),
                launch("exp_shifted", (source, top), (source, top), exps),
                launch("row_log_sum", (exps, top), (exps, top), out),
            )
        moved: Traffic = traffic.logsumexp(rows, cols, dtype, fused=fused, max_pass=not fused)
        # Unfused, every exponential is rounded to dtype, which moves their sum, and so its logarithm, by as much.
        tolerance = rounding(dtype, absolute=4e-6 + (0.0 if fused else ROUNDING[dtype]))
        return Case(steps, moved, {"out": out}, lambda: {"out": references.logsumexp(on_host(source))}, tolerance)

    # As many rows fused or not: then what they take can be compared, and no cache keeps the unfused one's exponentials.
    shapes = matrix_shapes(COLS, lambda dtype: traffic.logsumexp(1, COLS, dtype, fused=True).bytes_moved / COLS)
    return Operation("logsumexp", "fused" if fused else "unfused", FLOATS, prepare, shapes, SMALL)


def _read_again(moved: Traffic, rows: int, cols: int, dtype: str, times: int) -> Traffic:
    """Return what the staged kernels ask for once more: the columns that do not fit the stage."""
    again = times * rows * max(cols - STAGED_COLS, 0) * bytes_per_element(dtype)
    return replace(moved, requested_read=(moved.requested_read or 0) + again)


def _spread(arrays: Arrays, rows: int, cols: int, dtype: str) -> Any:
    values = centred(arrays, (rows, cols), dtype)
    values *= values.dtype.type(SPREAD)
    return values


def _two_passes() -> Any:
    return matrix_shapes(COLS, lambda dtype: 2 * bytes_per_element(dtype))


OPERATIONS: tuple[Operation, ...] = (
    *(_softmax(version) for version in ("naive", "online", "staged")),
    *(_layer_norm(version) for version in ("naive", "staged")),
    _logsumexp(fused=True),
    _logsumexp(fused=False),
)
