"""Declare matrix products: ours, the array library's, and those with four-bit weights."""

from __future__ import annotations

from typing import Any

from pytest_bandwidth.domain.errors import NotOnThisDevice
from pytest_bandwidth.domain.traffic import bytes_per_element
from pytest_bandwidth.suite import traffic_models as traffic
from pytest_bandwidth.suite.operations import references
from pytest_bandwidth.suite.operations.model import (
    ROUNDING,
    SUFFIX,
    Arrays,
    CallStep,
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
    tiled,
    vector_shapes,
)

FLOATS = ("float32", "float16")
GEMM_TILE = {"naive": (8, 32), "tiled": (32, 32), "blocked": (64, 64)}
GEMM_BLOCK = {"naive": (32, 8), "tiled": (32, 8), "blocked": (16, 16)}
GEMM_ASKS_PER_TILE = {"naive": 1, "tiled": 32, "blocked": 64}
# One token, two prefills and a feed-forward layer of a small language model, and a square one.
INFERENCE = (
    {"m": 1, "n": 896, "k": 896},
    {"m": 32, "n": 896, "k": 896},
    {"m": 128, "n": 896, "k": 896},
    {"m": 128, "n": 4864, "k": 896},
)
SQUARE = ({"m": 2048, "n": 2048, "k": 2048},)
SMALL_GEMM: tuple[Sizes, ...] = tuple(
    {"m": m, "n": n, "k": k}
    for m, n, k in ((0, 3, 3), (3, 0, 3), (3, 3, 0), (1, 1, 1), (33, 31, 35), (65, 70, 17), (1, 96, 64))
)
WARP = 32
ROWS_TOGETHER = {"gemv": 1, "gemm": 8}
# Threads that unpack a block together: one per byte of nibbles, or one per two.
DEQUANTIZE_THREADS, PRODUCT_THREADS = 16, 8


def product_tolerance(k: int, dtype: str) -> Tolerance:
    """Allow for rounding in Σ of k products of numbers below 0.5: each addition rounds a sum below k/4."""
    return rounding(dtype, absolute=max(k, 1) * ROUNDING["float32"])


def _gemm(version: str) -> Operation:
    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        m, n, k = sizes["m"], sizes["n"], sizes["k"]
        a, b, c = centred(arrays, (m, k), dtype), centred(arrays, (k, n), dtype), arrays.empty((m, n), dtype)
        grid, block = tiled(m, n, GEMM_TILE[version], GEMM_BLOCK[version])
        args = (c, a, b, n64(m), n64(n), n64(k))
        step = KernelStep("gemm.cu", f"gemm_{version}_{SUFFIX[dtype]}", grid, block, args, (a, b), (c,))
        moved = traffic.gemm(m, n, k, dtype, tile=GEMM_ASKS_PER_TILE[version])
        expected = _expected(references.gemm, "c", a, b)
        return Case((step,), moved, {"c": c}, expected, product_tolerance(k, dtype))

    return Operation("gemm", version, FLOATS, prepare, lambda *_: INFERENCE + SQUARE, SMALL_GEMM)


def _library_gemm(dtypes: tuple[str, ...], *, on_cpu: bool) -> Operation:
    """Return the array library's product: cuBLAS (float16 on tensor cores) or the host's BLAS, which has no float16."""

    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        m, n, k = sizes["m"], sizes["n"], sizes["k"]
        _check_product(arrays.xp)
        a, b, c = centred(arrays, (m, k), dtype), centred(arrays, (k, n), dtype), arrays.empty((m, n), dtype)
        xp = arrays.xp  # by itself: it tells what the product does
        step = CallStep(lambda: xp.matmul(a, b, out=c), (a, b), (c,))
        return Case(
            (step,),
            traffic.gemm(m, n, k, dtype),
            {"c": c},
            _expected(references.gemm, "c", a, b),
            product_tolerance(k, dtype),
        )

    return Operation(
        "gemm",
        "library",
        dtypes,
        prepare,
        lambda *_: INFERENCE + SQUARE,
        tuple(sizes for sizes in SMALL_GEMM if all(sizes.values())),
        frozenset({"cuda", "cpu"}) if on_cpu else frozenset({"cuda"}),
        computes={"float16": "fp16-tensor"},
    )


def _check_product(xp: Any) -> None:
    """Raise NotOnThisDevice where CuPy finds no cuBLAS, whose half gigabyte no extra brings."""
    try:
        xp.matmul(xp.ones((1, 1), "float32"), xp.ones((1, 1), "float32"))
    except ImportError as error:
        why = str(error).partition("\n")[0]
        raise NotOnThisDevice(
            f"CuPy's matrix product needs cuBLAS, which does not load ({why}): "
            "pip install 'cuda-toolkit[cublas]==13.*' (for CUDA 12: nvidia-cublas-cu12)"
        ) from None


