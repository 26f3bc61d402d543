"""Declare matrix products: ours, the array library's, those of eight bits, and those with four-bit weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from pytest_bandwidth.domain.errors import NotOnThisDevice
from pytest_bandwidth.domain.traffic import bytes_per_element, tiles
from pytest_bandwidth.suite import traffic_models as traffic
from pytest_bandwidth.suite.operations import references
from pytest_bandwidth.suite.operations.model import (
    EXACT,
    FLOATS,
    ON_TENSOR_CORES,
    ROUNDING,
    SUFFIX,
    WIDE_SUFFIX,
    WITHOUT_TWIN,
    Arrays,
    Case,
    KernelStep,
    Operation,
    Tolerance,
    case_of,
    centred,
    launch,
    line,
    one_launch,
    processors,
    rounding,
    sizes_of,
    suffix_of,
    tiled,
    vector_shapes,
    versions,
    with_bfloat16,
)

GEMM_TILE = {"naive": (8, 32), "tiled": (32, 32), "blocked": (64, 64), "pipelined": (128, 128), "split-k": (128, 128)}
GEMM_BLOCK = {"naive": (32, 8), "tiled": (32, 8), "blocked": (16, 16), "pipelined": (16, 16), "split-k": (16, 16)}
GEMM_ASKS_PER_TILE = {"naive": 1, "tiled": 32, "blocked": 64, "pipelined": 128, "split-k": 128}
# One token, two prefills and a feed-forward layer of a small language model, and a square one.
INFERENCE = sizes_of("m n k", (1, 896, 896), (32, 896, 896), (128, 896, 896), (128, 4864, 896))
SQUARE = sizes_of("m n k", (2048, 2048, 2048))
# Past a tile of each version, with rows of whole 16 bytes and without; two and more steps of a pipeline.
SMALL_PIPELINED = sizes_of("m n k", (129, 136, 72), (130, 65, 47))
SMALL_GEMM = sizes_of("m n k", (0, 3, 3), (3, 0, 3), (3, 3, 0), (1, 1, 1), (33, 31, 35), (65, 70, 17), (1, 96, 64))
# Two or more parts of k. The last one has a single column, or one step of the pipeline.
SMALL_SPLIT = sizes_of("m n k", (1, 8, 129), (130, 65, 193), (129, 136, 296))
# The same, where an element of A or B is a byte.
SMALL_INT8 = sizes_of("m n k", (129, 144, 208), (130, 65, 143))
SPLIT_STEP = 32  # columns of A; as in gemm.cu
WARP = 32
ROWS_TOGETHER = {"gemv": 1, "gemm": 8}
GEMV_SHAPES, GEMM_SHAPES = (
    sizes_of("m n k", *((m, n, k) for m in rows for n, k in ((4864, 896), (8192, 8192)))) for rows in ((1,), (8, 32))
)
# Rows and columns of Y that a block of the planar product computes with one reading of W and of X.
PLANAR_TILE = {"gemv": (1, 32), "gemm": (32, 64)}
# Threads that unpack a block together: one per byte of nibbles, or one per two.
DEQUANTIZE_THREADS, PRODUCT_THREADS = 16, 8


def product_tolerance(k: int, dtype: str) -> Tolerance:
    """Allow for rounding in Σ of k products of numbers below 0.5: each addition rounds a sum below k/4."""
    return rounding(dtype, absolute=max(k, 1) * ROUNDING["float32"])


def _gemm(version: str) -> Operation:
    def make(arrays: Arrays, dtype: str, m: int, n: int, k: int) -> Case:
        inputs, c = (centred(arrays, (m, k), dtype), centred(arrays, (k, n), dtype)), arrays.empty((m, n), dtype)
        geometry = tiled(m, n, GEMM_TILE[version], GEMM_BLOCK[version])
        moved = traffic.gemm(m, n, k, dtype, tile=GEMM_ASKS_PER_TILE[version])
        name, tolerance = f"gemm_{version}_{SUFFIX[dtype]}", product_tolerance(k, dtype)
        return one_launch("gemm.cu", name, geometry, {"c": c}, inputs, (m, n, k), moved, references.gemm, tolerance)

    best, shapes = version == "pipelined", INFERENCE + SQUARE
    small, computes = (SMALL_GEMM + SMALL_PIPELINED, ON_TENSOR_CORES) if best else (SMALL_GEMM, {})
    return Operation("gemm", version, FLOATS, make, lambda *_: shapes, small, computes=computes)


def split_depth(m: int, n: int, k: int, processor_count: int) -> int:
    """Return how many columns of A a block of the split product walks: few enough for a block on each multiprocessor.

    At least two steps, since its pipeline loads two at a time.
    """
    rows, columns = GEMM_TILE["split-k"]
    count = max(tiles(m, rows) * tiles(n, columns), 1)
    steps = max(tiles(k, SPLIT_STEP), 1)
    return tiles(steps, max(min(processor_count // count, steps // 2), 1)) * SPLIT_STEP


def _gemm_split_k() -> Operation:
    def make(arrays: Arrays, dtype: str, m: int, n: int, k: int) -> Case:
        suffix = SUFFIX[dtype]
        a, b, c = centred(arrays, (m, k), dtype), centred(arrays, (k, n), dtype), arrays.empty((m, n), dtype)
        splits = max(tiles(k, split_depth(m, n, k, processors(arrays))), 1)
        sums = arrays.empty((splits, m, n), "float32")
        geometry = tiled(m, n, GEMM_TILE["split-k"], GEMM_BLOCK["split-k"], layers=splits)
        to_combine = line(tiles(m * n, 4))
        steps = (
            launch("gemm.cu", f"gemm_split_k_{suffix}", geometry, (sums, a, b, m, n, k, splits), (a, b), (sums,)),
            launch("gemm.cu", f"gemm_split_k_combine_{suffix}", to_combine, (c, sums, m, n, splits), (sums,), (c,)),
        )
        moved = traffic.gemm(m, n, k, dtype, tile=GEMM_ASKS_PER_TILE["split-k"])
        case = case_of(steps, moved, {"c": c}, (a, b), references.gemm, product_tolerance(k, dtype))
        return replace(case, between=sums.nbytes)

    small = SMALL_GEMM + SMALL_SPLIT
    return Operation("gemm", "split-k", FLOATS, make, lambda *_: INFERENCE, small, WITHOUT_TWIN, ON_TENSOR_CORES)


def _library_gemm(dtypes: tuple[str, ...], *devices: str) -> Operation:
    """Return the array library's product: cuBLAS (float16 on tensor cores) or the host's BLAS, which has no float16."""

    def make(arrays: Arrays, dtype: str, m: int, n: int, k: int) -> Case:
        xp = arrays.xp  # a variable for the closure, whose hash identifies the product
        try:
            xp.matmul(xp.ones((1, 1), "float32"), xp.ones((1, 1), "float32"))
        except ImportError as error:  # of cuBLAS, whose half gigabyte no extra brings
            why = str(error).partition("\n")[0]
            raise NotOnThisDevice(
                f"CuPy's matrix product needs cuBLAS, which does not load ({why}): "
                "pip install 'cuda-toolkit[cublas]==13.*' (for CUDA 12: nvidia-cublas-cu12)"
            ) from None
        a, b, c = centred(arrays, (m, k), dtype), centred(arrays, (k, n), dtype), arrays.empty((m, n), dtype)
        calls = (lambda: xp.matmul(a, b, out=c),)
        moved = traffic.formula_of("gemm", "library").at({"m": m, "n": n, "k": k}, dtype)
        tolerance = product_tolerance(k, dtype)
        return case_of(calls, moved, {"c": c}, (a, b), references.gemm, tolerance)

    small, shapes = tuple(sizes for sizes in SMALL_GEMM if all(sizes.values())), INFERENCE + SQUARE
    return Operation("gemm", "library", dtypes, make, lambda *_: shapes, small, frozenset(devices), ON_TENSOR_CORES)


def _gemm_int8(version: str) -> Operation:
    """Multiply codes of eight bits by weights whose rows are columns of the product, as a linear layer keeps them."""

    def make(arrays: Arrays, dtype: str, m: int, n: int, k: int) -> Case:
        codes = arrays.random((m, k), "int8"), arrays.random((n, k), "int8")
        scales = arrays.random(m, "float32"), arrays.random(n, "float32")
        for of_rows in scales:
            of_rows /= of_rows.dtype.type(128)
        alike = "pipelined" if version == "pipelined" else "naive"
        geometry = tiled(m, n, GEMM_TILE[alike], GEMM_BLOCK[alike])
        asked = traffic.tiles_of(m, n, GEMM_ASKS_PER_TILE[alike])
        moved = traffic.formula_of("gemm_int8", version).at({"m": m, "n": n, "k": k}, dtype, asked)
        name, inputs = f"gemm_int8_{version}_{SUFFIX[dtype]}", (*codes, *scales)
        given = (geometry, {"c": arrays.empty((m, n), dtype)}, inputs, (m, n, k), moved, references.gemm_int8)
        # The sum is exact; as a float it is rounded, and so is each product with a scale.
        return one_launch("gemm.cu", name, *given, rounding(dtype, roundings=3 if dtype == "float32" else 1))

    small = SMALL_GEMM + SMALL_INT8 if version == "pipelined" else SMALL_GEMM
    # No GPU's list of rates has whole numbers of eight bits outside of tensor cores.
    computes, shapes = dict.fromkeys((*FLOATS, "bfloat16"), "int8-tensor"), INFERENCE + SQUARE
    return Operation("gemm_int8", version, FLOATS, make, lambda *_: shapes, small, WITHOUT_TWIN, computes)


def _gemv(version: str) -> Operation:
    """Multiply one row by weights whose rows are elements of the result: a linear layer for one token."""

    def make(arrays: Arrays, dtype: str, n: int, k: int) -> Case:
        inputs, results = (centred(arrays, (n, k), dtype), centred(arrays, k, dtype)), {"y": arrays.empty(n, dtype)}
        name = f"gemv_{suffix_of(version, dtype)}"
        moved = traffic.formula_of("gemv", version).at({"n": n, "k": k}, dtype, {})
        tolerance = product_tolerance(k, dtype)

        def reference(w: Any, x: Any) -> Any:
            return references.linear(x[None], w)[0]

        return one_launch("gemv.cu", name, line(n * WARP), results, inputs, (n, k), moved, reference, tolerance)

    shapes = sizes_of("n k", *((sizes["n"], sizes["k"]) for sizes in GEMV_SHAPES))
    # Rows of whole 16 bytes and others; longer than a lane's loads at a time.
    small = sizes_of("n k", (0, 3), (3, 0), (1, 1), (9, 33), (3, 8), (2, 264), (11, 1032), (5, 2056))
    return Operation("gemv", version, FLOATS, make, lambda *_: shapes, small)


def q4_0_weights(arrays: Arrays, blocks: int) -> Any:
    """Make random Q4_0 blocks, uint8 of shape (blocks, 18): any nibbles, scales in [1/32, 1/16), weights below 0.5."""
    packed = arrays.random((blocks, 18), "uint8")
    scales = arrays.random((blocks, 1), "float16")
    scales /= scales.dtype.type(32)
    packed[:, :2] = scales.view("uint8")
    return packed


def _asked_of_blocks(threads: int) -> dict[str, int]:
    """Return the bytes of a block that are asked for where so many threads share it: each needs the scale."""
    return {"asked": 18 + 2 * (threads - 1)}


def _unpacking(out: Any, blocks: Any, n: int, dtype: str) -> KernelStep:
    geometry, name = line(tiles(n, 2)), f"q4_0_dequantize_{SUFFIX[dtype]}"
    return launch("q4_0.cu", name, geometry, (out, blocks, n), (blocks,), (out,))


def _q4_0_dequantize(version: str) -> Operation:
    def make(arrays: Arrays, dtype: str, n: int) -> Case:
        blocks, out = q4_0_weights(arrays, tiles(n, 32)), arrays.empty(n, dtype)
        # A nibble times a float16 scale is exact in float32.
        tolerance = EXACT if dtype == "float32" else rounding(dtype)
        step, threads = _unpacking(out, blocks, n, dtype), DEQUANTIZE_THREADS
        if version == "wide":
            # Each makes two times 16 bytes.
            threads = bytes_per_element(dtype)
            args, geometry = (out, blocks, n), line(tiles(n, 32) * threads)
            step = launch("q4_0.cu", f"q4_0_dequantize_{WIDE_SUFFIX[dtype]}", geometry, args, (blocks,), (out,))
        moved = traffic.formula_of("q4_0_dequantize", version).at({"n": n}, dtype, _asked_of_blocks(threads))
        reference = partial(references.q4_0_dequantize, n=n)
        return case_of((step,), moved, {"out": out}, (blocks,), reference, tolerance)

    shapes = vector_shapes(lambda dtype: 18 / 32 + bytes_per_element(dtype))
    return Operation("q4_0_dequantize", version, FLOATS, make, shapes, sizes_of("n", 0, 1, 31, 32, 33, 1000))


def _q4_0_product(shape: str, *, fused: bool) -> Operation:
    formula = traffic.formula_of(f"q4_0_{shape}", "fused" if fused else "separate")

    def make(arrays: Arrays, dtype: str, m: int, n: int, k: int) -> Case:
        suffix = SUFFIX[dtype]
        asked = {"passes": tiles(m, ROWS_TOGETHER[shape]), "readings": n}
        asked |= _asked_of_blocks(PRODUCT_THREADS if fused else DEQUANTIZE_THREADS)
        moved = formula.at({"m": m, "n": n, "k": k}, dtype, asked)
        blocks, x = q4_0_weights(arrays, n * k // 32), centred(arrays, (m, k), dtype)
        y, geometry = arrays.empty((m, n), dtype), line(n * WARP)
        steps: Sequence[KernelStep]
        if fused:
            name, args = f"q4_0_{shape}_{suffix}", (y, x, blocks, m, n, k)
            steps = (launch("q4_0.cu", name, geometry, args, (x, blocks), (y,)),)
        else:
            w = arrays.empty((n, k), dtype)
            name, args = f"linear_{shape}_{suffix}", (y, x, w, m, n, k)
            product = launch("q4_0.cu", name, geometry, args, (x, w), (y,))
            steps = (_unpacking(w, blocks, n * k, dtype), product)

        def reference(rows: Any, packed: Any) -> Any:
            return references.linear(rows, references.q4_0_dequantize(packed, n * k).reshape(n, k))

        # Separate, the weights (below 0.5) are rounded to dtype on their way through memory.
        unpacked = 0.0 if fused or dtype == "float32" else k * ROUNDING[dtype] * 0.25
        tolerance = rounding(dtype, absolute=k * ROUNDING["float32"] + unpacked)
        return case_of(steps, moved, {"y": y}, (x, blocks), reference, tolerance)

    shapes = {"gemv": GEMV_SHAPES, "gemm": GEMM_SHAPES}[shape]
    small_rows = {"gemv": (0, 1, 2), "gemm": (1, 8, 11)}[shape]
    of_small = ((m, n, k) for m in small_rows for n, k in ((1, 32), (9, 160)))
    small = sizes_of("m n k", *of_small, (2, 0, 32), (2, 3, 0))
    return Operation(f"q4_0_{shape}", "fused" if fused else "separate", FLOATS, make, lambda *_: shapes, small)


def _q4_0_planar(shape: str) -> Operation:
    """Multiply by weights whose nibbles and scales lie in arrays of their own: a lane loads 16 bytes of them."""
    on_tensor_cores, formula = shape == "gemm", traffic.formula_of(f"q4_0_{shape}", "planar")

    def make(arrays: Arrays, dtype: str, m: int, n: int, k: int) -> Case:
        rows, columns = PLANAR_TILE[shape]
        asked = {"passes": tiles(m, rows), "readings": tiles(n, columns), **_asked_of_blocks(1)}
        moved = formula.at({"m": m, "n": n, "k": k}, dtype, asked)
        blocks, x, y = q4_0_weights(arrays, n * k // 32), centred(arrays, (m, k), dtype), arrays.empty((m, n), dtype)
        scales, nibbles = (arrays.xp.ascontiguousarray(part) for part in (blocks[:, :2], blocks[:, 2:]))

        def reference(rows: Any, of_nibbles: Any, of_scales: Any) -> Any:
            packed = np.concatenate([of_scales, of_nibbles], axis=1)
            return references.linear(rows, references.q4_0_dequantize(packed, n * k).reshape(n, k))

        if on_tensor_cores:
            # Weights are rounded to halves, and so is X unless it has halves already (both below 0.5).
            rounded = (2 if dtype == "float32" else 1) * k * ROUNDING["float16"] * 0.25
            tolerance = rounding(dtype, absolute=k * ROUNDING["float32"] + rounded)
        else:
            # Summed up is 16 + nibble, up to 31 for 8: four times the sums, and so four times the rounding error.
            tolerance = rounding(dtype, absolute=4 * k * ROUNDING["float32"])
        count = tiles(n, columns) * (tiles(m, rows) if on_tensor_cores else 1)
        name, geometry = f"q4_0_{shape}_planar_{SUFFIX[dtype]}", line(count * 256)
        given = (name, geometry, {"y": y}, (x, nibbles, scales), (m, n, k), moved, reference, tolerance)
        return one_launch("q4_0.cu", *given)

    # Past the 128 blocks of X that lie in shared memory, or past a tile and a step, too.
    past = ((11, 9, 160), (33, 70, 1056)) if on_tensor_cores else ((1, 33, 4128),)
    small = sizes_of("m n k", (0, 1, 32), (1, 1, 32), (2, 9, 160), (2, 0, 32), (2, 3, 0), *past)
    shapes = GEMM_SHAPES if on_tensor_cores else GEMV_SHAPES
    computes = dict.fromkeys(FLOATS, "fp16-tensor") if on_tensor_cores else {}
    return Operation(f"q4_0_{shape}", "planar", FLOATS, make, lambda *_: shapes, small, computes=computes)


OPERATIONS: tuple[Operation, ...] = (
    *with_bfloat16(_gemm("pipelined")),
    *with_bfloat16(_gemm_split_k()),
    *(_gemm(version) for version in ("naive", "tiled", "blocked")),
    _library_gemm(("float32",), "cuda", "cpu"),
    _library_gemm(("float16",), "cuda"),
    *versions(_gemv, "wide", "plain"),
    *versions(_gemm_int8, "pipelined", "plain"),
    _q4_0_dequantize("wide"),
    _q4_0_dequantize("plain"),
    _q4_0_planar("gemv"),
    *(_q4_0_product("gemv", fused=fused) for fused in (True, False)),
    _q4_0_planar("gemm"),
    *(_q4_0_product("gemm", fused=fused) for fused in (True, False)),
)
