"""Every operation by its twins on the host: its reference at any size and alignment, and nothing written beside."""

import re
from math import prod

import numpy as np
import pytest
from host_launch import SIZES, Guarded, cpu, numbers, run

from pytest_bandwidth.devices.kernel_source import shipped_folder
from pytest_bandwidth.devices.numpy_arrays import RandomSource
from pytest_bandwidth.suite.host_kernels import HOST_KERNELS
from pytest_bandwidth.suite.operations import OPERATIONS, references
from pytest_bandwidth.suite.operations.model import poison, sizes_of, wrong_results

# Beside the sizes that break kernels, those around lines of 16 and of 32 elements, and of four of them.
LENGTHS = (15, 16, 17, 64, 128, 4099)
MORE = {
    "n": sizes_of("n", *LENGTHS),
    "n stride": sizes_of("n stride", *((n, 7) for n in LENGTHS)),
    "n offset": sizes_of("n offset", *((n, 13) for n in LENGTHS)),
    "n repeats": sizes_of("n repeats", *((n, 17) for n in LENGTHS)),
    "rows cols": sizes_of("rows cols", (5, 16), (16, 16), (9, 64), (17, 100), (128, 1), (1, 128), (1, 9001)),
    "m n k": sizes_of("m n k", (4, 16, 32), (5, 17, 96), (33, 40, 64)),
    "batch heads n d": sizes_of("batch heads n d", (1, 2, 5, 16), (1, 3, 33, 40)),
}
# Each type is compiled apart. It changes how an element is loaded and stored, which operations share: of other types
# one operation of each way to loop. test_cpu_stream.py has copies of each type.
QUICK = {"triad-plain", "dot-plain", "intensity_fma-fma"}
IN_EVERY_TYPE = {
    *QUICK,
    *("read-plain", "swiglu-plain", "gather-int32", "embedding-plain", "transpose-tiled", "softmax-online"),
    *("softmax-staged", "rms_norm_residual-naive", "logsumexp-unfused", "rope-plain"),
    *("gemm-blocked", "gemv-plain", "q4_0_gemv-fused", "q4_0_gemm-planar", "q4_0_dequantize-plain"),
    *("attention-standard", "attention-flash", "kv_decode-plain"),
}
EVERY = [
    pytest.param(
        *(operation, dtype),
        id=f"{operation.title}-{dtype}",
        marks=[] if dtype == "float32" or operation.title in QUICK else [pytest.mark.slow],
    )
    for operation in OPERATIONS
    if {"traffic", "cpu"} <= operation.devices
    for dtype in operation.dtypes
    if dtype == "float32" or operation.title in IN_EVERY_TYPE
]


class Arrays:
    """Give input from the third element of a line on, and guarded output from the `offset`-th on."""

    xp = np

    def __init__(self, offset):
        self._offset = offset
        self._source = RandomSource()
        self.guarded = []

    def random(self, shape, dtype):
        values = self._source.array(shape, dtype)
        whole = cpu().empty(values.size + 3, dtype)
        whole[3:] = values.reshape(-1)
        return whole[3:].reshape(values.shape)

    def empty(self, shape, dtype):
        sizes = (shape,) if isinstance(shape, int) else shape
        self.guarded.append(Guarded(prod(sizes), dtype, self._offset))
        return self.guarded[-1].array.reshape(sizes)


@pytest.mark.parametrize(("operation", "dtype"), EVERY)
def test_an_operation_gives_its_reference(operation, dtype):
    """With output on a line's boundary, and off it."""
    for sizes in (*operation.small, *MORE.get(" ".join(operation.small[0]), ())):
        for offset in (0, 5):
            arrays = Arrays(offset)
            case = operation.prepare(arrays, dtype, sizes)
            poison(case)
            for step in case.steps:
                run(step.file, step.kernel, *step.args, blocks=step.grid[0])
            assert not wrong_results(case), (dict(sizes), offset)
            for array in arrays.guarded:
                array.check()


# ---- what no operation asks for --------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", ["i32", "i64"])
@pytest.mark.parametrize("length", [0, 1, 5000])
def test_gather_gives_zero_outside(index, length):
    x = numbers(length, np.float32)
    for n in SIZES:
        where = np.random.default_rng(n).integers(-3, length + 3, n).astype(np.int32 if index == "i32" else np.int64)
        where[:1] = np.iinfo(where.dtype).min
        out = Guarded(n, np.float32, 3)
        run("access.cu", f"gather_f32_{index}", out.array, x, where, length, n)
        inside = (where >= 0) & (where < length)
        wanted = np.zeros(n, np.float32)
        wanted[inside] = x[where[inside]]
        np.testing.assert_array_equal(out.check(), wanted)


@pytest.mark.parametrize("version", ["naive", "online", "staged"])
def test_softmax_of_rows_without_a_finite_maximum_is_nan(version):
    x = np.ones((4, 40), np.float32)
    x[0], x[1, 3], x[2, 39] = -np.inf, np.inf, np.nan
    out = np.empty_like(x)
    run("softmax.cu", f"softmax_{version}_f32", out, x, 4, 40)
    assert np.isnan(out[0]).any()
    assert np.isnan(out[1]).any()
    assert np.isnan(out[2]).all()
    np.testing.assert_allclose(out[3], 1 / 40, rtol=1e-6)