def q4_0_weights(arrays: Arrays, blocks: int) -> Any:
    """Make random Q4_0 blocks, uint8 of shape (blocks, 18): any nibbles, scales in [1/32, 1/16), weights below 0.5."""
    packed = arrays.random((blocks, 18), "uint8")
    scales = arrays.random((blocks, 1), "float16")
    scales /= scales.dtype.type(32)
    packed[:, :2] = scales.view("uint8")
    return packed


def _q4_0_dequantize() -> Operation:
    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        n = sizes["n"]
        blocks, out = q4_0_weights(arrays, ceil_div(n, 32)), arrays.empty(n, dtype)
        name = f"q4_0_dequantize_{SUFFIX[dtype]}"
        step = KernelStep("q4_0.cu", name, *line(ceil_div(n, 2)), (out, blocks, n64(n)), (blocks,), (out,))

        def expected() -> dict[str, Any]:
            return {"out": references.q4_0_dequantize(on_host(blocks), n)}

        # A nibble times a float16 scale is exact in float32.
        tolerance = Tolerance() if dtype == "float32" else rounding(dtype)
        moved = traffic.q4_0_dequantize(n, dtype, scale_loads=DEQUANTIZE_THREADS)
        return Case((step,), moved, {"out": out}, expected, tolerance)

    shapes = vector_shapes(lambda dtype: 18 / 32 + bytes_per_element(dtype))
    small = tuple({"n": n} for n in (0, 1, 31, 32, 33, 1000))
    return Operation("q4_0_dequantize", "plain", FLOATS, prepare, shapes, small)


def _q4_0_product(shape: str, *, fused: bool) -> Operation:
    def prepare(arrays: Arrays, dtype: str, sizes: Sizes) -> Case:
        m, n, k, suffix = sizes["m"], sizes["n"], sizes["k"], SUFFIX[dtype]
        model, loads = (traffic.q4_0_fused, PRODUCT_THREADS) if fused else (traffic.q4_0_separate, DEQUANTIZE_THREADS)
        moved = model(m, n, k, dtype, rows_together=ROWS_TOGETHER[shape], scale_loads=loads)
        blocks, x = q4_0_weights(arrays, n * k // 32), centred(arrays, (m, k), dtype)
        y = arrays.empty((m, n), dtype)
        geometry, extents = line(n * WARP), (n64(m), n64(n), n64(k))
        steps: tuple[KernelStep, ...]
        if fused:
            args = (y, x, blocks, *extents)
            steps = (KernelStep("q4_0.cu", f"q4_0_{shape}_{suffix}", *geometry, args, (x, blocks), (y,)),)
        else:
            w = arrays.empty((n, k), dtype)
            unpack, unpack_args = f"q4_0_dequantize_{suffix}", (w, blocks, n64(n * k))
            args = (y, x, w, *extents)
            steps = (
                KernelStep("q4_0.cu", unpack, *line(ceil_div(n * k, 2)), unpack_args, (blocks,), (w,)),
                KernelStep("q4_0.cu", f"linear_{shape}_{suffix}", *geometry, args, (x, w), (y,)),
            )

        def expected() -> dict[str, Any]:
            weights = references.q4_0_dequantize(on_host(blocks), n * k).reshape(n, k)
            return {"y": references.linear(on_host(x), weights)}

        # Separate, the weights (below 0.5) are rounded to dtype on their way through memory.
        unpacked = 0.0 if fused or dtype == "float32" else k * ROUNDING[dtype] * 0.25
        tolerance = rounding(dtype, absolute=k * ROUNDING["float32"] + unpacked)
        return Case(steps, moved, {"y": y}, expected, tolerance)

    rows = {"gemv": (1,), "gemm": (8, 32)}[shape]
    shapes: tuple[Sizes, ...] = tuple({"m": m, "n": n, "k": k} for m in rows for n, k in ((4864, 896), (8192, 8192)))
    small_rows = {"gemv": (0, 1, 2), "gemm": (1, 8, 11)}[shape]
    small = tuple({"m": m, "n": n, "k": k} for m in small_rows for n, k in ((1, 32), (9, 160)))
    return Operation(
        f"q4_0_{shape}", "fused" if fused else "separate", FLOATS, prepare, lambda *_: shapes, (*small, *_EMPTY)
    )


_EMPTY: tuple[Sizes, ...] = ({"m": 2, "n": 0, "k": 32}, {"m": 2, "n": 3, "k": 0})


def _expected(reference: Any, name: str, *inputs: Any) -> Any:
    return lambda: {name: reference(*map(on_host, inputs))}


OPERATIONS: tuple[Operation, ...] = (
    *(_gemm(version) for version in ("naive", "tiled", "blocked")),
    _library_gemm(("float32",), on_cpu=True),
    _library_gemm(("float16",), on_cpu=False),
    _q4_0_dequantize(),
    *(_q4_0_product(shape, fused=fused) for shape in ("gemv", "gemm") for fused in (True, False)),
)
