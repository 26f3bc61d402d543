"""Declare operations on each row of a matrix: softmax, normalisations, sums, the largest, rotary embedding, 8 bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from pytest_bandwidth.domain.traffic import bytes_per_element, tiles
from pytest_bandwidth.suite.operations import references
from pytest_bandwidth.suite.operations.model import (
    FLOATS,
    ROUNDING,
    SUFFIX,
    WITHOUT_TWIN,
    Arrays,
    Case,
    Geometry,
    KernelStep,
    Operation,
    blocks,
    case_of,
    centred,
    launch,
    line,
    one_launch,
    rounding,
    shapes_by,
    shapes_of,
    sizes_of,
    suffix_of,
    versions,
)
from pytest_bandwidth.suite.traffic_models import formula_of

THREADS = 256
COLS = 4096
EPSILON = 1e-5
# The range of the inputs to exp: exp(−8 … 8) differ by a factor of nine million, so that a wrong maximum shows.
SPREAD = 16
SMALL = sizes_of("rows cols", (0, 7), (3, 0), (1, 1), (3, 33), (2, 257), (5, 1000))
STAGED_SMALL = (*SMALL, {"rows": 2, "cols": 8195})
STAGED_COLS = 8192
LOADS_OF_EACH_ELEMENT = {"naive": 3, "online": 2, "staged": 1, "registers": 1}
# Also rows of whole packs: too long for any block, held by a warp, and held by a block with several packs a thread.
REGISTERS_SMALL = (*SMALL, *sizes_of("rows cols", (1, 33000), (2, 16408), (11, 16), (3, 1024), (3, 4096)))
# The bytes that a thread of these kernels holds of its row, in all matrices that it reads; see cuda_src/softmax.cu.
HELD_BYTES, WARP, LARGEST_BLOCK = 64, 32, 1024
SMALL_OF = {"staged": STAGED_SMALL, "registers": REGISTERS_SMALL}
IN_8_BITS = shapes_by("rows", lambda dtype: (bytes_per_element(dtype) + 1) * COLS, cols=COLS)
TWO_PASSES = shapes_by("rows", lambda dtype: 2 * bytes_per_element(dtype) * COLS, cols=COLS)


def _registers(rows: int, cols: int, dtype: str, matrices: int = 1) -> tuple[Geometry, bool]:
    """Return grid and block of a kernel that keeps rows in registers, and whether it can, or takes its slower way."""
    row_bytes, held = cols * bytes_per_element(dtype), HELD_BYTES // matrices
    if row_bytes <= WARP * held:
        return blocks(tiles(rows, THREADS // WARP), THREADS), row_bytes % 16 == 0
    threads = min(tiles(row_bytes, WARP * held) * WARP, LARGEST_BLOCK)
    return blocks(rows, threads), row_bytes % 16 == 0 and row_bytes <= threads * held


def _normalised(name: str, version: str) -> Operation:
    """Normalise rows by softmax, or as a layer norm: in as many passes over a row as the version has."""
    is_softmax, formula = name == "softmax", formula_of(name, version)

    def make(arrays: Arrays, dtype: str, rows: int, cols: int) -> Case:
        shape = (rows, cols)
        geometry, loads = blocks(rows, THREADS), LOADS_OF_EACH_ELEMENT[version]
        if version == "registers":
            geometry, held = _registers(rows, cols, dtype)
            loads = loads if held else LOADS_OF_EACH_ELEMENT["online" if is_softmax else "naive"]
        inputs: tuple[Any, ...] = (centred(arrays, shape, dtype, SPREAD if is_softmax else 1),)
        scalars: tuple[Any, ...] = shape
        if is_softmax:
            reference = references.softmax
            # exp of a float at −16 has a relative error of 16 roundings, and the sum about as many again.
            tolerance = rounding(dtype, absolute=1e-7, roundings=64 if dtype == "float32" else 2)
        else:
            inputs = (*inputs, arrays.random(cols, dtype), centred(arrays, cols, dtype))
            scalars, reference = (np.float32(EPSILON), *shape), partial(references.layer_norm, epsilon=EPSILON)
            tolerance = rounding(dtype, absolute=1e-5)
        moved = formula.at({"rows": rows, "cols": cols}, dtype, {"loads": loads})
        if version == "staged":
            # The staged kernels load again the columns that do not fit the stage.
            again = (1 if is_softmax else 2) * rows * max(cols - STAGED_COLS, 0) * bytes_per_element(dtype)
            moved = replace(moved, requested_read=(moved.requested_read or 0) + again)
        file, kernel = f"{name.replace('_', '')}.cu", f"{name}_{version}_{SUFFIX[dtype]}"
        given = (geometry, {"out": arrays.empty(shape, dtype)}, inputs, scalars, moved, reference, tolerance)
        return one_launch(file, kernel, *given)

    return Operation(name, version, FLOATS, make, TWO_PASSES, SMALL_OF.get(version, SMALL))


def _rms_norm_residual(version: str) -> Operation:
    formula = formula_of("rms_norm_residual", version)

    def make(arrays: Arrays, dtype: str, rows: int, cols: int) -> Case:
        shape = (rows, cols)
        inputs = (*(centred(arrays, shape, dtype) for _ in range(2)), arrays.random(cols, dtype))
        results = {name: arrays.empty(shape, dtype) for name in ("out", "sum")}
        geometry, held = blocks(rows, THREADS), False
        if version == "registers":
            geometry, held = _registers(rows, cols, dtype, matrices=2)
        moved = formula.at({"rows": rows, "cols": cols}, dtype, {"loads": 1 if held else 2})

        reference = partial(references.rms_norm_residual, epsilon=EPSILON)
        # The kernel normalises the sum as it is stored: rounded.
        tolerance = rounding(dtype, absolute=1e-5, roundings=2)
        name, given = f"rms_norm_residual_{version}_{SUFFIX[dtype]}", (results, inputs, (np.float32(EPSILON), *shape))
        return one_launch("layernorm.cu", name, geometry, *given, moved, reference, tolerance)

    shapes = shapes_by("rows", lambda dtype: 4 * bytes_per_element(dtype) * COLS, cols=COLS)
    return Operation("rms_norm_residual", version, FLOATS, make, shapes, SMALL_OF.get(version, SMALL))


# The dtype of codes by kind of 8 bits.
CODES = {"int8": "int8", "fp8": "uint8"}


def _quantize(kind: str, version: str) -> Operation:
    formula = formula_of(f"quantize_{kind}", version)

    def make(arrays: Arrays, dtype: str, rows: int, cols: int) -> Case:
        shape = (rows, cols)
        source = centred(arrays, shape, dtype, SPREAD)
        results = {"codes": arrays.empty(shape, CODES[kind]), "scales": arrays.empty(rows, "float32")}
        geometry, held = _registers(rows, cols, dtype) if version == "registers" else (blocks(rows, THREADS), False)
        moved = formula.at({"rows": rows, "cols": cols}, dtype, {"loads": 1 if held else 2})
        name, given = f"quantize_{kind}_{version}_{SUFFIX[dtype]}", (geometry, results, (source,), shape, moved)
        return one_launch("quantize.cu", name, *given, lambda host: references.quantize_rows(host, kind))

    return Operation(f"quantize_{kind}", version, FLOATS, make, IN_8_BITS, SMALL_OF.get(version, SMALL), WITHOUT_TWIN)


MX_ELEMENTS = 32


def _quantize_mxfp8(version: str) -> Operation:
    formula = formula_of("quantize_mxfp8", version)

    def make(arrays: Arrays, dtype: str, rows: int, blocks: int) -> Case:
        shape, count = (rows, blocks * MX_ELEMENTS), rows * blocks
        source = centred(arrays, shape, dtype, SPREAD)
        results = {"codes": arrays.empty(shape, "uint8"), "scales": arrays.empty((rows, blocks), "uint8")}
        loads, threads = 2, count
        if version == "registers":
            loads, threads = 1, tiles(source.size * bytes_per_element(dtype), HELD_BYTES)
        moved = formula.at({"rows": rows, "blocks": blocks}, dtype, {"loads": loads})
        name = f"quantize_mxfp8_{version}"
        given = (line(threads), results, (source,), (count,), moved, references.quantize_mxfp8)
        return one_launch("quantize.cu", f"{name}_{SUFFIX[dtype]}", *given)

    of_row = COLS // MX_ELEMENTS
    shapes = shapes_of(formula, "rows", blocks=of_row)
    small = sizes_of("rows blocks", (0, 1), (3, 0), (1, 1), (1, 2), (3, 1), (5, 32), (7, 65))
    return Operation("quantize_mxfp8", version, FLOATS, make, shapes, small, WITHOUT_TWIN)


def _dequantize(kind: str, version: str) -> Operation:
    def make(arrays: Arrays, dtype: str, rows: int, cols: int) -> Case:
        shape = (rows, cols)
        codes, scales = arrays.random(shape, CODES[kind]), arrays.random(rows, "float32")
        if kind == "fp8":
            codes[codes % 128 == 127] = 0  # NaN would hide elements that are not written
        scales /= scales.dtype.type(448)
        geometry = blocks(rows, THREADS) if version == "plain" else _registers(rows, cols, dtype)[0]
        moved = formula_of(f"dequantize_{kind}", version).at({"rows": rows, "cols": cols}, dtype)
        results = {"out": arrays.empty(shape, dtype)}
        given = (geometry, results, (codes, scales), shape, moved, references.dequantize_rows, rounding(dtype))
        return one_launch("quantize.cu", f"dequantize_{kind}_{suffix_of(version, dtype)}", *given)

    return Operation(f"dequantize_{kind}", version, FLOATS, make, IN_8_BITS, REGISTERS_SMALL, WITHOUT_TWIN)


HEADS, HEAD = 32, 128
# The number of tokens that sampling keeps, and the size of a vocabulary.
LARGEST, VOCABULARY = 8, 32000


def _topk(version: str) -> Operation:
    formula = formula_of("topk", version)

    def make(arrays: Arrays, dtype: str, rows: int, cols: int, k: int) -> Case:
        source = centred(arrays, (rows, cols), dtype)
        results = {"values": arrays.empty((rows, k), dtype), "columns": arrays.empty((rows, k), "int32")}
        moved = formula.at({"rows": rows, "cols": cols, "k": k}, dtype, {"loads": 1 if version == "wide" else k})
        name = f"topk_{suffix_of(version, dtype)}"
        given = (blocks(rows, THREADS), results, (source,), (rows, cols, k), moved)
        return one_launch("topk.cu", name, *given, lambda host: references.topk(host, k))

    shapes = shapes_of(formula, "rows", cols=VOCABULARY, k=LARGEST)
    small = ((0, 7, 1), (3, 0, 2), (1, 1, 1), (3, 5, 8), (2, 257, 32), (5, 4104, 8), (2, 9000, 3))
    return Operation("topk", version, FLOATS, make, shapes, sizes_of("rows cols k", *small), WITHOUT_TWIN)


def _rope(version: str) -> Operation:
    formula = formula_of("rope", version)

    def make(arrays: Arrays, dtype: str, tokens: int, heads: int, d: int) -> Case:
        shape = (tokens, heads, d)
        source, out = centred(arrays, shape, dtype), arrays.empty(shape, dtype)
        # Any two numbers will do: the kernel does not know that they belong to one angle.
        angles = tuple(centred(arrays, (tokens, d // 2), "float32", spread=2) for _ in range(2))
        packs, uneven = divmod(d // 2 * bytes_per_element(dtype), 16)
        at_once = heads if version == "plain" or uneven or not packs else min(THREADS // packs, heads)
        moved = formula.at({"tokens": tokens, "heads": heads, "d": d}, dtype, {"loads": at_once})
        name, given = f"rope_{suffix_of(version, dtype)}", ({"out": out}, (source, *angles), shape)
        tolerance = rounding(dtype, absolute=2.0**-22)
        return one_launch("rope.cu", name, blocks(tokens, THREADS), *given, moved, references.rope, tolerance)

    shapes = shapes_of(formula, "tokens", heads=HEADS, d=HEAD)
    small = sizes_of("tokens heads d", (0, 1, 8), (1, 0, 8), (1, 1, 2), (3, 5, 6), (2, 3, 64), (5, 40, 128))
    return Operation("rope", version, FLOATS, make, shapes, small)


def _logsumexp(version: str) -> Operation:
    fused = version != "unfused"

    def make(arrays: Arrays, dtype: str, rows: int, cols: int) -> Case:
        source, out = centred(arrays, (rows, cols), dtype, SPREAD), arrays.empty(rows, dtype)

        def step(kernel: str, result: Any, *inputs: Any) -> KernelStep:
            args, geometry = (result, *inputs, rows, cols), blocks(rows, THREADS)
            if version == "registers":
                geometry, _ = _registers(rows, cols, dtype)
            return launch("logsumexp.cu", f"{kernel}_{SUFFIX[dtype]}", geometry, args, inputs, (result,))

        steps: Sequence[KernelStep]
        if fused:
            steps = (step(f"logsumexp_{version}", out, source),)
        else:
            top, exps = arrays.empty(rows, dtype), arrays.empty((rows, cols), dtype)
            steps = (
                step("row_max", top, source),
                step("exp_shifted", exps, source, top),
                step("row_log_sum", out, exps, top),
            )
        # Unfused, every exponential is rounded to dtype, which moves their sum, and so its logarithm, by as much.
        tolerance = rounding(dtype, absolute=4e-6 + (0.0 if fused else ROUNDING[dtype]))
        moved = formula_of("logsumexp", version).at({"rows": rows, "cols": cols}, dtype)
        return case_of(steps, moved, {"out": out}, (source,), references.logsumexp, tolerance)

    # As many rows fused or not, so that their times compare, and no cache holds the unfused version's exponentials.
    shapes = shapes_of(formula_of("logsumexp", "fused"), "rows", cols=COLS)
    return Operation("logsumexp", version, FLOATS, make, shapes, SMALL_OF.get(version, SMALL))


OPERATIONS: tuple[Operation, ...] = (
    *versions(_normalised, "registers", "staged", "online", "naive", name="softmax"),
    *versions(_normalised, "registers", "staged", "naive", name="layer_norm"),
    *versions(_rms_norm_residual, "registers", "naive"),
    *versions(_logsumexp, "registers", "fused", "unfused"),
    *versions(_rope, "wide", "plain"),
    *versions(_topk, "wide", "plain"),
    *(operation for kind in CODES for operation in versions(_quantize, "registers", "plain", kind=kind)),
    *versions(_quantize_mxfp8, "registers", "plain"),
    *(operation for kind in CODES for operation in versions(_dequantize, "wide", "plain", kind=kind)),
)