# Without rows, columns or terms, and terms that end within a line and within a block of weights.
SHAPES = ((0, 3, 2), (2, 3, 0), (1, 1, 1), (4, 16, 8), (5, 17, 33), (33, 40, 70), (1, 64, 130), (70, 5, 3))


def packed(rows, k):
    """Random blocks for `rows` rows of k weights, and the weights they stand for."""
    blocks_per_row = -(-k // 32)
    generator = np.random.default_rng(5)
    blocks = generator.integers(0, 256, (rows, blocks_per_row, 18), np.uint8)
    scales = generator.uniform(-0.2, 0.2, (rows, blocks_per_row)).astype(np.float16)
    blocks[:, :, :2] = scales[:, :, None].view(np.uint8)
    weights = references.q4_0_dequantize(blocks.reshape(-1, 18), 2 * blocks.size)
    return blocks.reshape(-1), weights.reshape(rows, blocks_per_row * 32)[:, :k]


@pytest.mark.parametrize("name", ["linear_gemv", "q4_0_gemv"])
def test_products_with_plain_and_packed_weights_of_any_depth(name):
    for m, n, k in SHAPES:
        x = numbers(m * k, np.float32, 1, offset=1)
        w = numbers(n * k, np.float32, 2, offset=3)
        given, weights = packed(n, k) if name.startswith("q4_0") else (w, w.reshape(n, k))
        out = Guarded(m * n, np.float32, 1)
        run("q4_0.cu", f"{name}_f32", out.array, x, given, m, n, k)
        wanted = references.gemm(x.reshape(m, k), weights.T)
        np.testing.assert_allclose(out.check().reshape(wanted.shape), wanted, rtol=0, atol=2e-6 * max(k, 1))


def test_heads_too_wide_give_nan_where_the_cuda_kernel_has_no_room():
    q, cache = numbers(3 * 129, np.float32), numbers(3 * 4 * 129, np.float32)
    out = np.zeros_like(q)
    run("attention.cu", "attention_flash_f32", out, q, q, q, np.float32(1), 1, 3, 129)
    assert np.isnan(out).all()
    run("kvcache.cu", "kv_decode_f32", out, q, cache, cache, np.float32(1), 1, 3, 3, 129, 4, 4)
    assert np.isnan(out).all()


@pytest.mark.parametrize("position", [3, 8, 20])
def test_append_leaves_out_what_falls_past_the_capacity(position):
    for batch, heads, tokens, d, capacity in ((2, 3, 4, 40, 10), (1, 1, 0, 8, 4), (2, 2, 5, 128, 12)):
        matrices = batch * heads
        k_new, v_new = (numbers(matrices * tokens * d, np.float32, seed) for seed in (1, 2))
        k_cache, v_cache = (Guarded(matrices * capacity * d, np.float32, 1) for _ in range(2))
        before = k_cache.array.copy()
        given = (k_cache.array, v_cache.array, k_new, v_new, position, batch, heads, tokens, d, capacity)
        run("kvcache.cu", "kv_append_f32", *given)
        fitting = max(0, min(tokens, capacity - position))
        for cache, new in ((k_cache, k_new), (v_cache, v_new)):
            wanted = before.reshape(matrices, capacity, d).copy()
            wanted[:, position : position + fitting] = new.reshape(matrices, tokens, d)[:, :fitting]
            assert cache.check().tobytes() == wanted.tobytes()


def test_decoding_ends_with_the_capacity():
    batch, query_heads, kv_heads, d, capacity = 2, 6, 2, 72, 20
    q, out = numbers(batch * query_heads * d, np.float32, 1), Guarded(batch * query_heads * d, np.float32, 1)
    k, v = (numbers(batch * kv_heads * capacity * d, np.float32, seed, offset=1) for seed in (2, 3))
    sizes = (batch, query_heads, kv_heads, d, capacity + 5, capacity)
    run("kvcache.cu", "kv_decode_f32", out.array, q, k, v, np.float32(1 / np.sqrt(d)), *sizes)
    caches = (x.reshape(batch, kv_heads, capacity, d) for x in (k, v))
    wanted = references.kv_decode(q.reshape(batch, query_heads, d), *caches, capacity)
    np.testing.assert_allclose(out.check().reshape(wanted.shape), wanted, rtol=0, atol=5e-6)


# ---- the register, against the CUDA sources that the twins are of ----------------------------------------------------


def declarations(text):
    """Name → [(type, parameter), …] of the kernels in CUDA text, without const and __restrict__."""
    found = {}
    bounds = r"(?:__launch_bounds__\([^)]*\)\s*)?"
    for name, inside in re.findall(rf'^extern "C" __global__ void {bounds}(\w+)\(([^)]*)\)\s*\{{', text, re.MULTILINE):
        words = (" ".join(re.sub(r"const |__restrict__ ?", "", p).split()) for p in inside.split(","))
        found[name] = [tuple(word.rsplit(" ", 1)) for word in words]
    return found


def test_each_twin_takes_the_arguments_of_its_kernel_and_each_operation_of_the_host_has_twins():
    declared = declarations("".join(path.read_text(encoding="utf-8") for path in shipped_folder().glob("*.cu")))
    twins = {name: [(p.cuda, p.name) for p in twin.parameters] for name, twin in HOST_KERNELS.items()}
    assert twins == {name: declared[name] for name in twins}
    steps = [s for o, dtype in (p.values for p in EVERY) for s in o.prepare(Arrays(0), dtype, o.small[-1]).steps]
    assert {step.kernel for step in steps} <= set(twins)
