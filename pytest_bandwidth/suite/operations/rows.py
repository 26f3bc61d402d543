"""Declare softmax, layer normalisation and log-sum-exp: operations on each row of a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pytest_bandwidth.domain.traffic import Traffic, bytes_per_element
from pytest_bandwidth.suite import traffic_models as traffic
from pytest_bandwidth.suite.operations import references
from pytest_bandwidth.suite.operations.model import (
    FLOATS,
    ROUNDING,
    SUFFIX,
    Arrays,
    Case,
    KernelStep,
    Operation,
    Sizes,
    blocks,
    case_of,
    centred,
    launch,
    one_launch,
    rounding,
    shapes_by,
    sizes_of,
)

THREADS = 256
COLS = 4096
EPSILON = 1e-5
# The range of the inputs to exp: exp(−8 … 8) differ by a factor of nine million, so that a wrong maximum shows.
SPREAD = 16
SMALL = sizes_of("rows cols", (0, 7), (3, 0), (1, 1), (3, 33), (2, 257), (5, 1000))
STAGED_SMALL = (*SMALL, {"rows": 2, "cols": 8195})
STAGED_COLS = 8192
LOADS_OF_EACH_ELEMENT = {"naive": 3, "online": 2, "staged": 1}
TWO_PASSES = shapes_by("rows", lambda dtype: 2 * bytes_per_element(dtype) * COLS, cols=COLS)


def _softmax(version: str) -> Operation:
    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        rows, cols = sizes["rows"], sizes["cols"]
        source, out = centred(arrays, (rows, cols), dtype, SPREAD), arrays.empty((rows, cols), dtype)
        moved = traffic.softmax(rows, cols, dtype, row_reads=LOADS_OF_EACH_ELEMENT[version])
        if version == "staged":
            moved = _read_again(moved, rows, cols, dtype, times=1)
        # exp of a float at −16 has a relative error of 16 roundings, and the sum about as many again.
        tolerance = rounding(dtype, absolute=1e-7, roundings=64 if dtype == "float32" else 2)
        name, geometry = f"softmax_{version}_{SUFFIX[dtype]}", blocks(rows, THREADS)
        given = ({"out": out}, (source,), (rows, cols))
        return one_launch("softmax.cu", name, geometry, *given, moved, references.softmax, tolerance)

    return Operation("softmax", version, FLOATS, prepare, TWO_PASSES, STAGED_SMALL if version == "staged" else SMALL)


def _layer_norm(version: str) -> Operation:
    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        rows, cols = sizes["rows"], sizes["cols"]
        source, out = centred(arrays, (rows, cols), dtype), arrays.empty((rows, cols), dtype)
        inputs = (source, arrays.random(cols, dtype), centred(arrays, cols, dtype))
        moved = traffic.layer_norm(rows, cols, dtype, row_reads=LOADS_OF_EACH_ELEMENT[version])
        if version == "staged":
            moved = _read_again(moved, rows, cols, dtype, times=2)

        def reference(a: Any, gamma: Any, beta: Any) -> Any:
            return references.layer_norm(a, gamma, beta, EPSILON)

        name, geometry = f"layer_norm_{version}_{SUFFIX[dtype]}", blocks(rows, THREADS)
        given, tolerance = ({"out": out}, inputs, (np.float32(EPSILON), rows, cols)), rounding(dtype, absolute=1e-5)
        return one_launch("layernorm.cu", name, geometry, *given, moved, reference, tolerance)

    small = STAGED_SMALL if version == "staged" else SMALL
    return Operation("layer_norm", version, FLOATS, prepare, TWO_PASSES, small)


def _logsumexp(*, fused: bool) -> Operation:
    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        rows, cols = sizes["rows"], sizes["cols"]
        source, out = centred(arrays, (rows, cols), dtype, SPREAD), arrays.empty(rows, dtype)

        def step(kernel: str, result: Any, *inputs: Any) -> KernelStep:
            args, geometry = (result, *inputs, rows, cols), blocks(rows, THREADS)
            return launch("logsumexp.cu", f"{kernel}_{SUFFIX[dtype]}", geometry, args, inputs, (result,))

        steps: Sequence[KernelStep]
        if fused:
            steps = (step("logsumexp_fused", out, source),)
        else:
            top, exps = arrays.empty(rows, dtype), arrays.empty((rows, cols), dtype)
            steps = (
                step("row_max", top, source),
                step("exp_shifted", exps, source, top),
                step("row_log_sum", out, exps, top),
            )
        # Unfused, every exponential is rounded to dtype, which moves their sum, and so its logarithm, by as much.
        tolerance = rounding(dtype, absolute=4e-6 + (0.0 if fused else ROUNDING[dtype]))
        moved = traffic.logsumexp(rows, cols, dtype, fused=fused)
        return case_of(steps, moved, {"out": out}, (source,), references.logsumexp, tolerance)

    # As many rows fused or not: then what they take can be compared, and no cache keeps the unfused one's exponentials.
    shapes = shapes_by("rows", lambda dtype: traffic.logsumexp(1, COLS, dtype, fused=True).bytes_moved, cols=COLS)
    return Operation("logsumexp", "fused" if fused else "unfused", FLOATS, prepare, shapes, SMALL)


def _read_again(moved: Traffic, rows: int, cols: int, dtype: str, times: int) -> Traffic:
    """Return what the staged kernels ask for once more: the columns that do not fit the stage."""
    again = times * rows * max(cols - STAGED_COLS, 0) * bytes_per_element(dtype)
    return replace(moved, requested_read=(moved.requested_read or 0) + again)


OPERATIONS: tuple[Operation, ...] = (
    *(_softmax(version) for version in ("naive", "online", "staged")),
    *(_layer_norm(version) for version in ("naive", "staged")),
    _logsumexp(fused=True),
    _logsumexp(fused=False),
)
